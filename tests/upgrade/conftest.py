"""Databases that earlier code made, each loaded afresh for a test."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from perdure import AsyncClient, Worker
from perdure.clock import ManualClock
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.store.postgres.address import parse_address
from perdure.verify import verify_store
from tests.support.stores import opened
from tests.upgrade.world import world
from tests.worker.harness import Running

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(autouse=True)
def _forget_what_was_executed() -> None:
    world.executed.clear()


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> int:
    number: int = request.module.SCHEMA
    return number


@pytest.fixture
async def client(store: Store, request: pytest.FixtureRequest) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, **request.module.CODE) as client:
        yield client


@pytest.fixture
async def worker(store: Store, request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    running = Running(Worker(store, **request.module.CODE, poll="20ms"))
    yield await running.start()
    await running.stop()


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


@pytest.fixture
def clock() -> ManualClock:
    """Somewhat later: the leases of then have ended, and nothing else."""
    clock = ManualClock()
    clock.advance(timedelta(minutes=1))
    return clock


@pytest.fixture
async def store(url: str, schema: int, clock: ManualClock) -> AsyncIterator[Store]:
    """The database of an earlier schema, upgraded by the code of today."""
    await restore(url, schema)
    async with opened(store_at(url, clock=clock)) as store:
        yield store
        assert await verify_store(store) == []


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
