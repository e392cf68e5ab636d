"""A real store of a worker that counts what is asked of it, and can come in between."""

from __future__ import annotations

from typing import Any, cast

from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.testing.wrapped_store import wrap_store
from tests.support.watched_calls import WatchedCalls


class StoreWatch(WatchedCalls):
    """What the handles that are watched share."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    @property
    def store(self) -> Store:
        """For a worker. What its lease thread does is not watched."""
        return cast(Store, _Given(self, store_at(self._url)))


class _Given:
    """What the worker is given, and makes a handle of its own from."""

    def __init__(self, watch: StoreWatch, store: Store) -> None:
        self._watch = watch
        self._store = store

    def clone(self) -> Store:
        return cast(Store, wrap_store(self._store.clone(), self._watch.count))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
