"""Durations, moments, cron texts and time zones."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from proof.strategies.naming import named
from proof.strategies.texts import odd_texts

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
    """As people write them: text, seconds, a timedelta."""
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
