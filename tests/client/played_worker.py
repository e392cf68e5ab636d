"""A worker moved step by step: it claims and settles through the store, as a real one does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure.engine.failures import describe
from perdure.model.failure import Failure
from perdure.model.ids import WorkerId
from perdure.model.job import ClaimedJob, Progress, Status
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Retried,
    Settlement,
)
from perdure.model.partition import Partition
from perdure.model.payload import to_json
from perdure.store.contract import ClaimRequest, PartitionClaim, Store

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

    async def bury(self, job: ClaimedJob, error: BaseException) -> Status | None:
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
