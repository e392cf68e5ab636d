"""Creating, upgrading and requiring the tables of this version."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from perdure.store.postgres.address import Address
from perdure.store.postgres.connection import Connection, Connections, Transacting
from perdure.store.postgres.session import PACKAGE, place_in_sql, statements_in
from perdure.store.sql.migrations import foreign_tables, load_migrations, pending, require_all

MIGRATION_TIMEOUT_S = 86_400.0
"""For one statement: indexing a large table takes long."""

_TABLES = (
    "jobs",
    "failures",
    "limits",
    "limit_starts",
    "queues",
    "workers",
    "maintenance_leases",
    "runs",
    "events",
    "snapshots",
    "waits",
    "definitions",
    "steps",
    "schedules",
    "past_counts",
    "pruned_ends",
    "subscribers",
    "live_events",
)


async def migrate(connection: Connection, address: Address) -> None:
    """Create or upgrade the tables; raises ``SchemaMismatch``."""
    known = load_migrations(PACKAGE, place_in_sql(address.schema))
    where = f"schema {address.schema!r} of {address.url}"
    statements = statements_in(address.schema)
    try:
        applied = await connection.fetch(statements["applied"])
    except asyncpg.UndefinedTableError:
        pass
    except asyncpg.UndefinedColumnError as error:
        raise foreign_tables(where) from error
    else:
        if not pending(known, [(version, name) for version, name in applied], where):
            return
    async with Transacting(connection):
        # A second process waits here, and then finds the migrations applied.
        await connection.fetch(
            statements["lock_migrations"], address.schema, timeout=MIGRATION_TIMEOUT_S
        )
        applied = await _applied_under_lock(connection, statements, address.schema, where)
        for step in pending(known, applied, where):
            await connection.execute(step.text, timeout=MIGRATION_TIMEOUT_S)
            await connection.fetch(statements["record_migration"], step.version, step.name)


async def _applied_under_lock(
    connection: Connection, statements: Mapping[str, str], schema: str, where: str
) -> list[tuple[int, str]]:
    """The migrations found, asking the catalog first: a failed query would end the transaction."""
    if not await connection.fetchval(statements["schema_exists"], schema):
        await connection.execute(statements["create_schema"])
        return []
    names = [*_TABLES, "migrations"]
    present = {
        row[0] for row in await connection.fetch(statements["tables_present"], schema, names)
    }
    if "migrations" in present:
        return [(version, name) for version, name in await connection.fetch(statements["applied"])]
    if present:
        raise foreign_tables(where)
    return []


async def require_postgres(address: Address) -> None:
    """Raise unless the server answers and the schema has the tables of this version."""
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
