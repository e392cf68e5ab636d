"""The built-in stores as harnesses of the contract tests."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest

from perdure.clock import Clock
from perdure.model.ids import RunId
from perdure.store.contract import Store
from perdure.store.memory.store import MemoryStore
from perdure.store.opening import store_at
from perdure.testing.contract import Capability, Harness

ALL: frozenset[Capability] = frozenset({"audit", "caller_transaction", "transfer"})
CAPABILITIES: Mapping[str, frozenset[Capability]] = {
    "memory": frozenset({"audit"}),
    "sqlite": ALL,
    "postgres": ALL,
}
FIXTURES: Mapping[str, Capability] = {
    "audit": "audit",
    "blocking_transaction": "caller_transaction",
    "transaction": "caller_transaction",
    "transfer": "transfer",
}
"""The fixtures of the suite that need a capability."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a store cannot do, so that anything skipped is a mistake."""
    left_out = {item for item in items if not _is_possible(item)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _is_possible(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or "harness" not in item.fixturenames:
        return True
    needed = {FIXTURES[name] for name in item.fixturenames if name in FIXTURES}
    return needed <= CAPABILITIES[str(item.callspec.params["store_url"])]


class MemoryHarness(Harness):
    capabilities = CAPABILITIES["memory"]

    def __init__(self, url: str) -> None:
        self.url = url

    def store(self, clock: Clock | None = None) -> Store:
        return store_at(self.url, clock=clock)

    async def delete_run(self, store: Store, namespace: str, run: RunId) -> None:
        assert isinstance(store, MemoryStore)
        store._session.state.records.put_run((namespace, run), None)


class SqliteHarness(Harness):
    capabilities = CAPABILITIES["sqlite"]

    def __init__(self, url: str) -> None:
        self.url = url

    def store(self, clock: Clock | None = None) -> Store:
        return store_at(self.url, clock=clock)

    def empty_store(self, clock: Clock) -> Store:
        return store_at(f"{self.url}-empty.db", clock=clock)

    async def delete_run(self, store: Store, namespace: str, run: RunId) -> None:
        with self.blocking_transaction() as connection:
            connection.execute("DELETE FROM perdure_runs WHERE id = ?", (run,))

    @contextmanager
    def blocking_transaction(self) -> Iterator[sqlite3.Connection]:
        path = self.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path)) as connection, connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[sqlite3.Connection]:
        with self.blocking_transaction() as connection:
            yield connection


class PostgresHarness(Harness):
    capabilities = CAPABILITIES["postgres"]

    def __init__(self, url: str, empty_url: str) -> None:
        self.url = url
        self._empty_url = empty_url
        parts = urlsplit(url)
        [self._schema] = parse_qs(parts.query)["schema"]
        self._server_url = urlunsplit(parts._replace(query=""))

    def store(self, clock: Clock | None = None) -> Store:
        return store_at(self.url, clock=clock)

    def empty_store(self, clock: Clock) -> Store:
        return store_at(self._empty_url, clock=clock)

    async def delete_run(self, store: Store, namespace: str, run: RunId) -> None:
        async with self.transaction() as connection:
            await connection.execute(f'DELETE FROM "{self._schema}".runs WHERE id = $1', run)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self._server_url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    @contextmanager
    def blocking_transaction(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._server_url) as connection:
            yield connection


@pytest.fixture
def harness(store_url: str, request: pytest.FixtureRequest) -> Harness:
    match urlsplit(store_url).scheme:
        case "memory":
            return MemoryHarness(store_url)
        case "sqlite":
            return SqliteHarness(store_url)
        case _:
            # Only where it is used, because each costs a connection.
            needs_empty = "empty" in request.fixturenames
            empty_url = request.getfixturevalue("bare_postgres_url") if needs_empty else ""
            return PostgresHarness(store_url, empty_url)
