"""Loading runs: the latest snapshot and the events after it, or the whole log."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engine.cached_run import CachedRun, restored
from perdure.engine.graphs import Graphs
from perdure.errors import EventLogCorrupt, RunNotFound, UnknownEvent, UnknownFlow
from perdure.model.ids import RunId
from perdure.model.payload import Codec
from perdure.model.run import LoadedRun
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
