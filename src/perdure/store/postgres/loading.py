"""Filling empty tables with what another store kept, in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import asyncpg

from perdure.errors import StoreError, StoreNotEmpty
from perdure.model.hint import Hint, HintKind
from perdure.store.kept import Kept, KeptDefinition
from perdure.store.postgres.access import Access
from perdure.store.postgres.connections import Connection, close_gently, connect
from perdure.store.postgres.rows import storable
from perdure.store.postgres.statements import place_in_sql
from perdure.store.sql.kept_tables import (
    NAMES,
    TABLES,
    Convert,
    columns_of,
    converted,
    emptiness,
    types_of,
)
from perdure.store.sql.readable import readable_json

_WRITTEN: dict[Any, Convert] = {NAMES: list}
_REWRITTEN: dict[str, Convert] = {
    "failure": readable_json,
    "progress_message": storable,
    "paused_by": storable,
}
"""What people are shown and no row is found by: it may lose a character rather than be refused."""
_NEWS = (HintKind.READY, HintKind.SCHEDULED, HintKind.DUE)


class PostgresLoading(Access):
    async def load(self, batches: AsyncIterable[Sequence[Kept]]) -> None:
        with self._refusals():
            connection = await connect(self._address)
        try:
            with self._refusals():
                transaction = connection.transaction()
                await transaction.start()
                await self._check_nothing_kept(connection)
            async for batch in batches:
                with self._refusals():
                    await self._load_batch(connection, batch)
            with self._refusals():
                await connection.execute(self._statements["go_on_numbering_runs"])
                await transaction.commit()
        finally:
            await close_gently(connection)  # which undoes what was not committed
        self._publish(*(Hint(kind=kind) for kind in _NEWS))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            reason = str(error) or type(error).__name__
            raise StoreError(
                f"the store at {self._address.url} refused, and nothing was written: {reason}"
            ) from error

    async def _check_nothing_kept(self, connection: Connection) -> None:
        await connection.execute(self._statements["keep_others_from_writing"])
        place = f"{place_in_sql(self._address.schema)['schema']}."
        found = await connection.fetchrow(emptiness(place))
        full = [
            table.name
            for (kind, table), has_rows in zip(TABLES.items(), found, strict=True)
            if has_rows and kind is not KeptDefinition
        ]
        if full:
            raise StoreNotEmpty(self._address.url, full)

    async def _load_batch(self, connection: Connection, batch: Sequence[Kept]) -> None:
        kind = type(batch[0])
        rows = [_row(kind, each) for each in batch]
        if kind is KeptDefinition:
            await connection.executemany(self._statements["load_definition"], rows)
            return
        await connection.copy_records_to_table(
            TABLES[kind].name,
            schema_name=self._address.schema,
            columns=columns_of(kind),
            records=rows,
        )


def _row(kind: type[Kept], kept: Kept) -> list[Any]:
    columns = columns_of(kind)
    row = converted(attrgetter(*columns)(kept), types_of(kind), _WRITTEN)
    for at, column in enumerate(columns):
        if column in _REWRITTEN and row[at] is not None:
            row[at] = _REWRITTEN[column](row[at])
    return row
