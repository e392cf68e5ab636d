"""Maps SQLite's rows to values and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from perdure.model.event import StoredEvent
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import Claim, ClaimedJob, FailedAttempt, Job, NewJob, Progress, QueueInfo
from perdure.model.partition import Partition, suspicion_in
from perdure.model.run import ENDED, Run, Wait
from perdure.model.times import nearest_duration
from perdure.model.worker import WorkerInfo, WorkerState
from perdure.store.admission import rank_of
from perdure.store.sql import rows
from perdure.store.sql.rows import JOB_COLUMNS, WAIT_COLUMNS, node_from

Row = tuple[Any, ...]

INLINE_MAX_BYTES = 2048
"""A larger input is stored in a separate table."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MICROSECOND = timedelta(microseconds=1)

JOB_ROW = """\
job.rowid, job.id, job.namespace, job.queue, job.partition_key, job.status, job.epoch, job.attempt,
       job.crashes, job.claimed_alone, job.worker, job.ready_at, job.deadline_at, job.fingerprint,
       job.limit_keys IS NOT NULL, job.run_id, job.node_key"""

CLAIMED_ROW = """\
rank, id, epoch, namespace, partition_key, input, attempt, failures, snoozes, max_attempts, policy,
          job_group, deadline_at, created_at, priority, crashes, run_id, node_key"""

encode = msgspec.json.encode

_decode_info = msgspec.json.Decoder(WorkerInfo).decode


class SqliteJobRow(NamedTuple):
    """The columns needed to move a job; ``number`` is its rowid."""

    number: int
    id: JobId
    namespace: str
    queue: str
    partition: str
    status: str
    epoch: int
    attempt: int
    crashes: int
    claimed_alone: int
    worker: WorkerId | None
    ready_at: int
    deadline_at: int | None
    fingerprint: str | None
    is_limited: int
    run_id: RunId | None
    node_key: str | None


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def micros_in(duration: timedelta) -> int:
    return nearest_duration(duration) // _MICROSECOND


def moment(at_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at_us)


def moment_or_none(at_us: int | None) -> datetime | None:
    return None if at_us is None else moment(at_us)


def as_json(values: Any) -> str:
    """A list as one JSON parameter, for ``json_each``."""
    return encode(values).decode()


def encode_details(progress: Progress) -> bytes | None:
    return None if progress.details is None else encode(progress.details)


def new_row(job: NewJob, now: int) -> Row:
    """A row for ``insert_jobs``."""
    ready_at = job.run_at or moment(now) + job.delay
    ready_us = micros(ready_at)
    status = "waiting" if ready_us <= now else "scheduled"
    return (
        job.id,
        job.namespace,
        job.partition.queue,
        job.partition.task,
        job.partition.text,
        job.group,
        status,
        job.priority,
        rank_of(ready_at, job.priority, job.aging),
        job.max_attempts,
        job.fingerprint,
        now,
        ready_us,
        deadline_of(job, now),
        # Results of nodes are never looked up by input, so they share one end of that index.
        job.input_hash if job.node is None else 0,
        job.policy,
        job.input if len(job.input) <= INLINE_MAX_BYTES else None,
        None if job.node is None else job.node.run,
        None if job.node is None else job.node.key,
    )


def deadline_of(job: NewJob, now: int) -> int | None:
    if job.deadline_at is not None:
        return micros(job.deadline_at)
    return None if job.deadline is None else now + micros_in(job.deadline)


def claimed_from(row: Row, large_inputs: dict[str, bytes]) -> ClaimedJob:
    (
        _,
        id,
        epoch,
        namespace,
        partition,
        input,
        attempt,
        failures,
        snoozes,
        max_attempts,
        policy,
        group,
        deadline_at,
        created_at,
        priority,
        crashes,
        run_id,
        node_key,
    ) = row
    return ClaimedJob(
        claim=Claim(id=id, epoch=epoch),
        namespace=namespace,
        partition=Partition.parse(partition),
        input=large_inputs[id] if input is None else input,
        attempt=attempt,
        failures=failures,
        snoozes=snoozes,
        max_attempts=max_attempts,
        policy=policy,
        group=group,
        deadline_at=moment_or_none(deadline_at),
        created_at=moment(created_at),
        priority=priority,
        crashes=crashes,
        suspicion=suspicion_in(partition),
        node=node_from(run_id, node_key),
    )


def worker_from(row: Row, running: Sequence[JobId]) -> WorkerState:
    _, info, started_at, seen_at = row
    return WorkerState(
        info=_decode_info(info),
        started_at=moment(started_at),
        seen_at=moment(seen_at),
        running=tuple(running),
    )


LAST_NUMBER = """\
max(run.number, coalesce((
           SELECT max(event.number)
           FROM {prefix}events AS event
           WHERE event.run_serial = run.serial
       ), 0))"""

RECORD_ROW = ", ".join(f"job.{column}" for column in JOB_COLUMNS)
WAIT_ROW = ", ".join(f"wait.{column}" for column in WAIT_COLUMNS)
RUN_ROW = """\
run.id, run.namespace, run.flow, run.version, run.status,
       max({last_number}, coalesce((
           SELECT max(job.run_number)
           FROM {prefix}jobs AS job
           WHERE job.run_id = run.id
             AND job.namespace = run.namespace
       ), 0)), run.parent_run,
       run.parent_key, run.created_at,
       max(run.updated_at, coalesce((
           SELECT event.at
           FROM {prefix}events AS event
           WHERE event.run_serial = run.serial
           ORDER BY event.number DESC
           LIMIT 1
       ), 0)),
       run.finished_at, run.summary, run.priority, run.start_at, run.started_at, run.settings"""

NODE_JOB_ROW = """\
job.rowid, job.epoch, job.status, job.input IS NULL, job.limit_keys IS NOT NULL,
       job.failures + job.snoozes + job.crashes"""

ENDED_TEXTS = frozenset(status.value for status in ENDED)

_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


class NodeJobRow(NamedTuple):
    """The columns of a settled job that a step needs."""

    number: int
    epoch: int
    status: str
    is_large: int
    """Whether its input is in the separate table."""
    is_limited: int
    failure_count: int
    """More than 0 if it has failed attempts."""


class SqliteRunRow(NamedTuple):
    """The columns of a run that a step needs; ``number`` is that of its last event."""

    serial: int
    number: int
    token: int | None
    status: str
    flow: str
    parent_run: RunId | None
    parent_key: str | None
    created_at: int


RUN_ROW_COLUMNS = len(SqliteRunRow._fields)


def job_from(row: Row) -> Job:
    return rows.job_from(row, moment)


def attempt_from(row: Row) -> FailedAttempt:
    return rows.attempt_from(row, moment)


def run_from(row: Row) -> Run:
    return rows.run_from(row, moment)


def wait_from(row: Row) -> Wait:
    return rows.wait_from(row, moment, names_in)


def queue_from(row: Row) -> QueueInfo:
    return rows.queue_from(row, moment)


def event_from(row: Row) -> StoredEvent:
    number, at, data, value = row
    return StoredEvent(number=number, at=moment(at), data=data, value=value)


def names_in(data: str) -> tuple[str, ...]:
    """The deciders; none if unreadable: the log has them, and other waits must not be blocked."""
    try:
        return _decode_names(data)
    except (msgspec.DecodeError, RecursionError):
        return ()
