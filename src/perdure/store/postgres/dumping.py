"""Everything that the tables hold at one moment, read on a connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg

from perdure.errors import StoreError
from perdure.store.kept import KINDS, Contents, Kept, KeptFailure, KeptJob, let_go
from perdure.store.postgres.access import Access
from perdure.store.postgres.connections import Connection, close_gently, connect
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
    def __init__(self, connection: Connection, place: str, contents: Contents) -> None:
        self._connection = connection
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

    def _rows(self, kind: type[Kept]) -> Any:
        columns = columns_of(kind)
        if kind is KeptJob:
            columns = (*columns, "lease_until")
        statement = selection(kind, self._place, columns)
        return self._connection.cursor(statement, prefetch=_ROWS_AHEAD)


class PostgresDumping(Access):
    def dump(self) -> AbstractAsyncContextManager[PostgresDump]:
        return self._dumped()

    @asynccontextmanager
    async def _dumped(self) -> AsyncIterator[PostgresDump]:
        place = f"{place_in_sql(self._address.schema)['schema']}."
        connection = await connect(self._address)
        try:
            await connection.transaction(isolation="repeatable_read", readonly=True).start()
            yield PostgresDump(connection, place, await self._seen(connection, place))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreError(f"the store at {self._address.url} was lost: {error}") from error
        finally:
            await close_gently(connection)  # which ends the transaction

    async def _seen(self, connection: Connection, place: str) -> Contents:
        counts = await connection.fetchrow(counting(place))
        held_until = await connection.fetchval(f"SELECT max(lease_until) FROM {place}jobs")
        at: datetime = self._moment() or await connection.fetchval("SELECT now()")
        return Contents(at=at, counts=dict(zip(TABLES, counts, strict=True)), held_until=held_until)


def _kept(kind: type[Kept], row: Any, now: datetime) -> Kept:
    if kind is KeptJob:
        *values, lease_until = row
        return let_go(KeptJob(**dict(zip(columns_of(kind), values, strict=True))), lease_until, now)
    values = converted(row, types_of(kind), _READ)
    fields = dict(zip(columns_of(kind), values, strict=True))
    if kind is KeptFailure:
        fields["failure"] = fields["failure"].encode()
    return kind(**fields)
