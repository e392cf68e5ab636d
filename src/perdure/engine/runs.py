"""``RunEngine``: load runs, plan decisions (reading missing values), commit (retrying conflicts).

``RunCache`` keeps a worker's runs in memory; ``Graphs`` has the flow definitions.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from perdure.engine.cached_run import CachedRun, restored
from perdure.engine.fold import check_complete
from perdure.engine.plan import Plan, PlanContext
from perdure.errors import (
    DefinitionCorrupt,
    EventLogCorrupt,
    InvalidInput,
    LongEvaluation,
    RunEnded,
    RunNotFound,
    UnknownEvent,
    UnknownFlow,
    ValueMissing,
)
from perdure.expr.budget import on_event_loop
from perdure.model.graph import Graph
from perdure.model.ids import RUN_START, RunId, WorkerId
from perdure.model.payload import Codec
from perdure.model.run import CommitState, LoadedRun
from perdure.model.trigger import Trigger
from perdure.store.contract import EventsAfter, Store

CACHED_RUNS_MAX = 20_000
CACHED_BYTES_MAX = 256 * 1024 * 1024

RunKey = tuple[str, RunId]
"""Namespace and id."""
UnusableRun = DefinitionCorrupt | EventLogCorrupt | RunNotFound | UnknownEvent | UnknownFlow
"""Errors that make a decision about a run impossible."""


class Graphs:
    """Graphs by ``name@version``. A version is a content hash, so cached graphs never change."""

    def __init__(self, graphs: Iterable[Graph] = ()) -> None:
        self._known: dict[str, Graph] = {}
        self._saved: set[tuple[str, str]] = set()
        self.add(graphs)

    def add(self, graphs: Iterable[Graph]) -> None:
        for graph in graphs:
            self._known.setdefault(graph.text, graph)

    def known(self, text: str) -> Graph:
        """A graph that is already cached."""
        try:
            return self._known[text]
        except KeyError:
            raise UnknownFlow(flow=text, known=tuple(sorted(self._known))) from None

    async def load(self, store: Store, namespace: str, text: str) -> Graph:
        """A graph, loaded if necessary, together with the graphs of its child flows."""
        graph = self._known.get(text)
        if graph is None:
            name, _, version = text.rpartition("@")
            data = await store.runs.get_definition(namespace, name, version)
            if data is None:
                raise UnknownFlow(flow=text, known=tuple(sorted(self._known)))
            try:
                graph = Graph.parse_stored(data, text)
            except (msgspec.DecodeError, RecursionError, InvalidInput) as error:
                raise UnknownFlow(flow=text, known=tuple(sorted(self._known))) from error
            for child in graph.children:
                await self.load(store, namespace, child.text)
            self._known[text] = graph
        return graph

    async def save(
        self, store: Store, namespace: str, graphs: Iterable[Graph], *, again: bool = False
    ) -> None:
        """Store these definitions: a run keeps its version.

        One that was saved before is not saved ``again`` by default. If it was pruned since, the
        store refuses a run of it; any other use has to save it again.
        """
        for graph in graphs:
            if again or (namespace, graph.text) not in self._saved:
                await store.runs.save_definition(namespace, graph.name, graph.version, graph.data)
                self._saved.add((namespace, graph.text))
            self._known.setdefault(graph.text, graph)


class RunEngine:
    """Loads the runs of a store, decides about them and commits the decisions."""

    def __init__(
        self, store: Store, graphs: Graphs, codec: Codec, worker: WorkerId | None = None
    ) -> None:
        self.store = store
        self.graphs = graphs
        self.codec = codec
        self.worker = worker

    # Loading

    async def load(self, namespace: str, id: RunId) -> CachedRun:
        [run] = await self.load_many([(namespace, id)])
        if isinstance(run, CachedRun):
            return run
        raise run

    async def load_many(self, ids: Sequence[RunKey]) -> list[CachedRun | UnusableRun]:
        """Load runs, in this order; a run that cannot be loaded is replaced by its error."""
        if not ids:
            return []
        asked = [EventsAfter(namespace=namespace, id=id) for namespace, id in ids]
        found = await self.store.runs.load(asked)
        return [
            await self._opened(namespace, id, loaded)
            for (namespace, id), loaded in zip(ids, found, strict=True)
        ]

    async def open_run(self, namespace: str, id: RunId, loaded: LoadedRun) -> CachedRun:
        """A run from rows that were read together with other data."""
        run = await self._opened(namespace, id, loaded)
        if isinstance(run, CachedRun):
            return run
        raise run

    async def _opened(
        self, namespace: str, id: RunId, loaded: LoadedRun | None
    ) -> CachedRun | UnusableRun:
        if loaded is None:
            return RunNotFound(run_id=id)
        try:
            found = restored(loaded, self.codec)
            if found is None:  # a snapshot is a cache: without it, fold the log
                whole = EventsAfter(namespace=namespace, id=id, number=0)
                [loaded] = await self.store.runs.load([whole])
                if loaded is None:
                    return RunNotFound(run_id=id)
                found = restored(loaded, self.codec)
                assert found is not None
            state, values, snapshot_number = found
            check_complete(id, loaded.run.number, state.number)
            text = f"{state.flow}@{state.version}"
            graph = await self.graphs.load(self.store, namespace, text)
        except (DefinitionCorrupt, EventLogCorrupt, UnknownEvent, UnknownFlow) as error:
            return error
        run = CachedRun(loaded.run, graph, state, values)
        run.snapshot_number = snapshot_number
        return run

    async def catch_up(self, runs: Sequence[CachedRun]) -> list[CachedRun]:
        """Fold events that others wrote to these runs; returns the runs that still exist."""
        if not runs:
            return []
        asked = [
            EventsAfter(namespace=run.namespace, id=run.id, number=run.state.number) for run in runs
        ]
        found = await self.store.runs.load(asked)
        there = []
        for run, loaded in zip(runs, found, strict=True):
            if loaded is None or loaded.run.created_at != run.created_at:
                continue  # removed, or replaced by another run with this id
            run.catch_up(loaded.events)
            if run.state.version != run.graph.version:
                text = f"{run.state.flow}@{run.state.version}"
                run.graph = await self.graphs.load(self.store, run.namespace, text)
            run.as_of = loaded.run.updated_at  # last, so that an interrupted fold is repeated
            there.append(run)
        return there

    async def read_values(self, run: CachedRun, numbers: Sequence[int]) -> None:
        missing = run.values.missing(numbers)
        if not missing:
            return
        stored = await self.store.runs.event_values(run.namespace, run.id, missing)
        for number in missing:
            if number not in stored:
                raise EventLogCorrupt(
                    run_id=run.id, reason=f"the value of event {number} is missing"
                )
            run.values.put_stored(number, stored[number])

    # Planning and committing

    async def plan(self, run: CachedRun, decide: Callable[[Plan], None]) -> Plan:
        """A plan with what ``decide`` adds to it, built and ready to be committed.

        A plan changes nothing until it is written, so a plan that lacks values starts over once
        they are read; ``decide`` may be called several times, in a thread if it takes long.
        """
        context = PlanContext(run.namespace, self.graphs.known, self.codec, self.worker)
        is_long = False
        while True:
            plan = Plan(run, context)

            def build(plan: Plan = plan) -> None:
                decide(plan)
                plan.build()

            try:
                if is_long:
                    await asyncio.to_thread(build)
                else:
                    with on_event_loop():
                        build()
            except LongEvaluation:
                is_long = True
            except ValueMissing as error:
                await self.read_values(run, error.numbers)
            except (msgspec.DecodeError, RecursionError) as error:
                raise EventLogCorrupt(
                    run_id=run.id, reason=f"a value of it cannot be read: {error}"
                ) from error
            else:
                return plan

    async def commit(self, plans: Sequence[Plan]) -> set[Plan]:
        """Commit plans together; returns those that did not conflict.

        Raises what the store refused, after the others are written.
        """
        if not plans:
            return set()
        answer = await self.store.runs.commit([plan.commit for plan in plans])
        written = {
            plan
            for plan, result in zip(plans, answer.results, strict=True)
            if result.state is CommitState.DONE
        }
        for plan in written:
            plan.committed_at = answer.now
            plan.done()
        for result in answer.results:
            if result.refusal is not None:
                raise result.refusal
        return written

    async def apply(self, namespace: str, id: RunId, trigger: Trigger) -> Plan:
        """Apply a trigger to a run, retrying on conflicts.

        ``plan.run`` is the run afterwards; the plan is empty if there was nothing to write.
        """
        return await self.apply_to(await self.load(namespace, id), trigger)

    async def apply_to(self, run: CachedRun, trigger: Trigger) -> Plan:
        """Apply a trigger to a loaded run, which is refreshed on conflicts."""
        while True:
            plan = await self.plan(run, lambda plan: plan.apply(trigger))
            if plan.is_empty or await self.commit([plan]):
                return plan
            if not await self.catch_up([run]):
                raise RunNotFound(run_id=run.id)

    async def apply_all(self, triggers: Sequence[tuple[CachedRun, Trigger]]) -> list[CachedRun]:
        """Apply triggers to loaded runs, one each: one commit per run, all in one batch.

        Conflicts are retried, and runs that ended are left as they are. Returns the runs that
        still exist.
        """
        removed: set[CachedRun] = set()
        remaining = list(triggers)
        while remaining:
            plans: dict[Plan, tuple[CachedRun, Trigger]] = {}
            for run, trigger in remaining:

                def decide(plan: Plan, trigger: Trigger = trigger) -> None:
                    plan.apply(trigger)

                with suppress(RunEnded):
                    plan = await self.plan(run, decide)
                    if not plan.is_empty:
                        plans[plan] = run, trigger
            written = await self.commit(list(plans))
            conflicts = [each for plan, each in plans.items() if plan not in written]
            found = set(await self.catch_up([run for run, _ in conflicts]))
            removed |= {run for run, _ in conflicts if run not in found}
            remaining = [each for each in conflicts if each[0] in found]
        return [run for run, _ in triggers if run not in removed]

    async def end_waits(self, ended: Sequence[tuple[CachedRun, Mapping[str, Trigger]]]) -> None:
        """End waits of several runs, by key: one commit per run, all in one batch.

        A wait that its run no longer needs is closed as well. Nothing is written for a run that
        changed in the meantime: it may wait for something else under the same key by now, so the
        caller has to read the waits again.
        """
        plans = []
        for run, triggers in ended:

            def end(plan: Plan, triggers: Mapping[str, Trigger] = triggers) -> None:
                for trigger in triggers.values():
                    plan.apply(trigger)
                for key in triggers:
                    # A paused run still needs the wait, and so does a run that waits again.
                    is_needed = key == RUN_START and plan.state.is_queued
                    if key not in plan.state.live and not is_needed:
                        plan.close(key)

            plan = await self.plan(run, end)
            if not plan.is_empty:
                plans.append(plan)
        await self.commit(plans)


class RunCache:
    """The runs a worker is executing, cached so that a step costs one commit and no read."""

    def __init__(self, runs: RunEngine) -> None:
        self._loading = runs
        self._runs: OrderedDict[RunKey, CachedRun] = OrderedDict()
        self._sizes: dict[RunKey, int] = {}
        """The bytes of each run as counted in ``size_bytes``; its values may have grown since."""
        self.size_bytes = 0

    async def current(
        self, newest_jobs: Mapping[RunKey, datetime]
    ) -> dict[RunKey, CachedRun | UnusableRun]:
        """The runs of these jobs, loaded if necessary; one that cannot be loaded is its error.

        A job created after the last known write means that another process has written to its
        run, or replaced it.
        """
        outdated = [
            run
            for key, created_at in newest_jobs.items()
            if (run := self._runs.get(key)) is not None and created_at > run.as_of
        ]
        if outdated:
            await self.catch_up(outdated)
        found: dict[RunKey, CachedRun | UnusableRun] = {
            key: run for key in newest_jobs if (run := self._runs.get(key)) is not None
        }
        missing = [key for key in newest_jobs if key not in found]
        if missing:
            loaded = await self._loading.load_many(missing)
            for key, each in zip(missing, loaded, strict=True):
                found[key] = each
                if isinstance(each, CachedRun):
                    self._runs[key] = each
                    self._count(key, each)
            self._evict()
        return found

    async def catch_up(self, runs: Sequence[CachedRun]) -> None:
        """Fold events that others wrote; on an error, the run is loaded again next time."""
        there: list[CachedRun] = []
        with suppress(DefinitionCorrupt, EventLogCorrupt, UnknownEvent, UnknownFlow):
            there = await self._loading.catch_up(runs)
        for run in runs:
            if run not in there:
                self._forget((run.namespace, run.id))

    def committed(self, plan: Plan, now: datetime | None) -> None:
        """A plan was committed, at this store time."""
        run = plan.run
        plan.done()
        key = (run.namespace, run.id)
        if key in self._runs:
            self._count(key, run)
            self._evict()
        if now is not None:
            run.as_of = now
        if run.state.is_ended or not run.state.jobs:
            self._forget(key)  # no worker executes it until another trigger arrives

    def _count(self, key: RunKey, run: CachedRun) -> None:
        size = run.values.size_bytes
        self.size_bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def _evict(self) -> None:
        """Evict the oldest runs if there are too many, or they are too large."""
        while len(self._runs) > CACHED_RUNS_MAX or (
            self.size_bytes > CACHED_BYTES_MAX and len(self._runs) > 1
        ):
            self._forget(next(iter(self._runs)))

    def _forget(self, key: RunKey) -> None:
        if self._runs.pop(key, None) is not None:
            self.size_bytes -= self._sizes.pop(key)
