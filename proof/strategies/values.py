"""Values, times and store URLs, as callers may pass them."""

from __future__ import annotations

import enum
import math
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from proof.strategies.text import named, odd_texts

_FIELDS = [
    "*",
    "0",
    "1",
    "59",
    "60",
    "*/5",
    "*/0",
    "1-5",
    "5-1",
    "L",
    "1#2",
    "MON",
    "FEB",
    "?",
    "-",
]
_ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Mars/Olympus",
    "../../etc/passwd",
    "/etc/localtime",
    "Europe",
    "posixrules",
    "",
    ".",
    "\x00",
    "UTC ",
    "utc",
]


@named
def durations() -> st.SearchStrategy[Any]:
    """In every accepted form: string, seconds, timedelta."""
    texts = st.sampled_from(["0s", "1ms", "30s", "5m", "1h30m", "2d", "1w", "0.5s"])
    return texts | st.integers(0, 10_000) | st.timedeltas(timedelta(0), timedelta(days=99))


@named
def any_durations() -> st.SearchStrategy[Any]:
    odd = [
        -1,
        "-5s",
        "soon",
        "1y",
        "1e3s",
        "9" * 400 + "s",
        10**30,
        math.nan,
        math.inf,
        timedelta.max,
        timedelta.min,
        None,
        True,
        "\u0661s",
        b"1s",
        [1],
    ]
    return durations() | st.sampled_from(odd) | st.floats() | odd_texts()


@named
def any_moments() -> st.SearchStrategy[Any]:
    odd = [
        datetime(1, 1, 1),  # noqa: DTZ001 (without a zone, as it may come)
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime(2030, 1, 1),  # noqa: DTZ001
        "2030-01-01",
        0,
        None,
    ]
    zones = st.sampled_from([UTC, timezone(timedelta(hours=-12)), timezone(timedelta(minutes=1))])
    return st.sampled_from(odd) | st.datetimes(timezones=zones)


@named
def any_crons() -> st.SearchStrategy[Any]:
    fields = st.lists(st.sampled_from(_FIELDS), min_size=1, max_size=7).map(" ".join)
    good = st.sampled_from(["* * * * *", "0 3 * * *", "0 0 29 2 *", "0 0 30 2 *", "@daily"])
    return good | fields | odd_texts() | st.sampled_from([None, 5, b"* * * * *", []])


@named
def any_timezones() -> st.SearchStrategy[Any]:
    return st.sampled_from(_ZONES) | odd_texts() | st.sampled_from([None, UTC, 5])


PASSWORD = "hunter2-and-more"
_SCHEMES = ["memory", "sqlite", "postgresql", "postgres", "mysql", "file", "", "SQLITE", "http"]
_PLACES = [
    "",
    "/",
    "//",
    "///",
    "////",
    "//name",
    "///:memory:",
    "//?",
    f"//user:{PASSWORD}@127.0.0.1:1/db",
    f"//user:{PASSWORD}@127.0.0.1:99999/db",
    f"//user:{PASSWORD}@[::1/db",
    f"//user:{PASSWORD}@/db",
    f"//127.0.0.1:1/db?password={PASSWORD}",
    f"//127.0.0.1:1/db?user=me&password={PASSWORD}",
    f"//127.0.0.1:1/db?sslpassword={PASSWORD}",
    f"//user:{PASSWORD}",
    f"//user:{PASSWORD}@a@127.0.0.1:1/db",
    f"//us er:{PASSWORD}@127.0.0.1:1/db",
    f"//:{PASSWORD}@127.0.0.1:1/db",
    f"//user%3A{PASSWORD}@127.0.0.1:1/db",
    f"//127.0.0.1:1/db?PASSWORD={PASSWORD}",
    f"//127.0.0.1:1/db?pass%77ord={PASSWORD}",
    f"//127.0.0.1:1/db?x=1;password={PASSWORD}",
    f"//127.0.0.1:1/db#password={PASSWORD}",
    f"//127.0.0.1:1/user:{PASSWORD}@db",
    "//127.0.0.1:port/db",
    "//127.0.0.1:1,127.0.0.1:1/db",
]
_OPTIONS = [
    "schema=a",
    "schema=",
    "schema=a.b",
    'schema=a"b',
    "schema=pg_catalog",
    "prefix=p_",
    "prefix=1;DROP",
    "prefix=",
    "pool=0",
    "pool=-1",
    "pool=x",
    "pool=1e9",
    "synchronous=full",
    "synchronous=maybe",
    "connect_timeout=1",
    "connect_timeout=0",
    "statement_cache=-1",
    "listen=perhaps",
    "unknown=1",
    "=",
    "a=1&a=2",
    "%00",
    "#fragment",
]


@named
def store_urls() -> st.SearchStrategy[str]:
    """URLs of every type of store and of none, mostly invalid."""
    options = st.lists(st.sampled_from(_OPTIONS), max_size=3).map("&".join)
    whole = st.tuples(st.sampled_from(_SCHEMES), st.sampled_from(_PLACES), options)
    made = whole.map(lambda parts: f"{parts[0]}:{parts[1]}{'?' if parts[2] else ''}{parts[2]}")
    malformed = [f"postgres:u:{PASSWORD}@h/db", f"postgresql:/u:{PASSWORD}@h", f"u:{PASSWORD}@h/db"]
    return made | odd_texts() | st.sampled_from(malformed)


DEEP = 5_000
LARGE_BYTES = 1024 * 1024
_HUGE = 10**400


@named
def json_values() -> st.SearchStrategy[Any]:
    """Plain values that round-trip unchanged."""
    texts = st.text(st.characters(codec="utf-8"), max_size=12)
    numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inside: st.lists(inside, max_size=4) | st.dictionaries(texts, inside, max_size=4),
        max_leaves=10,
    )


@named
def odd_values() -> st.SearchStrategy[Any]:
    """Values of other types, infinite, too deep or too large; some of them are JSON too."""
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
    """Nested lists with a short ``repr``, because failing examples are printed."""

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
    """A string that is too long for a payload, with a short ``repr``."""

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
