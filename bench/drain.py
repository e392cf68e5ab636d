"""Draining no-op jobs with worker processes: from the opening of the queue to the last result."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from bench import raw_postgres, raw_sqlite
from bench.tasks import noop
from bench.worker_process import worker_processes
from perdure import AsyncClient, Task

AnyNoop = Task[[int], int]


async def drain(
    url: str, jobs: int, processes: int, task: AnyNoop = noop, *, is_followed: bool = False
) -> float:
    """Jobs per second, with stored results and fencing.

    If it is followed, with a subscriber to the starts and ends of all jobs in this process.
    """
    async with AsyncClient(url) as client:
        await client.queues.pause("default")
        await client.enqueue_many(task, range(jobs))
        with worker_processes(url, processes):
            if is_followed:
                types = ["job.started", "job.completed"]
                await client.events.subscribe(lambda _: None, types=types)
            began = time.perf_counter()
            await client.queues.resume("default")
            for status in ("waiting", "active"):
                while await client.jobs.list(status=status, limit=1):
                    await asyncio.sleep(0.01)
            rate = jobs / (time.perf_counter() - began)
        completed = await client.jobs.count(status="completed")
        assert completed == jobs, f"{completed} of {jobs} completed"
        return rate


async def raw_drain_postgres(url: str, jobs: int, processes: int) -> float:
    await raw_postgres.insert_bulk(url, jobs)
    command = [sys.executable, "-m", "bench.raw_postgres", url]
    pipe = subprocess.PIPE
    children = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(processes)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    began = time.perf_counter()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    done = 0
    for child in children:
        out, _ = child.communicate(timeout=300)
        done += int(out)
    assert done == jobs, f"{done} of {jobs} acknowledged"
    return jobs / (time.perf_counter() - began)


def raw_drain_sqlite(path: Path, jobs: int) -> float:
    raw_sqlite.insert_bulk(path, jobs)
    return raw_sqlite.drain(path)
