"""A real store of a worker that counts what is asked of it, and can come in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.testing.wrapped_store import wrap_store

Interleave = Callable[[], Awaitable[object]]


class StoreWatch:
    """What the handles that are watched share. ``after[name]`` runs once, when that method has
    done its work and before it answers. Methods in ``hangs`` never answer. ``answers[name]`` makes
    another answer of that method's, once."""

    def __init__(self, url: str) -> None:
        self.calls: Counter[str] = Counter()
        self.arguments: dict[str, list[Any]] = {}
        self.after: dict[str, Interleave] = {}
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self.hangs: set[str] = set()
        self._url = url

    @property
    def store(self) -> Store:
        """For a worker. What its lease thread does is not watched."""
        return cast(Store, _Given(self, store_at(self._url)))

    async def count(self, name: str, method: Any, args: Any, kwargs: Any) -> Any:
        self.calls[name] += 1
        self.arguments.setdefault(name, []).append(args)
        if name in self.hangs:
            await asyncio.Event().wait()
        answer = await method(*args, **kwargs)
        if (interleave := self.after.pop(name, None)) is not None:
            await interleave()
        change = self.answers.pop(name, None)
        return answer if change is None else change(answer)


class _Given:
    """What the worker is given, and makes a handle of its own from."""

    def __init__(self, watch: StoreWatch, store: Store) -> None:
        self._watch = watch
        self._store = store

    def clone(self) -> Store:
        return cast(Store, wrap_store(self._store.clone(), self._watch.count))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
