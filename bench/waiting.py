"""Waiting runs: how soon a decision starts the next node, and the cost of ten thousand of them."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import asyncpg

from bench.tasks import stamp
from bench.waiting_tasks import ASKED, ASKED_OTHERS, TOLD
from bench.worker_process import worker_processes
from perdure import AsyncClient, AsyncRunHandle
from perdure.flows.built import BuiltFlow

AT_ONCE = 50
WARM_UP = 10
IDLE_SECONDS = 20.0
PAGE = 50
LOOKS = 20
OTHERS = 100
"""Approvals for other people among all waits."""
TOLD_RUNS = 1_000


@dataclass(frozen=True)
class Decisions:
    """Milliseconds from a decision to the first line of the next task, in another process."""

    p50: float
    """From the call of ``decide``."""
    p99: float
    after_p50: float
    """From its return; negative if the task started before the client had its answer."""
    call_p50: float
    """The duration of the call."""


@dataclass(frozen=True)
class Waiting:
    """The cost of runs that wait for people."""

    start_p50: float
    """Milliseconds from enqueueing a job to its start on an idle system, measured in between."""
    alone: Decisions
    among: Decisions
    """In a store with all the other waiting runs."""
    opened_per_second: float
    """From the first submission to the last wait, with one worker process."""
    bytes_each: float
    idle_alone: float
    """CPU time of an idle worker, in milliseconds per second."""
    idle_among: float
    inbox_ms: float
    """One page of the inbox that all of them are in."""
    other_inbox_ms: float
    """The inbox that few of them are in."""
    broadcast_ms: float
    """A signal to a thousand further runs."""


async def waiting(empty_url: str, full_url: str, runs: int, samples: int) -> Waiting:
    """Measure on two stores at the same time: one with ``runs`` waiting runs, one without."""
    async with AsyncClient(empty_url) as empty, AsyncClient(full_url) as full:
        with (
            worker_processes(empty_url, 1, concurrency=100) as [worker_alone],
            worker_processes(full_url, 1, concurrency=100) as [worker_among],
        ):
            await _opened(full, ASKED_OTHERS, OTHERS)
            bytes_before = await _stored_bytes(full_url)
            began = time.perf_counter()
            await _opened(full, ASKED, runs)
            opened_per_second = runs / (time.perf_counter() - began)
            bytes_each = (await _stored_bytes(full_url) - bytes_before) / runs
            start_p50, alone, among = await _decisions(empty, full, samples)
            idle_alone, idle_among = await _processor_ms([worker_alone, worker_among])
            return Waiting(
                start_p50=start_p50,
                alone=alone,
                among=among,
                opened_per_second=opened_per_second,
                bytes_each=bytes_each,
                idle_alone=idle_alone,
                idle_among=idle_among,
                inbox_ms=await _inbox_ms(full, "finance"),
                other_inbox_ms=await _inbox_ms(full, "legal"),
                broadcast_ms=await _broadcast_ms(full, TOLD_RUNS),
            )


async def _decisions(
    empty: AsyncClient, full: AsyncClient, samples: int
) -> tuple[float, Decisions, Decisions]:
    """Alternate, so that noise affects all of them alike."""
    starts: list[float] = []
    times: dict[AsyncClient, list[tuple[float, float, float]]] = {empty: [], full: []}
    runs = {client: await _opened(client, ASKED, samples + WARM_UP) for client in times}
    for number in range(samples + WARM_UP):
        await asyncio.sleep(random.uniform(0.02, 0.06))
        began = time.time()
        body = await (await empty.enqueue(stamp)).result(timeout=60)
        starts.append((body - began) * 1000)
        for client in times:
            await asyncio.sleep(random.uniform(0.02, 0.06))
            times[client].append(await _decision(client, runs[client][number]))
    return median(starts[WARM_UP:]), _summary(times[empty]), _summary(times[full])


async def _decision(client: AsyncClient, run: AsyncRunHandle) -> tuple[float, float, float]:
    """From the call to the task, from the return to the task, and from the call to the return."""
    began = time.time()
    await client.approvals.decide(f"{run.id}:ask", "approve", data={"amount": 7}, roles=["finance"])
    returned = time.time()
    body = await run.result(timeout=60)
    return (body - began) * 1000, (body - returned) * 1000, (returned - began) * 1000


def _summary(times: list[tuple[float, float, float]]) -> Decisions:
    started, after, calls = zip(*times[WARM_UP:], strict=True)
    cuts = quantiles(started, n=100)
    return Decisions(p50=cuts[49], p99=cuts[98], after_p50=median(after), call_p50=median(calls))


async def _opened(client: AsyncClient, flow: BuiltFlow, count: int) -> list[AsyncRunHandle]:
    """New runs of a flow, all waiting."""
    waiting = await client.runs.count(status="waiting", flow=flow) + count
    runs: list[AsyncRunHandle] = []

    async def submit(number: int) -> None:
        runs.append(await client.submit(flow, number))

    await _some_at_once(submit, range(count))
    while await client.runs.count(status="waiting", flow=flow) < waiting:
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
        found = await client.approvals.list(who, limit=PAGE)
        times.append((time.perf_counter() - began) * 1000)
        assert len(found) == PAGE, f"{len(found)} approvals for {who}"
    return median(times)


async def _broadcast_ms(client: AsyncClient, count: int) -> float:
    await _opened(client, TOLD, count)
    began = time.perf_counter()
    done = await client.runs.broadcast("news", {"number": 7})
    took = (time.perf_counter() - began) * 1000
    assert done.count == count, f"{done.count} of {count} were reached"
    return took


async def _processor_ms(pids: Sequence[int]) -> list[float]:
    await asyncio.sleep(2)  # until they are idle
    before = [_processor_seconds(pid) for pid in pids]
    await asyncio.sleep(IDLE_SECONDS)
    spent = [_processor_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
    return [seconds * 1000 / IDLE_SECONDS for seconds in spent]


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _stored_bytes(url: str) -> int:
    """The size of tables and indexes on disk."""
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
