"""A connection beside those of the database, for what lasts long, with a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from perdure.store.sqlite.connecting import as_store_error
from perdure.store.sqlite.place import SqlitePlace

Answer = TypeVar("Answer")
Connect = Callable[[SqlitePlace], sqlite3.Connection]


class Aside:
    """Does what it is asked one after the other, also if whoever asked was cancelled meanwhile."""

    def __init__(self, place: SqlitePlace, thread: ThreadPoolExecutor) -> None:
        self._place = place
        self._thread = thread

    async def do(self, action: Callable[[], Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, action)
        except sqlite3.Error as error:
            raise as_store_error(error, self._place) from error


@asynccontextmanager
async def aside(
    place: SqlitePlace, connect: Connect
) -> AsyncIterator[tuple[Aside, sqlite3.Connection]]:
    """Open a connection, and close it; what was not committed is undone."""
    with ThreadPoolExecutor(1, thread_name_prefix="perdure aside") as thread:
        own = Aside(place, thread)
        connection = await own.do(lambda: connect(place))
        try:
            yield own, connection
        finally:
            # In the same thread, so that nothing is under way on it any more.
            await own.do(connection.close)
