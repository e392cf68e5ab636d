"""Maps a URL to a backend. The only module that names backends; imports only the one it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from perdure.clock import Clock
from perdure.errors import ContractMismatch, InvalidStoreUrl
from perdure.model import check
from perdure.store.contract import CONTRACT_NUMBER, Store

BUILT_IN = ("memory", "postgres", "postgresql", "sqlite")
GROUP = "perdure.stores"
"""The entry points of other packages: the scheme, and a callable like the class of a store."""


def store_at(url: str | Store, *, clock: Clock | None = None) -> Store:
    """The store of a URL, not opened yet. ``clock`` replaces the store's own, in tests."""
    store: Any = _type_for(url)(url, clock=clock) if isinstance(url, str) else url
    if not callable(getattr(store, "clone", None)):
        raise check.wrong_type(store, "store", "a store or a URL such as sqlite:///work.db")
    stated = getattr(store, "contract_number", None)
    if stated != CONTRACT_NUMBER:
        raise ContractMismatch(url=store.url, expected=CONTRACT_NUMBER, stated=stated)
    found: Store = store
    return found


async def require_store(url: str) -> None:
    """Raise unless the URL is a store with the tables of this version; for read-only commands.

    Opening a store creates or upgrades its tables. A read-only command must not: a mistyped URL
    would pass for an empty store, and an older store would be upgraded under its running workers.
    """
    await store_at(url).require()


def _type_for(url: str) -> Callable[..., Any]:
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # its message may quote the password
        reason = (
            "it is not a valid URL; percent-encode special characters in user name and password"
        )
        raise InvalidStoreUrl(url=url, reason=reason) from None
    match scheme:
        case "memory":
            from perdure.store.memory.store import MemoryStore

            return MemoryStore
        case "sqlite":
            from perdure.store.sqlite.store import SqliteStore

            return SqliteStore
        case "postgresql" | "postgres":
            from perdure.store.postgres.store import PostgresStore

            return PostgresStore
        case _:
            return _registered(scheme, url)


def _registered(scheme: str, url: str) -> Callable[..., Any]:
    from importlib.metadata import entry_points  # takes a while, and most programs need none

    registered = entry_points(group=GROUP)
    found = {each.value: each for each in registered if each.name == scheme}
    match list(found.values()):
        case [entry]:
            try:
                loaded: Callable[..., Any] = entry.load()
            except (ImportError, AttributeError) as error:
                reason = f"{entry.value} cannot be imported: {error}"
                raise InvalidStoreUrl(url=url, reason=reason) from error
            return loaded
        case []:
            installed = ", ".join(sorted({*BUILT_IN, *registered.names}))
            what = f"{scheme!r} is not a store" if scheme else "it has no scheme"
            raise InvalidStoreUrl(url=url, reason=f"{what}; installed are {installed}")
        case _:
            rivals = " and ".join(sorted(found))
            raise InvalidStoreUrl(url=url, reason=f"{scheme!r} is registered by {rivals}")
