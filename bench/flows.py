"""Runs: the cost of a step alone, among many, in long runs and in a fan-out; memory of waiting
runs.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from bench.flow_tasks import CHAINS, FLOWS
from bench.worker_process import worker_processes
from perdure import AsyncClient
from perdure.flows.built import BuiltFlow

FAN, WAITING = FLOWS[-2], FLOWS[-1]


async def step_ms(url: str, length: int, runs: int) -> float:
    """Milliseconds per step, one run at a time: from the first step's commit to the last one's."""
    times = []
    async with AsyncClient(url) as client:
        with worker_processes(url, 1, concurrency=10):
            for number in range(runs + 1):
                run = await client.submit(CHAINS[length], number)
                await run.result(timeout=120)
                events = await run.events()
                # Event 1 is the submission, the last one the end, which shares the last commit.
                took = (events[-1].at - events[1].at).total_seconds()
                times.append(took * 1000 / (length - 1))
    return median(times[1:])


async def many_at_once(url: str, runs: int, length: int = 10) -> float:
    """Steps per second of many concurrent runs, with one worker process."""
    async with AsyncClient(url) as client:
        await client.queues.pause("default")
        handles = [client.submit(CHAINS[length], number) for number in range(runs)]
        submitted = await asyncio.gather(*handles)
        with worker_processes(url, 1, concurrency=runs):
            began = time.perf_counter()
            await client.queues.resume("default")
            while await client.runs.count(status="running"):
                await asyncio.sleep(0.02)
            rate = runs * length / (time.perf_counter() - began)
        assert await client.runs.count(status="completed") == len(submitted)
        return rate


async def fan_ms(url: str, runs: int) -> float:
    """Milliseconds from submitting 1 -> 100 -> join to its end, on an idle worker."""
    times = []
    async with AsyncClient(url) as client:
        with worker_processes(url, 1, concurrency=100):
            for number in range(runs + 1):
                run = await client.submit(FAN, number)
                await run.result(timeout=60)
                record = await run.record()
                assert record.finished_at is not None
                times.append((record.finished_at - record.created_at).total_seconds() * 1000)
    return median(times[1:])


async def waiting_bytes(url: str, runs: int) -> float:
    """Memory of a worker per waiting run, after 10,000 of them."""
    async with AsyncClient(url) as client:
        with worker_processes(url, 1, concurrency=100) as processes:
            await _wait_for(client, WAITING, 500)
            before = _resident_bytes(processes[0])
            await _wait_for(client, WAITING, runs)
            return max(0.0, (_resident_bytes(processes[0]) - before) / runs)


async def _wait_for(client: AsyncClient, flow: BuiltFlow, runs: int) -> None:
    known = await client.runs.count(status="waiting")
    for start in range(0, runs, 500):
        some = range(start, min(runs, start + 500))
        await asyncio.gather(*(client.submit(flow, number) for number in some))
    while await client.runs.count(status="waiting") < known + runs:
        await asyncio.sleep(0.05)


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096
