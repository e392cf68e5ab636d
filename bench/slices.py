"""``python -m bench.slices URL``: measure a short slice of one row for each line on stdin.

One client and one worker process keep running in between, so a slice takes a fraction of a second
and two trees can alternate on one machine (``bench.compare``).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

from bench.drain import AnyNoop
from bench.flow_tasks import CHAINS
from bench.tasks import noop, noop_sync
from bench.worker_process import worker_processes
from perdure import AsyncClient

Slice = Callable[[AsyncClient], Awaitable[float]]


async def single_enqueue(client: AsyncClient) -> float:
    """Milliseconds per job, each awaited before the next."""
    return await _enqueue_and_drain(client, singles=60)


async def bulk_enqueue(client: AsyncClient) -> float:
    """Milliseconds for 3,000 jobs."""
    began = time.perf_counter()
    handles = await client.enqueue_many(noop, range(3_000))
    took = time.perf_counter() - began
    await handles[-1].result(timeout=60)
    await _drained(client)
    return took * 1000


async def drain(client: AsyncClient) -> float:
    """Milliseconds until an async task has completed 1,500 jobs."""
    return await _drain(client, noop)


async def drain_sync(client: AsyncClient) -> float:
    """Milliseconds until a sync task, in threads, has completed 1,500 jobs."""
    return await _drain(client, noop_sync)


async def step(client: AsyncClient) -> float:
    """Milliseconds per step of one run of ten, alone: from the first commit to the last."""
    times = []
    for number in range(6):
        run = await client.submit(CHAINS[10], number)
        await run.result(timeout=60)
        events = await run.events()
        times.append((events[-1].at - events[1].at).total_seconds() * 1000 / 9)
    return median(times)


async def steps_at_once(client: AsyncClient) -> float:
    """Milliseconds for 60 concurrent runs of ten steps."""
    began = time.perf_counter()
    runs = await asyncio.gather(*(client.submit(CHAINS[10], number) for number in range(60)))
    await asyncio.gather(*(run.result(timeout=60) for run in runs))
    return (time.perf_counter() - began) * 1000


SLICES: dict[str, Slice] = {
    "single enqueue": single_enqueue,
    "bulk enqueue": bulk_enqueue,
    "drain": drain,
    "drain, sync bodies": drain_sync,
    "step": step,
    "steps at once": steps_at_once,
}


async def _enqueue_and_drain(client: AsyncClient, singles: int) -> float:
    began = time.perf_counter()
    for number in range(singles):
        await client.enqueue(noop, number)
    took = time.perf_counter() - began
    await _drained(client)
    return took * 1000 / singles


async def _drain(client: AsyncClient, task: AnyNoop) -> float:
    await client.queues.pause("default")
    await client.enqueue_many(task, range(1_500))
    began = time.perf_counter()
    await client.queues.resume("default")
    await _drained(client)
    return (time.perf_counter() - began) * 1000


async def _drained(client: AsyncClient) -> None:
    for status in ("waiting", "active"):
        while await client.jobs.list(status=status, limit=1):
            await asyncio.sleep(0.005)


async def main() -> None:
    url = sys.argv[1]
    async with AsyncClient(url) as client:
        with worker_processes(url, 1):
            print("ready", flush=True)
            while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
                print(await SLICES[name](client), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
