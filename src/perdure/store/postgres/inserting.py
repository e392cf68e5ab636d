"""How jobs are inserted, as a series of steps that any driver can carry out.

Each step names a statement with its arguments and gets the rows of it back; so the same decisions
serve our own connections and a caller's, awaited or blocking. The fingerprint's unique index is
what decides between two inserters; the steps only find out who won.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from perdure.errors import FingerprintTaken, InvalidInput, JobCancelled
from perdure.model.ids import JobId
from perdure.model.job import Inserted, NewJob, Status
from perdure.model.reach import check_times
from perdure.model.retry import type_name
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.rows import like_job_columns, new_job_columns

Step = tuple[str, Sequence[Any]]
"""A statement's name and its arguments."""
Rows = Sequence[Sequence[Any]]
Steps = Generator[Step, Rows, list[Inserted]]

INSERT_CHUNK = 2_000
"""Jobs that one statement carries; the next ones are made while the server works on them."""


async def carry_out(
    steps: Steps, execute: Callable[[str, Sequence[Any]], Awaitable[Rows]]
) -> list[Inserted]:
    try:
        step = next(steps)
        while True:
            step = steps.send(await execute(*step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what Steps says it returns


def carry_out_blocking(
    steps: Steps, execute: Callable[[str, Sequence[Any]], Rows]
) -> list[Inserted]:
    try:
        step = next(steps)
        while True:
            step = steps.send(execute(*step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what Steps says it returns


class Made:
    """Jobs as they are made, kept so that an insert can be repeated."""

    def __init__(self, jobs: Iterable[NewJob]) -> None:
        self._jobs: list[NewJob] = []
        self._rest = iter(jobs)

    def chunk(self, start: int) -> list[NewJob]:
        """The next ones from ``start``; makes no more of them than it needs."""
        missing = start + INSERT_CHUNK - len(self._jobs)
        self._jobs.extend(islice(self._rest, max(0, missing)))
        return self._jobs[start : start + INSERT_CHUNK]


def is_one_statement(jobs: Sequence[NewJob]) -> bool:
    """Whether the insert needs no transaction around it."""
    return all(job.fingerprint is None for job in jobs)


def insert_steps(
    jobs: Sequence[NewJob], moment: datetime | None, moves: Moves, *, may_be_in: bool = True
) -> Steps:
    """Insert jobs and answer in their order; ``moves`` learns what there is to publish.

    ``may_be_in`` tells that an earlier try may have inserted them. Without it, one that is in
    already is an error of the database, after which to try again with it.
    """
    if not jobs:
        return []
    for job in jobs:
        check_times(job)
    yield from _check_deadlines(jobs, moment)
    if is_one_statement(jobs):
        return (yield from _insert_plain(jobs, moment, moves, may_be_in))
    if not any(job.on_conflict == "raise" for job in jobs):
        return (yield from _insert_unique(jobs, moment, moves))
    yield "mark_start", ()
    try:
        inserted = yield from _insert_unique(jobs, moment, moves)
    except FingerprintTaken:
        yield "undo_to_start", ()
        raise
    yield "forget_start", ()
    return inserted


def _check_deadlines(
    jobs: Sequence[NewJob], moment: datetime | None
) -> Generator[Step, Rows, None]:
    fixed = []
    for job in jobs:
        if job.deadline_at is not None:
            fixed.append(job)
        elif job.deadline is not None and job.deadline <= timedelta(0):
            raise InvalidInput(f"the deadline {job.deadline} of job {job.id} is not ahead")
    if not fixed:
        return
    ids, deadlines = [job.id for job in fixed], [job.deadline_at for job in fixed]
    for id, deadline_at, now in (yield "late_deadlines", (moment, ids, deadlines)):
        raise InvalidInput(f"the deadline {deadline_at} of job {id} is not after {now}")


def _insert_plain(
    jobs: Sequence[NewJob], moment: datetime | None, moves: Moves, may_be_in: bool
) -> Generator[Step, Rows, list[Inserted]]:
    """Without a fingerprint nothing but its own id can be met, which counts as inserted."""
    columns = None if may_be_in else like_job_columns(jobs)
    if columns is None:
        yield from _insert(jobs, moment, moves)
    else:
        [(is_waiting,)] = yield "insert_like_jobs", (moment, *columns)
        moves.queued(_status(is_waiting), jobs[0].lane.text)
    return [Inserted(id=job.id, is_new=True) for job in jobs]


def _insert(
    jobs: Sequence[NewJob], moment: datetime | None, moves: Moves
) -> Generator[Step, Rows, set[str]]:
    """The ids of those that were inserted; the others met an id or a fingerprint."""
    lanes = {job.id: job.lane.text for job in jobs}
    new = yield "insert_jobs", (moment, *new_job_columns(jobs))
    for id, is_waiting in new:
        moves.queued(_status(is_waiting), lanes[id])
    return {row[0] for row in new}


def _status(is_waiting: bool) -> Status:
    return Status.WAITING if is_waiting else Status.SCHEDULED


def _insert_unique(jobs: Sequence[NewJob], moment: datetime | None, moves: Moves) -> Steps:
    answers: list[Inserted] = []
    for run in _runs(jobs):
        found: dict[str, Inserted] = {}
        while left := [job for job in run if job.id not in found]:
            if left[0].on_conflict == "replace":
                yield from _replace_rivals(left, moment, moves)
            for id in (yield from _insert(left, moment, moves)):
                found[id] = Inserted(id=JobId(id), is_new=True)
            # Who met a rival that is gone by now goes round once more.
            yield from _find_rivals([job for job in left if job.id not in found], found)
        answers += [found[job.id] for job in run]
    return answers


def _runs(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Split where one statement would not do what one insert after the other does.

    A replacing job cancels what came before it in the same call, so it opens a run of its own
    unless all of the run replace, each another fingerprint.
    """
    run: list[NewJob] = []
    taken: set[tuple[str, str, str | None]] = set()
    for job in jobs:
        place = (job.namespace, job.lane.queue, job.fingerprint)
        replaces = job.on_conflict == "replace"
        if run and (replaces != (run[0].on_conflict == "replace") or (replaces and place in taken)):
            yield run
            run, taken = [], set()
        run.append(job)
        taken.add(place)
    yield run


def _replace_rivals(
    jobs: Sequence[NewJob], moment: datetime | None, moves: Moves
) -> Generator[Step, Rows, None]:
    replaced = yield (
        "replace_rivals",
        (moment, *_places(jobs), type_name(JobCancelled)),
    )
    for id, was_held, was_limited in replaced:
        moves.moved(id, Status.CANCELLED, None, frees_limit=was_limited)
        if was_held:
            moves.stopped(id)


def _find_rivals(jobs: Sequence[NewJob], found: dict[str, Inserted]) -> Generator[Step, Rows, None]:
    if not jobs:
        return
    rivals = {
        id: (is_in, rival) for id, is_in, rival in (yield "find_rivals", tuple(_places(jobs)))
    }
    for job in jobs:
        is_in, rival = rivals[job.id]
        if is_in:
            found[job.id] = Inserted(id=job.id, is_new=True)  # repeated after an unclear commit
        elif rival is not None and job.on_conflict == "return":
            found[job.id] = Inserted(id=JobId(rival), is_new=False)
        elif rival is not None and job.on_conflict == "raise":
            raise FingerprintTaken(
                queue=job.lane.queue, fingerprint=job.fingerprint or "", job_id=rival
            )


def _places(jobs: Sequence[NewJob]) -> Iterator[list[Any]]:
    """Ids, namespaces, queues and fingerprints."""
    yield [job.id for job in jobs]
    yield [job.namespace for job in jobs]
    yield [job.lane.queue for job in jobs]
    yield [job.fingerprint for job in jobs]
