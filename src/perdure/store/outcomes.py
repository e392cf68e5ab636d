"""The columns that an outcome writes to its job, shared by all backends."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple, assert_never

from perdure.model.check import reachable
from perdure.model.failure import Failure
from perdure.model.job import Status
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Requeued,
    Retried,
)


class Delayed(NamedTuple):
    """When a job is ready again."""

    delay: timedelta
    until: datetime | None = None
    hold_off: timedelta = timedelta(0)
    closes_limit: str | None = None


class Written(NamedTuple):
    """Columns for an active job; an aborting one ends cancelled and stores only its failure."""

    status: Status | None
    """None: waiting or scheduled, depending on when it is ready."""
    output: bytes | None = None
    failure: Failure | None = None
    failures: int = 0
    snoozes: int = 0
    attempts_back: int = 0
    delayed: Delayed | None = None
    """With times that every backend can read back."""
    partition_key: str | None = None
    """Another partition to move to."""


_REQUEUED = Written(Status.WAITING, attempts_back=1)
_PARKED = Written(Status.PAUSED, attempts_back=1)


def written_by(outcome: Outcome) -> Written:
    match outcome:
        case Completed(output=output):
            return Written(Status.COMPLETED, output)
        case Retried():
            at = reachable(outcome)
            return Written(
                None,
                failure=outcome.failure,
                failures=int(not outcome.is_snoozed),
                snoozes=int(outcome.is_snoozed),
                delayed=Delayed(at.delay, at.until, at.hold_off, at.closes_limit),
            )
        case Failed(failure=failure):
            return Written(Status.FAILED, failure=failure, failures=1)
        case DeadLettered(failure=failure):
            return Written(Status.DEAD, failure=failure, failures=1)
        case Cancelled(failure=reason):
            return Written(Status.CANCELLED, failure=reason)
        case Requeued(delay=delay) if delay:
            return Written(None, attempts_back=1, delayed=Delayed(delay))
        case Requeued(partition_key=""):
            return _REQUEUED
        case Requeued(partition_key=key):
            return _REQUEUED._replace(partition_key=key)
        case Parked():
            return _PARKED
        case _:
            assert_never(outcome)
