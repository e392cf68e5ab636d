"""An opened PostgreSQL store of the test's own, and a plain connection beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from perdure.store.postgres.store import PostgresStore
from tests.backends.postgres.line import Line


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def target(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    target = store.clone()
    await target.open()
    yield target
    await target.close()


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


@pytest.fixture
async def line(postgres_url: str) -> AsyncIterator[Line]:
    """A wire to the server that the test can cut."""
    async with Line(postgres_url) as line:
        yield line


@pytest.fixture
async def wired(line: Line) -> AsyncIterator[PostgresStore]:
    """A store at the end of the wire."""
    store = PostgresStore(line.url)
    await store.open()
    yield store
    await store.close()
