"""Moments that every backend can write and read back, in whatever time zone they are shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from perdure.model.spelling import spelled

EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def as_moment(value: Any, name: str) -> datetime:
    """Read a moment as UTC; ``name`` is the argument the error names."""
    from perdure.errors import InvalidInput  # errors imports this module

    if not isinstance(value, datetime):
        raise InvalidInput(f"{name}={spelled(value)} is not a datetime")
    if value.utcoffset() is None:
        raise InvalidInput(f"{name}={spelled(value)} needs a time zone: datetime(..., tzinfo=UTC)")
    if not is_storable(value):
        raise InvalidInput(
            f"{name}={spelled(value)} is not a usable moment: it must lie between the years "
            f"{EARLIEST.year} and {LATEST.year}"
        )
    return value.astimezone(UTC)


def is_storable(moment: datetime) -> bool:
    return EARLIEST <= moment <= LATEST


def nearest_storable(moment: datetime) -> datetime:
    return min(max(moment, EARLIEST), LATEST)
