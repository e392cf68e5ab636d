"""Blocking faces: an object whose methods wait for those of its async twin, and add nothing.

Signatures and documentation are the twin's own, so the two cannot drift apart.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from perdure.client.access import Openable
from perdure.client.portal import Portal

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Twin = TypeVar("Twin", covariant=True)
OpenableTwin = TypeVar("OpenableTwin", bound=Openable)

_COPIED = ("__name__", "__doc__")


class Face(Generic[Twin]):
    """Stands before an async object; everything that object does runs in the portal."""

    __slots__ = ("_portal", "_twin")

    _portal: Portal
    _twin: Twin


class OpenableFace(Face[OpenableTwin]):
    """The face of what opens a store: closed by ``with``, as garbage, or when the program ends."""

    __slots__ = ("__weakref__",)

    def __init__(self, twin: OpenableTwin) -> None:
        self._twin = twin
        self._portal = Portal(twin.close)
        # The portal closes itself at exit, and may then wait; a garbage collector may not.
        weakref.finalize(self, self._portal.stop_soon).atexit = False

    def __repr__(self) -> str:
        return repr(self._twin).replace("<Async", "<", 1)

    @property
    def namespace(self) -> str:
        return self._twin.namespace

    @property
    def store_url(self) -> str:
        """Where its store is, without the password."""
        return self._twin.store_url

    def open(self) -> Self:
        """Connect now instead of on first use, and create or upgrade the tables."""
        self._portal.run(self._twin.open())
        return self

    def close(self) -> None:
        """Let go of everything. What was enqueued is written; whoever waits is told."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def waits_for(
    method: Callable[Concatenate[Twin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Face[Twin], P], R]:
    """The blocking method that waits for this one."""

    @functools.wraps(method, assigned=_COPIED)
    def wait(face: Face[Twin], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return face._portal.run(method(face._twin, *args, **kwargs))

    return wait


def mirrors(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[Concatenate[S, ...], R]], Callable[Concatenate[S, P], R]]:
    """For a blocking method that must do more than wait: it takes what its async twin takes."""

    def decorate(own: Callable[Concatenate[S, ...], R]) -> Callable[Concatenate[S, P], R]:
        @functools.wraps(method, assigned=_COPIED)
        def call(face: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return own(face, *args, **kwargs)

        return call

    return decorate
