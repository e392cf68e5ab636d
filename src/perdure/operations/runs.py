"""Operations on runs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec

from perdure.diagnostics import Fault, declare, near, safe_repr
from perdure.engine.cached_run import CachedRun
from perdure.engine.fold import check_complete
from perdure.engine.migration import differences
from perdure.errors import EventLogCorrupt, InvalidInput, MigrationRefused, RunNotFound
from perdure.flows.settings import RunOptions
from perdure.model import check
from perdure.model.event import decode_event
from perdure.model.failure import Failure
from perdure.model.ids import RunId
from perdure.model.job import CLAIMED, Priority
from perdure.model.run import (
    LiveType,
    LoadedRun,
    OnExisting,
    Run,
    RunFilter,
    RunStatus,
)
from perdure.model.trigger import (
    CancelRun,
    MigrateRun,
    PauseRun,
    ResumeRun,
    RetryRun,
    SendSignal,
    SetPriority,
    Trigger,
)
from perdure.operations.backend import AnyFlow, flow_name
from perdure.operations.cancel import CHILDREN_AT_ONCE, cancel_children, cancel_run
from perdure.operations.explain import explain_run
from perdure.operations.external import broadcast, report
from perdure.operations.forks import fork, is_late
from perdure.operations.insight.explain import Explanation
from perdure.operations.insight.lineage import Lineage, trace, with_values
from perdure.operations.insight.timeline import timeline_of
from perdure.operations.operation import Group, Role, operation
from perdure.operations.page import (
    Page,
    decode_cursor,
    encode_cursor,
    invalid_cursor,
    page_of,
    page_size,
)
from perdure.operations.records import (
    BroadcastResult,
    ChildRun,
    EventRecord,
    ReportReceipt,
    RunChange,
    RunDetail,
    RunRecord,
    RunSnapshot,
    RunStarted,
    run_record,
    with_title,
)
from perdure.operations.run_log import RunLog, node_record, pack_state, state_at, unpack_state
from perdure.operations.submit import (
    Submission,
    new_run_id,
    prepare_submission,
    run_id,
    submit_run,
)
from perdure.render.diagram import Diagram, diagram_of_run
from perdure.render.timeline import Timeline
from perdure.store.contract import EventsAfter

REASON_MAX = 2_000
"""Maximum characters of a reason or a note."""
OBSERVE_SECONDS = 0.25
"""Task progress is not an event, so only polling finds it."""
OBSERVE_SPACING_SECONDS = 0.1
"""Between polls caused by events."""
OBSERVE_REST = 4
"""After a poll, an observer rests this many times its duration, to bound the load it causes."""


UNKNOWN_SIGNAL = declare(
    "run.unknown_signal",
    "no node of run {run_id!r} (flow {flow!r}) waits for a signal {signal!r}"
    "[; did you mean {nearest:or}?][; its flow waits for {known}]",
)
NODE_RUNNING = declare(
    "migration.node_running",
    "node {node!r} is being executed; pause the run first, or wait for its end",
)


class Runs(Group):
    """Operations on runs. Every change is recorded as an event of the run."""

    @operation(
        "runs.submit",
        role=Role.SUBMITTER,
        writes=True,
        one_namespace=True,
        role_by_value={"on_conflict": {"replace": Role.OPERATOR}},
    )
    def submit(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        options: RunOptions | None = None,
    ) -> Coroutine[Any, Any, RunStarted]:
        """Start a run of a flow.

        When this returns, the run is durable. ``flow`` is a built flow, or the name of one of the
        client's ``flows``. ``id`` is your own id for the run. ``on_conflict`` says what happens if
        a run has it already, finished or not: ``"fail"`` raises ``RunExists``, ``"use_existing"``
        returns that run, ``"replace"`` cancels it and takes its place. ``options`` are
        ``priority``, ``delay`` or ``run_at``, ``queue``, ``tags``, ``timeout`` or ``deadline``,
        ``timeout_counts_waiting``, ``max_attempts``, ``max_running`` and
        ``sticky``.
        """
        meant = check.optional(check.mapping, options, "options", "options to values")
        return self._submit(prepare_submission(self._backend, flow, input, id, on_conflict, meant))

    async def _submit(self, submission: Submission) -> RunStarted:
        submitted = await submit_run(self._backend, submission)
        return RunStarted(id=submitted.run.id, is_new=submitted.is_new)

    @operation("runs.list", role=Role.VIEWER)
    async def list(
        self,
        *,
        status: str | None = None,
        flow: AnyFlow | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[RunRecord]:
        """List runs, newest first."""
        size = page_size(limit)
        before = None
        if cursor is not None:
            before = decode_cursor("runs.list", cursor, tuple[datetime, RunId])
        store = await self._backend.store()
        found = await store.queries.list_runs(self._filter(status, flow, before), size + 1)
        records = [run_record(run) for run in found]
        return page_of("runs.list", records, size, lambda run: (run.created_at, run.id))

    @operation("runs.count", role=Role.VIEWER)
    async def count(self, *, status: str | None = None, flow: AnyFlow | None = None) -> int:
        """Count runs."""
        store = await self._backend.store()
        return await store.queries.count_runs(self._filter(status, flow, None))

    def _filter(
        self, status: str | None, flow: AnyFlow | None, before: tuple[datetime, RunId] | None
    ) -> RunFilter:
        return RunFilter(
            namespace=self._backend.visible,
            status=check.optional(check.choice, status, "status", RunStatus),
            flow=flow_name(flow),
            before=before,
        )

    @operation("runs.get", role=Role.VIEWER)
    async def get(self, id: str) -> RunDetail:
        """Get a run with its nodes, outputs and result.

        It has its events and child runs too.
        """
        loaded = await self._load_log(id)
        run = loaded.run
        log = RunLog(run.id, self._backend.codec)
        events = log.take(loaded.events)
        state, store = log.state, await self._backend.store()
        graph = await self._backend.graphs.load(
            store, run.namespace, f"{state.flow}@{state.version}"
        )
        started = sorted(state.children.items())
        asked = [(run.namespace, child) for _, child in started]
        found = await store.queries.get_runs(asked) if asked else []
        return RunDetail(
            **{name: getattr(run, name) for name in Run.__struct_fields__},
            events=tuple(events),
            nodes=tuple(node_record(log, node) for node in graph.nodes.values()),
            children=tuple(
                _child_run(key, child, each)
                for (key, child), each in zip(started, found, strict=True)
            ),
            result=log.value(state.result_ref) if state.status is RunStatus.COMPLETED else None,
        )

    @operation("runs.events", role=Role.VIEWER)
    async def events(
        self, id: str, *, limit: int = 1_000, cursor: str | None = None
    ) -> Page[EventRecord]:
        """List the events of a run, oldest first."""
        size = page_size(limit)
        position = EventsPosition() if cursor is None else decode_events_cursor(cursor)
        after, packed, _ = position
        run, store = await self._backend.find_run(run_id(id)), await self._backend.store()
        if cursor is not None and position.run != _digest(run):
            raise invalid_cursor("runs.events", cursor)  # of another run, or of a replaced one
        if after >= run.number:
            return Page(items=())
        # The status after an event depends on all earlier ones: the cursor carries the folded
        # state.
        state = unpack_state(packed, after)
        if state is None:
            state = await state_at(store, run, after)
        last = min(run.number, after + size)
        log = RunLog(run.id, self._backend.codec, state)
        try:
            events = await log.read(store, run.namespace, last)
        except EventLogCorrupt:
            # A cursor may have been edited: only a state that was folded here proves the log wrong.
            [now] = await store.queries.get_runs([(run.namespace, run.id)])
            if now is None or _digest(now) != _digest(run):  # replaced meanwhile
                raise RunNotFound(run_id=run.id) from None
            log = RunLog(run.id, self._backend.codec, await state_at(store, run, after))
            events = await log.read(store, run.namespace, last)
        key = EventsPosition(last, pack_state(log.state), _digest(run))
        cursor = encode_cursor("runs.events", key) if last < run.number else None
        return Page(items=tuple(events), next=cursor)

    @operation("runs.timeline", role=Role.VIEWER)
    async def timeline(self, id: str) -> Timeline:
        """Show when each node ran and waited.

        Up to now, if the run has not ended. Time in the queue counts as running.
        """
        loaded = await self._load_log(id)
        store = await self._backend.store()
        return timeline_of(loaded.run.id, loaded.events, await store.now())

    @operation("runs.lineage", role=Role.VIEWER)
    async def lineage(self, id: str) -> Lineage:
        """Show which upstream values each node used.

        Secrets are shown by name only.
        """
        loaded = await self._load_log(id)
        run = loaded.run
        log = RunLog(run.id, self._backend.codec)
        log.take(loaded.events)
        events = [
            (each.number, decode_event(run.id, each.number, each.data)) for each in loaded.events
        ]
        store = await self._backend.store()
        text = f"{log.state.flow}@{log.state.version}"
        graph = await self._backend.graphs.load(store, run.namespace, text)
        return Lineage(
            run=run.id,
            flow=log.state.flow,
            version=log.state.version,
            nodes=with_values(graph, trace(graph, log.state, events), log.value),
        )

    @operation("runs.diagram", role=Role.VIEWER)
    async def diagram(self, id: str) -> Diagram:
        """Draw a run with the state of each node."""
        run = await self._backend.load_run(run_id(id))
        return diagram_of_run(run.id, run.graph, run.state)

    @operation("runs.explain", role=Role.VIEWER)
    async def explain(self, id: str) -> Explanation:
        """Explain the state of a run.

        The findings include suggested actions.
        """
        return await explain_run(self._backend, run_id(id))

    @operation("runs.watch", role=Role.VIEWER, streams=True)
    async def watch(self, id: str) -> AsyncGenerator[EventRecord, None]:
        """Follow a run until it finishes.

        Streams its events, from the first on. Raises ``RunNotFound`` if it is pruned, or replaced
        by another run.
        """
        run = run_id(id)
        namespace = await self._backend.namespace_of(run)
        following = _Following(self, namespace, run)
        with self._backend.run_waits.watch((namespace, run), is_close=True) as watch:
            while not following.log.state.is_ended:
                await watch.next()
                for event in (await following.read())[1]:
                    yield event

    @operation("runs.observe", role=Role.VIEWER, streams=True)
    async def observe(self, id: str) -> AsyncGenerator[RunSnapshot, None]:
        """Stream snapshots of a run until it finishes.

        A snapshot shows the workers of the run and what it waits for. The first comes immediately,
        others after events, and some in between with the progress of task bodies. Each has the
        events since the previous one.
        """
        run = run_id(id)
        namespace = await self._backend.namespace_of(run)
        following = _Following(self, namespace, run)
        clock = asyncio.get_running_loop().time
        with self._backend.run_waits.watch((namespace, run), is_close=True) as watch:
            while True:
                started = clock()
                snapshot = await following.snapshot()
                took = clock() - started
                yield snapshot
                if snapshot.state.is_ended:
                    return
                await asyncio.sleep(max(OBSERVE_SPACING_SECONDS, OBSERVE_REST * took))
                with suppress(TimeoutError):
                    async with asyncio.timeout(OBSERVE_SECONDS):
                        await watch.next()

    @operation("runs.signal", role=Role.SUBMITTER, writes=True)
    def signal(
        self, id: str, name: str, payload: Any = None, *, by: str | None = None
    ) -> Coroutine[Any, Any, RunChange]:
        """Send a signal to a run.

        The run keeps it until a node takes it. A name that no node of its flow waits for is
        refused, and so is a run that has ended, or that keeps ``unread_signals_max`` of them.
        """
        return self._send(run_id(id), self._signal(name, payload, by))

    async def _send(self, id: RunId, signal: SendSignal) -> RunChange:
        run = await self._backend.load_run(id)
        if signal.name not in run.graph.signals:
            nearest = near(signal.name, run.graph.signals)
            raise InvalidInput(
                UNKNOWN_SIGNAL.fault(
                    run_id=id,
                    flow=run.graph.name,
                    signal=signal.name,
                    nearest=nearest,
                    known=() if nearest else tuple(sorted(run.graph.signals)),
                )
            )
        before = run.state.status
        await self._backend.command(run, signal)
        return RunChange(id=run.id, before=before, after=run.state.status)

    @operation("runs.broadcast", role=Role.SUBMITTER, writes=True, one_namespace=True)
    def broadcast(
        self,
        signal: str,
        payload: Any = None,
        *,
        flow: AnyFlow | None = None,
        by: str | None = None,
    ) -> Coroutine[Any, Any, BroadcastResult]:
        """Send a signal to every run waiting for it.

        Nodes that wait with a filter get it only if it passes. Unlike with ``signal``, it is not
        kept for nodes that start to wait later.
        """
        return broadcast(self._backend, self._signal(signal, payload, by), flow_name(flow))

    def _signal(self, name: str, payload: Any, by: str | None) -> SendSignal:
        data = self._backend.json(payload, f"the payload of signal {safe_repr(name)}")
        most = self._backend.unread_signals_max
        return SendSignal(
            name=check.name(name, "signal"), payload=data, by=_by(by), unread_max=most
        )

    @operation("runs.report", role=Role.SUBMITTER, writes=True)
    def report(
        self,
        id: str,
        node: str,
        *,
        status: str = "progress",
        result: Any = None,
        error: str | None = None,
        progress: Any = None,
        port: str = "",
        key: str | None = None,
        at: datetime | None = None,
        by: str | None = None,
    ) -> Coroutine[Any, Any, ReportReceipt]:
        """Report on external work that a node waits for.

        ``status`` is ``"progress"``, as often as you like, then ``"completed"`` with a ``result``
        and optionally a ``port``, or ``"failed"`` with an ``error``; the first final report counts.
        ``progress`` is stored, so that another attempt can continue from it. ``key`` is an
        idempotency key: reports with the same key count once. Without a key, reports with the same
        time ``at`` count once. A report on a node that the run has not reached is kept. For a loop
        or a map, ``node`` may name the iteration or item: ``poll#2``, ``pack[7]``.
        """
        return report(
            self._backend,
            run_id(id),
            node,
            status=status,
            result=result,
            error=error,
            progress=progress,
            port=port,
            key=key,
            at=at,
            by=by,
        )

    @operation("runs.pause", role=Role.OPERATOR, writes=True)
    async def pause(
        self, id: str, *, reason: str | None = None, by: str | None = None
    ) -> RunChange:
        """Pause a run until it is resumed.

        None of its nodes starts until then. Running jobs are taken from their workers and start
        again when it is resumed. Signals sent to a paused run are kept.
        """
        return await self._command(id, PauseRun(reason=_reason(reason), by=_by(by)))

    @operation("runs.resume", role=Role.OPERATOR, writes=True)
    async def resume(self, id: str, *, by: str | None = None) -> RunChange:
        """Resume a paused run."""
        return await self._command(id, ResumeRun(by=_by(by)))

    @operation("runs.cancel", role=Role.OPERATOR, writes=True)
    async def cancel(
        self,
        id: str,
        *,
        reason: str | None = None,
        by: str | None = None,
        compensate: bool = False,
    ) -> RunChange:
        """Cancel a run and its child runs.

        With ``compensate``, completed nodes are undone first, in reverse order, by their undo
        tasks: the run is ``compensating`` until then.
        """
        command = CancelRun(reason=_reason(reason), by=_by(by), compensates=bool(compensate))
        run = await self._backend.load_run(run_id(id))
        before = run.state.status
        await cancel_run(self._backend, run, command)
        return RunChange(id=run.id, before=before, after=run.state.status)

    @operation("runs.retry", role=Role.OPERATOR, writes=True)
    async def retry(self, id: str, *, by: str | None = None) -> RunChange:
        """Retry a failed or cancelled run.

        Completed nodes are kept.
        """
        run = await self._backend.load_run(run_id(id))
        command = RetryRun(by=_by(by), is_late=await is_late(self._backend, run.state))
        before = run.state.status
        if run.state.is_ended:
            # It starts new child runs, so the abandoned ones must be cancelled. Workers cancel them
            # too, but there may be none running now.
            reason = f"its parent, run {run.id!r}, is retried"
            await cancel_children(self._backend, run, CancelRun(reason=reason, by=command.by))
        await self._backend.command(run, command)
        return RunChange(id=run.id, before=before, after=run.state.status)

    @operation("runs.set_priority", role=Role.OPERATOR, writes=True)
    async def set_priority(
        self, id: str, priority: Priority, *, by: str | None = None
    ) -> RunChange:
        """Change the priority of a run.

        Jobs that wait are ranked as if they had always had it. Its child runs get it too.
        """
        command = SetPriority(priority=check.priority(priority), by=_by(by))
        run = await self._backend.load_run(run_id(id))
        before = run.state.status
        await self._backend.command(run, command)
        await self._set_priority_of_children(run, command)
        return RunChange(id=run.id, before=before, after=run.state.status)

    async def _set_priority_of_children(self, run: CachedRun, command: SetPriority) -> None:
        engine, parents = await self._backend.engine(), [run]
        while parents:
            live = [
                (parent.namespace, parent.state.children[key])
                for parent in parents
                for key, live_type in parent.state.live.items()
                if live_type is LiveType.CHILD
            ]
            parents = []
            for first in range(0, len(live), CHILDREN_AT_ONCE):
                inheriting = [
                    child
                    for child in await engine.load_many(live[first : first + CHILDREN_AT_ONCE])
                    if isinstance(child, CachedRun) and child.state.settings.priority is None
                ]
                parents += await engine.apply_all([(child, command) for child in inheriting])

    @operation("runs.fork", role=Role.OPERATOR, writes=True)
    def fork(
        self,
        id: str,
        *,
        after: int | str | None = None,
        patch: Mapping[str, Any] | None = None,
        new_id: str | None = None,
        by: str | None = None,
    ) -> Coroutine[Any, Any, RunStarted]:
        """Start a new run from the history of another.

        The original run does not change. ``after`` is the node after whose completion the fork
        starts, or the number of the last event that both runs share; by default they share all.
        ``patch`` replaces outputs of nodes that completed by then, or of a loop's last iteration
        (``turn#2``). The log records the origin of the fork.
        """
        if after is not None and (isinstance(after, bool) or not isinstance(after, int | str)):
            raise check.wrong_type(after, "after", "the id of a node or the number of an event")
        outputs = {
            node: self._backend.json(output, f"the output of node {safe_repr(node)} in patch")
            for node, output in (
                check.optional(check.mapping, patch, "patch", "node ids to new outputs") or {}
            ).items()
        }
        return self._fork(id, new_run_id(new_id), after, outputs, _by(by))

    async def _fork(
        self,
        id: str,
        new_id: RunId,
        after: int | str | None,
        outputs: Mapping[str, bytes],
        by: str | None,
    ) -> RunStarted:
        loaded = await self._load_log(id)
        submitted = await fork(self._backend, loaded, new_id, after, outputs, by)
        return RunStarted(id=submitted.run.id, is_new=submitted.is_new)

    @operation("runs.migrate", role=Role.OPERATOR, writes=True)
    async def migrate(self, id: str, *, to: AnyFlow, by: str | None = None) -> RunChange:
        """Continue a run in another version of its flow.

        Raises ``MigrationRefused`` with all reasons: nodes that the run has reached and that are
        missing or different, or a job that a worker is executing.
        """
        flow, who = self._backend.flow(to), _by(by)
        store, engine = await self._backend.store(), await self._backend.engine()
        self._backend.graphs.add(flow.graphs)
        run = await self._backend.load_run(run_id(id))
        before = run.state.status
        command = MigrateRun(to=flow.graph.ref, by=who)
        while True:
            # Planned first, so that an ended run is refused for that reason, whatever the versions
            # are.
            plan = await engine.plan(run, lambda plan: plan.apply(command))
            # A worker that is executing a job would settle it under the old version.
            held: tuple[Fault, ...] = tuple(
                NODE_RUNNING.fault(("nodes", job.node.key), node=job.node.key)
                for job in await store.queries.run_jobs(run.namespace, run.id)
                if job.status in CLAIMED and job.node is not None
            )
            if reasons := (*differences(run.graph, flow.graph, run.state), *held):
                raise MigrationRefused(*reasons, run_id=run.id, to=flow.graph.text)
            if run.graph.version != flow.version:
                await self._backend.graphs.save(store, run.namespace, flow.graphs, again=True)
                if not await engine.commit([plan]):
                    run = await engine.load(run.namespace, run.id)
                    continue
            return RunChange(id=run.id, before=before, after=run.state.status)

    async def _command(self, id: str, command: Trigger) -> RunChange:
        run = await self._backend.load_run(run_id(id))
        before = run.state.status
        await self._backend.command(run, command)
        return RunChange(id=run.id, before=before, after=run.state.status)

    async def _load_log(self, id: str) -> LoadedRun:
        """Load a run with all its events."""
        run = run_id(id)
        namespace = await self._backend.namespace_of(run)
        store = await self._backend.store()
        [loaded] = await store.runs.load([EventsAfter(namespace=namespace, id=run, number=0)])
        if loaded is None:
            raise RunNotFound(run_id=run)
        check_complete(run, loaded.run.number, loaded.events[-1].number if loaded.events else 0)
        return loaded


class _Following:
    """Reads the new events of a run, with its jobs, waits and workers."""

    def __init__(self, runs: Runs, namespace: str, id: RunId) -> None:
        self._backend = runs._backend
        self._namespace, self._id = namespace, id
        self.log = RunLog(id, self._backend.codec)
        self._failures: dict[str, Failure] = {}
        self._first: Run | None = None

    async def read(self) -> tuple[Run, list[EventRecord]]:
        store = await self._backend.store()
        number = self.log.state.number
        after = EventsAfter(namespace=self._namespace, id=self._id, number=number)
        [loaded] = await store.runs.load([after])
        if loaded is None or (self._first and self._first.created_at != loaded.run.created_at):
            raise RunNotFound(run_id=self._id)
        self._first = self._first or loaded.run
        events = self.log.take(loaded.events)
        check_complete(self._id, loaded.run.number, self.log.state.number)
        return loaded.run, events

    async def snapshot(self) -> RunSnapshot:
        store = await self._backend.store()
        # Jobs before events: a listed job that has since ended is recognized by the state, but a
        # missing job would look as if no worker had its node.
        jobs = await store.queries.run_jobs(self._namespace, self._id)
        waits = await store.queries.run_waits(self._namespace, self._id)
        run, events = await self.read()
        for event in events:
            if event.key is not None and event.failure is not None:
                self._failures[event.key] = event.failure
        state = self.log.state
        text = f"{state.flow}@{state.version}"
        return RunSnapshot(
            run=run_record(run),
            graph=await self._backend.graphs.load(store, self._namespace, text),
            state=state,
            events=tuple(events),
            failures=dict(self._failures),
            jobs=tuple(jobs),
            waits=tuple(with_title(wait, self._backend.codec) for wait in waits),
            workers=tuple(await store.queries.workers(self._namespace)),
            now=await store.now(),
        )


class EventsPosition(NamedTuple):
    """Where a page of events ends: its last event, the packed state after it, and of which run."""

    number: Annotated[int, msgspec.Meta(ge=0)] = 0
    state: bytes = b""
    run: str = ""
    """A digest, since ids may be long and a cursor is bounded."""


def _digest(run: Run) -> str:
    """Distinguishes a run from all others, including one that it replaced under its id."""
    text = f"{run.namespace} {run.created_at.isoformat()} {run.id}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def decode_events_cursor(cursor: str) -> EventsPosition:
    return decode_cursor("runs.events", cursor, EventsPosition)


def _child_run(key: str, id: RunId, run: Run | None) -> ChildRun:
    if run is None:
        return ChildRun(key=key, id=id, status=None)
    return ChildRun(key=key, id=id, status=run.status, failure=run_record(run).failure)


def _by(by: str | None) -> str | None:
    return check.optional(check.person, by, "by")


def _reason(reason: str | None) -> str | None:
    return check.optional(check.text, reason, "reason", REASON_MAX)
