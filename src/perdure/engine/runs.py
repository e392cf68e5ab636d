"""Load runs, apply commands to them, and commit until the commit fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure.engine.cached_run import CachedRun, Graphs, restored
from perdure.engine.plan import Place, Plan
from perdure.errors import EventLogCorrupt, RunNotFound, UnknownEvent, UnknownFlow, ValueMissing
from perdure.model.ids import RunId
from perdure.model.payload import Codec
from perdure.model.run import CommitState, LoadedRun
from perdure.model.trigger import Happening
from perdure.store.contract import EventsAfter, Store

Unusable = EventLogCorrupt | RunNotFound | UnknownEvent | UnknownFlow
"""Why nothing can be decided about a run."""


class Loader:
    """Reads runs from one store."""

    def __init__(self, store: Store, graphs: Graphs, codec: Codec) -> None:
        self._store = store
        self._graphs = graphs
        self._codec = codec

    async def load(self, namespace: str, id: RunId) -> CachedRun:
        [run] = await self.load_many([(namespace, id)])
        if isinstance(run, CachedRun):
            return run
        raise run

    async def load_many(self, ids: Sequence[tuple[str, RunId]]) -> list[CachedRun | Unusable]:
        """These runs in their order, with the error of each that cannot be used."""
        asked = [EventsAfter(namespace=namespace, id=id) for namespace, id in ids]
        found = await self._store.runs.load(asked)
        return [
            await self._opened(namespace, id, loaded)
            for (namespace, id), loaded in zip(ids, found, strict=True)
        ]

    async def catch_up(self, runs: Sequence[CachedRun]) -> list[CachedRun]:
        """Take in what others wrote to these runs; those that are still there."""
        asked = [
            EventsAfter(namespace=run.namespace, id=run.id, number=run.state.number) for run in runs
        ]
        found = await self._store.runs.load(asked)
        there = []
        for run, loaded in zip(runs, found, strict=True):
            if loaded is None or loaded.run.created_at != run.created_at:
                continue  # removed, or replaced by another of its id
            run.catch_up(loaded.events)
            run.as_of = loaded.run.updated_at
            await self._follow_version(run)
            there.append(run)
        return there

    async def read_values(self, run: CachedRun, numbers: Sequence[int]) -> None:
        missing = run.values.missing(numbers)
        if not missing:
            return
        stored = await self._store.runs.event_values(run.namespace, run.id, missing)
        for number in missing:
            if number not in stored:
                raise EventLogCorrupt(
                    run_id=run.id, reason=f"the value of event {number} is missing"
                )
            run.values.put_stored(number, stored[number])

    async def _opened(
        self, namespace: str, id: RunId, loaded: LoadedRun | None
    ) -> CachedRun | Unusable:
        if loaded is None:
            return RunNotFound(run_id=id)
        try:
            found = restored(loaded, self._codec)
            if found is None:  # a snapshot is a cache: without it, fold the log
                whole = EventsAfter(namespace=namespace, id=id, number=0)
                [loaded] = await self._store.runs.load([whole])
                if loaded is None:
                    return RunNotFound(run_id=id)
                found = restored(loaded, self._codec)
                assert found is not None
            state, values, snapshot_number = found
            if state.number != loaded.run.number:
                reason = f"it ends with event {state.number} instead of {loaded.run.number}"
                return EventLogCorrupt(run_id=id, reason=reason)
            text = f"{state.flow}@{state.version}"
            graph = await self._graphs.load(self._store, namespace, text)
        except (EventLogCorrupt, UnknownEvent, UnknownFlow) as error:
            return error
        run = CachedRun(loaded.run, graph, state, values)
        run.snapshot_number = snapshot_number
        return run

    async def _follow_version(self, run: CachedRun) -> None:
        if run.state.version != run.graph.version:
            text = f"{run.state.flow}@{run.state.version}"
            run.graph = await self._graphs.load(self._store, run.namespace, text)


Ended = tuple[CachedRun, Mapping[str, Happening]]
"""A run, and what ended its waits, by their keys."""


class Acting:
    """What clients ask of runs, and what happens to runs by itself."""

    def __init__(self, store: Store, graphs: Graphs, codec: Codec) -> None:
        self.loader = Loader(store, graphs, codec)
        self._store = store
        self._graphs = graphs
        self._codec = codec

    async def act(self, namespace: str, id: RunId, happening: Happening) -> CachedRun:
        """Let something happen to a run; the run as it is afterwards."""
        return (await self.acted(namespace, id, happening)).run

    async def acted(self, namespace: str, id: RunId, happening: Happening) -> Plan:
        """The same; what was written for it, which may be nothing."""
        run = await self.loader.load(namespace, id)
        while True:
            plan = await self.planned(run, happening)
            if plan.is_empty or await self.commit(plan):
                return plan
            if not await self.loader.catch_up([run]):
                raise RunNotFound(run_id=id)

    async def end_waits(self, ended: Sequence[Ended]) -> None:
        """Let waits of several runs end, in one commit for each, all written together.

        A wait that its run does not care about any more is closed all the same. Of a run that has
        moved on meanwhile nothing is written: it may wait for something else by now under the same
        key, so whoever calls this has to look again.
        """
        plans = [await self._ending(run, happenings) for run, happenings in ended]
        await self.commit_all([plan for plan in plans if not plan.is_empty])

    async def planned(self, run: CachedRun, *happenings: Happening) -> Plan:
        while True:
            plan = Plan(run, Place(run.namespace, self._graphs, self._codec))
            try:
                for happening in happenings:
                    plan.happen(happening)
            except ValueMissing as error:
                await self.loader.read_values(run, error.numbers)
            except (msgspec.DecodeError, RecursionError) as error:
                raise EventLogCorrupt(
                    run_id=run.id, reason=f"a value of it cannot be read: {error}"
                ) from error
            else:
                return plan

    async def commit(self, plan: Plan) -> bool:
        """Write a plan; False if the run has moved on since."""
        return bool(await self.commit_all([plan]))

    async def commit_all(self, plans: Sequence[Plan]) -> set[Plan]:
        """Write plans together; those whose runs had not moved on."""
        if not plans:
            return set()
        commits = [plan.commit()[0] for plan in plans]
        answer = await self._store.runs.commit(commits)
        written = {
            plan
            for plan, result in zip(plans, answer.results, strict=True)
            if result.state is CommitState.DONE
        }
        for plan in written:
            plan.done()
        return written

    async def _ending(self, run: CachedRun, happenings: Mapping[str, Happening]) -> Plan:
        plan = await self.planned(run, *happenings.values())
        for key in happenings:
            # A run that is paused still waits for it, and so does one that waits anew.
            if key not in plan.state.live:
                plan.close(key)
        return plan
