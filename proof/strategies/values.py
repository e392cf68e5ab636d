"""Payloads: what JSON carries, and what it does not."""

from __future__ import annotations

import enum
import math
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from proof.strategies.naming import named
from proof.strategies.texts import odd_texts

DEEP = 5_000
LARGE_BYTES = 1024 * 1024
_HUGE = 10**400


@named
def json_values() -> st.SearchStrategy[Any]:
    """Plain values that come back as they went in."""
    texts = st.text(st.characters(codec="utf-8"), max_size=12)
    numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inside: st.lists(inside, max_size=4) | st.dictionaries(texts, inside, max_size=4),
        max_leaves=10,
    )


@named
def odd_values() -> st.SearchStrategy[Any]:
    """Values of other types, without an end, too deep or too large; some of them are JSON too."""
    odd = st.sampled_from(_ODD) | st.builds(Nested, st.sampled_from([50, DEEP])) | odd_texts()
    odd |= st.integers(min_value=2**63) | st.floats() | st.binary(max_size=20)
    odd |= st.builds(_itself) | st.builds(Large)
    inside = st.recursive(
        odd,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(odd_texts(), inner, max_size=3)
            | st.dictionaries(st.sampled_from(_ODD_KEYS), inner, max_size=3)
        ),
        max_leaves=4,
    )
    return odd | inside


@named
def any_values() -> st.SearchStrategy[Any]:
    return json_values() | odd_values()


class _Colour(enum.Enum):
    RED = "red"


@dataclass
class _Point:
    x: float
    y: Any = None


class Nested(list[Any]):
    """Lists in lists, which can be printed all the same: a failing example is."""

    def __init__(self, depth: int) -> None:
        value: Any = 0
        for _ in range(depth):
            value = [value]
        super().__init__(value)
        self._depth = depth

    def __repr__(self) -> str:
        return f"Nested({self._depth})"


def _itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


class Large(str):
    """A text that is too long for a payload, but not for a screen."""

    __slots__ = ()

    def __new__(cls) -> Large:
        return super().__new__(cls, "x" * LARGE_BYTES)

    def __repr__(self) -> str:
        return "Large()"


_ODD: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    _HUGE,
    -_HUGE,
    object(),
    object,
    print,
    lambda: None,
    ...,
    NotImplemented,
    b"\xff\x00",
    bytearray(b"x"),
    {1, "two"},
    frozenset({1}),
    (1, (2,)),
    range(3),
    iter([1]),
    1j,
    Decimal("NaN"),
    Decimal("1.10"),
    uuid.UUID(int=7),
    datetime(2030, 1, 1, tzinfo=UTC),
    datetime(2030, 1, 1),  # noqa: DTZ001 (without a zone, as it may come)
    datetime(9999, 12, 31),  # noqa: DTZ001
    date(1, 1, 1),
    timedelta.max,
    _Colour.RED,
    _Point(math.nan),
    _Point(1.0, _Point(math.inf)),
    ValueError("an error"),
    {"type": "NodeCompleted"},
    {"__class__": "os.system"},
    {"": {"": {"": None}}},
    {"$ref": "#"},
]
_ODD_KEYS: list[Any] = [1, 1.5, None, True, (1,), b"x", math.nan, _Colour.RED, "1", date(1, 1, 1)]
