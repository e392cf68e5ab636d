"""Behaviour 6: a retry prefers another worker; a lone worker still makes progress."""

from __future__ import annotations

import time

from perdure import CONTEXT, AsyncContext, Retry, task
from perdure.worker.events import AttemptRetried

AT_ONCE = Retry(3, first=0, jitter=False)


async def test_soft_affinity_gives_a_retry_to_another_worker(client, start_worker):
    ran_on: list[str] = []

    @task(retries=AT_ONCE)
    async def work(ctx: AsyncContext = CONTEXT) -> str:
        ran_on.append(ctx.worker)
        if len(ran_on) == 1:
            raise ValueError("not here")
        return ctx.worker

    for name in ("one", "two"):
        await start_worker(work, id=name, hold_off="1h")
    job = await client.enqueue(work)
    finished_on = await job.result(10)

    assert len(ran_on) == 2
    assert ran_on[0] != finished_on


async def test_soft_affinity_holds_a_lone_worker_off_for_a_while_only(client, start_worker):
    starts: list[float] = []

    @task(retries=AT_ONCE)
    async def work() -> str:
        starts.append(time.monotonic())
        if len(starts) == 1:
            raise ValueError("again")
        return "done"

    await start_worker(work, hold_off="300ms", poll="1m")
    job = await client.enqueue(work)

    assert await job.result(10) == "done"
    assert 0.3 <= starts[1] - starts[0] < 1.5


async def test_soft_affinity_of_one_job_holds_up_no_other(client, start_worker):
    @task(retries=AT_ONCE)
    async def work(name: str) -> str:
        if name == "bad":
            raise ValueError("again")
        return name

    worker = await start_worker(work, hold_off="1h", concurrency=1)
    bad = await client.enqueue(work, "bad")
    await worker.told(AttemptRetried, bad.id)
    good = await client.enqueue(work, "good")

    assert await good.result(10) == "good"
    assert (await bad.record()).attempt == 1
