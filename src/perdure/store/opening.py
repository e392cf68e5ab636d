"""Maps a URL to a backend. The only module that names backends; imports only the one it needs."""

from __future__ import annotations

from urllib.parse import urlsplit

from perdure.clock import Clock
from perdure.errors import InvalidStoreUrl
from perdure.store.contract import Store

_SCHEMES = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
}


def store_at(url: str | Store, *, clock: Clock | None = None) -> Store:
    """The store of a URL, not opened yet. ``clock`` replaces the store's own, in tests."""
    if not isinstance(url, str):
        return url
    match _backend_of(url):
        case "memory":
            from perdure.store.memory.store import MemoryStore

            return MemoryStore(url, clock=clock)
        case "sqlite":
            from perdure.store.sqlite.store import SqliteStore

            return SqliteStore(url, clock=clock)
        case _:
            from perdure.store.postgres.store import PostgresStore

            return PostgresStore(url, clock=clock)


async def require_store(url: str) -> None:
    """Raise unless the URL is a store with the tables of this version; for read-only commands.

    Opening a store creates or upgrades its tables. A read-only command must not: a mistyped URL
    would pass for an empty store, and an older store would be upgraded under its running workers.
    """
    match _backend_of(url):
        case "memory":
            raise InvalidStoreUrl(
                url=url, reason="a store in memory is only seen by its own process"
            )
        case "sqlite":
            from perdure.store.sqlite.migrations import require_sqlite

            require_sqlite(url)
        case _:
            from perdure.store.postgres.migrations import require_postgres

            await require_postgres(url)


def _backend_of(url: str) -> str:
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # its message may quote the password
        reason = (
            "it is not a valid URL; percent-encode special characters in user name and password"
        )
        raise InvalidStoreUrl(url=url, reason=reason) from None
    if scheme not in _SCHEMES:
        reason = f"{scheme!r} is not a store" if scheme else "it has no scheme"
        raise InvalidStoreUrl(url=url, reason=reason)
    return _SCHEMES[scheme]
