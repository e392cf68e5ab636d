"""Forcing an interleaving: hold a row, see somebody wait for it, let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

WAITING_FOR_A_LOCK = """
SELECT count(*)
FROM pg_locks
JOIN pg_stat_activity USING (pid)
WHERE NOT granted
  AND query LIKE '%' || $1 || '%'
"""
BY_NAME = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
LOOKS_MAX = 500


@asynccontextmanager
async def row_held(connection: Any, schema: str, id: str) -> AsyncIterator[None]:
    """Keep everybody else from changing one job."""
    async with connection.transaction():
        await connection.execute(f"SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE", id)
        yield


async def until_somebody_waits(connection: Any, schema: str, least: int = 1) -> None:
    """Look until statements about this schema, so many at least, wait for a lock."""
    await _until(connection, WAITING_FOR_A_LOCK, schema, lambda count: count >= least)


async def until_nobody_waits(connection: Any, schema: str) -> None:
    await _until(connection, WAITING_FOR_A_LOCK, schema, lambda count: count == 0)


async def until_gone(connection: Any, name: str) -> None:
    """Look until the server has let go of all connections of that name."""
    await _until(connection, BY_NAME, name, lambda count: count == 0)


async def _until(connection: Any, query: str, argument: str, is_reached: Any) -> None:
    for _ in range(LOOKS_MAX):
        # Within a transaction the server shows one picture of its connections until told otherwise.
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        if is_reached(await connection.fetchval(query, argument)):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")
