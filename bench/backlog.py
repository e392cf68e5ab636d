"""Claims with a million waiting and a million finished jobs present, and of runs by priority."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import asyncpg

from bench.tasks import noop
from perdure import AsyncClient, Flow
from perdure.model.ids import WorkerId
from perdure.model.job import ClaimedJob
from perdure.model.outcome import Completed, Settlement
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.store.opening import store_at

BATCH = 100
FLOW = Flow("ranked").then(noop).build()


async def claim_rate(store: Store, jobs: int) -> float:
    """Jobs per second, claimed and completed through the store in batches."""
    request = await batch_request(store)
    began = time.perf_counter()
    for _ in range(jobs // BATCH):
        claimed = (await store.jobs.claim(request)).jobs
        assert len(claimed) == BATCH
        outcome = Completed(output=b"1")
        await store.jobs.settle([Settlement(claim=job.claim, outcome=outcome) for job in claimed])
    return jobs / (time.perf_counter() - began)


async def batch_request(store: Store) -> ClaimRequest:
    """For a batch of the only jobs there are."""
    [partition] = (await store.maintenance.poll("default")).partitions
    return ClaimRequest(
        namespace="default",
        worker=WorkerId("bench"),
        partitions=[PartitionClaim(partition=partition, queue="default")],
        limit=BATCH,
        lease=timedelta(seconds=30),
    )


async def run_claim_rate(url: str, runs: int, priorities: Sequence[int]) -> float:
    """Jobs per second, claimed in batches from runs that take turns in their priorities."""
    async with AsyncClient(url) as client:
        for first in range(0, runs, BATCH):
            await asyncio.gather(
                *(
                    client.submit(FLOW, number, priority=priorities[number % len(priorities)])
                    for number in range(first, first + BATCH)
                )
            )
        store = store_at(url)
        await store.open()
        try:
            request = await batch_request(store)
            began = time.perf_counter()
            claimed = [job for _ in range(runs // BATCH) for job in await claim(store, request)]
            rate = runs / (time.perf_counter() - began)
        finally:
            await store.close()
        ranked = [job.priority for job in claimed]
        assert len(ranked) == runs
        assert ranked == sorted(ranked), "the runs were not claimed in the order of their priority"
        return rate


async def claim(store: Store, request: ClaimRequest) -> Sequence[ClaimedJob]:
    return (await store.jobs.claim(request)).jobs


async def with_backlog(url: str, rows: int, jobs: int, fill: object) -> tuple[float, float]:
    """The rate without and with the backlog."""
    async with AsyncClient(url) as client:
        await client.enqueue_many(noop, range(jobs + BATCH))
        store = store_at(url)
        await store.open()
        try:
            empty = await claim_rate(store, jobs)
            await fill(rows)  # type: ignore[operator]
            full = await claim_rate(store, jobs)
        finally:
            await store.close()
        return empty, full


async def fill_postgres(url: str, rows: int) -> None:
    """Copy a waiting and a completed job a million times, under ids of their own."""
    plain, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(plain)
    try:
        names = await connection.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 "
            "AND NOT attisdropped AND attname NOT IN ('id', 'rank')",
            f"{schema}.jobs",
        )
        columns = ", ".join(name for (name,) in names)
        for number, status in enumerate(("completed", "waiting")):
            await connection.execute(
                f"INSERT INTO {schema}.jobs (id, rank, {columns}) "
                f"SELECT '{number}' || lpad(g::text, 25, '0'), rank + g / 1e6, {columns} "
                f"FROM (SELECT * FROM {schema}.jobs WHERE status = $1 LIMIT 1) AS job, "
                "generate_series(1, $2) AS g",
                status,
                rows,
                timeout=600,
            )
        await connection.execute(f"VACUUM ANALYZE {schema}.jobs", timeout=600)
    finally:
        await connection.close()


async def fill_sqlite(path: Path, rows: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    try:
        columns = ", ".join(
            name
            for (_, name, *_) in connection.execute("PRAGMA table_info(perdure_jobs)")
            if name not in ("id", "rank")
        )
        for number, status in enumerate(("completed", "waiting")):
            connection.execute(
                "WITH RECURSIVE g (n) AS "
                f"(SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {rows}) "
                f"INSERT INTO perdure_jobs (id, rank, {columns}) "
                f"SELECT '{number}' || printf('%025d', n), rank + n / 1e6, {columns} "
                "FROM (SELECT * FROM perdure_jobs WHERE status = ? LIMIT 1), g",
                (status,),
            )
        connection.execute("ANALYZE")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
