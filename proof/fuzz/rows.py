"""Corrupt rows next to healthy work: the work continues, and every read has an answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg

from perdure import AsyncClient, Flow, PerdureError, Worker
from perdure.clock import ManualClock
from perdure.store.contract import Store
from perdure.store.postgres.address import parse_address
from perdure.verify import Finding
from proof.fuzz import work
from tests.worker.harness import Running, until

_OF_VICTIMS = "run_serial IN (SELECT serial FROM {runs} WHERE id LIKE 'victim%')"
VICTIMS = {
    "jobs": "job_group = 'victim' OR run_id LIKE 'victim%'",
    "events": _OF_VICTIMS,
    "snapshots": _OF_VICTIMS,
    "definitions": "flow = 'gone'",
    "waits": "run_id LIKE 'victim%'",
    "schedules": "name = 'victim'",
    "steps": _OF_VICTIMS,
    "runs": "id LIKE 'victim%'",
    "workers": "id = 'victim'",
    "failures": "true",
}
"""The rows to corrupt: never those of healthy work."""
COLUMNS = [
    ("jobs", "input"),
    ("jobs", "policy"),
    ("jobs", "partition_key"),
    ("jobs", "progress_details"),
    ("jobs", "output"),
    ("jobs", "node_key"),
    ("events", "data"),
    ("events", "value"),
    ("snapshots", "data"),
    ("definitions", "data"),
    ("waits", "detail"),
    ("waits", "key"),
    ("waits", "name"),
    ("waits", "deciders"),
    ("schedules", "definition"),
    ("schedules", "state"),
    ("steps", "value"),
    ("runs", "summary"),
    ("runs", "version"),
    ("failures", "failure"),
]
JUNK = {
    "nothing": b"",
    "null": b"null",
    "a number": b"7",
    "a list": b"[]",
    "an object": b"{}",
    "other fields": b'{"type":"NodeCompleted","node":7,"state":[],"format":2,"checksum":0}',
    "a newer type": b'{"type":"NodeDreamt"}',
    "another event": b'{"type":"NodeCompleted","node":"nobody","then":{"started":["a#1[0]"]}}',
    "half": b'{"type":',
    "no encoding": b"\xff\xfe\x00",
    "too deep": b"[" * 100_000,
}
TEXTS = ("partition_key", "key", "name", "node_key", "deciders", "version")
"""String columns; the others hold bytes."""
JSON = ("failure",)
"""JSON columns in PostgreSQL."""


async def corrupt_rows(url: str, table: str, column: str, junk: bytes) -> int:
    """Write junk to a column of the victims; returns how many rows accepted it."""
    if url.startswith("sqlite:"):
        return _in_sqlite(url.removeprefix("sqlite:///"), table, column, junk)
    return await _in_postgres(url, table, column, junk)


def _in_sqlite(path: str, table: str, column: str, junk: bytes) -> int:
    which = VICTIMS[table].format(runs="perdure_runs")
    value = _as_text(junk) if column in TEXTS else junk
    statement = f"UPDATE OR IGNORE perdure_{table} SET {column} = ? WHERE {which}"
    with closing(sqlite3.connect(path)) as connection:
        corrupt = connection.execute(statement, (value,)).rowcount
        connection.commit()
    return corrupt


async def _in_postgres(url: str, table: str, column: str, junk: bytes) -> int:
    """Row by row: rows with a failing type or constraint stay as they are."""
    address = parse_address(url)
    which = VICTIMS[table].format(runs=f"{address.schema}.runs")
    place = f"{address.schema}.{table}"
    connection = await asyncpg.connect(address.dsn)
    try:
        corrupt = 0
        for (row,) in await connection.fetch(f"SELECT ctid FROM {place} WHERE {which}"):
            statement = f"UPDATE {place} SET {column} = $1 WHERE ctid = $2"
            try:
                await connection.execute(statement, _for_postgres(column, junk), row)
            except asyncpg.IntegrityConstraintViolationError:
                continue
            except asyncpg.DataError:  # not JSON
                continue
            corrupt += 1
        return corrupt
    finally:
        await connection.close()


def _for_postgres(column: str, junk: bytes) -> Any:
    if column == "deciders":
        return [_as_text(junk)]
    return _as_text(junk) if column in (*TEXTS, *JSON) else junk


def _as_text(junk: bytes) -> str:
    return junk.decode(errors="replace").replace("\x00", "")


T = TypeVar("T")
gone = Flow("gone").delay("1h").then(work.echo).build()
"""A flow whose code no worker has: its definition is read from the store."""


async def fill(client: AsyncClient) -> Callable[[Finding], bool]:
    """Create every type of work twice: victims, and healthy work.

    Returns whether a finding of the verifier is about a victim.
    """
    jobs: dict[str, list[str]] = {}
    for who in ("victim", "good"):
        now = await client.enqueue(work.echo.options(group=who), who)
        later = await client.enqueue(work.echo.options(group=who, delay="30m"), who)
        jobs[who] = [now.id, later.id]
        for flow in ("chain", "delaying", "asking", "deciding", "nesting", "outer"):
            await client.submit(flow, who, id=f"{who}-{flow}")
        await client.schedules.save(who, "chain", every="1h", input=who)
    await client.submit(gone, 1, id="victim-gone")

    def is_corrupt(finding: Finding) -> bool:
        args = finding.args
        is_good_run = args.get("run", "").startswith("good") or args.get("schedule") == "good"
        return not is_good_run and args.get("job") not in jobs["good"]

    return is_corrupt


async def finish_healthy_work(store: Store, client: AsyncClient, clock: ManualClock) -> Running:
    """Start a worker, let time pass, and wait until all healthy work is done."""
    worker = Worker(store, tasks=work.TASKS, flows=work.FLOWS, poll="20ms")
    running = await Running(worker).start()
    clock.advance(timedelta(hours=2))
    await until(lambda: _is_done(client))
    return running


async def _is_done(client: AsyncClient) -> bool:
    jobs = await client.jobs.count(group="good", status="completed")
    runs = [str((await client.runs.get(f"good-{flow}")).status) for flow in ("chain", "delaying")]
    ticks = (await client.schedules.get("good")).started
    return jobs == 2 and runs == ["completed", "completed"] and ticks > 0


async def try_all(client: AsyncClient) -> None:
    """Every read of a victim has an answer, or raises one of our errors."""
    for job in await _or_refused(client.jobs.list(limit=100)) or []:
        await _or_refused(client.jobs.get(job.id))
        await _or_refused(client.jobs.attempts(job.id))
    for run in await _or_refused(client.runs.list(limit=100)) or []:
        handle = client.runs.handle(run.id)
        reads = (handle.events, handle.nodes, handle.outputs, handle.approvals, handle.children)
        for read in reads:
            await _or_refused(read())
        await _or_refused(client.runs.lineage(run.id))
        await _or_refused(client.runs.explain(run.id))
        if run.id.startswith("victim"):
            await _or_refused(client.runs.signal(run.id, "go"))
            await _or_refused(client.approvals.decide(f"{run.id}:review", "approve"))
            await _or_refused(client.runs.cancel(run.id))
            await _or_refused(client.runs.retry(run.id))
    for about_all in (
        client.schedules.list,
        client.approvals.list,
        client.waits.list,
        client.workers.list,
        client.queues.list,
    ):
        await _or_refused(about_all())
    await _or_refused(client.flows.unserved(work.FLOWS))
    await _or_refused(client.runs.broadcast("go", 1))
    for call in (client.schedules.pause, client.schedules.trigger, client.schedules.delete):
        await _or_refused(call("victim"))


async def _or_refused(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except PerdureError:
        return None
