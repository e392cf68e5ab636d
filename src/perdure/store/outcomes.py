"""The columns that an outcome writes to its job, shared by all backends."""

from __future__ import annotations

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


class Written(NamedTuple):
    """Columns for an active job; an aborting one ends cancelled and stores only its failure."""

    status: Status | None
    """None: waiting or scheduled, depending on when it is ready."""
    output: bytes | None = None
    failure: Failure | None = None
    failures: int = 0
    snoozes: int = 0
    attempts_back: int = 0
    retried: Retried | None = None
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
            return Written(
                None,
                failure=outcome.failure,
                failures=int(not outcome.is_snoozed),
                snoozes=int(outcome.is_snoozed),
                retried=reachable(outcome),
            )
        case Failed(failure=failure):
            return Written(Status.FAILED, failure=failure, failures=1)
        case DeadLettered(failure=failure):
            return Written(Status.DEAD, failure=failure, failures=1)
        case Cancelled(failure=reason):
            return Written(Status.CANCELLED, failure=reason)
        case Requeued(partition_key=""):
            return _REQUEUED
        case Requeued(partition_key=key):
            return _REQUEUED._replace(partition_key=key)
        case Parked():
            return _PARKED
        case _:
            assert_never(outcome)
