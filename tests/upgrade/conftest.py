"""Databases that earlier code made, each loaded afresh for a test."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from perdure.store.postgres.address import parse_address
from tests.upgrade.world import world

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(autouse=True)
def _forget_what_was_executed() -> None:
    world.executed.clear()


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def sqlite_url(bare_sqlite_url: str) -> str:
    """A place without tables: an earlier database is loaded into it."""
    return bare_sqlite_url


@pytest.fixture
def postgres_url(bare_postgres_url: str) -> str:
    """A place without tables: an earlier database is loaded into it."""
    return bare_postgres_url


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest) -> str:
    made: str = request.getfixturevalue(f"{backend}_url")
    return made


async def restore(url: str, schema: int) -> None:
    """Load the database of an earlier schema into this place."""
    if url.startswith("sqlite:"):
        text = (FIXTURES / f"schema_{schema}.sqlite.sql").read_text(encoding="utf-8")
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(f"BEGIN;\n{text}\nCOMMIT;")
        return
    text = (FIXTURES / f"schema_{schema}.postgres.sql").read_text(encoding="utf-8")
    address = parse_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        await connection.execute(text.replace("{schema}", address.schema))
    finally:
        await connection.close()
