"""Wake-ups: hints that something may have changed, never the truth of it."""

from __future__ import annotations

from enum import StrEnum

from perdure.model.value import Value


class HintType(StrEnum):
    READY = "ready"
    """Jobs became waiting; ``names`` are their partitions."""
    SCHEDULED = "scheduled"
    """Jobs were scheduled for later: look when the next is due."""
    CHANGED = "changed"
    """Jobs changed state or made progress; ``names`` are their ids."""
    ABORTING = "aborting"
    """Jobs were asked to stop, or taken away; ``names`` are their ids."""
    RUN = "run"
    """Runs got new events or another status; ``names`` are their ids."""
    DUE = "due"
    """Waits of runs were opened with a time, or became due: look when the next one is."""


class Hint(Value):
    """``names`` empty means any: look for yourself."""

    type: HintType
    names: frozenset[str] = frozenset()
