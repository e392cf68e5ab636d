"""How jobs come in: fingerprints are looked at, then everything is written at once.

Nothing is written before it is known that all of it can be: on a caller's connection there is no
way to take back a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from perdure.errors import FingerprintTaken, InvalidInput, JobCancelled
from perdure.model.failure import Failure
from perdure.model.hint import HintKind
from perdure.model.ids import JobId
from perdure.model.job import Inserted, NewJob, Status
from perdure.model.reach import check_times
from perdure.model.retry import type_name
from perdure.model.value import Value
from perdure.store.lifecycle import Operation
from perdure.store.sqlite.moving import Move, is_held, move
from perdure.store.sqlite.rows import (
    INLINE_MAX_BYTES,
    JobRow,
    as_json,
    deadline_of,
    moment,
    new_row,
)
from perdure.store.sqlite.transaction import Transaction

Fingerprint = tuple[str, str, str | None]

_LANE, _STATUS = 4, 6  # of a new row


class _Replace(Value):
    """The job to cancel in favour of another."""

    rival: JobId
    by: JobId


Step = NewJob | _Replace


def insert_jobs(transaction: Transaction, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Add jobs and answer in their order; raises before it writes."""
    for job in jobs:
        check_times(job)
    is_plain = all(job.fingerprint is None for job in jobs) and not _past(transaction, jobs)
    if is_plain:
        _write(transaction, jobs)
        return [Inserted(id=job.id, is_new=True) for job in jobs]
    transaction.write("take_write_lock")
    steps, answers = _plan(transaction, jobs)
    for kind, group in groupby(steps, type):
        if kind is _Replace:
            _cancel(transaction, [step for step in group if isinstance(step, _Replace)])
        else:
            _write(transaction, [step for step in group if isinstance(step, NewJob)])
    return answers


def _plan(
    transaction: Transaction, jobs: Sequence[NewJob]
) -> tuple[Sequence[Step], list[Inserted]]:
    """What to do in which order, as if the jobs came one by one."""
    known = {row[1] for row in transaction.rows("jobs_by_id", ids=as_json([j.id for j in jobs]))}
    live = _live_fingerprints(transaction, jobs)
    steps: list[Step] = []
    answers: list[Inserted] = []
    for job in jobs:
        if job.id in known:  # repeated after an unclear commit
            answers.append(Inserted(id=job.id, is_new=True))
            continue
        _check_deadline(transaction, job)
        rival = live.get(_fingerprint_of(job))
        if rival is not None and job.on_conflict == "return":
            answers.append(Inserted(id=rival, is_new=False))
            continue
        if rival is not None and job.on_conflict == "raise":
            raise FingerprintTaken(
                queue=job.lane.queue, fingerprint=job.fingerprint or "", job_id=rival
            )
        if rival is not None:
            steps.append(_Replace(rival=rival, by=job.id))
        steps.append(job)
        known.add(job.id)
        if job.fingerprint is not None:
            live[_fingerprint_of(job)] = job.id
        answers.append(Inserted(id=job.id, is_new=True))
    return steps, answers


def _write(transaction: Transaction, jobs: Sequence[NewJob]) -> None:
    rows = [new_row(job, transaction.now) for job in jobs]
    transaction.write_rows("insert_jobs", rows)
    large = [(job.id, job.input) for job in jobs if len(job.input) > INLINE_MAX_BYTES]
    transaction.write_rows("insert_large_inputs", large)
    waiting = [row for row in rows if row[_STATUS] == Status.WAITING]
    transaction.hint(HintKind.READY, (row[_LANE] for row in waiting))
    if len(waiting) < len(rows):
        transaction.hint_any(HintKind.SCHEDULED)


def _cancel(transaction: Transaction, replaced: Iterable[_Replace]) -> None:
    by = {step.rival: step.by for step in replaced}
    rivals = [JobRow._make(r) for r in transaction.rows("jobs_by_id", ids=as_json(list(by)))]
    moves = [
        Move(
            job=rival,
            after=Status.CANCELLED,
            failure=Failure(type=type_name(JobCancelled), message=f"replaced by {by[rival.id]}"),
            takes_claim=is_held(rival),
        )
        for rival in rivals
    ]
    move(transaction, Operation.REPLACE, moves)
    transaction.hint(HintKind.ABORTING, (rival.id for rival in rivals if is_held(rival)))


def _live_fingerprints(
    transaction: Transaction, jobs: Sequence[NewJob]
) -> dict[Fingerprint, JobId]:
    wanted = {_fingerprint_of(job) for job in jobs if job.fingerprint is not None}
    rows = transaction.rows("live_fingerprints", wanted=as_json(list(wanted)))
    found = (JobRow._make(row) for row in rows)
    return {(job.namespace, job.queue, job.fingerprint): job.id for job in found}


def _fingerprint_of(job: NewJob) -> Fingerprint:
    return job.namespace, job.lane.queue, job.fingerprint


def _past(transaction: Transaction, jobs: Sequence[NewJob]) -> bool:
    deadlines = (deadline_of(job, transaction.now) for job in jobs)
    return any(at is not None and at <= transaction.now for at in deadlines)


def _check_deadline(transaction: Transaction, job: NewJob) -> None:
    deadline_at = deadline_of(job, transaction.now)
    if deadline_at is not None and deadline_at <= transaction.now:
        raise InvalidInput(
            f"the deadline {moment(deadline_at)} of job {job.id} is not after "
            f"{moment(transaction.now)}"
        )
