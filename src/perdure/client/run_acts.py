"""What is done to runs: each act is decided on and committed, and decided anew on a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from perdure.client.access import Access
from perdure.client.run_records import RunMoved
from perdure.diagnostics import declare, near
from perdure.engine.cached_run import CachedRun
from perdure.engine.runs import Graphs, Runs
from perdure.errors import AmbiguousRun, InvalidInput, RunEnded, RunNotFound
from perdure.model.ids import JobId, RunId
from perdure.model.job import Job
from perdure.model.payload import Codec
from perdure.model.run import ENDED, Run, RunFilter
from perdure.model.trigger import CancelRun, RetryRun, SendSignal, Trigger
from perdure.store.contract import Store

CHILDREN_AT_ONCE = 50
NAMED_MAX = 20
"""How many namespaces are named that have a run of one id."""
UNKNOWN_SIGNAL = declare(
    "run.unknown_signal",
    "no node of run {run_id!r} (flow {flow!r}) waits for a signal {signal!r}"
    "[; did you mean {nearest:or}?][; its flow waits for {known}]",
)


class RunActs:
    """The part of a client that acts on runs; an operator's client finds them in any namespace."""

    def __init__(self, access: Access) -> None:
        self.graphs = Graphs()
        self._access = access

    @property
    def codec(self) -> Codec:
        return self._access.codec

    async def store(self) -> Store:
        return await self._access.store.opened()

    async def runs(self) -> Runs:
        return Runs(await self.store(), self.graphs, self._access.codec)

    async def found(self, id: RunId) -> Run:
        """The run of this id; an operator's client must not take one of several."""
        store = await self.store()
        runs = await store.queries.list_runs(
            RunFilter(namespace=self._access.visible, id=id), NAMED_MAX
        )
        if not runs:
            raise RunNotFound(run_id=id)
        if len(runs) > 1:
            raise AmbiguousRun(run_id=id, namespaces=tuple(sorted(run.namespace for run in runs)))
        return runs[0]

    async def job(self, id: JobId) -> Job | None:
        """A job that this client may see, of a run or not."""
        store = await self.store()
        return await store.queries.get_job(self._access.visible, id)

    async def namespace_of(self, id: RunId) -> str:
        visible = self._access.visible
        return (await self.found(id)).namespace if visible is None else visible

    async def load(self, id: RunId) -> CachedRun:
        runs = await self.runs()
        return await runs.load(await self.namespace_of(id), id)

    async def act(self, id: RunId, trigger: Trigger) -> RunMoved:
        return await self.act_on(await self.found(id), trigger)

    async def act_on(self, before: Run, trigger: Trigger) -> RunMoved:
        runs = await self.runs()
        return moved(before, (await runs.apply(before.namespace, before.id, trigger)).run)

    async def signal(self, id: RunId, signal: SendSignal) -> RunMoved:
        """Deliver a signal, if some node of the run's flow waits for one of that name."""
        run = await self.found(id)
        store = await self.store()
        graph = await self.graphs.load(store, run.namespace, f"{run.flow}@{run.version}")
        if signal.name not in graph.signals:
            nearest = near(signal.name, graph.signals)
            raise InvalidInput(
                UNKNOWN_SIGNAL.fault(
                    run_id=id,
                    flow=run.flow,
                    signal=signal.name,
                    nearest=nearest,
                    known=() if nearest else tuple(sorted(graph.signals)),
                )
            )
        return await self.act_on(run, signal)

    async def cancel(self, id: RunId, asked: CancelRun) -> RunMoved:
        """Cancel a run, and then every live run below it."""
        before = await self.found(id)
        runs = await self.runs()
        after = (await runs.apply(before.namespace, id, asked)).run
        await self._cancel_children(runs, after, asked)
        return moved(before, after)

    async def retry(self, id: RunId, asked: RetryRun) -> RunMoved:
        """Start a run anew, once no run that it gave up is left: it starts others in their place.

        Workers cancel those too, but there may be none at work just now.
        """
        former = await self.load(id)
        if former.state.is_ended:
            reason = CancelRun(reason=f"its parent, run {id!r}, is started anew", by=asked.by)
            await self._cancel_children(await self.runs(), former, reason)
        return await self.act(id, asked)

    async def _cancel_children(self, runs: Runs, run: CachedRun, asked: CancelRun) -> None:
        reason = asked.reason or f"its parent, run {run.id!r}, was cancelled"
        of_child = CancelRun(reason=reason, by=asked.by, compensates=asked.compensates)

        async def cancel(child: RunId) -> None:
            try:
                cancelled = (await runs.apply(run.namespace, child, of_child)).run
            except (RunEnded, RunNotFound):
                return  # it was faster
            await self._cancel_children(runs, cancelled, asked)

        live = await self._live(run.namespace, run.state.children.values())
        for first in range(0, len(live), CHILDREN_AT_ONCE):
            chunk = live[first : first + CHILDREN_AT_ONCE]
            await asyncio.gather(*(cancel(child) for child in chunk))

    async def _live(self, namespace: str, ids: Iterable[RunId]) -> list[RunId]:
        asked = [(namespace, id) for id in ids]
        if not asked:
            return []
        store = await self.store()
        runs = await store.queries.get_runs(asked)
        return [run.id for run in runs if run is not None and run.status not in ENDED]


def moved(before: Run, after: CachedRun) -> RunMoved:
    return RunMoved(id=after.id, before=before.status, after=after.state.status)
