"""Export and import of one file, on a dedicated connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import convert

from perdure.clock import Clock
from perdure.diagnostics import declare
from perdure.errors import StoreError
from perdure.store.contract.transfer import (
    ROW_TYPES,
    Contents,
    DefinitionRow,
    JobRow,
    RunRow,
    TransferRow,
    TransferStore,
    release_lease,
)
from perdure.store.sql.statements import fill
from perdure.store.sql.transfer import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    MOMENT,
    NAMES,
    TABLES,
    Convert,
    check_empty,
    columns_of,
    converted,
    counting,
    emptiness,
    selection,
    size_of,
    types_of,
)
from perdure.store.sqlite.address import SqliteAddress
from perdure.store.sqlite.connection import (
    as_store_error,
    connect_reader,
    connect_writer,
    retry_while_busy,
)
from perdure.store.sqlite.rows import (
    INLINE_MAX_BYTES,
    LAST_NUMBER,
    Row,
    as_json,
    micros,
    moment,
    moment_or_none,
    names_in,
)
from perdure.store.sqlite.session import Session

UNMOVABLE_ROW = declare(
    "store.unmovable_row",
    "the table {table} in {url} has a row that cannot be moved, {row}: {reason}",
    "Correct or remove it",
)

Answer = TypeVar("Answer")

Connect = Callable[[SqliteAddress], sqlite3.Connection]


class DedicatedThread:
    """A thread that runs calls one after another, even if a caller is canceled."""

    def __init__(self, place: SqliteAddress, thread: ThreadPoolExecutor) -> None:
        self._place = place
        self._thread = thread

    async def do(self, action: Callable[[], Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, action)
        except sqlite3.Error as error:
            raise as_store_error(error, self._place) from error


@asynccontextmanager
async def on_dedicated_thread(
    place: SqliteAddress, connect: Connect
) -> AsyncIterator[tuple[DedicatedThread, sqlite3.Connection]]:
    """Open a connection on its own thread, and close it; uncommitted writes are rolled back."""
    with ThreadPoolExecutor(1, thread_name_prefix="perdure transfer") as thread:
        own = DedicatedThread(place, thread)
        connection = await own.do(lambda: connect(place))
        try:
            yield own, connection
        finally:
            # On the same thread, so that no call is still running.
            await own.do(connection.close)


_READ: dict[Any, Convert] = {MOMENT: moment, NAMES: names_in, bool: bool}

_AS_THEY_ARE = (bytes, datetime)

_LAST_EVENT_AT = """\
(SELECT event.at FROM {prefix}events AS event WHERE event.run_serial = run.serial
ORDER BY event.number DESC LIMIT 1)"""

_LARGE_INPUT = "(SELECT large.input FROM {prefix}large_inputs AS large WHERE large.job_id = job.id)"

_EXPRESSIONS = {
    (RunRow, "number"): LAST_NUMBER,
    (RunRow, "updated_at"): f"max(run.updated_at, coalesce({_LAST_EVENT_AT}, 0))",
    (JobRow, "input"): f"coalesce(job.input, {_LARGE_INPUT})",
}
"""Fields that are not in a column of their name."""


class SqliteDump:
    def __init__(
        self,
        thread: DedicatedThread,
        connection: sqlite3.Connection,
        place: SqliteAddress,
        contents: Contents,
    ) -> None:
        self._thread = thread
        self._connection = connection
        self._place = place
        self._contents = contents

    @property
    def contents(self) -> Contents:
        return self._contents

    async def batches(self) -> AsyncIterator[Sequence[TransferRow]]:
        for row_type in ROW_TYPES:
            batches = self._read(row_type)
            while batch := await self._thread.do(partial(next, batches, None)):
                yield batch

    def _read(self, row_type: type[TransferRow]) -> Iterator[Sequence[TransferRow]]:
        batch: list[TransferRow] = []
        size = 0
        for row in self._connection.execute(self._statement(row_type)):
            batch.append(self._transfer_row(row_type, row))
            size += size_of(row)
            if len(batch) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _transfer_row(self, row_type: type[TransferRow], row: Row) -> TransferRow:
        try:
            return _transfer_row(row_type, row, self._contents.at)
        except (
            ValueError,
            TypeError,
            OverflowError,
        ) as error:  # SQLite stores any value in any column
            fault = UNMOVABLE_ROW.fault(
                table=TABLES[row_type].name,
                url=self._place.url,
                row=str(row[:3]),
                reason=str(error),
            )
            raise StoreError(fault) from error

    def _statement(self, row_type: type[TransferRow]) -> str:
        columns = [_EXPRESSIONS.get((row_type, column), column) for column in columns_of(row_type)]
        if row_type is JobRow:
            columns += ["lease_until", "claimed_alone"]
        return fill(selection(row_type, "{prefix}", columns), {"prefix": self._place.prefix})


class SqliteTransfer(TransferStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    def export_rows(self) -> AbstractAsyncContextManager[SqliteDump]:
        return self._dumped()

    @asynccontextmanager
    async def _dumped(self) -> AsyncIterator[SqliteDump]:
        place = self._session.place
        async with on_dedicated_thread(place, connect_reader) as (thread, connection):
            contents = await thread.do(
                partial(_begin_reading, connection, place, self._session.clock)
            )
            yield SqliteDump(thread, connection, place, contents)

    async def import_rows(self, batches: AsyncIterable[Sequence[TransferRow]]) -> None:
        place = self._session.place
        async with on_dedicated_thread(place, connect_writer) as (thread, connection):
            await thread.do(partial(_begin_writing, connection, place))
            async for batch in batches:
                await thread.do(partial(_add, connection, place.prefix, batch))
            await thread.do(partial(connection.execute, "COMMIT"))


def _begin_reading(connection: sqlite3.Connection, place: SqliteAddress, clock: Clock) -> Contents:
    def attempt() -> Contents:
        connection.execute("BEGIN")
        try:
            return _contents(connection, place, clock())
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    return retry_while_busy(attempt, place.path)


def _contents(connection: sqlite3.Connection, place: SqliteAddress, now: datetime) -> Contents:
    # The transaction's snapshot is that of its first read, which is this one.
    counts = connection.execute(counting(place.prefix)).fetchone()
    [leases_until] = connection.execute(
        f"SELECT max(lease_until) FROM {place.prefix}jobs"
    ).fetchone()
    return Contents(
        at=now,
        counts=dict(zip(TABLES, counts, strict=True)),
        leases_until=moment_or_none(leases_until),
    )


def _transfer_row(row_type: type[TransferRow], row: Row, now: datetime) -> TransferRow:
    columns = columns_of(row_type)
    values = converted(row[: len(columns)], types_of(row_type), _READ)
    found = convert(dict(zip(columns, values, strict=True)), row_type, builtin_types=_AS_THEY_ARE)
    if isinstance(found, JobRow):
        return release_lease(found, moment_or_none(row[-2]), bool(row[-1]), now)
    return found


_WRITTEN: dict[Any, Convert] = {MOMENT: micros, NAMES: as_json}


def _begin_writing(connection: sqlite3.Connection, place: SqliteAddress) -> None:
    """Take the write lock, and check that the store is empty."""
    retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"), place.path)
    check_empty(connection.execute(emptiness(place.prefix)).fetchone(), place.url)


def _add(connection: sqlite3.Connection, prefix: str, batch: Sequence[TransferRow]) -> None:
    row_type = type(batch[0])
    columns = columns_of(row_type)
    # A worker that started here first has saved its own; the same version is the same definition.
    verb = "INSERT OR IGNORE" if row_type is DefinitionRow else "INSERT"
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"{verb} INTO {prefix}{TABLES[row_type].name} ({', '.join(columns)}) VALUES ({marks})",
        [_values(row_type, columns, each) for each in batch],
    )
    large = [(job.id, job.input) for job in batch if isinstance(job, JobRow) and _is_large(job)]
    connection.executemany(f"INSERT INTO {prefix}large_inputs (job_id, input) VALUES (?, ?)", large)


def _values(row_type: type[TransferRow], columns: Sequence[str], row: TransferRow) -> list[Any]:
    types = dict(zip(columns_of(row_type), types_of(row_type), strict=True))
    values = converted(attrgetter(*columns)(row), [types[name] for name in columns], _WRITTEN)
    if isinstance(row, JobRow) and _is_large(row):
        values[columns.index("input")] = None
    return values


def _is_large(job: JobRow) -> bool:
    return len(job.input) > INLINE_MAX_BYTES
