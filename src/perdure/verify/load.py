"""Loads runs for the rules, each from a consistent read, even while workers continue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec

from perdure.diagnostics import Code, Finding, declare
from perdure.errors import DefinitionCorrupt, StoreError
from perdure.model.event import StoredEvent
from perdure.model.graph import Graph
from perdure.model.ids import JobId
from perdure.model.job import Job
from perdure.model.run import LoadedRun, Run, RunState, Snapshot, Wait, WaitFilter, WaitType
from perdure.model.worker import is_live
from perdure.store.contract import EventsAfter, Store
from perdure.store.contract.audit import AuditedJob
from perdure.verify.finding import GRACE, VerifySettings, contradiction
from perdure.verify.redecide import LogValues, Redecided, Redeciding
from perdure.verify.replay import Replay, replayed

TRIES = 10
"""How often to reread a run that changes meanwhile; after that, only its log is checked."""
AT_ONCE = 8
"""Runs whose jobs and waits are read concurrently, since reads are bound by latency."""
LEASES_UNSEEN = 2
"""A worker without a heartbeat for this many leases is considered dead."""


NOT_STORED = "is not stored"


class AuditedRun:
    """A run with everything that a rule may check."""

    def __init__(
        self,
        run: Run,
        events: list[StoredEvent],
        replay: Replay,
        settings: VerifySettings,
    ) -> None:
        self.run = run
        self.events = events
        self.replay = replay
        self.settings = settings
        self.snapshot: Snapshot | None = None
        self.tail: list[StoredEvent] = []
        """Events after the snapshot, loaded together with it."""
        self.graphs: dict[str, Graph] = {}
        """Graphs of all versions that the run has had."""
        self.definition_faults: dict[str, str] = {}
        """By version: why its definition is unusable."""
        self.now = run.updated_at
        self.grace: timedelta | None = None
        """How late due work may be; None if no worker is alive."""
        self.jobs: list[Job] | None = None
        """None if the run has ended, kept changing while it was read, or cannot be folded."""
        self.waits: list[Wait] = []
        self.details: Mapping[JobId, AuditedJob] | None = None
        """Stored columns of its jobs; None if the store cannot be audited."""
        self.suspended: frozenset[str] | None = None
        """Keys of suspended waits; None if the store cannot be audited."""
        self.children: dict[str, Run | None] = {}
        """Child runs that it waits for."""
        self.parent: Run | None = None
        self.awaited_by_parent = True
        """Whether its parent has a wait for it."""

    @property
    def state(self) -> RunState:
        return self.replay.state

    @cached_property
    def redecided(self) -> Redecided:
        """The result of deciding its log again; computed once everything else is loaded."""
        values = LogValues(self.events, self.settings.codec)
        return Redeciding(self.run.id, self.replay, self.graphs, values).redecided()

    def finding(self, invariant: str, code: Code, *numbers: int, **args: Any) -> Finding:
        namespace, run = self.run.namespace, self.run.id
        return contradiction(invariant, code, namespace=namespace, run=run, events=numbers, **args)

    def late_by(self, due_at: datetime | None) -> timedelta | None:
        return late_by(due_at, self.now, self.grace)

    def value_of(self, event: StoredEvent) -> bytes:
        """The decoded value of an event, or None."""
        return decoded(event.value, self.settings)


def late_by(due_at: datetime | None, now: datetime, grace: timedelta | None) -> timedelta | None:
    """How far it exceeds the allowed lateness; None if it does not."""
    if grace is None or due_at is None or now - due_at <= grace:
        return None
    return now - due_at


def decoded(value: bytes | None, settings: VerifySettings) -> bytes:
    """A stored value as JSON; None if there is none or it cannot be decoded."""
    try:
        return b"" if value is None else settings.codec.decode(value)
    except Exception:  # a codec may raise anything
        return b""


def is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


class Loader:
    """Loads the runs of one verification."""

    def __init__(self, store: Store, settings: VerifySettings) -> None:
        self._store = store
        self._settings = settings
        self._graphs: dict[tuple[str, str, str], Graph | str] = {}
        self._has_workers: dict[str, bool] = {}

    async def grace_in(self, namespace: str) -> timedelta | None:
        """How late due work may be; None if no worker is alive."""
        if self._settings.grace is not None:
            return self._settings.grace
        if namespace not in self._has_workers:
            now = await self._store.now()
            workers = await self._store.queries.workers(namespace)
            self._has_workers[namespace] = any(
                is_live(each, now, leases=LEASES_UNSEEN) for each in workers
            )
        return GRACE if self._has_workers[namespace] else None

    async def views(self, runs: Sequence[Run]) -> tuple[list[AuditedRun], list[Finding]]:
        """These runs, except those pruned meanwhile."""
        loaded, faults = await self._load(runs, number=0)
        with_snapshots, more = await self._load(
            [found.run for found in loaded if found is not None], number=None
        )
        snapshots = {
            (each.run.namespace, each.run.id): each for each in with_snapshots if each is not None
        }
        room = asyncio.Semaphore(AT_ONCE)

        async def view(found: LoadedRun) -> AuditedRun | Finding:
            run = found.run
            async with room:
                try:
                    return await self._view(found, snapshots.get((run.namespace, run.id)))
                except StoreError:
                    raise  # not a fault of the run
                except Exception as error:
                    return _unreadable(run, error)

        seen = await asyncio.gather(*(view(found) for found in loaded if found is not None))
        views = [each for each in seen if isinstance(each, AuditedRun)]
        return views, [*faults, *more, *(each for each in seen if isinstance(each, Finding))]

    async def _load(
        self, runs: Sequence[Run], number: int | None
    ) -> tuple[list[LoadedRun | None], list[Finding]]:
        asked = [EventsAfter(namespace=run.namespace, id=run.id, number=number) for run in runs]
        try:
            return await self._store.runs.load(asked), []
        except Exception as error:  # a store may raise anything on corrupt rows
            if len(runs) == 1:
                return [None], [_unreadable(runs[0], error)]
        found: list[LoadedRun | None] = []
        faults: list[Finding] = []
        for run in runs:
            one, more = await self._load([run], number)
            found += one
            faults += more
        return found, faults

    async def _view(self, loaded: LoadedRun, latest: LoadedRun | None) -> AuditedRun:
        view = self._made(loaded)
        if latest is not None and latest.run.created_at == loaded.run.created_at:
            view.snapshot, view.tail = latest.snapshot, latest.events
        for _ in range(TRIES):
            if view.run.finished_at is not None and view.state.is_ended:
                break  # rows left by an ended run are found by other checks
            if await self._add_live(view):
                break
            [again] = await self._store.runs.load(
                [EventsAfter(namespace=view.run.namespace, id=view.run.id, number=0)]
            )
            if again is None:
                break
            snapshot, tail = view.snapshot, view.tail
            view = self._made(again)
            view.snapshot, view.tail = snapshot, tail
        await self._add_graphs(view)
        await self._add_parent(view)
        return view

    async def leftovers(self, run: Run) -> AuditedRun | None:
        """An ended run with its remaining rows; None if it changed meanwhile."""
        [loaded] = await self._store.runs.load(
            [EventsAfter(namespace=run.namespace, id=run.id, number=0)]
        )
        if loaded is None:
            return None
        view = self._made(loaded)
        return view if await self._add_live(view) else None

    def _made(self, loaded: LoadedRun) -> AuditedRun:
        replay = replayed(loaded.run.id, loaded.events)
        return AuditedRun(loaded.run, loaded.events, replay, self._settings)

    async def _add_live(self, view: AuditedRun) -> bool:
        """Add jobs and waits; False if the run changed while they were read."""
        run = view.run
        jobs = await self._store.queries.run_jobs(run.namespace, run.id)
        view.waits = await self._store.queries.run_waits(run.namespace, run.id)
        if (audit := self._store.audit) is not None:
            view.details = await audit.jobs_of_run(run.namespace, run.id)
            view.suspended = await audit.suspended_waits(run.namespace, run.id)
        names = {wait.name for wait in view.waits if wait.type is WaitType.CHILD}
        asked = [(run.namespace, type(run.id)(name)) for name in sorted(names)]
        children = await self._store.queries.get_runs(asked) if asked else []
        view.children = dict(zip(sorted(names), children, strict=True))
        view.now = await self._store.now()
        view.grace = await self.grace_in(run.namespace)
        [after] = await self._store.queries.get_runs([(run.namespace, run.id)])
        if after is None or (after.number, after.created_at) != (run.number, run.created_at):
            return False
        if not view.replay.fault:  # otherwise the expected rows are unknown
            view.jobs = jobs
        return True

    async def _add_graphs(self, view: AuditedRun) -> None:
        states: list[RunState] = [step.after for step in view.replay.steps]
        versions = {state.version: state.flow for state in states if state.version}
        for version, flow in versions.items():
            graph = await self._graph(view.run.namespace, flow, version)
            if isinstance(graph, Graph):
                view.graphs[version] = graph
            else:
                view.definition_faults[version] = graph

    async def _graph(self, namespace: str, flow: str, version: str) -> Graph | str:
        """The graph of a version, or why there is none."""
        place = (namespace, flow, version)
        if place not in self._graphs:
            data = await self._store.runs.get_definition(namespace, flow, version)
            self._graphs[place] = NOT_STORED if data is None else _parsed(data, f"{flow}@{version}")
        return self._graphs[place]

    async def _add_parent(self, view: AuditedRun) -> None:
        run = view.run
        if run.parent is None:
            return
        [view.parent] = await self._store.queries.get_runs([(run.namespace, run.parent.run)])
        if run.finished_at is not None or view.jobs is None:
            return
        mine = WaitFilter(
            namespace=run.namespace, run=run.parent.run, type=WaitType.CHILD, name=run.id
        )
        view.awaited_by_parent = bool(await self._store.queries.list_waits(mine, 1))
        if view.awaited_by_parent:
            return
        [after] = await self._store.queries.get_runs([(run.namespace, run.id)])
        if after is None or after.number != run.number:
            view.awaited_by_parent = True  # it ended meanwhile, and its parent was notified


def _parsed(data: bytes, text: str) -> Graph | str:
    """Check a definition against its version, which is the hash of its content."""
    try:
        return Graph.parse_stored(data, text)
    except DefinitionCorrupt as error:
        return f"is that of {error.found}"
    except Exception as error:
        return f"cannot be read: {type(error).__name__}: {error}"


RUN_LOADABLE = declare("verify.run_loadable", "cannot be loaded: {reason}")


def _unreadable(run: Run, error: Exception) -> Finding:
    reason = f"{type(error).__name__}: {error}"
    return contradiction("I4", RUN_LOADABLE, namespace=run.namespace, run=run.id, reason=reason)
