"""Maps rows to values and back. Rows are read by position, which is the fastest way."""

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
from perdure.model.partition import Partition, suspicion_in
from perdure.model.run import LoadedRun, Run, Snapshot, Wait
from perdure.store.outcomes import written_by
from perdure.store.postgres.connection import Record
from perdure.store.postgres.params import (
    InputColumns,
    InsertLikeParams,
    JobColumns,
    OutcomeColumns,
)
from perdure.store.sql import rows
from perdure.store.sql.rows import node_from

by_rank = itemgetter(12, 0)
"""Orders the rows of a claim: lowest rank first, then oldest id."""

STARTED_AT = 13
"""The position of the claim's time in a claimed row."""

HAS_SKIPPED = 18
"""The column that tells whether a claim without limits skipped jobs."""


def claimed_job(row: Record, namespace: str) -> ClaimedJob:
    return ClaimedJob(
        claim=Claim(id=row[0], epoch=row[1]),
        namespace=namespace,
        partition=Partition.parse(row[2]),
        input=row[3],
        attempt=row[4],
        failures=row[5],
        snoozes=row[6],
        max_attempts=row[7],
        policy=row[8],
        group=row[9],
        deadline_at=row[10],
        created_at=row[11],
        priority=row[14],
        crashes=row[15],
        suspicion=suspicion_in(row[2]),
        node=node_from(row[16], row[17]),
    )


def job_columns(jobs: Sequence[NewJob]) -> JobColumns:
    return JobColumns(
        id=[job.id for job in jobs],
        namespace=[job.namespace for job in jobs],
        queue=[job.partition.queue for job in jobs],
        task=[job.partition.task for job in jobs],
        partition_key=[job.partition.text for job in jobs],
        job_group=[job.group for job in jobs],
        fingerprint=[job.fingerprint for job in jobs],
        policy=[job.policy for job in jobs],
        input=[job.input for job in jobs],
        input_hash=[job.input_hash for job in jobs],
        priority=[job.priority for job in jobs],
        aging=[job.aging.total_seconds() for job in jobs],
        max_attempts=[job.max_attempts for job in jobs],
        delay=[job.delay for job in jobs],
        run_at=[job.run_at for job in jobs],
        deadline=[job.deadline for job in jobs],
        deadline_at=[job.deadline_at for job in jobs],
        run_id=[None if job.node is None else job.node.run for job in jobs],
        node_key=[None if job.node is None else job.node.key for job in jobs],
    )


def like_job_params(now: datetime | None, jobs: Sequence[NewJob]) -> InsertLikeParams | None:
    """The arguments of ``insert_like_jobs``; None if the jobs are not alike."""
    first = jobs[0]
    shared = _all_but_input(first)
    for job in jobs:
        if job.node is not None or _all_but_input(job) != shared:
            return None
    return InsertLikeParams(
        now=now,
        inputs=InputColumns(
            id=[job.id for job in jobs],
            input=[job.input for job in jobs],
            input_hash=[job.input_hash for job in jobs],
        ),
        namespace=first.namespace,
        queue=first.partition.queue,
        task=first.partition.task,
        partition_key=first.partition.text,
        job_group=first.group,
        policy=first.policy,
        priority=first.priority,
        max_attempts=first.max_attempts,
        aging=first.aging.total_seconds(),
        run_at=first.run_at,
        delay=first.delay,
        deadline_at=first.deadline_at,
        deadline=first.deadline,
    )


def _all_but_input(job: NewJob) -> tuple[Any, ...]:
    return (
        job.partition,
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
    """The columns that outcomes write to active jobs; the statement handles aborting ones."""
    written = [written_by(settlement.outcome) for settlement in settlements]
    delayed = [each.delayed for each in written]
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
        is_snoozed=[each.snoozes > 0 for each in written],
        closes_limit=[None if each is None else each.closes_limit for each in delayed],
        failure=[
            None if each.failure is None else encode_failure(each.failure) for each in written
        ],
        percent=[percent for percent, _, _ in progress],
        message=[message for _, message, _ in progress],
        details=[details for _, _, details in progress],
        is_hidden=[settlement.is_hidden for settlement in settlements],
        delay=[None if each is None else each.delay for each in delayed],
        until=[None if each is None else each.until for each in delayed],
        hold_off=[None if each is None else each.hold_off for each in delayed],
        partition_key=[each.partition_key for each in written],
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
    """A string that PostgreSQL accepts: one bad character must not fail a whole batch."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


_SNAPSHOT, _LOG = 17, 19


def same(at: datetime) -> datetime:
    """Times need no conversion."""
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
    """A row of ``load_runs``: position, run, snapshot, and events as lists."""
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


def as_array(names: Sequence[str]) -> str:
    """PostgreSQL's syntax for an array of strings, because unnest would flatten nested arrays."""
    quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
    return "{" + ",".join(f'"{name}"' for name in quoted) + "}"
