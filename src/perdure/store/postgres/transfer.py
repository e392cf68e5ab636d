"""Export and import of one schema, on a dedicated connection."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from operator import attrgetter
from typing import Any

import asyncpg

from perdure.errors import StoreError
from perdure.model.hint import Hint, HintType
from perdure.store.contract.refusals import LOST, REFUSED
from perdure.store.contract.transfer import (
    ROW_TYPES,
    Contents,
    DefinitionRow,
    FailureRow,
    JobRow,
    TransferRow,
    TransferStore,
    release_lease,
)
from perdure.store.postgres.connection import Connection, Record, close_gently, connect
from perdure.store.postgres.rows import storable
from perdure.store.postgres.session import Session, place_in_sql
from perdure.store.sql.rows import readable_json
from perdure.store.sql.transfer import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
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

_ROWS_AHEAD = 50
"""Rows that the server sends at once."""

_READ: dict[Any, Convert] = {NAMES: tuple}


class PostgresDump:
    def __init__(self, connection: Connection, url: str, place: str, contents: Contents) -> None:
        self._connection = connection
        self._url = url
        self._place = place
        self._contents = contents

    @property
    def contents(self) -> Contents:
        return self._contents

    async def batches(self) -> AsyncIterator[Sequence[TransferRow]]:
        for row_type in ROW_TYPES:
            batch: list[TransferRow] = []
            size = 0
            async for row in self._rows(row_type):
                batch.append(_from_record(row_type, row, self._contents.at))
                size += size_of(row)
                if len(batch) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch

    async def _rows(self, row_type: type[TransferRow]) -> AsyncIterator[Record]:
        columns = columns_of(row_type)
        if row_type is JobRow:
            columns = (*columns, "lease_until", "claimed_alone")
        with _outages_reported(self._url):
            statement = selection(row_type, self._place, columns)
            cursor = await self._connection.cursor(statement)
        while True:
            with _outages_reported(self._url):
                rows = await cursor.fetch(_ROWS_AHEAD)
            for row in rows:
                yield row
            if len(rows) < _ROWS_AHEAD:
                return


class PostgresTransfer(TransferStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    def export_rows(self) -> AbstractAsyncContextManager[PostgresDump]:
        return self._dumped()

    @asynccontextmanager
    async def _dumped(self) -> AsyncIterator[PostgresDump]:
        place = f"{place_in_sql(self._session.address.schema)['schema']}."
        with _outages_reported(self._session.address.url):
            connection = await connect(self._session.address)
        try:
            with _outages_reported(self._session.address.url):
                await connection.transaction(isolation="repeatable_read", readonly=True).start()
                seen = await self._seen(connection, place)
            yield PostgresDump(connection, self._session.address.url, place, seen)
        finally:
            await close_gently(connection)  # ends the transaction

    async def _seen(self, connection: Connection, place: str) -> Contents:
        counts = await connection.fetchrow(counting(place))
        leases_until = await connection.fetchval(f"SELECT max(lease_until) FROM {place}jobs")
        at: datetime = self._session.moment() or await connection.fetchval("SELECT now()")
        return Contents(
            at=at, counts=dict(zip(TABLES, counts, strict=True)), leases_until=leases_until
        )

    async def import_rows(self, batches: AsyncIterable[Sequence[TransferRow]]) -> None:
        with self._refusals():
            connection = await connect(self._session.address)
        try:
            with self._refusals():
                transaction = connection.transaction()
                await transaction.start()
                await self._check_empty(connection)
            async for batch in batches:
                with self._refusals():
                    await self._load_batch(connection, batch)
            with self._refusals():
                await connection.execute(self._session.statements["continue_run_numbers"])
                await transaction.commit()
        finally:
            await close_gently(connection)  # rolls back
        self._session.publish(*(Hint(type=row_type) for row_type in _NEWS))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            reason = str(error) or type(error).__name__
            fault = REFUSED.fault(url=self._session.address.url, reason=reason)
            raise StoreError(fault) from error

    async def _check_empty(self, connection: Connection) -> None:
        await connection.execute(self._session.statements["lock_tables"])
        place = f"{place_in_sql(self._session.address.schema)['schema']}."
        check_empty(await connection.fetchrow(emptiness(place)), self._session.address.url)

    async def _load_batch(self, connection: Connection, batch: Sequence[TransferRow]) -> None:
        row_type = type(batch[0])
        rows = [_values(row_type, each) for each in batch]
        if row_type is DefinitionRow:
            await connection.executemany(self._session.statements["load_definition"], rows)
            return
        await connection.copy_records_to_table(
            TABLES[row_type].name,
            schema_name=self._session.address.schema,
            columns=columns_of(row_type),
            records=rows,
        )


@contextmanager
def _outages_reported(url: str) -> Iterator[None]:
    """Report an outage as an error: an export is one snapshot, so it cannot be retried midway."""
    try:
        yield
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = str(error) or type(error).__name__
        raise StoreError(LOST.fault(url=url, reason=reason)) from error


def _from_record(row_type: type[TransferRow], row: Record, now: datetime) -> TransferRow:
    if row_type is JobRow:
        *values, lease_until, was_alone = row
        job = JobRow(**dict(zip(columns_of(row_type), values, strict=True)))
        return release_lease(job, lease_until, was_alone, now)
    values = converted(row, types_of(row_type), _READ)
    fields = dict(zip(columns_of(row_type), values, strict=True))
    if row_type is FailureRow:
        fields["failure"] = fields["failure"].encode()
    return row_type(**fields)


_WRITTEN: dict[Any, Convert] = {NAMES: list}

_REWRITTEN: dict[str, Convert] = {
    "failure": readable_json,
    "progress_message": storable,
    "paused_by": storable,
}
"""Columns for display only: an invalid character is replaced rather than refused."""

_NEWS = (HintType.READY, HintType.SCHEDULED, HintType.DUE)


def _values(row_type: type[TransferRow], row: TransferRow) -> list[Any]:
    columns = columns_of(row_type)
    values = converted(attrgetter(*columns)(row), types_of(row_type), _WRITTEN)
    for at, column in enumerate(columns):
        if column in _REWRITTEN and values[at] is not None:
            values[at] = _REWRITTEN[column](values[at])
    return values
