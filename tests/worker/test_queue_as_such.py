"""Behaviour 16: the narrow queue and workers share jobs, under the same fence."""

from __future__ import annotations

import pytest

from perdure import AsyncJobQueue, ClaimLost, Status, task
from perdure.worker.events import AttemptCompleted, AttemptStarted
from tests.worker.harness import Gate


async def test_queue_as_such_holds_a_job_that_no_worker_then_takes(client, store_url, start_worker):
    @task
    async def work(name: str) -> str:
        return name

    async with AsyncJobQueue(store_url) as queue:
        job = await client.enqueue(work, "by hand")
        held = await queue.dequeue("somebody")
        assert held is not None
        worker = await start_worker(work)
        assert await (await client.enqueue(work, "by worker")).result(10) == "by worker"
        await queue.ack(held, "done by hand")

    assert await job.result(10) == "done by hand"
    assert len(worker.all(AttemptStarted)) == 1


async def test_queue_as_such_gives_a_job_that_failed_to_a_worker(client, store_url, start_worker):
    @task
    async def work(name: str) -> str:
        return name

    async with AsyncJobQueue(store_url) as queue:
        job = await client.enqueue(work.options(max_attempts=3, retries=0), "ours")
        held = await queue.dequeue("somebody")
        assert held is not None
        await queue.release(held)
        assert await job.status() is Status.PAUSED
        await queue.resume(job.id)
        worker = await start_worker(work)
        await worker.told(AttemptCompleted, job.id)

        with pytest.raises(ClaimLost):
            await queue.ack(held, "too late")
    assert await job.result(10) == "ours"
    assert (await job.record()).attempt == 1


async def test_queue_as_such_takes_nothing_that_a_worker_holds(client, store_url, start_worker):
    gate = Gate()

    @task
    async def work() -> str:
        await gate.pass_through()
        return "done"

    await start_worker(work)
    job = await client.enqueue(work)
    await gate.reached()
    async with AsyncJobQueue(store_url) as queue:
        assert await queue.dequeue("somebody") is None
    gate.open()

    assert await job.result(10) == "done"
