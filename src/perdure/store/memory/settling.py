"""How held jobs end: what each outcome writes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.model.failure import Failure
from perdure.model.job import FINISHED, Progress, Status
from perdure.model.outcome import (
    Buried,
    Cancelled,
    Completed,
    Failed,
    GivenBack,
    Outcome,
    Released,
    Retried,
    Settlement,
)
from perdure.model.reach import reachable
from perdure.rules.rank import moved_rank
from perdure.store.lifecycle import Operation, after_settling
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.transaction import Transaction

_OPERATIONS: dict[type[Outcome], Operation] = {
    Completed: Operation.COMPLETE,
    Retried: Operation.RETRY_LATER,
    Failed: Operation.FAIL,
    Buried: Operation.BURY,
    Cancelled: Operation.CANCEL,
    GivenBack: Operation.GIVE_BACK,
    Released: Operation.RELEASE,
}


def settle(transaction: Transaction, settlement: Settlement) -> Status | None:
    """Write one outcome under its claim's fence; None, and nothing written, if it is stale."""
    job = transaction.held(settlement.claim)
    if job is None:
        return None
    outcome = settlement.outcome
    if isinstance(outcome, Retried):
        outcome = reachable(outcome)
    ready_at = _ready_at(transaction, job, outcome)
    status = after_settling(job.status, outcome, is_due=ready_at <= transaction.now)
    assert status is not None, "only held jobs get here, and they take every outcome"

    changes: dict[str, Any] = {
        "progress": settlement.progress or job.progress,
        "is_dropped": settlement.is_dropped and status in FINISHED,
    }
    failure = _failure_of(outcome)
    if failure is not None:
        changes["history"] = transaction.failed(job, failure)
    if job.status is Status.ACTIVE:  # an aborting job ends cancelled whatever its outcome says
        changes |= _effects(job, outcome, changes["progress"], ready_at)
    if isinstance(outcome, Retried) and outcome.closes_limit is not None:
        transaction.state.limit(job.namespace, outcome.closes_limit).close(ready_at)
    transaction.move(job, _OPERATIONS[type(outcome)], status, **changes)
    return status


def _effects(
    job: StoredJob, outcome: Outcome, progress: Progress, ready_at: datetime
) -> dict[str, Any]:
    """What an outcome changes besides the status."""
    match outcome:
        case Completed():
            return {"output": outcome.output, "progress": replace(progress, percent=100.0)}
        case Retried():
            return {
                "ready_at": ready_at,
                "rank": moved_rank(job.rank, job.ready_at, ready_at),
                "avoid_worker": job.worker,
                "avoid_until": ready_at + outcome.hold_off,
                "failures": job.failures + (not outcome.is_postponed),
                "postpones": job.postpones + outcome.is_postponed,
            }
        case Failed() | Buried():
            return {"failures": job.failures + 1}
        case GivenBack() | Released():
            return {"attempt": job.attempt - 1}
        case _:
            return {}


def _ready_at(transaction: Transaction, job: StoredJob, outcome: Outcome) -> datetime:
    if isinstance(outcome, Retried):
        return outcome.until or transaction.now + outcome.delay
    return job.ready_at


def _failure_of(outcome: Outcome) -> Failure | None:
    match outcome:
        case Retried() | Failed() | Buried() | Cancelled():
            return outcome.failure
        case _:
            return None
