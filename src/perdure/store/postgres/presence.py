"""Whether there is a store in a schema, asked without making or upgrading one."""

from __future__ import annotations

import asyncpg

from perdure.store.postgres.address import parse_address
from perdure.store.postgres.connections import Connection, Connections
from perdure.store.postgres.statements import PACKAGE, place_in_sql, statements_in
from perdure.store.sql.migrations import foreign_tables, load_migrations, pending, require_all


async def require_postgres(url: str) -> None:
    """Raise unless the server answers and the schema has the tables of this version."""
    address = parse_address(url)
    where = f"schema {address.schema!r} of {address.url}"

    async def applied(connection: Connection, _: bool) -> list[tuple[int, str]]:
        try:
            rows = await connection.fetch(statements_in(address.schema)["applied"])
        except asyncpg.UndefinedTableError:
            return []
        except asyncpg.UndefinedColumnError as error:
            raise foreign_tables(where) from error
        return [(version, name) for version, name in rows]

    connections = Connections(address)
    await connections.open()
    try:
        found = await connections.run(applied)
    finally:
        await connections.close()
    steps = load_migrations(PACKAGE, place_in_sql(address.schema))
    require_all(steps, pending(steps, found, where), where)
