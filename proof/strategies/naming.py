"""Strategies that are built once, and appear in messages by their name instead of all they hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


def named(
    build: Callable[[], st.SearchStrategy[T]],
) -> Callable[[], st.SearchStrategy[T]]:
    built = cache(build)

    def drawn(draw: st.DrawFn) -> T:
        return draw(built())

    drawn.__name__ = drawn.__qualname__ = build.__name__
    drawn.__doc__ = build.__doc__
    return st.composite(drawn)
