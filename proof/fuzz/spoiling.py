"""Spoilt rows: every column that is decoded, and what may stand in it instead."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import asyncpg

from perdure.store.postgres.address import parse_address

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
JSON = ("failure",)
"""Columns that PostgreSQL has as JSON."""


async def spoil(url: str, table: str, column: str, junk: bytes) -> int:
    """Write junk into a column of the victims; how many rows took it."""
    if url.startswith("sqlite:"):
        return _in_sqlite(url.removeprefix("sqlite:///"), table, column, junk)
    return await _in_postgres(url, table, column, junk)


def _in_sqlite(path: str, table: str, column: str, junk: bytes) -> int:
    which = VICTIMS[table].format(runs="perdure_runs")
    value = _as_text(junk) if column in TEXTS else junk
    statement = f"UPDATE OR IGNORE perdure_{table} SET {column} = ? WHERE {which}"
    with closing(sqlite3.connect(path)) as connection:
        spoilt = connection.execute(statement, (value,)).rowcount
        connection.commit()
    return spoilt


async def _in_postgres(url: str, table: str, column: str, junk: bytes) -> int:
    """Row by row: what a type or a constraint refuses stays as it is."""
    address = parse_address(url)
    which = VICTIMS[table].format(runs=f"{address.schema}.runs")
    place = f"{address.schema}.{table}"
    connection = await asyncpg.connect(address.dsn)
    try:
        spoilt = 0
        for (row,) in await connection.fetch(f"SELECT ctid FROM {place} WHERE {which}"):
            statement = f"UPDATE {place} SET {column} = $1 WHERE ctid = $2"
            try:
                await connection.execute(statement, _for_postgres(column, junk), row)
            except asyncpg.IntegrityConstraintViolationError:
                continue
            except asyncpg.DataError:  # no JSON
                continue
            spoilt += 1
        return spoilt
    finally:
        await connection.close()


def _for_postgres(column: str, junk: bytes) -> Any:
    if column == "deciders":
        return [_as_text(junk)]
    return _as_text(junk) if column in (*TEXTS, *JSON) else junk


def _as_text(junk: bytes) -> str:
    return junk.decode(errors="replace").replace("\x00", "")
