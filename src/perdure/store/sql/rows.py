"""Maps rows to values for both SQL backends: one list of columns and one function per table.

``moment`` decodes a backend's representation of a time. Rows are read by position, which is the
fastest way. Each backend maps claimed jobs and the reads of a commit itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.errors import ScheduleUnreadable
from perdure.model.event import Parent
from perdure.model.failure import Failure
from perdure.model.ids import RunId, WorkerId
from perdure.model.job import FailedAttempt, Job, JobState, NodeRef, Progress, QueueInfo, Status
from perdure.model.partition import Partition, is_sticky, suspicion_in
from perdure.model.run import Run, RunStatus, Wait, WaitType
from perdure.model.schedule import Schedule, UnreadableSchedule, decode_schedule
from perdure.model.settings import decode_settings
from perdure.model.worker import CountRow, TaskCounts, counted_since, counts_of
from perdure.store.failures import UNREADABLE

Row = Sequence[Any]
Moment = Callable[[Any], datetime]

# Cheaper than calling the enum for each row.
STATUS_OF: dict[str, Status] = {status.value: status for status in Status}
RUN_STATUS_OF: dict[str, RunStatus] = {status.value: status for status in RunStatus}
_TYPE_OF: dict[str, WaitType] = {found_type.value: found_type for found_type in WaitType}
_NO_PROGRESS = Progress(percent=0)

JOB_COLUMNS = (
    "id",
    "namespace",
    "partition_key",
    "status",
    "priority",
    "job_group",
    "fingerprint",
    "attempt",
    "failures",
    "crashes",
    "max_attempts",
    "worker",
    "epoch",
    "progress",
    "progress_message",
    "progress_details",
    "created_at",
    "ready_at",
    "deadline_at",
    "started_at",
    "finished_at",
    "lease_until",
    "run_id",
    "node_key",
    "snoozes",
    "sticky_worker",
    "sticky_until",
)
"""The columns of a job for readers; input and output follow where requested."""

RUN_COLUMNS = 16
"""Id, namespace, flow, version, status, number, parent_run, parent_key, created_at, updated_at,
finished_at, summary, priority, start_at, started_at, settings."""

WAIT_COLUMNS = (
    "run_id",
    "namespace",
    "key",
    "type",
    "name",
    "opened_at",
    "due_at",
    "deciders",
    "detail",
    "remaining",
)


def job_from(row: Row, moment: Moment) -> Job:
    """A job from ``JOB_COLUMNS``, and from input and output where they follow."""
    partition = Partition.parse(row[2])
    has_values = len(row) > len(JOB_COLUMNS)
    worker, until = row[25:27] if is_sticky(row[2]) else (None, None)
    return Job(
        id=row[0],
        namespace=row[1],
        queue=partition.queue,
        task=partition.task,
        tags=partition.tags,
        limit_keys=partition.keys,
        status=STATUS_OF[row[3]],
        priority=row[4],
        group=row[5],
        fingerprint=row[6],
        attempt=row[7],
        failures=row[8],
        crashes=row[9],
        suspicion=suspicion_in(row[2]),
        max_attempts=row[10],
        worker=row[11],
        epoch=row[12],
        progress=progress_from(row[13], row[14], row[15]),
        created_at=moment(row[16]),
        ready_at=moment(row[17]),
        deadline_at=None if row[18] is None else moment(row[18]),
        started_at=None if row[19] is None else moment(row[19]),
        finished_at=None if row[20] is None else moment(row[20]),
        lease_until=None if row[21] is None else moment(row[21]),
        node=node_from(row[22], row[23]),
        snoozes=row[24],
        sticky_worker=worker,
        sticky_until=None if until is None else moment(until),
        input=row[27] if has_values else None,
        output=row[28] if has_values else None,
    )


def state_from(row: Row) -> JobState:
    """From id, status, attempt, three columns of progress, output, and the last failure."""
    return JobState(
        id=row[0],
        status=STATUS_OF[row[1]],
        attempt=row[2],
        progress=progress_from(row[3], row[4], row[5]),
        output=row[6],
        failure=None if row[7] is None else read_failure(row[7]),
    )


def attempt_from(row: Row, moment: Moment) -> FailedAttempt:
    """From attempt, worker, the time, and the failure."""
    return FailedAttempt(
        attempt=row[0],
        worker=None if row[1] is None else WorkerId(row[1]),
        at=moment(row[2]),
        failure=read_failure(row[3]),
    )


def progress_from(percent: float, message: str, details: bytes | None) -> Progress:
    if not percent and not message and details is None:
        return _NO_PROGRESS
    return Progress(percent=percent, message=message, details=read_details(details))


def node_from(run: str | None, key: str | None) -> NodeRef | None:
    return None if run is None or key is None else NodeRef(run=RunId(run), key=key)


def run_from(row: Row, moment: Moment) -> Run:
    """From ``RUN_COLUMNS`` columns."""
    return Run(
        id=row[0],
        namespace=row[1],
        flow=row[2],
        version=row[3],
        status=RUN_STATUS_OF[row[4]],
        number=row[5],
        parent=None if row[6] is None else Parent(run=row[6], key=row[7]),
        created_at=moment(row[8]),
        updated_at=moment(row[9]),
        finished_at=None if row[10] is None else moment(row[10]),
        summary=row[11],
        priority=row[12],
        start_at=None if row[13] is None else moment(row[13]),
        started_at=None if row[14] is None else moment(row[14]),
        settings=decode_settings(row[15]),
    )


def wait_from(row: Row, moment: Moment, names: Callable[[Any], tuple[str, ...]]) -> Wait:
    """From ``WAIT_COLUMNS``; ``names`` reads the deciders."""
    return Wait(
        run=row[0],
        namespace=row[1],
        key=row[2],
        type=_TYPE_OF[row[3]],
        name=row[4],
        opened_at=moment(row[5]),
        due_at=None if row[6] is None else moment(row[6]),
        deciders=names(row[7]),
        detail=row[8],
        remaining=None if row[9] is None else timedelta(microseconds=row[9]),
    )


def queue_from(row: Row, moment: Moment) -> QueueInfo:
    return QueueInfo(namespace=row[0], queue=row[1], paused_at=moment(row[2]), paused_by=row[3])


async def first_readable(
    first: Callable[[int], Awaitable[Sequence[Row]]], limit: int
) -> list[Schedule]:
    """The first ``limit`` readable schedules; ``first`` fetches the first n rows."""
    asked = limit
    while True:
        rows = await first(asked)
        found = [each for row in rows if isinstance(each := read_schedule(row), Schedule)]
        if len(found) >= limit or len(rows) < asked:
            return found[:limit]
        asked += len(rows) - len(found)


def read_schedule(row: Row) -> Schedule | UnreadableSchedule:
    """The schedule, or a marker if only a newer version can read it."""
    namespace, name, revision, definition, state, due_at = row
    try:
        return decode_schedule(namespace, name, revision, definition, state)
    except ScheduleUnreadable as error:
        return UnreadableSchedule(
            namespace=namespace, name=name, revision=revision, due_at=due_at, reason=error.reason
        )


# JSON columns that are informative only: an unreadable one must not block the rest of the row.

_decode_failure = msgspec.json.Decoder(Failure).decode


def read_details(data: bytes | None) -> Any:
    """The details of a progress; None if unreadable."""
    try:
        return None if data is None else msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_failure(data: bytes) -> Failure:
    try:
        return _decode_failure(data)
    except (msgspec.DecodeError, RecursionError):
        return UNREADABLE


def readable_json(data: bytes) -> str:
    """A failure as valid JSON for a JSON column."""
    try:
        msgspec.json.decode(data)
        return data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(UNREADABLE).decode()


decode_counts = msgspec.json.Decoder(list[TaskCounts]).decode


def work_counts(rows: Iterable[Row]) -> dict[str, list[TaskCounts]]:
    """Counts by namespace, from the counters of removed workers and the rows of registered ones."""
    found: dict[str, list[CountRow]] = {}
    for namespace, task, queue, name, value, counts, before in rows:
        of_namespace = found.setdefault(namespace, [])
        if counts is None:
            of_namespace.append((task, queue, name, value))
        else:
            of_namespace += counted_since(decode_counts(counts), decode_counts(before))
    return {namespace: counts_of(counted) for namespace, counted in found.items() if counted}
