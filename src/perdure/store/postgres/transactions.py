"""Inserting within a caller's own transaction, on whatever driver the caller uses.

Drivers are recognised by where their classes come from, without importing any of them. A hint is
sent with the transaction itself, since nobody else knows when it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.errors import InvalidInput
from perdure.model.job import Inserted, NewJob
from perdure.store.postgres.drivers import awaiting_driver, blocking_driver, sqlstate_of
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.inserting import (
    Rows,
    Steps,
    carry_out,
    carry_out_blocking,
    insert_steps,
)
from perdure.store.postgres.notifications import channel_of, merge, write_message
from perdure.store.postgres.statements import statements_in

_NOBODY = ""  # signs hints that even this process does not know of yet
_NO_TABLES = frozenset({"42P01", "3F000"})  # undefined table, undefined schema


async def insert_awaiting(
    connection: Any, jobs: Sequence[NewJob], moment: datetime | None, schema: str
) -> list[Inserted]:
    """On a connection whose calls are awaited."""
    run = await awaiting_driver(connection)
    statements = statements_in(schema)

    async def execute(name: str, arguments: Sequence[Any]) -> Rows:
        return await run(statements[name], arguments)

    try:
        return await carry_out(_steps(jobs, moment, schema), execute)
    except Exception as error:
        _refuse_other_database(error, schema)
        raise


def insert_blocking(
    connection: Any, jobs: Sequence[NewJob], moment: datetime | None, schema: str
) -> list[Inserted]:
    """On a connection whose calls block."""
    run = blocking_driver(connection)
    statements = statements_in(schema)

    def execute(name: str, arguments: Sequence[Any]) -> Rows:
        return run(statements[name], arguments)

    try:
        return carry_out_blocking(_steps(jobs, moment, schema), execute)
    except Exception as error:
        _refuse_other_database(error, schema)
        raise


def _steps(jobs: Sequence[NewJob], moment: datetime | None, schema: str) -> Steps:
    moves = Moves()
    inserted = yield from insert_steps(jobs, moment, moves)
    if merged := merge({}, moves.hints()):
        yield "notify", (channel_of(schema), write_message(merged, _NOBODY))
    return inserted


def _refuse_other_database(error: Exception, schema: str) -> None:
    if sqlstate_of(error) in _NO_TABLES:
        raise InvalidInput(
            f"connection= is not to the database of this store: it has no tables in schema "
            f"{schema!r}. Pass a connection to the same database, once the store was opened"
        ) from error
