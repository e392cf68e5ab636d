"""Sync facades: objects whose methods block on the methods of an async object."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from perdure.client.portal import Portal

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", covariant=True)


class Facade(Generic[T]):
    """Sync facade of an async object that runs on the portal's event loop."""

    __slots__ = ("_portal", "_target")

    _portal: Portal
    _target: T


def sync(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Facade[T], P], R]:
    """Make a sync method that waits for an async one: same parameters, result and docstring."""

    @functools.wraps(method)
    def wait(facade: Facade[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return facade._portal.run(method(facade._target, *args, **kwargs))

    return wait


def sync_stream(
    method: Callable[Concatenate[T, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Facade[T], P], Iterator[R]]:
    """Make a sync method that iterates over an async generator."""

    @functools.wraps(method)
    def iterate(facade: Facade[T], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return followed(facade._portal, method(facade._target, *args, **kwargs))

    return iterate


def documented_by(method: Callable[..., Any]) -> Callable[[F], F]:
    """Give a handwritten sync method the docstring of its async counterpart."""

    def decorate(own: F) -> F:
        own.__doc__ = method.__doc__
        return own

    return decorate


def mirrors(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[Concatenate[S, ...], R]], Callable[Concatenate[S, P], R]]:
    """Give a forwarding method the parameters and docstring of another."""

    def decorate(own: Callable[Concatenate[S, ...], R]) -> Callable[Concatenate[S, P], R]:
        @functools.wraps(method)
        def call(facade: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return own(facade, *args, **kwargs)

        return call

    return decorate


def followed(portal: Portal, updates: AsyncGenerator[R, None]) -> Iterator[R]:
    """Iterate over an async generator through the portal."""
    # An interrupted caller closes the generator while it may still be running.
    at_work = asyncio.Lock()

    async def following() -> R | None:
        async with at_work:
            return await anext(updates, None)

    async def closing() -> None:
        async with at_work:
            await updates.aclose()

    try:
        while (update := portal.run(following())) is not None:
            yield update
    finally:
        if not portal.is_closed:
            portal.run(closing())


class Openable(Protocol):
    """An object that opens and closes a store: the async client and the async job queue."""

    @property
    def namespace(self) -> str: ...

    @property
    def store_url(self) -> str: ...

    async def open(self) -> Any: ...

    async def close(self) -> None: ...


O = TypeVar("O", bound=Openable, covariant=True)  # noqa: E741


class OpenableFacade(Facade[O]):
    """Facade of a client; closed by ``with``, when garbage-collected, or at exit."""

    __slots__ = ("__weakref__",)

    def __init__(self, target: O) -> None:
        self._target = target
        self._portal = Portal(target.close)
        # The portal closes itself at exit and may block then; a finalizer must not block.
        weakref.finalize(self, self._portal.stop_soon).atexit = False

    def __repr__(self) -> str:
        return repr(self._target).replace("<Async", "<", 1)

    @property
    def namespace(self) -> str:
        return self._target.namespace

    @property
    def store_url(self) -> str:
        """The store's URL, without the password."""
        return self._target.store_url

    def open(self) -> Self:
        """Connect now instead of on first use, and create or upgrade the tables."""
        self._portal.run(self._target.open())
        return self

    def close(self) -> None:
        """Flush pending enqueues, fail waiters, close connections."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        found_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
