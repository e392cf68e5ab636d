"""An opened PostgreSQL store of the test's own, and a plain connection beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from perdure.store.postgres.store import PostgresStore
from tests.backends.postgres.line import Line, until_blocked
from tests.support.stores import opened, postgres_at

T = TypeVar("T")


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with postgres_at(postgres_url) as store:
        yield store


@pytest.fixture
async def target(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    async with opened(store.clone()) as target:
        yield target


@pytest.fixture
def schema(postgres_url: str) -> str:
    """The name of the schema that the store's tables are in."""
    return parse_qs(urlsplit(postgres_url).query)["schema"][0]


@pytest.fixture
async def admin(postgres_server_url: str) -> AsyncIterator[Any]:
    """A connection that is not the store's."""
    connection = await asyncpg.connect(postgres_server_url)
    yield connection
    await connection.close()


class Race(Protocol):
    async def __call__(self, change: str, act: Coroutine[Any, Any, T], *arguments: Any) -> T: ...


@pytest.fixture
def race(admin: Any, schema: str) -> Race:
    """Lets an act come upon a change that another transaction commits once the act waits for it."""

    async def raced(change: str, act: Coroutine[Any, Any, T], *arguments: Any) -> T:
        async with admin.transaction():
            await admin.execute(change.format(schema=schema), *arguments)
            acting = asyncio.create_task(act)
            await until_blocked(admin, schema)
        return await acting

    return raced


@pytest.fixture
async def line(postgres_url: str) -> AsyncIterator[Line]:
    """A wire to the server that the test can cut."""
    async with Line(postgres_url) as line:
        yield line


@pytest.fixture
async def wired(line: Line) -> AsyncIterator[PostgresStore]:
    """A store at the end of the wire."""
    async with postgres_at(line.url) as store:
        yield store
