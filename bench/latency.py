"""Start latency on an idle system: from calling enqueue to the first line of the task."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import quantiles

from bench.tasks import stamp
from bench.worker_process import worker_processes
from perdure import AsyncClient


async def start_latency(url: str, samples: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds, client and worker in different processes."""
    times = []
    async with AsyncClient(url) as client:
        with worker_processes(url, 1, concurrency=10):
            for number in range(samples + 10):
                await asyncio.sleep(random.uniform(0.02, 0.06))
                began = time.time()
                job = await client.enqueue(stamp)
                started = await job.result(timeout=30)
                if number >= 10:
                    times.append((started - began) * 1000)
    cuts = quantiles(times, n=100)
    return cuts[49], cuts[98]
