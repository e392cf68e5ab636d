"""Writes within a caller's transaction, on the caller's connection."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from perdure.clock import Clock
from perdure.diagnostics import safe_repr
from perdure.errors import InvalidInput
from perdure.store.contract.refusals import OTHER_DATABASE, no_transaction, unusable_connection
from perdure.store.sqlite.address import SqliteAddress
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.transaction import SqliteCursor, Transaction, statements_of

T = TypeVar("T")

_ACCEPTED = "a sqlite3 connection, or a SQLAlchemy connection or session, on the store's own file"

_LEGACY_TRANSACTION_CONTROL = -1


class BorrowedWrite(Generic[T]):
    """A write for one place that runs on a caller's connection."""

    def __init__(
        self, place: SqliteAddress, clock: Clock, work: Callable[[Transaction], T]
    ) -> None:
        self._place = place
        self._clock = clock
        self._work = work

    async def run_on(self, connection: Any) -> T:
        if hasattr(connection, "run_sync"):  # SQLAlchemy's AsyncConnection and AsyncSession
            answer: T = await connection.run_sync(self.run_blocking_on)
            return answer
        return self.run_blocking_on(connection)

    def run_blocking_on(self, connection: Any) -> T:
        lent = _lent(connection)
        self._check_file(connection, lent)
        _check_transaction(lent.driver)
        sql = statements_of(self._place.prefix)
        return self._work(Transaction(lent, sql, micros(self._clock())))

    def _check_file(self, connection: Any, lent: _Lent) -> None:
        try:
            databases = lent.execute("PRAGMA database_list", ()).fetchall()
        except sqlite3.ProgrammingError as error:
            raise unusable_connection(safe_repr(connection), reason=str(error)) from error
        files = {name: file for _, name, file in databases}
        if not files["main"] or os.path.realpath(files["main"]) != self._place.path:
            file = files["main"] or "a database in memory"
            reason = f"it is on {file}, the store is {self._place.path}"
            raise InvalidInput(OTHER_DATABASE.fault(("connection",), reason=reason))


class _Sqlite3:
    """A connection of the sqlite3 module."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.driver: Any = connection

    def execute(self, sql: str, parameters: Any, /) -> SqliteCursor:
        cursor: sqlite3.Cursor = self.driver.cursor()
        cursor.row_factory = None  # the caller's may not return tuples
        return cursor.execute(sql, parameters)


class _Sqlalchemy:
    """A SQLAlchemy connection, which must run each statement itself to track the transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def driver(self) -> Any:
        return self._connection.connection.driver_connection

    def execute(self, sql: str, parameters: Any, /) -> SqliteCursor:
        cursor: SqliteCursor = self._connection.exec_driver_sql(sql, parameters)
        return cursor


_Lent = _Sqlite3 | _Sqlalchemy


def _lent(connection: Any) -> _Lent:
    if isinstance(connection, sqlite3.Connection):
        return _Sqlite3(connection)
    if hasattr(connection, "run_sync"):
        reason, accepted = "it is asynchronous", "a blocking connection, or use AsyncClient"
        raise unusable_connection(safe_repr(connection), accepted, reason)
    inner = connection
    if hasattr(inner, "get_bind"):  # a SQLAlchemy Session
        inner = inner.connection()
    if not hasattr(inner, "exec_driver_sql"):
        raise unusable_connection(safe_repr(connection), _ACCEPTED)
    if inner.dialect.name != "sqlite":
        reason = f"it is for {inner.dialect.name}"
        raise unusable_connection(safe_repr(connection), _ACCEPTED, reason)
    return _Sqlalchemy(inner)


def _check_transaction(driver: Any) -> None:
    """Refuse a connection in autocommit mode."""
    control = getattr(driver, "autocommit", _LEGACY_TRANSACTION_CONTROL)
    begins_by_itself = driver.isolation_level is not None
    if control != _LEGACY_TRANSACTION_CONTROL:
        begins_by_itself = not control
    if not driver.in_transaction and not begins_by_itself:
        raise no_transaction()
