"""What a client sees of a worker in another process, and how soon."""

from __future__ import annotations

import asyncio
import time

import pytest

from perdure import JobCancelled, Status
from tests.crash.crash_tasks import count, hang_once, report


async def test_abort_fires_within_a_second_in_another_process(client, shared_url, launch):
    worker = await launch(shared_url, abort_grace="50ms", lease="1h", poll="1m")
    took = []
    for _ in range(3):
        job = await client.enqueue(hang_once)
        await worker.told("AttemptStarted", job.id)
        began = time.monotonic()
        await job.cancel()
        await worker.told("AttemptAborting", job.id)
        took.append(time.monotonic() - began)
        with pytest.raises(JobCancelled):
            await job.result(10)

    assert sorted(took)[1] < 1


async def test_progress_is_seen_live_from_another_process(client, shared_url, launch, tmp_path):
    go = tmp_path / "go"
    await launch(shared_url)
    job = await client.enqueue(report, str(go))
    seen = []
    async with asyncio.timeout(20):
        async for update in job.watch():
            seen.append((update.status, update.progress.percent, update.progress.message))
            if update.progress.message == "half way":
                go.touch()

    assert (Status.ACTIVE, 50, "half way") in seen
    assert seen[-1] == (Status.COMPLETED, 100, "nearly done")


async def test_waiting_jobs_start_at_once_on_an_idle_worker_of_another_process(
    client, shared_url, launch, tmp_path
):
    log = str(tmp_path / "log")
    await launch(shared_url, poll="1m")
    took = []
    for number in range(5):
        began = time.monotonic()
        await (await client.enqueue(count, number, log)).result(10)
        took.append(time.monotonic() - began)

    assert sorted(took)[2] < 0.5
