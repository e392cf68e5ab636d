"""Prefetched jobs wait for a slot for a moment, each from its own claim on."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from perdure import Worker, task
from perdure.model.ids import WorkerId
from perdure.model.job import Claimed
from perdure.model.partition import Partition
from perdure.model.payload import PlainCodec
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.tasks.node_type import TaskRegistry
from perdure.worker.attempt import Attempt
from perdure.worker.code import FlowCode, TaskCode
from perdure.worker.events import WorkerEvents
from perdure.worker.runner import JobRunner
from perdure.worker.secrets import Secrets
from tests.worker.harness import WAIT_SECONDS, Gate

WORKER = WorkerId("worker")


async def test_what_was_claimed_since_is_not_requeued_with_what_waited_too_long(client, store):
    gate = Gate()

    @task
    async def wait() -> None:
        await gate.pass_through()

    settings = Worker(store, tasks=[wait], concurrency=1).settings
    code = TaskCode(TaskRegistry([wait]), FlowCode([]), Secrets(None))
    runner = JobRunner(store, code, settings, WORKER, PlainCodec(), WorkerEvents(WORKER))
    for _ in range(3):
        await client.enqueue(wait)
    claims = [await claimed_one(store, wait.name) for _ in range(3)]
    for claimed in claims:
        runner.take(claimed, is_fresh=True)
    _running, early, late = list(runner.claimed.values())

    await is_over(early)
    is_late_too = late.is_over
    await is_over(late)  # which has a timer of its own
    gate.open()
    runner.stop()
    await runner.is_idle.wait()
    await runner.commits.flush()
    runner.close()
    counts = [await client.jobs.count(status=status) for status in ("waiting", "completed")]
    assert counts == [2, 1]
    assert not is_late_too


async def is_over(attempt: Attempt) -> None:
    """Turn by turn of the loop: between two timers there is one."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not attempt.is_over:  # noqa: ASYNC110 (nobody would set an event)
            await asyncio.sleep(0)


async def claimed_one(store: Store, task: str) -> Claimed:
    partition = Partition(queue="default", task=task)
    claimed = await store.jobs.claim(
        ClaimRequest(
            namespace="default",
            worker=WORKER,
            partitions=[PartitionClaim(partition=partition.text, queue="default")],
            limit=1,
            lease=timedelta(minutes=1),
        )
    )
    assert len(claimed.jobs) == 1
    return claimed
