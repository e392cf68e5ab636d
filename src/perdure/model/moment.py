"""Moments that every backend can write and read back, in whatever time zone they are shown."""

from __future__ import annotations

from datetime import UTC, datetime

EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def is_storable(moment: datetime) -> bool:
    return EARLIEST <= moment <= LATEST


def nearest_storable(moment: datetime) -> datetime:
    return min(max(moment, EARLIEST), LATEST)
