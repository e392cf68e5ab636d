"""Durations as people write them: ``"30s"``, ``"5m"``, ``"1h30m"``, seconds, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from perdure.model.spelling import spelled

Duration = str | int | float | timedelta

DURATION_MAX = timedelta(days=36_500)
"""Longer is a mistake in the unit, and soon more than a calendar has years for."""

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def as_duration(value: Duration, name: str) -> timedelta:
    """Read a duration; ``name`` is the argument the error names. Negative ones are refused."""
    from perdure.errors import InvalidInput  # errors imports this module

    given = value
    if isinstance(value, str):
        text = value.replace(" ", "")
        if not _WHOLE.fullmatch(text):
            raise InvalidInput(
                f'{name}={spelled(value)} is not a duration; write "30s", "5m" or "1h30m"'
            )
        value = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(text))
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise InvalidInput(
            f"{name}={spelled(value)} is not a duration; use seconds, a timedelta or text"
        )
    try:
        duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (OverflowError, ValueError) as error:
        raise InvalidInput(f"{name}={spelled(value)} is not a usable duration: {error}") from error
    if duration < timedelta(0):
        raise InvalidInput(f"{name}={spelled(value)} is negative")
    if duration > DURATION_MAX:
        raise InvalidInput(f"{name}={spelled(given)} is more than {DURATION_MAX.days} days")
    return duration


def nearest_duration(duration: timedelta) -> timedelta:
    """The duration, or the longest one, which any time may be moved by."""
    return min(max(duration, -DURATION_MAX), DURATION_MAX)
