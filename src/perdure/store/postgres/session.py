"""The state that the parts of one handle share: statements, connections, wake-ups and clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from perdure.clock import Clock
from perdure.model.hint import Hint
from perdure.store.hints import WriteHints
from perdure.store.postgres.address import Address
from perdure.store.postgres.connection import Connection, Connections, Record, Transacting
from perdure.store.postgres.params import PARAMS
from perdure.store.postgres.wakeups import Wakeups
from perdure.store.sql.rows import JOB_COLUMNS, WAIT_COLUMNS
from perdure.store.sql.statements import expand, load_statements

PACKAGE = "perdure.store.postgres"

_FILES = (
    "jobs",
    "submit",
    "commit",
    "places",
    "runs",
    "queries",
    "admin",
    "maintenance",
    "schedules",
    "live",
    "audit",
)


def place_in_sql(schema: str) -> dict[str, str]:
    """The values of placeholders: ``{schema}`` is quoted, so that any plain name works."""
    return {"schema": f'"{schema}"'}


@lru_cache(maxsize=64)
def statements_in(schema: str) -> Mapping[str, str]:
    """Every named statement, with the schema filled in."""
    columns = {"job_columns": ", ".join(JOB_COLUMNS), "wait_columns": ", ".join(WAIT_COLUMNS)}
    statements: dict[str, str] = {}
    for file in _FILES:
        more = load_statements(PACKAGE, f"sql/{file}.sql", columns | place_in_sql(schema))
        if twice := statements.keys() & more.keys():
            raise ValueError(f"statements named twice: {', '.join(sorted(twice))}")
        statements |= more
    for name, params in PARAMS.items():
        statements[name] = expand(statements[name], params)
    return MappingProxyType(statements)


_SCAN = "SET LOCAL enable_seqscan = on"


class Session:
    """One handle on the tables of one schema."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        self.address = address
        self.clock = clock
        self.statements = statements_in(address.schema)
        self.connections = Connections(address)
        self.wakeups = Wakeups(address)

    def moment(self) -> datetime | None:
        """The current time for a statement; None uses the database's clock."""
        return None if self.clock is None else self.clock()

    async def present(self) -> datetime:
        if self.clock is not None:
            return self.clock()
        moment: datetime = (await self.fetch("now"))[0][0]
        return moment

    async def fetch(self, statement: str, *arguments: Any) -> list[Record]:
        return await self.connections.fetch(self.statements[statement], *arguments)

    async def scan(self, statement: str, *arguments: Any) -> list[Record]:
        """The rows of a statement that may scan a whole table."""

        async def work(connection: Connection, _: bool) -> list[Record]:
            async with Transacting(connection, readonly=True):
                await connection.execute(_SCAN)
                rows: list[Record] = await connection.fetch(statement, *arguments)
                return rows

        return await self.connections.run(work)

    def publish(self, *hints: Hint) -> None:
        self.wakeups.publish(hints)

    def publish_moves(self, moves: WriteHints) -> None:
        self.wakeups.publish_nearby(moves.hints_nearby())
        self.wakeups.publish(moves.hints())
