"""Rows into values and values into rows. Rows are read by position: it is the cheapest way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from perdure.model.event import StoredEvent
from perdure.model.failure import Cause, Failure
from perdure.model.job import Claim, ClaimedJob, FailedAttempt, Job, NewJob, Progress, QueueInfo
from perdure.model.outcome import Settlement
from perdure.model.partition import Lane
from perdure.model.run import LoadedRun, NewRun, NewWait, Run, Snapshot, Wait
from perdure.model.times import nearest_duration, nearest_storable
from perdure.store.outcomes import written_by
from perdure.store.postgres.connection import Record
from perdure.store.postgres.params import OutcomeColumns
from perdure.store.sql import rows
from perdure.store.sql.rows import node_from

by_rank = itemgetter(12, 0)
"""Orders the rows of a claim: lowest rank first, then oldest id."""

STARTED_AT = 13
"""Where a row of a claim has the moment of the claim."""

LEFT_OVER = 18
"""Where a claim from several lanes says that it locked more than it took."""


def claimed_job(row: Record, namespace: str) -> ClaimedJob:
    return ClaimedJob(
        claim=Claim(id=row[0], epoch=row[1]),
        namespace=namespace,
        lane=Lane.parse(row[2]),
        input=row[3],
        attempt=row[4],
        failures=row[5],
        postpones=row[6],
        max_attempts=row[7],
        policy=row[8],
        group=row[9],
        deadline_at=row[10],
        created_at=row[11],
        priority=row[14],
        deaths=row[15],
        node=node_from(row[16], row[17]),
    )


def new_job_columns(jobs: Sequence[NewJob]) -> tuple[list[Any], ...]:
    """The arguments of ``insert_jobs`` after the moment, one list for each column."""
    return (
        [job.id for job in jobs],
        [job.namespace for job in jobs],
        [job.lane.queue for job in jobs],
        [job.lane.task for job in jobs],
        [job.lane.text for job in jobs],
        [job.group for job in jobs],
        [job.fingerprint for job in jobs],
        [job.policy for job in jobs],
        [job.input for job in jobs],
        [job.input_hash for job in jobs],
        [job.priority for job in jobs],
        [job.aging.total_seconds() for job in jobs],
        [job.max_attempts for job in jobs],
        [job.delay for job in jobs],
        [job.run_at for job in jobs],
        [job.deadline for job in jobs],
        [job.deadline_at for job in jobs],
        [None if job.node is None else job.node.run for job in jobs],
        [None if job.node is None else job.node.key for job in jobs],
    )


def node_job_columns(jobs: Sequence[NewJob]) -> tuple[list[Any], ...]:
    """Jobs of runs as the statements take them that insert them with their run."""
    id, namespace, queue, task, lane, group, _fingerprint, *rest = new_job_columns(jobs)
    return id, namespace, queue, task, lane, group, *rest


def like_job_columns(jobs: Sequence[NewJob]) -> tuple[Any, ...] | None:
    """The arguments of ``insert_like_jobs`` after the moment; None if the jobs are not alike."""
    first = jobs[0]
    shared = _beside_input(first)
    for job in jobs:
        if job.node is not None or _beside_input(job) != shared:
            return None
    return (
        [job.id for job in jobs],
        [job.input for job in jobs],
        [job.input_hash for job in jobs],
        first.namespace,
        first.lane.queue,
        first.lane.task,
        first.lane.text,
        first.group,
        first.policy,
        first.priority,
        first.max_attempts,
        first.aging.total_seconds(),
        first.run_at,
        first.delay,
        first.deadline_at,
        first.deadline,
    )


def _beside_input(job: NewJob) -> tuple[Any, ...]:
    return (
        job.lane,
        job.namespace,
        job.group,
        job.policy,
        job.priority,
        job.max_attempts,
        job.aging,
        job.run_at,
        job.delay,
        job.deadline_at,
        job.deadline,
    )


def outcome_columns(settlements: Sequence[Settlement]) -> OutcomeColumns:
    """What outcomes write to active jobs; an aborting job is seen to by the statement."""
    written = [written_by(settlement.outcome) for settlement in settlements]
    retried = [each.retried for each in written]
    progress = [
        (None, None, None) if settlement.progress is None else progress_row(settlement.progress)
        for settlement in settlements
    ]
    return OutcomeColumns(
        id=[settlement.claim.id for settlement in settlements],
        epoch=[settlement.claim.epoch for settlement in settlements],
        after=[each.status for each in written],
        output=[each.output for each in written],
        is_refunded=[each.attempts_back > 0 for each in written],
        is_postponed=[each.postpones > 0 for each in written],
        closes_limit=[None if each is None else each.closes_limit for each in retried],
        failure=[
            None if each.failure is None else encode_failure(each.failure) for each in written
        ],
        percent=[percent for percent, _, _ in progress],
        message=[message for _, message, _ in progress],
        details=[details for _, _, details in progress],
        is_dropped=[settlement.is_dropped for settlement in settlements],
        delay=[None if each is None else each.delay for each in retried],
        until=[None if each is None else each.until for each in retried],
        hold_off=[None if each is None else each.hold_off for each in retried],
    )


def progress_row(latest: Progress) -> tuple[float, str, bytes | None]:
    details = None if latest.details is None else msgspec.json.encode(latest.details)
    return latest.percent, storable(latest.message), details


def encode_failure(failure: Failure) -> str:
    try:
        return msgspec.json.encode(failure).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_storable_failure(failure)).decode()


def _storable_failure(failure: Failure) -> Failure:
    causes = (Cause(type=cause.type, message=storable(cause.message)) for cause in failure.causes)
    return Failure(
        type=failure.type,
        message=storable(failure.message),
        traceback=storable(failure.traceback),
        causes=tuple(causes),
        code=failure.code,
    )


def storable(text: str) -> str:
    """A text PostgreSQL can keep: one odd character must not fail a whole batch."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


_SNAPSHOT, _LOG = 13, 15


def same(at: datetime) -> datetime:
    """Times are kept as what they are."""
    return at


def job_from(row: Record) -> Job:
    return rows.job_from(row, same)


def attempt_from(row: Record) -> FailedAttempt:
    return rows.attempt_from(row, same)


def run_from(row: Record) -> Run:
    return rows.run_from(row, same)


def wait_from(row: Record) -> Wait:
    return rows.wait_from(row, same, tuple)


def queue_from(row: Record) -> QueueInfo:
    return rows.queue_from(row, same)


def loaded_from(row: Record) -> LoadedRun:
    """A row of ``load_runs``: its position, the run, its snapshot, and its events as lists."""
    number, data = row[_SNAPSHOT : _SNAPSHOT + 2]
    log = (column or () for column in row[_LOG : _LOG + 4])
    return LoadedRun(
        run=run_from(row[1:]),
        snapshot=None if number is None else Snapshot(number=number, data=data),
        events=[
            StoredEvent(number=number, at=at, data=data, value=value)
            for number, at, data, value in zip(*log, strict=True)
        ],
    )


def child_columns(runs: Sequence[NewRun]) -> tuple[list[Any], ...]:
    """The arguments of ``add_runs`` after the moment, one list for each column."""
    return (
        [run.namespace for run in runs],
        [run.id for run in runs],
        [run.flow for run in runs],
        [run.version for run in runs],
        [run.status for run in runs],
        [len(run.events) for run in runs],
        [None if run.parent is None else run.parent.run for run in runs],
        [None if run.parent is None else run.parent.key for run in runs],
        [run.summary for run in runs],
    )


def new_wait_columns(waits: Sequence[NewWait]) -> tuple[list[Any], ...]:
    """The arguments of ``open_waits`` after those that say where, one list for each column."""
    return (
        [wait.key for wait in waits],
        [wait.kind for wait in waits],
        [wait.name for wait in waits],
        [None if wait.delay is None else nearest_duration(wait.delay) for wait in waits],
        [None if wait.due_at is None else nearest_storable(wait.due_at) for wait in waits],
        [_as_array(wait.deciders) for wait in waits],
        [wait.detail for wait in waits],
    )


def _as_array(names: Sequence[str]) -> str:
    """How PostgreSQL writes an array of text: unnested, lists of lists would not stay apart."""
    quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
    return "{" + ",".join(f'"{name}"' for name in quoted) + "}"
