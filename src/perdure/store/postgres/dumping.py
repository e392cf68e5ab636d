"""Everything that the tables hold at one moment, read on a connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any

import asyncpg

from perdure.errors import StoreError
from perdure.store.kept import KINDS, Contents, Kept, KeptFailure, KeptJob, let_go
from perdure.store.postgres.access import Access
from perdure.store.postgres.connections import Connection, Record, close_gently, connect
from perdure.store.postgres.statements import place_in_sql
from perdure.store.sql.kept_tables import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
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

    async def batches(self) -> AsyncIterator[Sequence[Kept]]:
        for kind in KINDS:
            batch: list[Kept] = []
            size = 0
            async for row in self._rows(kind):
                batch.append(_kept(kind, row, self._contents.at))
                size += size_of(row)
                if len(batch) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch

    async def _rows(self, kind: type[Kept]) -> AsyncIterator[Record]:
        columns = columns_of(kind)
        if kind is KeptJob:
            columns = (*columns, "lease_until")
        with _losses_told(self._url):
            statement = selection(kind, self._place, columns)
            cursor = await self._connection.cursor(statement)
        while True:
            with _losses_told(self._url):
                rows = await cursor.fetch(_ROWS_AHEAD)
            for row in rows:
                yield row
            if len(rows) < _ROWS_AHEAD:
                return


class PostgresDumping(Access):
    def dump(self) -> AbstractAsyncContextManager[PostgresDump]:
        return self._dumped()

    @asynccontextmanager
    async def _dumped(self) -> AsyncIterator[PostgresDump]:
        place = f"{place_in_sql(self._address.schema)['schema']}."
        with _losses_told(self._address.url):
            connection = await connect(self._address)
        try:
            with _losses_told(self._address.url):
                await connection.transaction(isolation="repeatable_read", readonly=True).start()
                seen = await self._seen(connection, place)
            yield PostgresDump(connection, self._address.url, place, seen)
        finally:
            await close_gently(connection)  # which ends the transaction

    async def _seen(self, connection: Connection, place: str) -> Contents:
        counts = await connection.fetchrow(counting(place))
        held_until = await connection.fetchval(f"SELECT max(lease_until) FROM {place}jobs")
        at: datetime = self._moment() or await connection.fetchval("SELECT now()")
        return Contents(at=at, counts=dict(zip(TABLES, counts, strict=True)), held_until=held_until)


@contextmanager
def _losses_told(url: str) -> Iterator[None]:
    """An outage ends a dump, which is of one moment: it cannot go on at another one."""
    try:
        yield
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = str(error) or type(error).__name__
        raise StoreError(f"the store at {url} was lost meanwhile: {reason}") from error


def _kept(kind: type[Kept], row: Record, now: datetime) -> Kept:
    if kind is KeptJob:
        *values, lease_until = row
        return let_go(KeptJob(**dict(zip(columns_of(kind), values, strict=True))), lease_until, now)
    values = converted(row, types_of(kind), _READ)
    fields = dict(zip(columns_of(kind), values, strict=True))
    if kind is KeptFailure:
        fields["failure"] = fields["failure"].encode()
    return kind(**fields)
