"""Giving jobs another status: every guarded write but claiming and settling ends here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.errors import IllegalTransition
from perdure.model.failure import Failure
from perdure.model.hint import HintKind
from perdure.model.job import FINISHED, HELD, Status
from perdure.model.value import Value
from perdure.store.lifecycle import Operation, allows
from perdure.store.sqlite.rows import JobRow, encode
from perdure.store.sqlite.transaction import Transaction


class Move(Value):
    """One job on its way to another status."""

    job: JobRow
    after: Status
    failure: Failure | None = None
    """What its history shows of it."""
    takes_claim: bool = False
    """Its holder is stale from now on."""
    attempts_back: int = 0
    deaths: int = 0


def move(transaction: Transaction, operation: Operation, moves: Sequence[Move]) -> None:
    """Write the moves by the transition table, keep their failures, and hint at them."""
    for step in moves:
        if not allows(operation, Status(step.job.status), step.after):
            raise IllegalTransition(job_id=step.job.id, operation=operation, status=step.job.status)
    now = transaction.now
    transaction.write_rows(
        "move_jobs",
        [
            (
                step.job.number,
                step.after,
                step.job.epoch + step.takes_claim,
                step.job.attempt - step.attempts_back,
                step.job.deaths + step.deaths,
                now if step.after in FINISHED else None,
            )
            for step in moves
        ],
    )
    failed = [(step.job, step.failure) for step in moves if step.failure is not None]
    record_failures(transaction, failed)
    hint_at_moves(transaction, [(step.job, step.after) for step in moves])


def record_failures(transaction: Transaction, failed: Iterable[tuple[JobRow, Failure]]) -> None:
    """Add to the history of jobs, as they were before this write."""
    transaction.write_rows(
        "insert_failures",
        [
            (job.id, job.attempt, job.worker, transaction.now, encode(failure))
            for job, failure in failed
        ],
    )


def hint_at_moves(transaction: Transaction, moved: Iterable[tuple[JobRow, Status]]) -> None:
    """Tell waiters, workers that look for jobs, and those that wait for room under a limit."""
    changed: list[str] = []
    ready: set[str] = set()
    for job, after in moved:
        changed.append(job.id)
        if after is Status.WAITING:
            ready.add(job.lane)
        elif after is Status.SCHEDULED:
            transaction.hint_any(HintKind.SCHEDULED)
        if job.is_limited and after not in HELD:
            transaction.hint_any(HintKind.READY)
    transaction.hint(HintKind.CHANGED, changed)
    transaction.hint(HintKind.READY, ready)


def is_held(job: JobRow) -> bool:
    return job.status in HELD
