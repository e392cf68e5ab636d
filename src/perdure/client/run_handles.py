"""A handle on one run: wait for its result, watch it, read what it did, act on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from perdure.client.access import Access
from perdure.client.approval_records import ApprovalRecord
from perdure.client.handles import LAST_LOOK_SECONDS
from perdure.client.run_log import RunLog
from perdure.client.run_nodes import NodeRecord, completed_refs, node_record, output_of
from perdure.client.run_records import ChildRun, EventRecord, RunMoved, RunRecord, child_run
from perdure.client.run_results import read_result, run_ended_badly, typed_result
from perdure.client.run_sights import RunSight, sights
from perdure.engine.cached_run import CachedRun
from perdure.errors import RunNotFound, RunTimeout
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.ids import RunId
from perdure.model.run import ENDED, Run, RunStatus
from perdure.model.times import Duration
from perdure.operations.insight.lineage import Lineage
from perdure.operations.insight.timeline import timeline_of
from perdure.render.diagram import Diagram, diagram_of_run
from perdure.render.timeline import Timeline
from perdure.store.contract import EventsAfter

if TYPE_CHECKING:
    from perdure.client.runs import AsyncRuns


class AsyncRunHandle:
    """One run, as an :class:`AsyncClient` knows it. ``is_new`` is False when submitting found a
    run of this id and returned that."""

    __slots__ = ("_access", "_client", "_flow", "id", "is_new")

    def __init__(
        self,
        client: AsyncRuns,
        access: Access,
        id: RunId,
        flow: BuiltFlow | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        self._client = client
        self._access = access
        self._flow = flow
        self.id = id
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait until the run has ended; its result, as its last task's return annotation says.

        Raises ``RunFailed`` or ``RunCancelled`` if it ended without one, and ``RunTimeout`` after
        ``timeout``. A handle that has no flow gives plain values.
        """
        seconds = None if timeout is None else check.span(timeout, "timeout").total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._outcome(await self._ended())
        except TimeoutError:
            if seconds is None:
                raise
        last = await self._last_look()
        if last is not None and last.status in ENDED:
            return await self._outcome(last)
        status = "unknown, for the store does not answer" if last is None else last.status
        raise RunTimeout(run_id=self.id, timeout=seconds, status=status)

    async def status(self) -> RunStatus:
        return (await self.record()).status

    async def record(self) -> RunRecord:
        """What the store knows of it: flow, version, status, times, and why."""
        return await self._client.run(self.id)

    async def events(self) -> list[EventRecord]:
        """Everything that has happened in it, in order."""
        store = await self._access.store.opened()
        [loaded] = await store.runs.load([await self._after(0)])
        if loaded is None:
            raise RunNotFound(run_id=self.id)
        return RunLog(self.id, self._access.codec).take(loaded.events)

    async def outputs(self) -> dict[str, Any]:
        """The outputs of its completed nodes in the flow's order, as plain values."""
        run = await self._with_outputs()
        return {id: output_of(run, ref) for id, ref in completed_refs(run).items()}

    async def nodes(self) -> list[NodeRecord]:
        """Every node of its flow in the flow's order, how far it is, and its output."""
        run = await self._with_outputs()
        return [node_record(run, node) for node in run.graph.nodes.values()]

    async def children(self) -> list[ChildRun]:
        """The runs it started and what became of them; of a part that was retried, the last."""
        run = await self._client._acts.load(self.id)
        started = sorted(run.state.children.items())
        store = await self._access.store.opened()
        found = await store.queries.get_runs([(run.namespace, id) for _, id in started])
        return [child_run(key, id, each) for (key, id), each in zip(started, found, strict=True)]

    async def approvals(self) -> list[ApprovalRecord]:
        """What people are to decide in it just now."""
        return await self._client._approvals_of(self.id)

    async def lineage(self) -> Lineage:
        """Which upstream values each of its nodes used."""
        return await self._client.lineage(self.id)

    async def picture(self) -> Diagram:
        """How far each of its nodes is, to be drawn."""
        run = await self._client._acts.load(self.id)
        return diagram_of_run(self.id, run.graph, run.state)

    async def timeline(self) -> Timeline:
        """When each of its nodes was queued or at work and when it waited, up to now."""
        store = await self._access.store.opened()
        [loaded] = await store.runs.load([await self._after(0)])
        if loaded is None:
            raise RunNotFound(run_id=self.id)
        return timeline_of(self.id, loaded.events, await store.now())

    async def watch(self) -> AsyncGenerator[EventRecord, None]:
        """Its events from the first on, as they happen, each with the status it led to.

        Ends once the run has; raises ``RunNotFound`` if it was removed, or replaced by another.
        """
        namespace = await self._client._acts.namespace_of(self.id)
        store = await self._access.store.opened()
        log = RunLog(self.id, self._access.codec)
        first: Run | None = None
        with self._access.waiting_for_runs.watch((namespace, self.id), is_close=True) as watch:
            while first is None or not log.state.is_ended:
                await watch.next()
                after = EventsAfter(namespace=namespace, id=self.id, number=log.state.number)
                [loaded] = await store.runs.load([after])
                if loaded is None or (first and first.created_at != loaded.run.created_at):
                    raise RunNotFound(run_id=self.id)
                first = first or loaded.run
                for event in log.take(loaded.events):
                    yield event

    def sights(self) -> AsyncGenerator[RunSight, None]:
        """It as it stands, with who works on it and what it waits for, until it has ended.

        One comes at once, others after what happens, and some in between, for the progress that
        bodies tell. Each has the events since the one before.
        """
        return sights(self._access, self._client._acts, self.id)

    async def signal(self, name: str, payload: Any = None, *, by: str | None = None) -> RunMoved:
        """Bring it a signal; kept until a node takes it."""
        return await self._client.signal(self.id, name, payload, by=by)

    async def pause(self, *, reason: str | None = None, by: str | None = None) -> RunMoved:
        """Start nothing of it until it is unpaused; what is running is taken from its workers."""
        return await self._client.pause(self.id, reason=reason, by=by)

    async def unpause(self, *, by: str | None = None) -> RunMoved:
        """Let it go on where it was paused."""
        return await self._client.unpause(self.id, by=by)

    async def cancel(
        self, *, reason: str | None = None, by: str | None = None, compensate: bool = False
    ) -> RunMoved:
        """End it, and its children; with ``compensate``, after undoing what it completed."""
        return await self._client.cancel(self.id, reason=reason, by=by, compensate=compensate)

    async def retry(self, *, by: str | None = None) -> RunMoved:
        """Start it anew from what failed or was stopped, keeping what is completed."""
        return await self._client._retry_run(self.id, by)

    async def _ended(self) -> Run:
        key = (await self._client._acts.namespace_of(self.id), self.id)
        with self._access.waiting_for_runs.watch(key) as watch:
            while True:
                run = await watch.next()
                if run is None:
                    raise RunNotFound(run_id=self.id)
                if run.status in ENDED:
                    return run

    async def _outcome(self, run: Run) -> Any:
        if (error := run_ended_badly(run)) is not None:
            raise error
        store = await self._access.store.opened()
        return typed_result(await read_result(store, run, self._access.codec), self._flow)

    async def _with_outputs(self) -> CachedRun:
        run = await self._client._acts.load(self.id)
        runs = await self._client._acts.runs()
        await runs.read_values(run, sorted(set(completed_refs(run).values())))
        return run

    async def _last_look(self) -> Run | None:
        """The run now, unless the store takes its time: who gave a timeout means it."""
        try:
            async with asyncio.timeout(LAST_LOOK_SECONDS):
                return await self.record()
        except TimeoutError:
            return None

    async def _after(self, number: int) -> EventsAfter:
        namespace = await self._client._acts.namespace_of(self.id)
        return EventsAfter(namespace=namespace, id=self.id, number=number)
