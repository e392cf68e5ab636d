"""Everything that a store holds, to see that a refused call wrote nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import asyncpg

from perdure.store.memory.store import MemoryStore
from perdure.store.opening import store_at
from perdure.store.postgres.address import parse_address

NOT_WORK = ("workers", "duties", "migrations")
"""Tables of workers, which come and go by themselves."""


async def contents(url: str, *, is_all: bool = False) -> Any:
    """By table, if it has tables; ``is_all``: with those of workers."""
    if url.startswith("memory:"):
        return _of_memory(url)
    left_out = () if is_all else NOT_WORK
    return (
        _of_sqlite(url, left_out)
        if url.startswith("sqlite:")
        else await _of_postgres(url, left_out)
    )


def _of_memory(url: str) -> Any:
    store = store_at(url)
    assert isinstance(store, MemoryStore)
    state = store._session.state
    return repr(
        [
            sorted(state.jobs.items()),
            sorted(state.paused.items()),
            sorted(state.limits.items()),
            _plain(state.records),
            _plain(state.schedules),
        ]
    )


def _plain(records: Any) -> Any:
    return {
        name: value
        for name in getattr(type(records), "__slots__", None) or vars(records)
        if isinstance(value := getattr(records, name), dict)
    }


def _of_sqlite(url: str, left_out: tuple[str, ...]) -> Any:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        tables = [name for (name,) in connection.execute(names)]
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in tables
            if not table.endswith(left_out)
        }


async def _of_postgres(url: str, left_out: tuple[str, ...]) -> Any:
    address = parse_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1"
        tables = [name for (name,) in await connection.fetch(names, address.schema)]
        return {
            table: sorted(
                map(tuple, await connection.fetch(f'SELECT * FROM "{address.schema}"."{table}"')),
                key=repr,
            )
            for table in tables
            if not table.endswith(left_out)
        }
    finally:
        await connection.close()
