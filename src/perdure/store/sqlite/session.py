"""The state that the parts of one handle share: place, open database, and clock."""

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
"""Jobs or steps that are written without a noticeable delay of the event loop."""
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
        """Write ``size`` rows, without a thread switch if they are few."""
        if size > SMALL_MAX:
            return await self.write(operation)
        # A small write on this thread does not suspend its caller, so a loop of them would starve
        # other tasks. Yield before the write, so that a cancellation undoes nothing.
        if monotonic() - self._turn_began_at > TURN_SECONDS_MAX:
            await asyncio.sleep(0)
            self._turn_began_at = monotonic()
        return await self._open_database().write_small(operation, self.clock)

    async def read(self, operation: Work[Answer]) -> Answer:
        return await self._open_database().read(operation, self.clock)

    async def rows(self, name: str, **parameters: Any) -> Sequence[Row]:
        """The rows of one reading statement."""
        return await self.read(lambda transaction: transaction.rows(name, **parameters))

    def _open_database(self) -> Database:
        if self.database is None:
            raise StoreError(NOT_OPEN.fault(url=self.place.url))
        return self.database
