"""Schedules whose workers are killed: each tick starts one job, and none is forgotten."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

from perdure import AsyncClient, ScheduleRecord
from tests.crash.crash_tasks import hang_once

WAIT_SECONDS = 40.0
BRISK = {"lease": "1s", "poll": "200ms"}
SECOND = timedelta(seconds=1)


async def ticked(client: AsyncClient, count: int) -> ScheduleRecord:
    """Look until so many ticks have started something."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (record := await client.schedules.get("often")).started < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return record


async def test_each_tick_starts_one_job_whoever_is_killed(client, shared_url, launch):
    first, _ = [await launch(shared_url, **BRISK) for _ in range(2)]
    # Cancelling, each tick starts something, whatever became of the last one.
    await client.schedules.save("often", hang_once, every="1s", overlap="cancel", catch_up="all")
    await ticked(client, 1)
    await first.kill()

    await ticked(client, 4)
    record = await client.schedules.pause("often")

    ticks = [each.at for each in record.history]
    assert {after - before for before, after in pairwise(ticks)} == {SECOND}
    assert (record.missed, record.skipped, record.failed) == (0, 0, 0)
    jobs = {job.id for job in await client.jobs.list(task=hang_once)}
    assert {each.job for each in record.history} <= jobs
    assert record.started == len(jobs)
