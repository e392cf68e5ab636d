"""How held jobs end: what each outcome writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.model.failure import Failure
from perdure.model.ids import WorkerId
from perdure.model.job import FINISHED, Status
from perdure.model.moment import nearest_storable
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
from perdure.store.lifecycle import after_settling
from perdure.store.sqlite.moving import hint_at_moves, record_failures
from perdure.store.sqlite.rows import (
    STATUSES,
    JobRow,
    Row,
    as_json,
    encode_details,
    micros,
    micros_in,
)
from perdure.store.sqlite.transaction import Transaction


class _Ending(NamedTuple):
    """A settlement whose claim is current."""

    job: JobRow
    after: Status
    settlement: Settlement
    ready_at: int


class _Effects(NamedTuple):
    """What an outcome changes besides the status."""

    attempts_back: int = 0
    failures: int = 0
    postpones: int = 0
    avoid_worker: WorkerId | None = None
    avoid_until: int | None = None


_NONE = _Effects()
_ATTEMPT_BACK = _Effects(attempts_back=1)
_FAILED = _Effects(failures=1)


def settle_jobs(transaction: Transaction, settlements: Sequence[Settlement]) -> list[Status | None]:
    """Write outcomes under their claims' fences; None, and nothing written, for a stale one."""
    endings = _endings(transaction, settlements)
    current = [ending for ending in endings if ending is not None]
    # Most jobs complete, so that has a statement of its own that leaves most columns alone.
    completed = [ending for ending in current if ending.after is Status.COMPLETED]
    others = [ending for ending in current if ending.after is not Status.COMPLETED]
    now = transaction.now
    transaction.write_rows("complete_jobs", [_completed_row(now, ending) for ending in completed])
    transaction.write_rows("settle_jobs", [_row(now, ending) for ending in others])
    record_failures(transaction, _failures_of(others))
    transaction.write_rows("close_limits", _limits_closed_by(others))
    hint_at_moves(transaction, [(ending.job, ending.after) for ending in current])
    return [None if ending is None else ending.after for ending in endings]


def _endings(transaction: Transaction, settlements: Sequence[Settlement]) -> list[_Ending | None]:
    ids = as_json([settlement.claim.id for settlement in settlements])
    jobs = {row[1]: JobRow._make(row) for row in transaction.rows("jobs_by_id", ids=ids)}
    endings: list[_Ending | None] = []
    for settlement in settlements:
        job = jobs.get(settlement.claim.id)
        ending = None
        if job is not None and job.epoch == settlement.claim.epoch:
            ready_at = _ready_at(transaction, job, settlement.outcome)
            is_due = ready_at <= transaction.now
            after = after_settling(STATUSES[job.status], settlement.outcome, is_due=is_due)
            if after is not None:
                ending = _Ending(job, after, settlement, ready_at)
                del jobs[job.id]  # it is no longer held when the same claim comes again
        endings.append(ending)
    return endings


def _completed_row(now: int, ending: _Ending) -> Row:
    """A row for the statement ``complete_jobs``."""
    job, _, settlement, _ = ending
    outcome, progress = settlement.outcome, settlement.progress
    assert isinstance(outcome, Completed)
    return (
        job.number,
        now,
        int(settlement.is_dropped),  # a bool costs the driver a search for an adapter
        None if progress is None else progress.message,
        None if progress is None else encode_details(progress),
        outcome.output,
    )


def _row(now: int, ending: _Ending) -> Row:
    """A row for the statement ``settle_jobs``."""
    job, after, settlement, ready_at = ending
    # An aborting job ends cancelled whatever its outcome says.
    is_counted = job.status == Status.ACTIVE
    effects = _effects(job, settlement.outcome, ready_at) if is_counted else _NONE
    progress = settlement.progress
    is_finished = after in FINISHED
    return (
        job.number,
        after,
        effects.attempts_back,
        effects.failures,
        effects.postpones,
        ready_at if is_counted else job.ready_at,
        effects.avoid_worker,
        effects.avoid_until,
        now if is_finished else None,
        is_finished and settlement.is_dropped,
        None if progress is None else progress.percent,
        None if progress is None else progress.message,
        None if progress is None else encode_details(progress),
    )


def _effects(job: JobRow, outcome: Outcome, ready_at: int) -> _Effects:
    match outcome:
        case Retried():
            return _Effects(
                failures=not outcome.is_postponed,
                postpones=outcome.is_postponed,
                avoid_worker=job.worker,
                avoid_until=ready_at + micros_in(outcome.hold_off),
            )
        case Failed() | Buried():
            return _FAILED
        case GivenBack() | Released():
            return _ATTEMPT_BACK
        case _:
            return _NONE


def _ready_at(transaction: Transaction, job: JobRow, outcome: Outcome) -> int:
    if not isinstance(outcome, Retried):
        return job.ready_at
    if outcome.until is not None:
        return micros(nearest_storable(outcome.until))
    return transaction.now + micros_in(outcome.delay)


def _failures_of(endings: Sequence[_Ending]) -> list[tuple[JobRow, Failure]]:
    failures = []
    for ending in endings:
        match ending.settlement.outcome:
            case Retried(failure=failure) | Failed(failure=failure) | Buried(failure=failure):
                failures.append((ending.job, failure))
            case Cancelled(failure=failure) if failure is not None:
                failures.append((ending.job, failure))
            case _:
                pass
    return failures


def _limits_closed_by(endings: Sequence[_Ending]) -> list[Row]:
    return [
        (ending.job.namespace, outcome.closes_limit, ending.ready_at)
        for ending in endings
        if isinstance(outcome := ending.settlement.outcome, Retried) and outcome.closes_limit
    ]
