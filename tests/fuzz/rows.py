"""Rows that somebody spoilt: every column that is decoded, and what may stand in it instead."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable
from contextlib import closing
from datetime import timedelta
from typing import TypeVar

from perdure import AsyncClient, Flow, PerdureError, Worker
from perdure.clock import ManualClock
from perdure.store.contract import Store
from tests.fuzz import work
from tests.worker.harness import Running, until

T = TypeVar("T")
_OF_VICTIMS = "run_serial IN (SELECT serial FROM perdure_runs WHERE id LIKE 'victim%')"
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
    "failures": "1",
}
"""Which rows are spoilt: never those of whoever else is at work."""
COLUMNS = [
    ("jobs", "input"),
    ("jobs", "policy"),
    ("jobs", "lane"),
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
    "a newer kind": b'{"type":"NodeDreamt"}',
    "another event": b'{"type":"NodeCompleted","node":"nobody","then":{"started":["a#1[0]"]}}',
    "half": b'{"type":',
    "no encoding": b"\xff\xfe\x00",
    "too deep": b"[" * 100_000,
}
TEXTS = ("lane", "key", "name", "node_key", "deciders", "version")
"""Columns of texts; the others hold bytes."""

gone = Flow("gone").delay("1h").then(work.echo).build()
"""A flow that no worker has code for: its definition is read from the store."""


async def fill(client: AsyncClient) -> None:
    """Work of every kind, twice: what will be spoilt, and what must not suffer from it."""
    for who in ("victim", "good"):
        await client.enqueue(work.echo, who, group=who)
        await client.enqueue(work.echo, who, group=who, delay="30m")
        for flow in ("chain", "delaying", "asking", "deciding", "nesting", "outer"):
            await client.submit(flow, who, id=f"{who}-{flow}")
        await client.schedule(who, "chain", every="1h", input=who)
    await client.submit(gone, 1, id="victim-gone")


def spoil(path: str, table: str, column: str, junk: bytes) -> int:
    """Write junk into a column of the victims; how many rows that were."""
    value = junk.decode(errors="replace").replace("\x00", "") if column in TEXTS else junk
    statement = f"UPDATE OR IGNORE perdure_{table} SET {column} = ? WHERE {VICTIMS[table]}"
    with closing(sqlite3.connect(path)) as connection:
        spoilt = connection.execute(statement, (value,)).rowcount
        connection.commit()
    return spoilt


async def good_ones_go_on(store: Store, client: AsyncClient, clock: ManualClock) -> Running:
    """Start a worker, let time pass, and wait until all that is not spoilt is done."""
    worker = Worker(store, tasks=work.TASKS, flows=work.FLOWS, poll="20ms")
    running = await Running(worker).start()
    clock.advance(timedelta(hours=2))
    await until(lambda: _is_done(client))
    return running


async def _is_done(client: AsyncClient) -> bool:
    jobs = await client.count(group="good", status="completed")
    runs = [str((await client.run(f"good-{flow}")).status) for flow in ("chain", "delaying")]
    ticks = (await client.schedule_record("good")).started
    return jobs == 2 and runs == ["completed", "completed"] and ticks > 0


async def try_all(client: AsyncClient) -> None:
    """Whatever is asked about the victims has an answer, or an error of ours."""
    for job in await _or_refused(client.jobs(limit=100)) or []:
        await _or_refused(client.job(job.id))
        await _or_refused(client.failures(job.id))
    for run in await _or_refused(client.runs(limit=100)) or []:
        handle = client.run_handle(run.id)
        reads = (handle.events, handle.nodes, handle.outputs, handle.approvals, handle.children)
        for read in reads:
            await _or_refused(read())
        await _or_refused(client.lineage(run.id))
        await _or_refused(client.explain(run.id))
        if run.id.startswith("victim"):
            await _or_refused(client.signal(run.id, "go"))
            await _or_refused(client.decide(f"{run.id}:review", "approve"))
            await _or_refused(client.cancel(run.id))
            await _or_refused(client.retry(run.id))
    for about_all in (client.schedules, client.inbox, client.waits, client.workers, client.depth):
        await _or_refused(about_all())
    await _or_refused(client.stranded(work.FLOWS))
    await _or_refused(client.broadcast("go", 1))
    for act in (client.pause_schedule, client.trigger, client.delete_schedule):
        await _or_refused(act("victim"))


async def _or_refused(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except PerdureError:
        return None
