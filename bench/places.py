"""Starts of runs of a flow with ``max_running``, while 100,000 more are queued."""

from __future__ import annotations

import random
import sqlite3
import time
from datetime import timedelta
from pathlib import Path

import asyncpg

from bench.tasks import noop
from perdure import AsyncClient, Flow
from perdure.model.event import NOTHING, NewEvent, QueuedRunStarted, RunCompleted, encode_event
from perdure.model.ids import RUN_START, RunId
from perdure.model.run import CommitState, PlaceChange, RunCommit, RunStatus
from perdure.store.contract import Store
from perdure.store.opening import store_at

QUEUED = 100_000
FLOW = Flow("placed", max_running=1).then(noop).build()
PLACE = PlaceChange(key="placed@", aging=timedelta(minutes=5))
STARTED = NewEvent(data=encode_event(QueuedRunStarted(effects=NOTHING)))
ENDED = NewEvent(data=encode_event(RunCompleted(ref=1)))


async def start_rate(store: Store, runs: int) -> float:
    """Runs per second that take the place and give it up, as workers would let them."""
    began = time.perf_counter()
    for _ in range(runs):
        [wait] = await store.maintenance.due_waits("default", 1)
        await commit(store, wait.run, 1, RunStatus.RUNNING, STARTED, is_started=True)
        await commit(store, wait.run, 2, RunStatus.COMPLETED, ENDED)
    return runs / (time.perf_counter() - began)


async def commit(
    store: Store,
    run: RunId,
    expected: int,
    status: RunStatus,
    event: NewEvent,
    is_started: bool | None = None,
) -> None:
    step = RunCommit(
        namespace="default",
        run=run,
        expected=expected,
        token=random.getrandbits(62),
        events=(event,),
        status=status,
        close_waits=(RUN_START,) if is_started else (),
        is_started=is_started,
        place=PLACE,
    )
    [result] = (await store.runs.commit([step])).results
    assert result.state is CommitState.DONE


async def with_queue(url: str, runs: int, fill: object) -> tuple[float, float]:
    """The rate with few and with many queued runs."""
    async with AsyncClient(url) as client:
        for number in range(2 * runs + 1):
            await client.submit(FLOW, number)
        store = store_at(url)
        await store.open()
        try:
            few = await start_rate(store, runs)
            await fill(QUEUED)  # type: ignore[operator]
            many = await start_rate(store, runs)
        finally:
            await store.close()
        return few, many


async def queue_postgres(url: str, rows: int) -> None:
    """Copy the last queued run and its wait, behind all others."""
    plain, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(plain)
    try:
        for table, own in (("runs", ("id", "rank", "serial")), ("waits", ("run_id",))):
            names = await connection.fetch(
                "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 "
                "AND NOT attisdropped AND attname <> ALL ($2::text[])",
                f"{schema}.{table}",
                list(own),
            )
            columns = ", ".join(name for (name,) in names)
            id, rank = ("id", ", rank") if table == "runs" else ("run_id", "")
            await connection.execute(
                f"INSERT INTO {schema}.{table} ({id}{rank}, {columns}) "
                f"SELECT 'z' || lpad(g::text, 25, '0'){rank and ', rank + g'}, {columns} "
                f"FROM (SELECT * FROM {schema}.{table} ORDER BY {id} DESC LIMIT 1) AS last, "
                "generate_series(1, $1) AS g",
                rows,
                timeout=600,
            )
            await connection.execute(f"VACUUM ANALYZE {schema}.{table}", timeout=600)
    finally:
        await connection.close()


async def queue_sqlite(path: Path, rows: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    try:
        for table, own in (("runs", ("id", "rank", "serial")), ("waits", ("run_id",))):
            columns = ", ".join(
                name
                for (_, name, *_) in connection.execute(f"PRAGMA table_info(perdure_{table})")
                if name not in own
            )
            id, rank = ("id", ", rank") if table == "runs" else ("run_id", "")
            connection.execute(
                "WITH RECURSIVE g (n) AS "
                f"(SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {rows}) "
                f"INSERT INTO perdure_{table} ({id}{rank}, {columns}) "
                f"SELECT 'z' || printf('%025d', n){rank and ', rank + n'}, {columns} "
                f"FROM (SELECT * FROM perdure_{table} ORDER BY {id} DESC LIMIT 1), g"
            )
        connection.execute("ANALYZE")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
