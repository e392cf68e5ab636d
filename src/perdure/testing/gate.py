"""The kit's in-memory store, whose clock stands still until the test advances it.

The kit's worker sees it through a gate. While the gate is shut there is nothing to claim, so work
runs only when the test wants it to. The worker never sees anything due, because the kit itself
advances the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from dataclasses import replace as with_changes
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.diagnostics import declare
from perdure.engine.runs import Graphs, RunEngine
from perdure.engine.ticks import ScheduleTicker
from perdure.errors import InvalidInput, NotSettled
from perdure.flows.built import BuiltFlow
from perdure.inline import working
from perdure.model.hint import Hint, HintType
from perdure.model.job import DEFAULT_NAMESPACE, Claimed
from perdure.model.partition import Partition
from perdure.model.payload import PlainCodec
from perdure.model.worker import PollResult
from perdure.store.contract import ClaimRequest
from perdure.store.memory.jobs import MemoryJobs
from perdure.store.memory.maintenance import MemoryMaintenance
from perdure.store.memory.store import MemoryStore
from perdure.store.memory.transaction import Session
from perdure.tasks.task import Task
from perdure.testing.fakes import CallRecorder
from perdure.worker.due_work import DueSchedules, DueWaits, DueWork
from perdure.worker.grants import Grant
from perdure.worker.janitor import BATCH, promote_jobs, release_jobs
from perdure.worker.resources import Lifespan
from perdure.worker.secrets import Provider
from perdure.worker.worker import Worker

URL = "memory://"


class Gate:
    """Whether the worker may claim, and which claims returned nothing."""

    def __init__(self) -> None:
        self.is_open = False
        self.refused: set[str] = set()
        """Partitions at a limit: claims have returned nothing since the last change."""
        self.opens_at: datetime | None = None
        """When the first exhausted limit has room again."""

    def forget(self) -> None:
        """Something changed: retry partitions that were at a limit."""
        self.refused.clear()
        self.opens_at = None

    def refuse(self, request: ClaimRequest, claimed: Claimed) -> None:
        self.refused.update(partition.partition for partition in request.partitions)
        moments = [each for each in (self.opens_at, claimed.opens_at) if each is not None]
        self.opens_at = min(moments, default=None)


class KitStore:
    """The in-memory store, its clock, and the worker's handle on it."""

    def __init__(self, now: datetime | None) -> None:
        self.clock = ManualClock(now)
        self.gate = Gate()
        self.store = MemoryStore(URL, self.clock)
        self.workers_store = GatedStore(self.store, self.gate)

    def turn_to(self, moment: datetime) -> None:
        self.clock.advance(moment - self.clock())
        self.gate.forget()
        self.workers_store.refresh_workers()

    def hint_at(self, partitions: tuple[str, ...]) -> None:
        """Hint to the worker that these partitions may have jobs."""
        if partitions:
            self.workers_store.publish(Hint(type=HintType.READY, names=frozenset(partitions)))


class GatedStore(MemoryStore):
    """The store as the kit's worker sees it."""

    def __init__(self, store: MemoryStore, gate: Gate) -> None:
        super().__init__(store.url, session=store._session)
        self._gate = gate
        self.jobs = GatedJobs(store._session, gate)
        self.maintenance = TimelessMaintenance(store._session)

    def clone(self) -> GatedStore:
        return GatedStore(self, self._gate)

    def publish(self, hint: Hint) -> None:
        self._session.state.hub.publish(hint)

    def refresh_workers(self) -> None:
        """Workers do not expire: the clock stood still for them too."""
        state = self._session.state
        with state.lock:
            now, workers = self._session.clock(), state.workers
            for id, record in workers.items():
                workers[id] = with_changes(record, seen_at=now)


class GatedJobs(MemoryJobs):
    """Allows claims while the gate is open."""

    def __init__(self, session: Session, gate: Gate) -> None:
        super().__init__(session)
        self._gate = gate

    async def claim(self, request: ClaimRequest) -> Claimed:
        if not self._gate.is_open:
            return Claimed(jobs=[], now=self._session.clock())
        claimed = await super().claim(request)
        if not claimed.jobs:
            self._gate.refuse(request, claimed)
        return claimed


class TimelessMaintenance(MemoryMaintenance):
    """Reports nothing that is due later: the kit itself advances the clock."""

    async def poll(self, namespace: str, after_partition: str = "") -> PollResult:
        return replace(
            await super().poll(namespace, after_partition),
            next_due_at=None,
            next_lease_end_at=None,
            next_deadline_at=None,
            next_wait_at=None,
            next_tick_at=None,
        )


FLOW_WITHOUT_CODE = declare(
    "testing.flow_without_code",
    "a run of flow {flow!r} was submitted, and the kit has no code for it",
    "Pass the flow in `flows`, or add it with kit.add(flow)",
)
TASK_WITHOUT_CODE = declare(
    "testing.task_without_code",
    "a job of task {task!r} was enqueued, and the kit has no code for it",
    "Pass the task in `tasks`, or add it with kit.add(task)",
)


POLL_SECONDS = 0.05
"""How long to wait for a hint before polling again; usually one arrives immediately."""
LEASE = "1h"
"""It cannot expire: the clock stands still while a job runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KitWorkerSettings:
    """Settings of the kit's worker."""

    concurrency: int
    timeout: timedelta
    secrets: Provider | None
    grants: Sequence[Grant]
    allow_scripts: bool
    lifespan: Lifespan | None


class KitWorker:
    """The kit's worker: on request, runs until nothing is left to do."""

    def __init__(
        self, stores: KitStore, recorder: CallRecorder, settings: KitWorkerSettings
    ) -> None:
        self._stores = stores
        self._recorder = recorder
        self._settings = settings
        self._tasks: dict[str, Task[..., Any]] = {}
        self._flows: dict[str, BuiltFlow] = {}
        self._queues: set[str] = set()
        self._is_stale = True
        """A job needs code or a queue that the worker does not have."""
        self._working = AsyncExitStack()
        self._due_work: tuple[DueWork, ...] = ()
        self._changed = asyncio.Event()
        self._heard_count = 0
        self._at_work = asyncio.Lock()

    def add_task(self, task: Task[..., Any]) -> None:
        if task.name not in self._tasks:
            self._tasks[task.name] = self._recorder.task(task)
            self._is_stale = True

    def add_flow(self, flow: BuiltFlow) -> None:
        if flow.graph.text not in self._flows:
            self._flows.update(self._recorder.flow(flow).with_children())
            self._is_stale = True

    async def close(self) -> None:
        for work in self._due_work:
            await work.stop()
        await self._working.aclose()

    async def run_until_idle(self) -> None:
        """Run everything that can run now."""
        async with self._at_work:
            await self._run_until_idle()

    async def work_on(self) -> None:
        """Run whatever arrives, until cancelled."""
        asked = asyncio.Event()
        unsubscribe = self._stores.store.subscribe(lambda hint: asked.set())
        try:
            while True:
                await self.run_until_idle()
                asked.clear()  # anything that arrives from here on is not done yet
                await asked.wait()
        finally:
            unsubscribe()

    async def _run_until_idle(self) -> None:
        self._recorder.refuse_unknown_fakes()
        self._stores.gate.forget()
        self._stores.gate.is_open = True
        unsubscribe = self._stores.store.subscribe(self._hear)
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                await self._work()
        except TimeoutError:
            raise NotSettled(
                running=await self._still_running(), timeout=self._settings.timeout
            ) from None
        finally:
            unsubscribe()
            self._stores.gate.is_open = False
        if self._recorder.refused:
            first = self._recorder.refused[0]
            self._recorder.refused.clear()
            raise first

    async def next_due_at(self) -> datetime | None:
        """When the next thing is due, later than now."""
        poll = await self._poll()
        moments = (
            poll.next_due_at,
            poll.next_sticky_at,
            poll.next_deadline_at,
            poll.next_wait_at,
            poll.next_tick_at,
            self._stores.gate.opens_at,
        )
        later = [each for each in moments if each is not None and each > poll.now]
        return min(later, default=None)

    async def _work(self) -> None:
        while True:
            heard = self._heard_count
            self._changed.clear()
            poll = await self._poll()
            await self._prepare(poll)
            if await self._is_idle(poll):
                # Hints of the last writes arrive in the next iterations of the event loop.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                if heard == self._heard_count:
                    return
                continue
            self._stores.hint_at(tuple(self._askable(poll)))
            await self._wait_for_hint()

    async def _is_idle(self, poll: PollResult) -> bool:
        """Process what is due; return whether the worker is idle."""
        if _is_due(poll.next_due_at, poll):
            await promote_jobs(self._stores.store, DEFAULT_NAMESPACE)
            self._changed.set()
            return False
        if _is_due(poll.next_deadline_at, poll):
            await self._stores.store.maintenance.expire_deadlines(DEFAULT_NAMESPACE, BATCH)
            self._changed.set()
            return False
        if poll.next_sticky_at is not None and await release_jobs(
            self._stores.store, DEFAULT_NAMESPACE
        ):
            self._changed.set()
            return False
        due = [work for work in self._due_work if _is_due(work.due_at(poll), poll)]
        for work in due:
            work.process(self._changed.set)
        return not due and poll.next_lease_end_at is None and not any(self._askable(poll))

    def _askable(self, poll: PollResult) -> list[str]:
        """Partitions with jobs that are not known to be at a limit."""
        return [
            text
            for text in poll.partitions
            if text not in self._stores.gate.refused
            and Partition.parse(text).queue not in poll.paused
        ]

    async def _wait_for_hint(self) -> None:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _prepare(self, poll: PollResult) -> None:
        """Make sure that the worker has the code and queues of all waiting jobs."""
        for partition in map(Partition.parse, poll.partitions):
            self._refuse_without_code(partition)
            if partition.queue not in self._queues:
                self._queues.add(partition.queue)
                self._is_stale = True
        if self._is_stale:
            self._is_stale = False
            await self._restart()

    def _refuse_without_code(self, partition: Partition) -> None:
        if partition.flow and partition.flow not in self._flows:
            raise InvalidInput(FLOW_WITHOUT_CODE.fault(flow=partition.flow))
        if not partition.flow and partition.task not in self._tasks:
            raise InvalidInput(TASK_WITHOUT_CODE.fault(task=partition.task))

    async def _restart(self) -> None:
        await self.close()
        if not self._tasks and not self._flows:
            return
        store, flows = self._stores.store, list(self._flows.values())
        graphs = Graphs(graph for flow in flows for graph in flow.graphs)
        runs = RunEngine(store, graphs, PlainCodec())
        self._due_work = (
            DueWaits(store, runs, DEFAULT_NAMESPACE),
            DueSchedules(store, ScheduleTicker(runs), DEFAULT_NAMESPACE),
        )
        await self._working.enter_async_context(working(self._new_worker(flows)))

    def _new_worker(self, flows: list[BuiltFlow]) -> Worker:
        worker = Worker(
            self._stores.workers_store,
            tasks=list(self._tasks.values()),
            flows=flows,
            concurrency=self._settings.concurrency,
            id="kit",
            lease=LEASE,
            hold_off="0s",
            keep_completed=None,
            keep_failed=None,
            secrets=self._settings.secrets,
            grants=self._settings.grants,
            allow_scripts=self._settings.allow_scripts,
            lifespan=self._settings.lifespan,
        )
        self._queues |= set(worker.settings.queues)
        if self._queues:  # none, if all nodes only wait
            worker.adjust(queues=sorted(self._queues))
        return worker

    async def _poll(self) -> PollResult:
        return await self._stores.store.maintenance.poll(DEFAULT_NAMESPACE)

    async def _still_running(self) -> str:
        workers = await self._stores.store.queries.workers(DEFAULT_NAMESPACE)
        ids = [id for worker in workers for id in worker.running]
        jobs = [await self._stores.store.queries.get_job(DEFAULT_NAMESPACE, id) for id in ids]
        return ", ".join(sorted({repr(job.task) for job in jobs if job is not None}))

    def _hear(self, hint: Hint) -> None:
        self._heard_count += 1
        self._stores.gate.forget()
        self._changed.set()


def _is_due(moment: datetime | None, poll: PollResult) -> bool:
    return moment is not None and moment <= poll.now
