"""Writes within a caller's transaction, on the caller's connection."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from perdure.errors import InvalidInput
from perdure.model.job import Inserted, NewJob
from perdure.model.run import NewRun, Submitted
from perdure.store.contract.refusals import OTHER_DATABASE, no_transaction, unusable_connection
from perdure.store.hints import WriteHints
from perdure.store.postgres.jobs import Rows, Steps, insert_steps, run_steps, run_steps_blocking
from perdure.store.postgres.session import Session, statements_in
from perdure.store.postgres.submit import submit_within
from perdure.store.postgres.wakeups import channel_of, merge, write_message

Awaiting = Callable[[str, Sequence[Any]], Awaitable[Rows]]

Blocking = Callable[[str, Sequence[Any]], Rows]

_ASYNCPG = ("asyncpg", {"Connection", "PoolConnectionProxy"})

_PSYCOPG = ("psycopg", {"Connection"})

_PSYCOPG_ASYNC = ("psycopg", {"AsyncConnection"})

_ALCHEMY = ("sqlalchemy", {"Connection"})

_ALCHEMY_ASYNC = ("sqlalchemy", {"AsyncConnection"})

_SESSION = ("sqlalchemy", {"Session", "scoped_session"})

_SESSION_ASYNC = ("sqlalchemy", {"AsyncSession", "async_scoped_session"})

_PARAMETER = re.compile(r"\$(\d+)")

_IDLE = 0  # psycopg.pq.TransactionStatus.IDLE


async def awaiting_driver(connection: Any) -> Awaiting:
    """How to run a statement on an async connection."""
    if _comes_from(connection, *_ASYNCPG):
        return _on_asyncpg(connection)
    if _comes_from(connection, *_PSYCOPG_ASYNC):
        return _on_psycopg_async(connection)
    if _comes_from(connection, *_SESSION_ASYNC):
        connection = await connection.connection()
    if _comes_from(connection, *_ALCHEMY_ASYNC):
        return _on_sqlalchemy_async(connection)
    raise _unusable(
        connection, "asyncpg, psycopg's AsyncConnection, SQLAlchemy's AsyncConnection/Session"
    )


def blocking_driver(connection: Any) -> Blocking:
    """How to run a statement on a blocking connection."""
    if _comes_from(connection, *_PSYCOPG):
        return _on_psycopg(connection)
    if _comes_from(connection, *_SESSION):
        connection = connection.connection()
    if _comes_from(connection, *_ALCHEMY):
        return _on_sqlalchemy(connection)
    raise _unusable(connection, "psycopg's Connection, SQLAlchemy's Connection or Session")


def sqlstate_of(error: BaseException) -> str | None:
    """The server's error code, from any driver."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _on_asyncpg(connection: Any) -> Awaiting:
    if not connection.is_in_transaction():
        raise _without_transaction("async with connection.transaction(): ...")

    async def run(statement: str, arguments: Sequence[Any]) -> Rows:
        rows: Rows = await connection.fetch(statement, *arguments)
        return rows

    return run


def _on_psycopg_async(connection: Any) -> Awaiting:
    _check_psycopg(connection)
    make_cursor, tuple_row = (
        sys.modules["psycopg"].AsyncCursor,
        sys.modules["psycopg.rows"].tuple_row,
    )

    async def run(statement: str, arguments: Sequence[Any]) -> Rows:
        # A new cursor: the connection's default may use another row factory or parameter style.
        async with make_cursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(_with_percents(statement), _by_name(arguments))
            rows: Rows = await cursor.fetchall() if cursor.description else ()
            return rows

    return run


def _on_psycopg(connection: Any) -> Blocking:
    _check_psycopg(connection)
    make_cursor, tuple_row = sys.modules["psycopg"].Cursor, sys.modules["psycopg.rows"].tuple_row

    def run(statement: str, arguments: Sequence[Any]) -> Rows:
        with make_cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(_with_percents(statement), _by_name(arguments))
            rows: Rows = cursor.fetchall() if cursor.description else ()
            return rows

    return run


def _on_sqlalchemy_async(connection: Any) -> Awaiting:
    _check_sqlalchemy(connection.sync_connection)

    async def run(statement: str, arguments: Sequence[Any]) -> Rows:
        text = sys.modules["sqlalchemy"].text(_with_colons(statement))
        result = await connection.execute(text, _by_name(arguments))
        rows: Rows = result.fetchall() if result.returns_rows else ()
        return rows

    return run


def _on_sqlalchemy(connection: Any) -> Blocking:
    _check_sqlalchemy(connection)

    def run(statement: str, arguments: Sequence[Any]) -> Rows:
        text = sys.modules["sqlalchemy"].text(_with_colons(statement))
        result = connection.execute(text, _by_name(arguments))
        rows: Rows = result.fetchall() if result.returns_rows else ()
        return rows

    return run


def _check_psycopg(connection: Any) -> None:
    if connection.autocommit and connection.info.transaction_status == _IDLE:
        raise _without_transaction("with connection.transaction(): ...")


def _check_sqlalchemy(connection: Any) -> None:
    if connection.dialect.name != "postgresql":
        raise _unusable(connection, "a connection to PostgreSQL")
    of_engine = getattr(connection.dialect, "_on_connect_isolation_level", None)
    level = connection.get_execution_options().get("isolation_level", of_engine)
    if level == "AUTOCOMMIT":
        raise _without_transaction("with engine.begin() as connection: ...")


def _comes_from(connection: Any, package: str, names: set[str]) -> bool:
    return any(
        found_type.__name__ in names and found_type.__module__.partition(".")[0] == package
        for found_type in type(connection).__mro__
    )


def _unusable(connection: Any, wanted: str) -> InvalidInput:
    found_type = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return unusable_connection(f"a {found_type}", wanted)


def _without_transaction(how: str) -> InvalidInput:
    return no_transaction(how)


@lru_cache(maxsize=256)
def _with_percents(statement: str) -> str:
    return _PARAMETER.sub(r"%(p\1)s", statement.replace("%", "%%"))


@lru_cache(maxsize=256)
def _with_colons(statement: str) -> str:
    return _PARAMETER.sub(r":p\1", statement.replace(":", "\\:"))


def _by_name(arguments: Sequence[Any]) -> dict[str, Any]:
    return {f"p{number}": argument for number, argument in enumerate(arguments, start=1)}


_NO_PROCESS = (
    ""  # a signature that no process has, so that all of them, this one too, receive the hints
)

_NO_TABLES = frozenset({"42P01", "3F000"})  # undefined table, undefined schema


async def insert_awaiting(
    connection: Any, jobs: Sequence[NewJob], moment: datetime | None, schema: str
) -> list[Inserted]:
    """Insert on an async connection."""
    run = await awaiting_driver(connection)
    statements = statements_in(schema)

    async def execute(name: str, arguments: Sequence[Any]) -> Rows:
        return await run(statements[name], arguments)

    try:
        return await run_steps(_steps(jobs, moment, schema), execute)
    except Exception as error:
        _refuse_other_database(error, schema)
        raise


def insert_blocking(
    connection: Any, jobs: Sequence[NewJob], moment: datetime | None, schema: str
) -> list[Inserted]:
    """Insert on a blocking connection."""
    run = blocking_driver(connection)
    statements = statements_in(schema)

    def execute(name: str, arguments: Sequence[Any]) -> Rows:
        return run(statements[name], arguments)

    try:
        return run_steps_blocking(_steps(jobs, moment, schema), execute)
    except Exception as error:
        _refuse_other_database(error, schema)
        raise


class _Borrowed:
    """The part of a connection that submitting needs, on a caller's connection."""

    def __init__(self, run: Awaiting) -> None:
        self._run = run

    async def fetch(self, statement: str, *arguments: Any) -> Rows:
        return await self._run(statement, arguments)

    async def fetchrow(self, statement: str, *arguments: Any) -> Any:
        rows = await self._run(statement, arguments)
        return rows[0] if rows else None


async def submit_awaiting(connection: Any, session: Session, run: NewRun) -> Submitted:
    """Submit on an async connection."""
    borrowed: Any = _Borrowed(await awaiting_driver(connection))
    try:
        return await _submit(session, borrowed, run)
    except Exception as error:
        _refuse_other_database(error, session.address.schema)
        raise


def submit_blocking(connection: Any, session: Session, run: NewRun) -> Submitted:
    """Submit on a blocking connection. The coroutine never suspends, so one step completes it."""
    block = blocking_driver(connection)

    async def execute(statement: str, arguments: Sequence[Any]) -> Rows:
        return block(statement, arguments)

    borrowed: Any = _Borrowed(execute)
    work = _submit(session, borrowed, run)
    try:
        work.send(None)
    except StopIteration as end:
        submitted: Submitted = end.value
        return submitted
    except Exception as error:
        _refuse_other_database(error, session.address.schema)
        raise
    raise AssertionError("submitting waited for something")


async def _submit(session: Session, borrowed: Any, run: NewRun) -> Submitted:
    submitted, moves = await submit_within(session, borrowed, run)
    if merged := merge({}, moves.hints()):
        channel = channel_of(session.address.schema)
        message = write_message(merged, _NO_PROCESS)
        await borrowed.fetch(session.statements["notify"], channel, message)
    return submitted


def _steps(jobs: Sequence[NewJob], moment: datetime | None, schema: str) -> Steps:
    moves = WriteHints()
    inserted = yield from insert_steps(jobs, moment, moves)
    if merged := merge({}, moves.hints()):
        yield "notify", (channel_of(schema), write_message(merged, _NO_PROCESS))
    return inserted


def _refuse_other_database(error: Exception, schema: str) -> None:
    if sqlstate_of(error) in _NO_TABLES:
        reason = f"it has no tables in schema {schema!r}"
        raise InvalidInput(OTHER_DATABASE.fault(("connection",), reason=reason)) from error
