"""What every part of the store stands on: its statements, connections, wake-ups and clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from perdure.clock import Clock
from perdure.model.hint import Hint
from perdure.store.postgres.address import Address
from perdure.store.postgres.connections import Connection, Connections, Record
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.statements import statements_in
from perdure.store.postgres.transacting import Transacting
from perdure.store.postgres.wakeups import Wakeups

_SCAN = "SET LOCAL enable_seqscan = on"


class Access:
    """One handle on the tables of one schema."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        self._address = address
        self._clock = clock
        self._statements = statements_in(address.schema)
        self._connections = Connections(address)
        self._wakeups = Wakeups(address)

    def _moment(self) -> datetime | None:
        """What a statement takes as now; None leaves it to the database."""
        return None if self._clock is None else self._clock()

    async def _present(self) -> datetime:
        if self._clock is not None:
            return self._clock()
        moment: datetime = (await self._fetch("now"))[0][0]
        return moment

    async def _fetch(self, statement: str, *arguments: Any) -> list[Record]:
        return await self._connections.fetch(self._statements[statement], *arguments)

    async def _scan(self, statement: str, *arguments: Any) -> list[Record]:
        """Rows of a statement that may read the whole table, and is best left to do so in order."""

        async def work(connection: Connection, _: bool) -> list[Record]:
            async with Transacting(connection, readonly=True):
                await connection.execute(_SCAN)
                rows: list[Record] = await connection.fetch(statement, *arguments)
                return rows

        return await self._connections.run(work)

    def _publish(self, *hints: Hint) -> None:
        self._wakeups.publish(hints)

    def _publish_moves(self, moves: Moves) -> None:
        self._wakeups.publish_nearby(moves.hints_nearby())
        self._wakeups.publish(moves.hints())
