"""Rows that somebody spoiled: every column that is decoded, and what may stand in it instead."""

from __future__ import annotations

import sqlite3
from contextlib import closing

COLUMNS = {
    "jobs": ("input", "policy", "lane", "progress_details", "output", "node_key"),
    "events": ("data", "value"),
    "snapshots": ("data",),
    "definitions": ("data",),
    "waits": ("detail", "key", "deciders"),
    "schedules": ("definition", "state"),
    "steps": ("value",),
    "runs": ("summary",),
    "workers": ("info",),
    "failures": ("failure",),
}
JUNK: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "number": b"7",
    "text": b'"x"',
    "list": b"[]",
    "object": b"{}",
    "wrong fields": b'{"type":"NodeCompleted","node":7,"state":[],"format":2,"checksum":0}',
    "newer": b'{"type":"NodeDreamt"}',
    "broken": b'{"type":',
    "no encoding": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "odd names": b'{"a#1[0]:":{"\\u0000":"\\ud800"}}',
}
TEXTS = ("lane", "key", "node_key", "deciders")
"""Columns of texts; the others hold bytes."""


def spoil(path: str, table: str, column: str, junk: bytes, where: str = "1") -> int:
    """Write junk into a column of the rows that a condition names; how many that were."""
    value = junk.decode(errors="replace").replace("\x00", "") if column in TEXTS else junk
    with closing(sqlite3.connect(path)) as connection:
        spoilt = connection.execute(
            f"UPDATE OR IGNORE perdure_{table} SET {column} = ? WHERE {where}", (value,)
        ).rowcount
        connection.commit()
    return spoilt
