"""A real store that counts what is asked of it, and can be told to do something in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

from perdure.store.contract import Store
from perdure.testing.wrapped_store import wrap_store

Interleave = Callable[[], Awaitable[object]]


class CountedStore:
    """``after[name]`` runs once, after that method has done its work and before it answers.

    Methods in ``hangs`` never answer.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.arguments: dict[str, list[Any]] = {}
        self.after: dict[str, Interleave] = {}
        self.hangs: set[str] = set()

    def as_store(self) -> Store:
        return cast(Store, self)

    def clone(self) -> Store:
        """The same store, which the test opened and closes: its calls are the ones counted."""
        return self.as_store()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(wrap_store(self._store, self.count), name)

    async def count(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.calls[name] += 1
        self.arguments.setdefault(name, []).append(args)
        if name in self.hangs:
            await asyncio.Event().wait()
        answer = await method(*args, **kwargs)
        if (interleave := self.after.pop(name, None)) is not None:
            await interleave()
        return answer
