"""Hints: wake-ups that something may have changed. They are never authoritative."""

from __future__ import annotations

from enum import StrEnum

from perdure.model.value import Value


class HintType(StrEnum):
    READY = "ready"
    """Jobs became waiting; ``names`` are their partitions."""
    SCHEDULED = "scheduled"
    """Jobs were scheduled for later: check when the next one is due."""
    CHANGED = "changed"
    """Jobs changed state or made progress; ``names`` are their ids."""
    ABORTING = "aborting"
    """Jobs are aborting or were taken over; ``names`` are their ids."""
    RUN = "run"
    """Runs got new events or another status; ``names`` are their ids."""
    DUE = "due"
    """Waits with a time were opened or became due: check when the next one is due."""
    SUBSCRIBED = "subscribed"
    """A client subscribed to live events, or unsubscribed."""
    LIVE = "live"
    """There are live events for subscribers."""


class Hint(Value):
    """``names`` empty means any: look for yourself."""

    type: HintType
    names: frozenset[str] = frozenset()
