"""Statements that an idle worker sends, counted in the server's own log."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import asyncpg

from bench.worker_process import worker_processes

_STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): ")


async def statements_per_minute(url: str, log: Path, seconds: float) -> float:
    """Count for some time after startup, and scale to a minute."""
    with worker_processes(url, 1, concurrency=10):
        await asyncio.sleep(3)
        await _log_statements(url, "all")
        before = _count(log)
        await asyncio.sleep(seconds)
        sent = _count(log) - before
        await _log_statements(url, "none")
    return sent * 60 / seconds


async def _log_statements(url: str, which: str) -> None:
    connection = await asyncpg.connect(url.partition("?")[0])
    try:
        await connection.execute(f"ALTER SYSTEM SET log_statement = '{which}'")
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()
    await asyncio.sleep(0.5)


def _count(log: Path) -> int:
    return len(_STATEMENT.findall(log.read_text(errors="replace")))
