"""Runs that wait: how soon a decision starts what follows, and what ten thousand of them cost."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import asyncpg

from bench.idle import statements_per_minute
from bench.waiting_tasks import ASKED, ASKED_OTHERS, TOLD
from bench.worker_process import worker_processes
from perdure import AsyncClient, AsyncRunHandle
from perdure.model.flow import BuiltFlow

AT_ONCE = 50
WARM_UP = 10
IDLE_SECONDS = 20.0
PAGE = 50
LOOKS = 20
OTHERS = 100
"""Approvals for other people among all that wait."""
TOLD_RUNS = 1_000


@dataclass(frozen=True)
class Decisions:
    """Milliseconds from a decision to the first line of what follows it, in another process."""

    p50: float
    """From the call of ``decide``."""
    p99: float
    after_p50: float
    """From its return; below zero if the body began before the client had its answer."""
    call_p50: float
    """How long the call took."""


@dataclass(frozen=True)
class Waiting:
    """What so many runs that wait for people cost."""

    alone: Decisions
    among: Decisions
    """With all the others waiting."""
    opened_per_second: float
    """From submitting the first to the last one's wait, with one worker process."""
    bytes_each: float
    idle_before: float
    """Processor time of an idle worker, in milliseconds a second."""
    idle_after: float
    inbox_ms: float
    """One page of those whom all of them wait for."""
    other_inbox_ms: float
    """The inbox of somebody whom few of them wait for."""
    broadcast_ms: float
    """A signal for a thousand further runs."""


async def waiting(url: str, runs: int, samples: int) -> Waiting:
    async with AsyncClient(url) as client:
        with worker_processes(url, 1, concurrency=100) as [worker]:
            alone = await decisions(client, samples)
            idle_before = await _processor_ms(worker, IDLE_SECONDS)
            await _opened(client, ASKED_OTHERS, OTHERS)
            bytes_before = await _stored_bytes(url)
            began = time.perf_counter()
            await _opened(client, ASKED, runs)
            opened_per_second = runs / (time.perf_counter() - began)
            bytes_each = (await _stored_bytes(url) - bytes_before) / runs
            return Waiting(
                alone=alone,
                idle_before=idle_before,
                opened_per_second=opened_per_second,
                bytes_each=bytes_each,
                among=await decisions(client, samples),
                idle_after=await _processor_ms(worker, IDLE_SECONDS),
                inbox_ms=await _inbox_ms(client, "finance"),
                other_inbox_ms=await _inbox_ms(client, "legal"),
                broadcast_ms=await _broadcast_ms(client, TOLD_RUNS),
            )


async def decisions(client: AsyncClient, samples: int) -> Decisions:
    runs = await _opened(client, ASKED, samples + WARM_UP)
    started, after, calls = [], [], []
    for run in runs:
        await asyncio.sleep(random.uniform(0.02, 0.06))
        began = time.time()
        await client.decide(f"{run.id}:ask", "approve", data={"amount": 7}, roles=["finance"])
        returned = time.time()
        body = await run.result(timeout=30)
        started.append((body - began) * 1000)
        after.append((body - returned) * 1000)
        calls.append((returned - began) * 1000)
    cuts = quantiles(started[WARM_UP:], n=100)
    return Decisions(
        p50=cuts[49],
        p99=cuts[98],
        after_p50=median(after[WARM_UP:]),
        call_p50=median(calls[WARM_UP:]),
    )


async def idle_statements(url: str, log: Path, runs: int) -> float:
    """Statements a minute of an idle worker with so many runs waiting, in the server's log."""
    async with AsyncClient(url) as client:
        with worker_processes(url, 1, concurrency=100):
            await _opened(client, ASKED, runs)
    return await statements_per_minute(url, log, IDLE_SECONDS)


async def _opened(client: AsyncClient, flow: BuiltFlow, count: int) -> list[AsyncRunHandle]:
    """New runs of a flow, all of them waiting."""
    waiting = await client.count_runs(status="waiting", flow=flow) + count
    runs: list[AsyncRunHandle] = []

    async def submit(number: int) -> None:
        runs.append(await client.submit(flow, number))

    await _some_at_once(submit, range(count))
    while await client.count_runs(status="waiting", flow=flow) < waiting:
        await asyncio.sleep(0.05)
    return runs


async def _some_at_once(act: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    todo = iter(numbers)

    async def work() -> None:
        for number in todo:
            await act(number)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _inbox_ms(client: AsyncClient, who: str) -> float:
    times = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        found = await client.inbox(who, limit=PAGE)
        times.append((time.perf_counter() - began) * 1000)
        assert len(found) == PAGE, f"{len(found)} approvals for {who}"
    return median(times)


async def _broadcast_ms(client: AsyncClient, count: int) -> float:
    await _opened(client, TOLD, count)
    began = time.perf_counter()
    done = await client.broadcast("news", {"number": 7})
    took = (time.perf_counter() - began) * 1000
    assert done.count == count, f"{done.count} of {count} were reached"
    return took


async def _processor_ms(pid: int, seconds: float) -> float:
    await asyncio.sleep(2)  # until it has come to rest
    before = _processor_seconds(pid)
    await asyncio.sleep(seconds)
    return (_processor_seconds(pid) - before) * 1000 / seconds


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _stored_bytes(url: str) -> int:
    """What tables and indexes take on the disk."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            [pages] = connection.execute("PRAGMA page_count").fetchone()
            [size] = connection.execute("PRAGMA page_size").fetchone()
            return int(pages * size)
    server, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(server)
    try:
        return int(
            await connection.fetchval(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = $1 AND c.relkind = 'r'",
                schema,
            )
        )
    finally:
        await connection.close()
