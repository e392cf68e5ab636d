"""Rows as SQLite keeps them: columns, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from perdure.model.duration import nearest_duration
from perdure.model.event import Parent, StoredEvent
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import (
    Claim,
    ClaimedJob,
    FailedAttempt,
    Job,
    JobState,
    NewJob,
    NodeRef,
    Progress,
    QueueInfo,
    Status,
)
from perdure.model.lane import Lane
from perdure.model.run import ENDED, Run, RunStatus, Wait, WaitKind
from perdure.model.worker import WorkerInfo, WorkerState
from perdure.rules.rank import rank_of
from perdure.store.sql.readable import read_details, read_failure

Row = tuple[Any, ...]


INLINE_MAX_BYTES = 2048
"""An input larger than this lives beside its job."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_MICROSECOND = timedelta(microseconds=1)


JOB_ROW = """\
job.rowid, job.id, job.namespace, job.queue, job.lane, job.status, job.epoch, job.attempt,
       job.deaths, job.worker, job.ready_at, job.deadline_at, job.fingerprint,
       job.limit_keys IS NOT NULL, job.run_id"""


CLAIMED_ROW = """\
rank, id, epoch, namespace, lane, input, attempt, failures, postpones, max_attempts, policy,
          job_group, deadline_at, created_at, priority, deaths, run_id, node_key"""


RECORD_ROW = """\
job.id, job.namespace, job.queue, job.task, job.lane, job.status, job.priority, job.job_group,
       job.fingerprint, job.attempt, job.failures, job.deaths, job.max_attempts, job.worker,
       job.epoch, job.progress, job.progress_message, job.progress_details, job.created_at,
       job.ready_at, job.deadline_at, job.started_at, job.finished_at, job.lease_until,
       job.run_id, job.node_key"""


STATUSES = {status.value: status for status in Status}
"""The same as ``Status(text)``, at a fraction of its cost."""


encode = msgspec.json.encode


_decode_info = msgspec.json.Decoder(WorkerInfo).decode


class JobRow(NamedTuple):
    """What has to be known of a job to move it; ``number`` is its row's for this transaction."""

    number: int
    id: JobId
    namespace: str
    queue: str
    lane: str
    status: str
    epoch: int
    attempt: int
    deaths: int
    worker: WorkerId | None
    ready_at: int
    deadline_at: int | None
    fingerprint: str | None
    is_limited: int
    run_id: RunId | None


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def micros_in(duration: timedelta) -> int:
    return nearest_duration(duration) // _MICROSECOND


def moment(at_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at_us)


def moment_or_none(at_us: int | None) -> datetime | None:
    return None if at_us is None else moment(at_us)


def as_json(values: Any) -> str:
    """A list as one parameter, for ``json_each``."""
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
        job.lane.queue,
        job.lane.task,
        job.lane.text,
        job.group,
        status,
        job.priority,
        rank_of(ready_at, job.priority, job.aging),
        job.max_attempts,
        job.fingerprint,
        now,
        ready_us,
        deadline_of(job, now),
        # Nobody asks for the result of a node by its input, so they share one end of that index.
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
        lane,
        input,
        attempt,
        failures,
        postpones,
        max_attempts,
        policy,
        group,
        deadline_at,
        created_at,
        priority,
        deaths,
        run_id,
        node_key,
    ) = row
    return ClaimedJob(
        claim=Claim(id=id, epoch=epoch),
        namespace=namespace,
        lane=Lane.parse(lane),
        input=large_inputs[id] if input is None else input,
        attempt=attempt,
        failures=failures,
        postpones=postpones,
        max_attempts=max_attempts,
        policy=policy,
        group=group,
        deadline_at=moment_or_none(deadline_at),
        created_at=moment(created_at),
        priority=priority,
        deaths=deaths,
        node=_node(run_id, node_key),
    )


def job_from(row: Row) -> Job:
    """A job from ``RECORD_ROW``, and from input and output where they follow."""
    id, namespace, queue, task, lane, status, priority, group, fingerprint, *rest = row
    attempt, failures, deaths, max_attempts, worker, epoch, *rest = rest
    percent, message, details, *rest = rest
    created_at, ready_at, deadline_at, started_at, finished_at, lease_until, *rest = rest
    run_id, node_key, *values = rest
    return Job(
        id=id,
        namespace=namespace,
        queue=queue,
        task=task,
        tags=Lane.parse(lane).tags,
        limit_keys=Lane.parse(lane).keys,
        status=Status(status),
        priority=priority,
        group=group,
        fingerprint=fingerprint,
        attempt=attempt,
        failures=failures,
        deaths=deaths,
        max_attempts=max_attempts,
        worker=worker,
        epoch=epoch,
        progress=_progress(percent, message, details),
        created_at=moment(created_at),
        ready_at=moment(ready_at),
        deadline_at=moment_or_none(deadline_at),
        started_at=moment_or_none(started_at),
        finished_at=moment_or_none(finished_at),
        lease_until=moment_or_none(lease_until),
        input=values[0] if values else None,
        output=values[1] if values else None,
        node=_node(run_id, node_key),
    )


def state_from(row: Row) -> JobState:
    id, status, attempt, percent, message, details, output, failure = row
    return JobState(
        id=id,
        status=Status(status),
        attempt=attempt,
        progress=_progress(percent, message, details),
        output=output,
        failure=None if failure is None else read_failure(failure),
    )


def attempt_from(row: Row) -> FailedAttempt:
    attempt, worker, failed_at, failure = row
    return FailedAttempt(
        attempt=attempt, worker=worker, at=moment(failed_at), failure=read_failure(failure)
    )


def queue_from(row: Row) -> QueueInfo:
    namespace, queue, paused_at, paused_by = row
    return QueueInfo(
        namespace=namespace, queue=queue, paused_at=moment(paused_at), paused_by=paused_by
    )


def worker_from(row: Row, running: Sequence[JobId]) -> WorkerState:
    _, info, started_at, seen_at = row
    return WorkerState(
        info=_decode_info(info),
        started_at=moment(started_at),
        seen_at=moment(seen_at),
        running=tuple(running),
    )


def _node(run_id: RunId | None, node_key: str | None) -> NodeRef | None:
    if run_id is None or node_key is None:
        return None
    return NodeRef(run=run_id, key=node_key)


def _progress(percent: float, message: str, details: bytes | None) -> Progress:
    return Progress(percent=percent, message=message, details=read_details(details))


LAST_NUMBER = """\
coalesce((
           SELECT max(event.number)
           FROM {prefix}events AS event
           WHERE event.run_serial = run.serial
       ), 0)"""


RUN_ROW = """\
run.id, run.namespace, run.flow, run.version, run.status, run.parent_run, run.parent_key,
       run.created_at, run.finished_at, run.summary, run.updated_at,
       {last_number},
       (
           SELECT event.at
           FROM {prefix}events AS event
           WHERE event.run_serial = run.serial
           ORDER BY event.number DESC
           LIMIT 1
       )"""


RUN_COLUMNS = 13


WAIT_ROW = """\
wait.run_id, wait.namespace, wait.key, wait.kind, wait.name, wait.opened_at, wait.due_at,
       wait.deciders, wait.detail"""


NODE_JOB_ROW = """\
job.rowid, job.epoch, job.status, job.input IS NULL, job.limit_keys IS NOT NULL,
       job.failures + job.postpones + job.deaths"""


RUN_STATUSES = {status.value: status for status in RunStatus}
"""The same as ``RunStatus(text)``, at a fraction of its cost."""


ENDED_TEXTS = frozenset(status.value for status in ENDED)


_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


class NodeJobRow(NamedTuple):
    """What a step has to know of the job that it settles."""

    number: int
    epoch: int
    status: str
    is_large: int
    """Its input lives beside it."""
    is_limited: int
    troubles: int
    """More than 0 if it has a history of failures."""


class RunRow(NamedTuple):
    """What a step has to know of its run; ``number`` is that of its last event."""

    serial: int
    number: int
    token: int | None
    status: str
    flow: str
    parent_run: RunId | None
    parent_key: str | None


RUN_ROW_COLUMNS = len(RunRow._fields)


def run_from(row: Row) -> Run:
    id, namespace, flow, version, status, parent_run, parent_key, *rest = row
    created_at, finished_at, summary, updated_at, number, last_event_at = rest
    return Run(
        id=id,
        namespace=namespace,
        flow=flow,
        version=version,
        status=RUN_STATUSES[status],
        number=number,
        parent=None if parent_run is None else Parent(run=parent_run, key=parent_key),
        created_at=moment(created_at),
        updated_at=moment(max(updated_at, last_event_at or 0)),
        finished_at=moment_or_none(finished_at),
        summary=summary,
    )


def event_from(row: Row) -> StoredEvent:
    number, at, data, value = row
    return StoredEvent(number=number, at=moment(at), data=data, value=value)


def names_in(data: str) -> tuple[str, ...]:
    """None where they cannot be read: who decides is in the log, and other waits go on."""
    try:
        return _decode_names(data)
    except (msgspec.DecodeError, RecursionError):
        return ()


def wait_from(row: Row) -> Wait:
    run, namespace, key, kind, name, opened_at, due_at, deciders, detail = row
    return Wait(
        run=run,
        namespace=namespace,
        key=key,
        kind=WaitKind(kind),
        name=name,
        opened_at=moment(opened_at),
        due_at=moment_or_none(due_at),
        deciders=names_in(deciders),
        detail=detail,
    )
