"""Moments, and durations as people write them: ``"30s"``, ``"1h30m"``, seconds, a timedelta."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

Duration = str | int | float | timedelta

DURATION_MAX = timedelta(days=36_500)
"""Longer is a mistake in the unit, and soon more than a calendar has years for."""

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(value: Any) -> timedelta | None:
    """Read a duration; None for what is not one. ``perdure.model.check.span`` says why."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        text = value.replace(" ", "")
        if not _WHOLE.fullmatch(text):
            return None
        value = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(text))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):  # infinite, not a number, or beyond any calendar
        return None


def nearest_duration(duration: timedelta) -> timedelta:
    """The duration, or the longest one, which any time may be moved by."""
    return min(max(duration, -DURATION_MAX), DURATION_MAX)


EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def is_storable(moment: datetime) -> bool:
    return EARLIEST <= moment <= LATEST


def nearest_storable(moment: datetime) -> datetime:
    return min(max(moment, EARLIEST), LATEST)
