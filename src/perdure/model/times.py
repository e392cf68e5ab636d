"""Times and durations: ``"30s"``, ``"1h30m"``, seconds, a timedelta."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

Duration = str | int | float | timedelta

DURATION_MAX = timedelta(days=36_500)
"""Longer durations are probably a wrong unit, and could overflow datetimes."""

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(value: Any) -> timedelta | None:
    """Parse a duration; None if invalid (see ``perdure.model.check.span``)."""
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
    """The duration, clamped to the maximum."""
    return min(max(duration, -DURATION_MAX), DURATION_MAX)


def brief(span: timedelta) -> str:
    """A duration with the significant digits: ``350ms``, ``2.5s``, ``1h05m``."""
    seconds = span.total_seconds()
    if seconds < 0.0005:
        return "0s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    minutes = round(seconds / 60)
    if seconds < 3600 - 30:
        whole, rest = divmod(round(seconds), 60)
        return f"{whole}m{rest:02}s" if rest else f"{whole}m"
    if seconds < 86_400 - 30:
        return f"{minutes // 60}h{minutes % 60:02}m" if minutes % 60 else f"{minutes // 60}h"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24}h" if hours % 24 else f"{hours // 24}d"


def rough(span: timedelta) -> str:
    """A duration in one unit, rounded down: ``59s``, ``3h``, ``2d``."""
    seconds = span.total_seconds()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def ago(moment: datetime, now: datetime) -> str:
    """How long ago, in one unit; future times count as now."""
    return rough(max(timedelta(0), now - moment))


def ahead(moment: datetime, now: datetime) -> str:
    """How far in the future, rounded to one unit."""
    seconds = max(timedelta(0), moment - now).total_seconds()
    for size, unit, most in ((1, "s", 60), (60, "m", 60), (3_600, "h", 24)):
        if (count := round(seconds / size)) < most:
            return f"{count}{unit}"
    return f"{round(seconds / 86_400)}d"


def duration_text(duration: timedelta) -> str:
    """The exact duration as a string for ``parse_duration``: ``1h30m``."""
    rest = duration // timedelta(microseconds=1)
    text = ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size * 1_000_000)
        text += f"{count}{unit}" if count else ""
    return text + f"{rest / 1000:g}ms" if rest else text or "0s"


def ms_text(milliseconds: int) -> str:
    """Like ``duration_text``, for milliseconds."""
    return duration_text(timedelta(milliseconds=milliseconds))


EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def is_storable(moment: datetime) -> bool:
    return EARLIEST <= moment <= LATEST


def nearest_storable(moment: datetime) -> datetime:
    return min(max(moment, EARLIEST), LATEST)
