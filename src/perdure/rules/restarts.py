"""When a worker process that died is started again: soon at first, later if it keeps dying."""

from __future__ import annotations

from datetime import timedelta

FIRST_DELAY = timedelta(seconds=0.5)
DELAY_MAX = timedelta(seconds=30)
STEADY_AFTER = timedelta(seconds=60)
"""A process that was up this long is healthy: its death counts as the first."""


def deaths_in_a_row(before: int, up_for: timedelta) -> int:
    """Count one more death, after ``before`` earlier ones and this time up."""
    return 1 if up_for >= STEADY_AFTER else before + 1


def restart_delay(deaths: int) -> timedelta:
    """How long to wait after that many deaths in a row."""
    if deaths < 1:
        raise ValueError(f"deaths={deaths} must be at least 1")
    # Long before this many doublings the cap holds, and nothing can overflow.
    doublings = min(deaths - 1, 32)
    return min(DELAY_MAX, FIRST_DELAY * (1 << doublings))
