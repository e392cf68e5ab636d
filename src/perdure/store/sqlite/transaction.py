"""One operation on the database: its statements, time and hints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol

from perdure.store.hints import WriteHints
from perdure.store.sql.statements import fill, load_statements
from perdure.store.sqlite.rows import (
    CLAIMED_ROW,
    JOB_ROW,
    LAST_NUMBER,
    NODE_JOB_ROW,
    RECORD_ROW,
    RUN_ROW,
    WAIT_ROW,
    Row,
    moment,
)

PACKAGE = "perdure.store.sqlite"

_FILES = (
    "jobs",
    "submit",
    "commit",
    "places",
    "runs",
    "queries",
    "admin",
    "maintenance",
    "schedules",
    "live",
    "audit",
)

ROWS_MAX = 64
"""Rows per statement. All sizes are powers of two, so that few distinct statements exist."""


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
        "prefix": prefix,  # last, because other values contain it
    }
    found: dict[str, str] = {}
    for file in _FILES:
        found |= load_statements(PACKAGE, f"sql/{file}.sql", place)
    return MappingProxyType(found)


def in_batches(rows: Sequence[tuple[Any, ...]]) -> list[Sequence[tuple[Any, ...]]]:
    """Split rows into batches of 1, 2, 4 … ``ROWS_MAX``: one prepared statement for each size."""
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


class SqliteCursor(Protocol):
    """The result of a statement: rows, or the number of changed ones."""

    @property
    def rowcount(self) -> int: ...

    def fetchall(self) -> Sequence[Any]: ...


class Connection(Protocol):
    """Runs statements: a connection of ours, or a caller's."""

    def execute(self, sql: str, parameters: Any, /) -> SqliteCursor: ...


class Transaction:
    """An open transaction; its creator begins and ends it. Work may be retried in a new one."""

    def __init__(self, connection: Connection, sql: Mapping[str, str], now: int) -> None:
        self.sql = sql
        self.now = now
        self.hints = WriteHints()
        self._execute = connection.execute
        self._moment: datetime | None = None

    @property
    def moment(self) -> datetime:
        """``now`` as a datetime."""
        if self._moment is None:
            self._moment = moment(self.now)
        return self._moment

    def rows(self, name: str, **parameters: Any) -> Sequence[Row]:
        return self._execute(self.sql[name], parameters).fetchall()

    def rows_of(self, text: str, **parameters: Any) -> Sequence[Row]:
        """The rows of a statement whose SQL the caller completed."""
        return self._execute(text, parameters).fetchall()

    def write(self, name: str, **parameters: Any) -> int:
        """Run a statement that changes rows; return how many."""
        return self._execute(self.sql[name], parameters).rowcount

    def run(self, name: str, parameters: Row) -> Sequence[Row]:
        """Run a statement with positional parameters, which is the fastest way."""
        return self._execute(self.sql[name], parameters).fetchall()

    def write_rows(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement on many rows of parameters, in as few calls as possible."""
        if len(rows) == 1:
            self._execute(self._text_for(name, rows), rows[0])
            return
        for batch in in_batches(rows):
            self._execute(self._text_for(name, batch), _flat(batch))

    def returned_rows(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Like ``write_rows``, for a statement that returns rows."""
        returned: list[Row] = []
        for batch in in_batches(rows):
            returned += self._execute(self._text_for(name, batch), _flat(batch)).fetchall()
        return returned

    def _text_for(self, name: str, batch: Sequence[Row]) -> str:
        return with_rows(self.sql[name], len(batch[0]), len(batch))


def _flat(rows: Sequence[Row]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(rows))
