"""Schemas that tests use one after the other: emptied in between, dropped when changed.

To create the tables and to drop them again costs several times what most tests take.
"""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from perdure.store.opening import store_at

# Up to here it is quicker to delete the rows of a table than to give it a new file.
DELETED_BYTES_MAX = 128 * 1024

# What a test may have changed about the tables themselves.
_SHAPE = """
SELECT md5(string_agg(part, ',' ORDER BY part)) FROM (
    SELECT format('%%s %%s %%s %%s', c.relname, a.attname, a.atttypid, a.attnotnull) AS part
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = %(schema)s::regnamespace
    UNION ALL
    SELECT format('%%s %%s', t.tgrelid::regclass, t.tgname)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = %(schema)s::regnamespace
    UNION ALL
    SELECT format('%%s %%s', n.conrelid::regclass, n.conname)
    FROM pg_constraint n WHERE n.connamespace = %(schema)s::regnamespace
) AS parts
"""
_TABLES = """
SELECT c.relname, pg_table_size(c.oid)
FROM pg_class c
WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind = 'r' AND c.relname <> 'migrations'
ORDER BY c.relname
"""
_SEQUENCES = """
SELECT c.oid FROM pg_class c
WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind = 'S'
"""


class Schemas:
    """The schemas of one test process on one server."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._shapes: dict[str, tuple[object, ...]] = {}
        self._free: list[str] = []
        self._connection = _connect(server_url)

    def take(self) -> str:
        """The name of a schema with all tables and no rows."""
        if self._free:
            return self._free.pop()
        name = f"t_{secrets.token_hex(8)}"
        url = with_query(self._server_url, schema=name)
        create_tables(url)
        self._shapes[name] = self._shape(name)
        return name

    def give_back(self, name: str) -> None:
        if self._exists(name) and self._shape(name) == self._shapes[name]:
            self._empty(name)
            self._free.append(name)
        else:
            _drop(self._connection, name)

    def close(self) -> None:
        for name in self._free:
            _drop(self._connection, name)
        self._connection.close()

    def _exists(self, name: str) -> bool:
        found = self._connection.execute("SELECT to_regnamespace(%s)", [name]).fetchone()
        return found is not None and found[0] is not None

    def _shape(self, name: str) -> tuple[object, ...]:
        with self._connection.transaction():
            shape = self._connection.execute(_SHAPE, {"schema": name}).fetchone()
            migrations = self._connection.execute(
                sql.SQL("SELECT version, name FROM {}.migrations ORDER BY 1").format(
                    sql.Identifier(name)
                )
            ).fetchall()
        return (shape, *migrations)

    def _empty(self, name: str) -> None:
        """Delete all rows, once every transaction that a dead process left behind is over."""
        with self._connection.transaction():
            sizes: dict[str, int] = dict(
                self._connection.execute(_TABLES, {"schema": name}).fetchall()
            )
            tables = {table: sql.Identifier(name, table) for table in sizes}
            self._connection.execute(
                sql.SQL("LOCK TABLE {}").format(sql.SQL(", ").join(tables.values()))
            )
            large = [tables[table] for table, size in sizes.items() if size > DELETED_BYTES_MAX]
            if large:
                self._connection.execute(
                    sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(large))
                )
            for table in tables.values():
                self._connection.execute(sql.SQL("DELETE FROM {}").format(table))
            for (sequence,) in self._connection.execute(_SEQUENCES, {"schema": name}).fetchall():
                self._connection.execute("SELECT setval(%s::regclass, 1, false)", [sequence])


def create_tables(url: str) -> None:
    """Create what a store of any kind needs."""
    # In a thread of its own, since the loop of the test may be running in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _open_and_close(url)).result()


def drop_schema(server_url: str, schema: str) -> None:
    with _connect(server_url) as connection:
        _drop(connection, schema)


def with_query(url: str, **more: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), *more.items()])))


def _connect(server_url: str) -> psycopg.Connection:
    # A session that a test left inside a transaction must fail that test, not hang the run.
    return psycopg.connect(server_url, autocommit=True, options="-c lock_timeout=10s")


def _drop(connection: psycopg.Connection, schema: str) -> None:
    connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


async def _open_and_close(url: str) -> None:
    store = store_at(url)
    await store.open()
    await store.close()
