"""What a store checks before it writes a time.

One time that a backend could write but not read back would stop every worker of that store, since
each of them looks at the earliest times of all.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from perdure.model import check
from perdure.model.duration import DURATION_MAX, nearest_duration
from perdure.model.job import NewJob
from perdure.model.moment import EARLIEST, LATEST, is_storable, nearest_storable
from perdure.model.outcome import Retried


def check_times(job: NewJob) -> None:
    """Refuse a job whose times lie out of reach."""
    for name, span in (("delay", job.delay), ("deadline", job.deadline)):
        if not _is_near(span):
            raise check.out_of_range(span, name, f"at most {DURATION_MAX.days} days")
    for name, moment in (("run_at", job.run_at), ("deadline", job.deadline_at)):
        if not _is_kept(moment):
            years = f"between the years {EARLIEST.year} and {LATEST.year}"
            raise check.out_of_range(moment, name, years)


def reachable(outcome: Retried) -> Retried:
    """The same outcome with its times in reach. Refused, it would leave its job without an end."""
    until = outcome.until
    return replace(
        outcome,
        delay=nearest_duration(outcome.delay),
        hold_off=nearest_duration(outcome.hold_off),
        until=None if until is None else nearest_storable(until),
    )


def _is_near(span: timedelta | None) -> bool:
    return span is None or -DURATION_MAX <= span <= DURATION_MAX


def _is_kept(moment: datetime | None) -> bool:
    return moment is None or is_storable(moment)
