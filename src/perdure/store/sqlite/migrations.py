"""Creating and upgrading the tables, under the file's write lock."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from perdure.clock import system_clock
from perdure.store.sql.migrations import (
    Migration,
    foreign_tables,
    load_migrations,
    pending,
    require_all,
)
from perdure.store.sqlite.address import SqliteAddress
from perdure.store.sqlite.connection import OPEN_SECONDS_MAX, retry_while_busy
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.transaction import PACKAGE

_CREATED = re.compile(r"^CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)", re.MULTILINE)

_TABLES = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


def migrate(connection: sqlite3.Connection, place: SqliteAddress) -> None:
    """Bring the tables to this version, or raise ``SchemaMismatch``.

    Current tables are only read, so that opening does not wait for a lock.
    """
    steps = load_migrations(PACKAGE, {"prefix": place.prefix})

    def attempt() -> None:
        if not pending_at(connection, place, steps):
            return
        # A user's view of a recreated table must not stop the migration.
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have migrated while this one waited for the lock.
            for step in pending_at(connection, place, steps):
                _apply(connection, place, step)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.execute("PRAGMA legacy_alter_table = OFF")

    retry_while_busy(attempt, place.path, seconds_max=OPEN_SECONDS_MAX)


def pending_at(
    connection: sqlite3.Connection, place: SqliteAddress, steps: Sequence[Migration]
) -> Sequence[Migration]:
    """The migrations that the file still needs; only reads."""
    ours = f"{place.prefix}migrations"
    taken = {name.lower() for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if ours.lower() not in taken:
        wanted = (name for step in steps for name in _CREATED.findall(step.text))
        if any(name.lower() in taken for name in wanted):
            raise foreign_tables(place.path)
        return steps
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({ours})")]
    if columns != ["version", "name", "applied_at"]:
        raise foreign_tables(place.path)
    applied = connection.execute(f"SELECT version, name FROM {ours}").fetchall()
    left = pending(steps, applied, place.path)
    if any(name.lower() in taken for step in left for name in _TABLES.findall(step.text)):
        raise foreign_tables(place.path)
    return left


def _apply(connection: sqlite3.Connection, place: SqliteAddress, step: Migration) -> None:
    for statement in _statements_in(step.text):
        connection.execute(statement)
    connection.execute(
        f"INSERT INTO {place.prefix}migrations (version, name, applied_at) VALUES (?, ?, ?)",
        (step.version, step.name, micros(system_clock())),
    )


def _statements_in(text: str) -> Iterator[str]:
    """The statements of a script, one by one: ``executescript`` would commit before it starts."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def require_sqlite(place: SqliteAddress) -> None:
    """Raise unless the file exists and has the tables of this version."""
    place.check_reachable()
    if not os.path.exists(place.path):
        raise place.unreachable(f"there is no file {place.path!r}", "The first worker creates it")
    steps = load_migrations(PACKAGE, {"prefix": place.prefix})
    address = f"{Path(place.path).as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            left = pending_at(connection, place, steps)
    except sqlite3.DatabaseError as error:
        raise place.unreachable(str(error), "Look at the file") from error
    require_all(steps, left, place.path)
