"""Whether there is a store to check, asked without making or upgrading one.

Opening a store creates what is missing. A check must not: a mistyped URL would pass for a store
without a fault, and an older one would be changed by whoever only wanted to look.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from perdure.errors import InvalidStoreUrl, SchemaMismatch, StoreUnreachable
from perdure.store.sql.migrations import Migration, load_migrations, pending


async def require_store(url: str) -> None:
    """Raise unless the URL means a store with the tables of this version."""
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        raise InvalidStoreUrl(url, "a store in memory can only be checked by its own process")
    if scheme == "sqlite":
        _require_sqlite(url)
    elif scheme in ("postgresql", "postgres"):
        await _require_postgres(url)


def _require_sqlite(url: str) -> None:
    from perdure.store.sqlite.place import place_at
    from perdure.store.sqlite.statements import PACKAGE

    place = place_at(url)
    if not os.path.exists(place.path):
        raise place.unreachable(f"there is no file {place.path!r}", "Look at the path")
    steps = load_migrations(PACKAGE, {"prefix": place.prefix})
    address = f"{Path(place.path).as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            found = connection.execute(f"SELECT version, name FROM {place.prefix}migrations")
            applied = found.fetchall()
    except sqlite3.OperationalError as error:
        if "no such" not in str(error):
            raise place.unreachable(str(error), "Look at the file") from error
        applied = []
    except sqlite3.DatabaseError as error:
        raise place.unreachable(str(error), "Look at the file") from error
    _require(steps, applied, place.path)


async def _require_postgres(url: str) -> None:
    import asyncpg

    from perdure.store.postgres.address import parse_address
    from perdure.store.postgres.connections import connect
    from perdure.store.postgres.statements import PACKAGE, place_in_sql, statements_in

    address = parse_address(url)
    steps = load_migrations(PACKAGE, place_in_sql(address.schema))
    try:
        connection = await connect(address)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnreachable(address.url, str(error) or type(error).__name__) from error
    try:
        rows = await connection.fetch(statements_in(address.schema)["applied"])
        applied = [(version, name) for version, name in rows]
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
        applied = []
    finally:
        await connection.close()
    _require(steps, applied, f"schema {address.schema!r} of {address.url}")


def _require(steps: Sequence[Migration], applied: Sequence[tuple[int, str]], where: str) -> None:
    if not applied:
        raise SchemaMismatch(f"{where} has no tables of Perdure: there is nothing to check")
    if pending(steps, applied, where):
        raise SchemaMismatch(
            f"the tables in {where} are at version {len(applied)}, this Perdure checks version "
            f"{len(steps)}: a worker of this version upgrades it, or check it with its own version"
        )
