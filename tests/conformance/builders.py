"""Builders and drivers with defaults, so that a test shows only what matters to it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from perdure.clock import new_id
from perdure.model.failure import Failure
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claim, Claimed, FailedAttempt, Job, JobState, NewJob, Status
from perdure.model.limit import LimitRule
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
from perdure.model.worker import WorkerInfo
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.store.lifecycle import Transition

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=30)
AGING = timedelta(minutes=5)

NAMESPACE = "default"
PARTITION = Partition(queue="mail", task="send")
WORKER = WorkerId("worker-1")
OTHER_WORKER = WorkerId("worker-2")


def new_job(**changes: Any) -> NewJob:
    job = NewJob(
        id=JobId(new_id()),
        namespace=NAMESPACE,
        partition=PARTITION,
        priority=3,
        aging=AGING,
        input=b"{}",
        input_hash=1,
    )
    return replace(job, **changes)


def failure(message: str = "no route to host") -> Failure:
    return Failure(type="OSError", message=message)


def request(
    *partitions: Partition, rules: tuple[LimitRule, ...] = (), **changes: Any
) -> ClaimRequest:
    wanted = ClaimRequest(
        namespace=NAMESPACE,
        worker=WORKER,
        partitions=[
            PartitionClaim(partition=partition.text, queue=partition.queue, rules=rules)
            for partition in partitions or (PARTITION,)
        ],
        limit=100,
        lease=LEASE,
    )
    return replace(wanted, **changes)


async def insert(store: Store, **changes: Any) -> JobId:
    [inserted] = await store.jobs.insert([new_job(**changes)])
    return inserted.id


async def insert_many(store: Store, count: int, **changes: Any) -> list[JobId]:
    inserted = await store.jobs.insert([new_job(**changes) for _ in range(count)])
    return [each.id for each in inserted]


async def claim(store: Store, *partitions: Partition, **changes: Any) -> Claimed:
    return await store.jobs.claim(request(*partitions, **changes))


async def claim_ids(store: Store, *partitions: Partition, **changes: Any) -> list[JobId]:
    claimed = await claim(store, *partitions, **changes)
    return [job.claim.id for job in claimed.jobs]


async def claim_one(store: Store, *partitions: Partition, **changes: Any) -> Claim:
    claimed = await claim(store, *partitions, limit=1, **changes)
    [job] = claimed.jobs
    return job.claim


async def hold(
    store: Store, *, worker: WorkerId = WORKER, lease: timedelta = LEASE, **changes: Any
) -> Claim:
    """Insert a job and claim it. Nothing else may wait in its partition."""
    job = new_job(**changes)
    await store.jobs.insert([job])
    held = await claim_one(
        store, job.partition, namespace=job.namespace, worker=worker, lease=lease
    )
    assert held.id == job.id, "another job of the partition was claimed instead"
    return held


async def settle(store: Store, claim: Claim, outcome: Outcome, **changes: Any) -> Status | None:
    settlement = Settlement(claim=claim, outcome=outcome)
    [status] = await store.jobs.settle([replace(settlement, **changes)])
    return status


async def close_limit(store: Store, namespace: str, key: str, until: datetime) -> None:
    """Let nothing start under ``key`` before ``until``, as an attempt does that met the limit."""
    held = await hold(
        store, namespace=namespace, partition=Partition(queue="default", task="closer")
    )
    await settle(store, held, Retried(failure=failure(), until=until, closes_limit=key))


async def put_in(store: Store, status: Status, **changes: Any) -> Claim:
    """Bring a new job into a status; the claim is its last one, or what one would look like."""
    outcomes: dict[Status, Outcome] = {
        Status.COMPLETED: Completed(output=b"1"),
        Status.FAILED: Failed(failure=failure()),
        Status.DEAD: DeadLettered(failure=failure()),
        Status.CANCELLED: Cancelled(),
        Status.PAUSED: Parked(),
    }
    if status is Status.SCHEDULED:
        changes.setdefault("delay", MINUTE)
    if status in (Status.WAITING, Status.SCHEDULED, Status.DISABLED):
        held = Claim(id=await insert(store, **changes), epoch=0)
    else:
        held = await hold(store, **changes)
    if status is Status.DISABLED:
        await store.admin.change_jobs(Transition.DISABLE, None, [held.id])
    elif status is Status.ABORTING:
        await store.admin.change_jobs(Transition.ABORT, None, [held.id])
    elif status in outcomes:
        await settle(store, held, outcomes[status])
    assert await status_of(store, held.id) is status
    return held


async def read(store: Store, id: JobId) -> Job:
    job = await store.queries.get_job(None, id)
    assert job is not None, f"job {id} is not there"
    return job


async def status_of(store: Store, id: JobId) -> Status:
    return (await read(store, id)).status


async def record_of(
    store: Store, id: JobId
) -> tuple[Job | None, JobState | None, list[FailedAttempt]]:
    """Everything that can be read of one job."""
    states = await store.queries.job_states([id])
    return (
        await store.queries.get_job(None, id),
        states.get(id),
        await store.queries.failed_attempts(id),
    )


def worker_info(**changes: Any) -> WorkerInfo:
    info = WorkerInfo(
        id=WORKER,
        namespace=NAMESPACE,
        host="host-1",
        pid=4711,
        queues=("mail", "default"),
        tasks=("send",),
        tags=None,
        concurrency=16,
        lease=LEASE,
        flows=("orders@v1", "orders@v2"),
    )
    return replace(info, **changes)
