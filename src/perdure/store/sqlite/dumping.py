"""Everything that the tables hold at one moment, read on a connection of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any

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
from perdure.store.sqlite.busy import patiently
from perdure.store.sqlite.connecting import as_store_error, connect_reader
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.place import SqlitePlace
from perdure.store.sqlite.rows import Row, moment, moment_or_none
from perdure.store.sqlite.run_rows import LAST_NUMBER, names_in

_READ: dict[Any, Convert] = {MOMENT: moment, NAMES: names_in, bool: bool, float: float}

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
    def __init__(self, connection: sqlite3.Connection, place: SqlitePlace, now: datetime) -> None:
        self._connection = connection
        self._place = place
        # A transaction sees what was there at its first read: of these, all are of one moment.
        counts = connection.execute(counting(place.prefix)).fetchone()
        held = connection.execute(f"SELECT max(lease_until) FROM {place.prefix}jobs").fetchone()
        self._contents = Contents(
            at=now,
            counts=dict(zip(TABLES, counts, strict=True)),
            held_until=moment_or_none(held[0]),
        )

    @property
    def contents(self) -> Contents:
        return self._contents

    async def batches(self) -> AsyncIterator[Sequence[Kept]]:
        for kind in KINDS:
            batches = self._read(kind)
            while batch := await asyncio.to_thread(next, batches, None):
                yield batch

    def _read(self, kind: type[Kept]) -> Iterator[Sequence[Kept]]:
        batch: list[Kept] = []
        size = 0
        for row in self._connection.execute(self._statement(kind)):
            batch.append(_kept(kind, row, self._contents.at))
            size += size_of(row)
            if len(batch) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _statement(self, kind: type[Kept]) -> str:
        columns = [_EXPRESSIONS.get((kind, column), column) for column in columns_of(kind)]
        if kind is KeptJob:
            columns.append("lease_until")
        alias = {KeptRun: " AS run", KeptJob: " AS job"}.get(kind, "")
        text = selection(kind, "{prefix}", columns)
        table = f"FROM {{prefix}}{TABLES[kind].name} "
        text = text.replace(table, f"{table.rstrip()}{alias} ")
        return fill(text, {"prefix": self._place.prefix})


class SqliteDumping(Handle):
    def dump(self) -> AbstractAsyncContextManager[SqliteDump]:
        return self._dumped()

    @asynccontextmanager
    async def _dumped(self) -> AsyncIterator[SqliteDump]:
        connection = await asyncio.to_thread(connect_reader, self._place)
        try:
            yield await asyncio.to_thread(self._begun, connection)
        except sqlite3.Error as error:
            raise as_store_error(error, self._place) from error
        finally:
            connection.close()

    def _begun(self, connection: sqlite3.Connection) -> SqliteDump:
        def begin() -> SqliteDump:
            connection.execute("BEGIN")
            try:
                return SqliteDump(connection, self._place, self._clock())
            except BaseException:
                connection.execute("ROLLBACK")
                raise

        return patiently(begin, self._place.path)


def _kept(kind: type[Kept], row: Row, now: datetime) -> Kept:
    lease_until: int | None = None
    if kind is KeptJob:
        *values, lease_until = row
    else:
        values = list(row)
    fields = dict(zip(columns_of(kind), converted(values, types_of(kind), _READ), strict=True))
    kept = kind(**fields)
    return let_go(kept, moment_or_none(lease_until), now) if isinstance(kept, KeptJob) else kept
