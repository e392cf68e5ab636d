"""Stores that are open for as long as a test needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from perdure.store.contract import Store
from perdure.store.postgres.store import PostgresStore
from tests.postgres_schemas import with_query

AnyStore = TypeVar("AnyStore", bound=Store)


@asynccontextmanager
async def opened(store: AnyStore) -> AsyncIterator[AnyStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def postgres_at(url: str, **options: str) -> AbstractAsyncContextManager[PostgresStore]:
    """A store with these options in its URL."""
    return opened(PostgresStore(with_query(url, **options) if options else url))
