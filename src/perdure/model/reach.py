"""What a store checks before it writes a time.

One time that a backend could write but not read back would stop every worker of that store, since
each of them looks at the earliest times of all.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from perdure.errors import InvalidInput
from perdure.model.duration import DURATION_MAX, nearest_duration
from perdure.model.job import NewJob
from perdure.model.moment import is_storable, nearest_storable
from perdure.model.outcome import Retried


def check_times(job: NewJob) -> None:
    """Refuse a job whose times lie out of reach."""
    if not _is_near(job.delay) or not _is_near(job.deadline):
        raise InvalidInput(
            f"the delay {job.delay} or deadline {job.deadline} of job {job.id} is more than "
            f"{DURATION_MAX.days} days"
        )
    if not _is_kept(job.run_at) or not _is_kept(job.deadline_at):
        raise InvalidInput(
            f"run_at {job.run_at} or deadline {job.deadline_at} of job {job.id} lies too far away"
        )


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
