"""A store whose calls all go through one function, which may count, delay or lose them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from perdure.store.contract import PARTS, Store

Around = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Awaitable[Any]]
"""Takes a name such as ``jobs.claim``, the method, and its arguments."""


def wrap_part(name: str, part: Any, around: Around) -> Any:
    """A part of a store whose calls go through ``around``, named ``{name}.{method}``."""
    return _Wrapped(part, around, f"{name}.")


def wrap_store(store: Store, around: Around) -> Any:
    """Wrap all parts of a store and the store's own methods."""
    return _Wrapped(store, around, "")


class _Wrapped:
    def __init__(self, subject: Any, around: Around, prefix: str) -> None:
        self._subject = subject
        self._around = around
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._subject, name)
        if not self._prefix and name in PARTS:
            return wrap_part(name, attribute, self._around)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        @wraps(attribute)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._around(f"{self._prefix}{name}", attribute, args, kwargs)

        return call
