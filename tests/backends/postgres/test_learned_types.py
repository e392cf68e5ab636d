"""What one connection asks about the types of the server, the next ones know."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.store.postgres.address import Address, parse_address
from perdure.store.postgres.connection import close_gently, connect


@pytest.fixture
def address(postgres_url: str) -> Address:
    return parse_address(postgres_url)


async def asked_for(address: Address, statement: str, *arguments: Any) -> tuple[list[Any], bool]:
    """The answer on a new connection, and whether the connection asked about types for it."""
    said: list[str] = []
    connection = await connect(address)
    connection.add_query_logger(lambda logged: said.append(logged.query))
    try:
        rows = await connection.fetch(statement, *arguments)
    finally:
        await close_gently(connection)
    return list(rows[0]), any("pg_type" in query for query in said)


async def test_a_type_of_the_server_is_asked_about_once_in_a_process(address: Address) -> None:
    statement = "SELECT $1::macaddr[], $2::money[]"  # which nothing else here uses
    values = (["08:00:2b:01:02:03"], ["$1.00"])

    first = await asked_for(address, statement, *values)
    second = await asked_for(address, statement, *values)

    assert first == ([list(value) for value in values], True)
    assert second == (first[0], False)


async def test_statements_without_a_name_find_their_types_too(postgres_url: str) -> None:
    """As behind a PgBouncer, where a second unnamed statement takes the place of the first."""
    address = parse_address(f"{postgres_url}&statement_cache=0")

    answers = [await asked_for(address, "SELECT $1::inet[] IS NULL", None) for _ in range(2)]

    assert answers == [([True], True), ([True], False)]


async def test_a_type_of_a_database_is_asked_about_by_each_connection(address: Address) -> None:
    connection = await connect(address)
    colour = f'"{address.schema}".colour'
    await connection.execute(f"CREATE TYPE {colour} AS ENUM ('red')")
    try:
        statement = f"SELECT $1::{colour}[]"
        answers = [await asked_for(address, statement, ["red"]) for _ in range(2)]
    finally:
        await connection.execute(f"DROP TYPE {colour}")
        await close_gently(connection)

    assert answers == [([["red"]], True)] * 2
