"""The named statements of this backend, with the prefix of the tables filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from perdure.store.sql.statements import fill, load_statements
from perdure.store.sqlite.rows import CLAIMED_ROW, JOB_ROW, RECORD_ROW
from perdure.store.sqlite.run_rows import LAST_NUMBER, NODE_JOB_ROW, RUN_ROW, WAIT_ROW

PACKAGE = "perdure.store.sqlite"
_FILES = (
    "jobs",
    "runs",
    "waits",
    "schedules",
    "operators",
    "limits",
    "reads",
    "housekeeping",
    "insight",
    "audit",
)

ROWS_MAX = 64
"""Rows that one statement writes. A power of two, as all sizes are, so that few texts exist."""


@lru_cache(maxsize=64)
def statements_of(prefix: str) -> Mapping[str, str]:
    place = {
        "job_row": JOB_ROW,
        "claimed_row": CLAIMED_ROW,
        "record_row": RECORD_ROW,
        "node_job_row": NODE_JOB_ROW,
        "run_row": RUN_ROW,
        "wait_row": WAIT_ROW,
        "last_number": LAST_NUMBER,
        "prefix": prefix,  # the last one, because others contain it
    }
    found: dict[str, str] = {}
    for file in _FILES:
        found |= load_statements(PACKAGE, f"sql/{file}.sql", place)
    return MappingProxyType(found)


def in_batches(rows: Sequence[tuple[Any, ...]]) -> list[Sequence[tuple[Any, ...]]]:
    """Cut rows into batches of 1, 2, 4 … ``ROWS_MAX``: one prepared statement for each size."""
    batches = []
    start, size = 0, ROWS_MAX
    while start < len(rows):
        while size > len(rows) - start:
            size //= 2
        batches.append(rows[start : start + size])
        start += size
    return batches


@lru_cache(maxsize=1024)
def with_rows(text: str, columns: int, rows: int) -> str:
    """A statement for that many rows of parameters."""
    row = f"({', '.join('?' * columns)})"
    return fill(text, {"rows": ", ".join([row] * rows)})
