"""From a URL to a backend: the only module that names them, importing just the one it needs."""

from __future__ import annotations

from urllib.parse import urlsplit

from perdure.clock import Clock
from perdure.errors import InvalidStoreUrl
from perdure.store.contract import Store


def store_at(url: str | Store, *, clock: Clock | None = None) -> Store:
    """The store a URL means, not opened yet. ``clock`` replaces the store's own, in tests."""
    if not isinstance(url, str):
        return url
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise InvalidStoreUrl(url, str(error)) from error
    match scheme:
        case "memory":
            from perdure.store.memory.store import MemoryStore

            return MemoryStore(url, clock=clock)
        case "sqlite":
            from perdure.store.sqlite.store import SqliteStore

            return SqliteStore(url, clock=clock)
        case "postgresql" | "postgres":
            from perdure.store.postgres.store import PostgresStore

            return PostgresStore(url, clock=clock)
        case _:
            reason = f"{scheme!r} is not a store" if scheme else "it has no scheme"
            raise InvalidStoreUrl(url, reason)
