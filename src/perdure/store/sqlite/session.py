"""What the parts of one handle share: the place, its database while open, and a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from perdure.clock import Clock, monotonic
from perdure.diagnostics import declare
from perdure.errors import StoreError
from perdure.store.sqlite.address import SqliteAddress
from perdure.store.sqlite.database import Database
from perdure.store.sqlite.rows import Row
from perdure.store.sqlite.writer import Work

NOT_OPEN = declare("store.not_open", "the store at {url} is not open", "Await store.open()")

Answer = TypeVar("Answer")

SMALL_MAX = 16
"""Jobs, or steps of runs, that are written without holding up an event loop noticeably."""
TURN_SECONDS_MAX = 0.005
"""How long small writes may follow each other before the event loop gets a turn."""


class Session:
    def __init__(self, place: SqliteAddress, clock: Clock) -> None:
        self.place = place
        self.clock = clock
        self.database: Database | None = None
        self._turn_began_at = 0.0

    async def write(self, operation: Work[Answer]) -> Answer:
        return await self._open_database().write(operation, self.clock)

    async def write_small(self, operation: Work[Answer], size: int) -> Answer:
        """The same for something of so many rows, without waiting for a thread if they are few."""
        if size > SMALL_MAX:
            return await self.write(operation)
        # A small write that is done at once does not suspend its caller. One that writes in a loop
        # would keep all others from running; before the write, so that a cancel undoes nothing.
        if monotonic() - self._turn_began_at > TURN_SECONDS_MAX:
            await asyncio.sleep(0)
            self._turn_began_at = monotonic()
        return await self._open_database().write_small(operation, self.clock)

    async def read(self, operation: Work[Answer]) -> Answer:
        return await self._open_database().read(operation, self.clock)

    async def rows(self, name: str, **parameters: Any) -> Sequence[Row]:
        """What one reading statement finds."""
        return await self.read(lambda transaction: transaction.rows(name, **parameters))

    def _open_database(self) -> Database:
        if self.database is None:
            raise StoreError(NOT_OPEN.fault(url=self.place.url))
        return self.database
