"""Several processes on one store: each job is run by one of them."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.crash.crash_tasks import count

JOBS = 600


async def test_claim_two_processes_drain_one_queue_without_running_a_job_twice(
    client, shared_url, launch, tmp_path
):
    log = tmp_path / "log"
    workers = [await launch(shared_url, concurrency=8) for _ in range(2)]
    batches = await asyncio.gather(
        *(
            client.enqueue_many(count, [(number, str(log)) for number in numbers])
            for numbers in (range(start, start + 50) for start in range(0, JOBS, 50))
        )
    )
    jobs = [job for batch in batches for job in batch]
    results = await client.jobs.results(jobs, timeout=30)

    assert results == list(range(JOBS))
    ran = [line.split() for line in log.read_text().splitlines()]
    assert Counter(number for number, _ in ran) == Counter(map(str, range(JOBS)))
    assert {int(pid) for _, pid in ran} == {worker.pid for worker in workers}
    assert await client.jobs.count(status="completed") == JOBS
    assert [worker.errors for worker in workers] == ["", ""]


async def test_claim_of_two_processes_survives_that_one_is_killed_under_load(
    client, shared_url, launch, tmp_path
):
    log = tmp_path / "log"
    settings = {"concurrency": 8, "lease": "1s", "poll": "200ms"}
    jobs = await client.enqueue_many(count, [(number, str(log)) for number in range(JOBS)])
    victim = await launch(shared_url, **settings)
    await victim.told("AttemptCompleted")
    await victim.kill()
    await launch(shared_url, **settings)
    results = await client.jobs.results(jobs, timeout=30)

    assert results == list(range(JOBS))
    assert await client.jobs.count(status="completed") == JOBS == await client.jobs.count()
    assert {job.failures for job in await client.jobs.list(limit=1000)} == {0}
