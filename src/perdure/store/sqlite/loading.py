"""Filling empty tables with what another store kept, in one transaction on its own connection."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from perdure.errors import StoreNotEmpty
from perdure.store.kept import Kept, KeptDefinition, KeptJob, KeptRun
from perdure.store.sql.kept_tables import (
    MOMENT,
    NAMES,
    TABLES,
    Convert,
    columns_of,
    converted,
    emptiness,
    types_of,
)
from perdure.store.sqlite.aside import aside
from perdure.store.sqlite.busy import patiently
from perdure.store.sqlite.connecting import connect_writer
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.place import SqlitePlace
from perdure.store.sqlite.rows import INLINE_MAX_BYTES, as_json, micros

_WRITTEN: dict[Any, Convert] = {MOMENT: micros, NAMES: as_json}
_NOT_KEPT: dict[type[Kept], set[str]] = {KeptRun: {"number"}}
"""What the tables tell otherwise: the number of a run is that of its last event."""


class SqliteLoading(Handle):
    async def load(self, batches: AsyncIterable[Sequence[Kept]]) -> None:
        place = self._place
        async with aside(place, connect_writer) as (thread, connection):
            await thread.do(partial(_begin, connection, place))
            async for batch in batches:
                await thread.do(partial(_add, connection, place.prefix, batch))
            await thread.do(partial(connection.execute, "COMMIT"))


def _begin(connection: sqlite3.Connection, place: SqlitePlace) -> None:
    """Take the lock that keeps all others from writing, and see that there is nothing yet."""
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"), place.path)
    found = connection.execute(emptiness(place.prefix)).fetchone()
    full = [
        table.name
        for (kind, table), has_rows in zip(TABLES.items(), found, strict=True)
        if has_rows and kind is not KeptDefinition
    ]
    if full:
        raise StoreNotEmpty(place.url, full)


def _add(connection: sqlite3.Connection, prefix: str, batch: Sequence[Kept]) -> None:
    kind = type(batch[0])
    columns = [name for name in columns_of(kind) if name not in _NOT_KEPT.get(kind, ())]
    # A worker that started here first has saved its own definitions; the same version is the same.
    verb = "INSERT OR IGNORE" if kind is KeptDefinition else "INSERT"
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"{verb} INTO {prefix}{TABLES[kind].name} ({', '.join(columns)}) VALUES ({marks})",
        [_row(kind, columns, each) for each in batch],
    )
    large = [(job.id, job.input) for job in batch if isinstance(job, KeptJob) and _is_large(job)]
    connection.executemany(f"INSERT INTO {prefix}large_inputs (job_id, input) VALUES (?, ?)", large)


def _row(kind: type[Kept], columns: Sequence[str], kept: Kept) -> list[Any]:
    types = dict(zip(columns_of(kind), types_of(kind), strict=True))
    row = converted(attrgetter(*columns)(kept), [types[name] for name in columns], _WRITTEN)
    if isinstance(kept, KeptJob) and _is_large(kept):
        row[columns.index("input")] = None
    return row


def _is_large(job: KeptJob) -> bool:
    return len(job.input) > INLINE_MAX_BYTES
