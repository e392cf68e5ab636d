"""Write a database down as SQL that can be read: its migrations as they were, then its rows."""

from __future__ import annotations

import asyncio
import re
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg

from perdure.store.postgres.address import parse_address
from perdure.store.postgres.session import PACKAGE as POSTGRES
from perdure.store.sql.migrations import load_migrations
from perdure.store.sqlite.transaction import PACKAGE as SQLITE

PREFIX = "perdure_"
SCHEMA = "{schema}"
_FOLDER = re.compile(r"(?<=\")/[\w./-]*?/(?=(?:src|tests)/)")


def sqlite_dump(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        tables = [name for (name,) in connection.execute(names)]
        rows = [_sqlite_rows(connection, table) for table in tables]
    return "\n".join([*_migrations(SQLITE, {"prefix": PREFIX}), *filter(None, rows)])


def _sqlite_rows(connection: sqlite3.Connection, table: str) -> str:
    found = connection.execute(f"SELECT * FROM {table}")
    columns = [description[0] for description in found.description]
    blob = "CAST('{}' AS BLOB)"
    return _insert(table, columns, found.fetchall(), lambda value: _literal(value, blob, "x'{}'"))


async def postgres_dump(url: str) -> str:
    address = parse_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        listed = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", address.schema
        )
        rows = [await _postgres_rows(connection, address.schema, name) for (name,) in listed]
    finally:
        await connection.close()
    return "\n".join(
        [
            f"CREATE SCHEMA {SCHEMA};\n",
            *_migrations(POSTGRES, {"schema": SCHEMA}),
            *filter(None, rows),
        ]
    )


async def _postgres_rows(connection: asyncpg.Connection, schema: str, table: str) -> str:
    columns = await connection.fetch(
        "SELECT column_name, is_identity = 'YES' FROM information_schema.columns "
        "WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position",
        schema,
        table,
    )
    found = await connection.fetch(f'SELECT * FROM "{schema}"."{table}"')
    blob = "convert_to('{}', 'UTF8')"
    text = _insert(
        f"{SCHEMA}.{table}",
        [name for name, _ in columns],
        [tuple(row) for row in found],
        lambda value: _literal(value, blob, "'\\x{}'"),
    )
    for name in [name for name, is_identity in columns if is_identity and found]:
        text = text.replace(") VALUES", ") OVERRIDING SYSTEM VALUE VALUES")
        sequence = f"pg_get_serial_sequence('{SCHEMA}.{table}', '{name}')"
        text += f"SELECT setval({sequence}, (SELECT max({name}) FROM {SCHEMA}.{table}));\n"
    return text


def _migrations(package: str, place: dict[str, str]) -> list[str]:
    return [step.text for step in load_migrations(package, place)]


def _insert(
    table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], literal: Callable[[Any], str]
) -> str:
    lines = [f"({', '.join(literal(value) for value in row)})" for row in rows]
    if not lines:
        return ""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES\n" + ",\n".join(lines) + ";\n"


def _literal(value: Any, blob_as_text: str, blob_as_hex: str) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            text = value.decode(errors="replace")
            if text.isprintable() and text.encode() == value:
                return blob_as_text.format(text.replace("'", "''"))
            return blob_as_hex.format(value.hex())
        case bool() | int() | float():
            return repr(value)
        case list():
            return _literal("{" + ",".join(value) + "}", blob_as_text, blob_as_hex)
        case datetime():
            return f"'{value.isoformat()}'"
        case _:
            text = str(value).replace("'", "''")
            return f"'{text}'"


def main(url: str, path: str) -> None:
    if url.startswith("sqlite:"):
        dump = sqlite_dump(Path(url.removeprefix("sqlite:///")))
    else:
        dump = asyncio.run(postgres_dump(url))
    # Tracebacks and workers say on which machine it was made.
    dump = _FOLDER.sub("", dump).replace(socket.gethostname(), "somewhere")
    Path(path).write_text(dump, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
