"""Everything that the tables hold at one moment, read on a connection of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import convert

from perdure.clock import Clock
from perdure.errors import StoreError
from perdure.store.kept import KINDS, Contents, Kept, KeptJob, KeptRun, let_go
from perdure.store.sql.kept_tables import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    MOMENT,
    NAMES,
    TABLES,
    Convert,
    columns_of,
    converted,
    counting,
    selection,
    size_of,
    types_of,
)
from perdure.store.sql.statements import fill
from perdure.store.sqlite.aside import Aside, aside
from perdure.store.sqlite.busy import patiently
from perdure.store.sqlite.connecting import connect_reader
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.place import SqlitePlace
from perdure.store.sqlite.rows import Row, moment, moment_or_none
from perdure.store.sqlite.run_rows import LAST_NUMBER, names_in

_READ: dict[Any, Convert] = {MOMENT: moment, NAMES: names_in, bool: bool}
_AS_THEY_ARE = (bytes, datetime)

_LAST_EVENT_AT = """\
(SELECT event.at FROM {prefix}events AS event WHERE event.run_serial = run.serial
ORDER BY event.number DESC LIMIT 1)"""
_LARGE_INPUT = "(SELECT large.input FROM {prefix}large_inputs AS large WHERE large.job_id = job.id)"
_EXPRESSIONS = {
    (KeptRun, "number"): LAST_NUMBER,
    (KeptRun, "updated_at"): f"max(run.updated_at, coalesce({_LAST_EVENT_AT}, 0))",
    (KeptJob, "input"): f"coalesce(job.input, {_LARGE_INPUT})",
}
"""What is not in a column of its name."""


class SqliteDump:
    def __init__(
        self,
        thread: Aside,
        connection: sqlite3.Connection,
        place: SqlitePlace,
        contents: Contents,
    ) -> None:
        self._thread = thread
        self._connection = connection
        self._place = place
        self._contents = contents

    @property
    def contents(self) -> Contents:
        return self._contents

    async def batches(self) -> AsyncIterator[Sequence[Kept]]:
        for kind in KINDS:
            batches = self._read(kind)
            while batch := await self._thread.do(partial(next, batches, None)):
                yield batch

    def _read(self, kind: type[Kept]) -> Iterator[Sequence[Kept]]:
        batch: list[Kept] = []
        size = 0
        for row in self._connection.execute(self._statement(kind)):
            batch.append(self._kept(kind, row))
            size += size_of(row)
            if len(batch) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _kept(self, kind: type[Kept], row: Row) -> Kept:
        try:
            return _kept(kind, row, self._contents.at)
        except (ValueError, TypeError, OverflowError) as error:  # SQLite keeps anything anywhere
            raise StoreError(
                f"the table {TABLES[kind].name} in {self._place.url} has a row that cannot be "
                f"moved, {row[:3]}: {error}. Correct or remove it"
            ) from error

    def _statement(self, kind: type[Kept]) -> str:
        columns = [_EXPRESSIONS.get((kind, column), column) for column in columns_of(kind)]
        if kind is KeptJob:
            columns.append("lease_until")
        return fill(selection(kind, "{prefix}", columns), {"prefix": self._place.prefix})


class SqliteDumping(Handle):
    def dump(self) -> AbstractAsyncContextManager[SqliteDump]:
        return self._dumped()

    @asynccontextmanager
    async def _dumped(self) -> AsyncIterator[SqliteDump]:
        place = self._place
        async with aside(place, connect_reader) as (thread, connection):
            contents = await thread.do(partial(_begin, connection, place, self._clock))
            yield SqliteDump(thread, connection, place, contents)


def _begin(connection: sqlite3.Connection, place: SqlitePlace, clock: Clock) -> Contents:
    def attempt() -> Contents:
        connection.execute("BEGIN")
        try:
            return _contents(connection, place, clock())
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    return patiently(attempt, place.path)


def _contents(connection: sqlite3.Connection, place: SqlitePlace, now: datetime) -> Contents:
    # The transaction sees what was there at its first read, which is this one.
    counts = connection.execute(counting(place.prefix)).fetchone()
    [held_until] = connection.execute(f"SELECT max(lease_until) FROM {place.prefix}jobs").fetchone()
    return Contents(
        at=now,
        counts=dict(zip(TABLES, counts, strict=True)),
        held_until=moment_or_none(held_until),
    )


def _kept(kind: type[Kept], row: Row, now: datetime) -> Kept:
    columns = columns_of(kind)
    values = converted(row[: len(columns)], types_of(kind), _READ)
    kept = convert(dict(zip(columns, values, strict=True)), kind, builtin_types=_AS_THEY_ARE)
    if isinstance(kept, KeptJob):
        return let_go(kept, moment_or_none(row[-1]), now)
    return kept
