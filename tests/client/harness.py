"""A worker that serves the flows of these tests, and waiting for what becomes of their runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

from perdure import (
    AsyncClient,
    AsyncJobHandle,
    AsyncJobQueue,
    AsyncRunHandle,
    EventRecord,
    QueuedJob,
    RunStatus,
    Worker,
)
from perdure.engine.failures import describe
from perdure.flows.built import BuiltFlow
from perdure.model.failure import Failure
from perdure.model.ids import WorkerId
from perdure.model.job import ClaimedJob, Progress, Status
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Retried,
    Settlement,
)
from perdure.model.partition import Partition
from perdure.model.payload import to_json
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.testing.wrapped_store import wrap_store
from tests.client.flows import FLOWS, add
from tests.support.watched_calls import WatchedCalls


@asynccontextmanager
async def worker_at(
    store: Store, flows: Sequence[BuiltFlow] = FLOWS, namespace: str = "default", **settings: Any
) -> AsyncIterator[Worker]:
    worker = Worker(store, flows=flows, namespace=namespace, **settings)
    started = asyncio.Event()
    serving = asyncio.create_task(worker.serve(started=started.set))
    await started.wait()
    yield worker
    worker.shutdown(grace=0)
    await serving


async def until(run: AsyncRunHandle, status: RunStatus) -> list[EventRecord]:
    """Follow a run until an event led to this status; its events so far."""
    seen: list[EventRecord] = []
    async with asyncio.timeout(20):
        async for event in run.watch():
            seen.append(event)
            if event.status is status:
                return seen
    raise AssertionError(f"run {run.id} ended without having been {status}")


async def held_next(queue: AsyncJobQueue) -> QueuedJob:
    job = await queue.dequeue("worker-1")
    assert job is not None
    return job


# A worker moved step by step: it claims and settles through the store, as a real one does.


MINUTE = timedelta(minutes=1)


class PlayedWorker:
    def __init__(self, store: Store, namespace: str = "default") -> None:
        self.store = store
        self.namespace = namespace
        self.id = WorkerId("played-worker")

    async def claim_all(self) -> list[ClaimedJob]:
        """Everything that waits, most urgent first."""
        poll = await self.store.maintenance.poll(self.namespace)
        partitions = [
            PartitionClaim(partition=text, queue=Partition.parse(text).queue)
            for text in poll.partitions
        ]
        request = ClaimRequest(
            namespace=self.namespace,
            worker=self.id,
            partitions=partitions,
            limit=1000,
            lease=MINUTE,
        )
        return (await self.store.jobs.claim(request)).jobs

    async def claim(self) -> ClaimedJob:
        [job] = await self.claim_all()
        return job

    async def complete(self, job: ClaimedJob, value: Any = None) -> Status | None:
        return await self.settle(job, Completed(output=to_json(value, "a result")))

    async def fail(self, job: ClaimedJob, error: BaseException) -> Status | None:
        return await self.settle(job, Failed(failure=describe(error)))

    async def dead_letter(self, job: ClaimedJob, error: BaseException) -> Status | None:
        return await self.settle(job, DeadLettered(failure=describe(error)))

    async def retry(self, job: ClaimedJob, error: BaseException) -> Status | None:
        return await self.settle(job, Retried(failure=describe(error)))

    async def cancel(self, job: ClaimedJob) -> Status | None:
        return await self.settle(job, Cancelled(failure=Failure(type="Stopped", message="")))

    async def report(self, job: ClaimedJob, percent: float, message: str = "") -> None:
        await self.store.jobs.save_progress(
            [(job.claim, Progress(percent=percent, message=message))]
        )

    async def settle(self, job: ClaimedJob, outcome: Outcome) -> Status | None:
        [status] = await self.store.jobs.settle([Settlement(claim=job.claim, outcome=outcome)])
        return status


class CountedStore(WatchedCalls):
    """A real store that counts what is asked of it, and can do something in between."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def as_store(self) -> Store:
        return cast(Store, self)

    def clone(self) -> Store:
        """The same store, which the test opened and closes: its calls are the ones counted."""
        return self.as_store()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(wrap_store(self._store, self.count), name)


async def job_that_is(
    status: Status, client: AsyncClient, worker: PlayedWorker
) -> AsyncJobHandle[int]:
    """A job of ``add`` in this status, by way of what leads there."""
    job = await client.enqueue(add, 1)
    failure = describe(ValueError("no money"))
    settled: dict[Status, Outcome] = {
        Status.COMPLETED: Completed(output=b"2"),
        Status.FAILED: Failed(failure=failure),
        Status.DEAD: DeadLettered(failure=failure),
        Status.PAUSED: Parked(),
    }
    if status in {Status.ACTIVE, Status.ABORTING, *settled}:
        claimed = await worker.claim()
        if status in settled:
            await worker.settle(claimed, settled[status])
    if status in {Status.ABORTING, Status.CANCELLED}:
        await job.cancel()
    elif status is Status.DISABLED:
        await client.jobs.disable(job.id)
    assert await job.status() is status
    return job
