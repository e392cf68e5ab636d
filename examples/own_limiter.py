"""A limiter of your own: at most two renderings at once, counted in a file beside the store.

Start it in two terminals with the same file, and kill either at any time:

    python examples/own_limiter.py work.db

The places of a killed worker free themselves once its lease has run out.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from uuid import uuid4

from perdure import Client, CustomLimit, Worker, task
from perdure.clock import system_clock

LEASE = "3s"
TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS places (id TEXT PRIMARY KEY, key TEXT, until REAL);
CREATE TABLE IF NOT EXISTS rendered (frame INTEGER, started REAL, ended REAL);
"""


class FileLimiter:
    """Counts places in a SQLite file, which several processes share."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self._size = size
        with closing(self.connect()) as connection:
            connection.executescript(TABLES)

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=4, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")  # places need not survive a power failure
        return connection

    async def acquire(
        self, key: str, n: int, ttl: timedelta
    ) -> tuple[Sequence[str], datetime | None]:
        places = await asyncio.to_thread(self._acquire, key, n, ttl)
        return places, system_clock() + timedelta(seconds=0.1)

    async def renew(self, key: str, places: Sequence[str], ttl: timedelta) -> None:
        until = time.time() + ttl.total_seconds()
        await self._write("REPLACE INTO places VALUES (?, ?, ?)", [(p, key, until) for p in places])

    async def release(self, key: str, places: Sequence[str]) -> None:
        await self._write("DELETE FROM places WHERE id = ?", [(place,) for place in places])

    def _acquire(self, key: str, n: int, ttl: timedelta) -> list[str]:
        now = time.time()
        with closing(self.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")  # or two processes would count the same places
            connection.execute("DELETE FROM places WHERE until < ?", (now,))
            counted = "SELECT count(*) FROM places WHERE key = ?"
            [taken] = connection.execute(counted, (key,)).fetchone()
            places = [uuid4().hex for _ in range(min(n, self._size - taken))]
            rows = [(place, key, now + ttl.total_seconds()) for place in places]
            connection.executemany("INSERT INTO places VALUES (?, ?, ?)", rows)
            connection.execute("COMMIT")
        return places

    async def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        def write() -> None:
            with closing(self.connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(statement, rows)
                connection.execute("COMMIT")

        await asyncio.to_thread(write)


path = sys.argv[1] if len(sys.argv) > 1 else "work.db"
limiter = FileLimiter(f"{path}-places", size=2)


@task(limits=[CustomLimit(limiter, key="gpu")])
def render(frame: int) -> None:
    with closing(limiter.connect()) as record:
        [row] = record.execute(
            "INSERT INTO rendered VALUES (?, ?, NULL) RETURNING rowid", (frame, time.time())
        ).fetchone()
        print(f"rendering {frame}", flush=True)
        time.sleep(0.2)
        record.execute("UPDATE rendered SET ended = ? WHERE rowid = ?", (time.time(), row))


if __name__ == "__main__":
    store = f"sqlite:///{path}"
    with Client(store) as client:
        client.enqueue_many(render, range(6))
    Worker(store, tasks=[render], lease=LEASE).run()
