"""Pages of a list, linked by opaque cursors.

A cursor holds the sort key of the last item, so it stays valid when that item is pruned.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

import msgspec

from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.times import is_storable

T = TypeVar("T")
K = TypeVar("K", bound=tuple[Any, ...])

PAGE_MAX = 1_000
CURSOR_MAX = 4_096
"""Maximum characters of a cursor; the longest sort key is far shorter."""

INVALID_CURSOR = declare(
    "argument.cursor",
    "{value} is not a cursor of {list}",
    "Pass the next cursor of a page of this list",
)


@dataclass(frozen=True, slots=True)
class Page(Sequence[T], Generic[T]):
    """Part of a list: a sequence of items, with the ``cursor`` of the next page in ``next``."""

    items: tuple[T, ...]
    next: str | None = None
    """The cursor of the next page; None if this is the last."""

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...

    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        return self.items[place]


def page_size(limit: Any, name: str = "limit") -> int:
    return check.integer(limit, name, 1, PAGE_MAX)


def page_of(list: str, found: Sequence[T], size: int, key: Callable[[T], Any]) -> Page[T]:
    """Make a page of up to ``size`` items; ``found`` has one more if there is a next page."""
    items = tuple(found[:size])
    return Page(items=items, next=encode_cursor(list, key(items[-1])) if found[size:] else None)


def page_of_all(
    list: str, every: Sequence[T], limit: Any, cursor: Any, key: Callable[[T], tuple[str, ...]]
) -> Page[T]:
    """Make a page of a list that a store returns in full; ``key`` returns an item's unique sort
    key."""
    size = page_size(limit)
    rest = sorted(every, key=key)
    if cursor is not None:
        last = decode_cursor(list, cursor, tuple[str, ...])
        rest = [each for each in rest if key(each) > last]
    return page_of(list, rest[: size + 1], size, key)


def encode_cursor(list: str, key: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((list, key))).decode().rstrip("=")


def decode_cursor(list: str, cursor: Any, key: type[K]) -> K:
    """Return the sort key in a cursor of this list; refuse an invalid cursor."""
    try:
        if not isinstance(cursor, str) or len(cursor) > CURSOR_MAX:
            raise ValueError
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        content: tuple[str, K] = msgspec.json.decode(data, type=_content(key))
        if content[0] != list:
            raise ValueError
        for part in content[1]:
            if isinstance(part, str):
                check.stored_name(part, "cursor", most=None)
            elif isinstance(part, datetime) and (part.tzinfo is None or not is_storable(part)):
                raise ValueError
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError, InvalidInput):
        raise invalid_cursor(list, cursor) from None
    return content[1]


def invalid_cursor(list: str, cursor: Any) -> InvalidInput:
    return InvalidInput(INVALID_CURSOR.fault(("cursor",), list=list, value=safe_repr(cursor)))


def _content(key: type[K]) -> Any:
    return tuple[str, key]  # type: ignore[valid-type]
