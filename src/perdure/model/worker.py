"""Workers: settings, stored rows, results of polls, and the work they serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from perdure.model.ids import JobId, WorkerId
from perdure.model.limit import Limit, LimitInfo
from perdure.model.partition import Partition
from perdure.model.value import Value


class WorkerSettings(Value):
    """The checked settings of a worker."""

    namespace: str
    queues: tuple[str, ...]
    tags: tuple[str, ...] | None
    limits: tuple[Limit, ...]
    concurrency: int
    lease: timedelta
    """How long a claim lasts after the worker's last heartbeat."""
    poll: timedelta
    """How often to poll without a hint."""
    grace: timedelta
    """How long running bodies may finish after a shutdown request."""
    abort_grace: timedelta
    """How long an aborted body may take to end before it is cancelled."""
    hold_off: timedelta
    """How long a retry is left to other workers."""
    max_crashes: int
    """Worker crashes after which a job is dead-lettered."""
    keep_completed: timedelta | None
    keep_failed: timedelta | None
    keep_dead: timedelta | None
    """None keeps jobs forever, zero removes them immediately."""
    keep_disabled: timedelta | None
    """The same for disabled jobs, from when they were disabled."""
    payload_max_bytes: int
    allows_scripts: bool
    """Whether ``script`` nodes are executed."""


class TaskLimits(Value, omit_defaults=True):
    """The limits of one task of a worker."""

    task: str
    limits: tuple[LimitInfo, ...]
    flow: str = ""
    """For a task of a flow: the flow, as ``name@version``."""


class WorkerInfo(Value):
    """A worker's identity and capabilities."""

    id: WorkerId
    namespace: str
    host: str
    pid: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    tags: tuple[str, ...] | None
    concurrency: int
    lease: timedelta
    """It sends several heartbeats in this time."""
    flows: tuple[str, ...] = ()
    """The flows it serves, as ``name@version``."""
    limits: tuple[LimitInfo, ...] = ()
    """The worker's own limits."""
    task_limits: tuple[TaskLimits, ...] = ()
    """The limits of its tasks."""
    incarnation: int | None = None
    """Differs from start to start of a worker, also under the same id."""


class AttemptCounts(Value):
    """How many attempts started, and how they ended."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    requeued: int = 0
    claims_lost: int = 0
    disabled: int = 0
    """Jobs that were disabled while a worker had them."""
    taken_over: int = 0
    """Jobs of dead workers that another one took over."""


COMPLETED_MICROS = "completed_micros"
"""A counter: how long completed attempts took together."""


class TaskCounts(Value):
    """What a worker has counted about the jobs of one task in one queue, since it started."""

    task: str
    queue: str
    counts: Mapping[str, int]
    """By field of :class:`AttemptCounts`, and ``COMPLETED_MICROS``; they only grow."""


CountRow = tuple[str, str, str, int]
"""Task, queue, counter and count, as counts are stored."""


def counted_since(counts: Iterable[TaskCounts], before: Iterable[TaskCounts]) -> list[CountRow]:
    """What was counted in between, sorted: the order in which rows are locked."""
    between: Counter[tuple[str, str, str]] = Counter()
    for sign, every in ((1, counts), (-1, before)):
        for each in every:
            for name, count in each.counts.items():
                between[each.task, each.queue, name] += sign * count
    return sorted((*place, count) for place, count in between.items() if count)


def counts_of(rows: Iterable[CountRow]) -> list[TaskCounts]:
    """The sum of rows, by task and queue."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for task, queue, name, count in rows:
        found.setdefault((task, queue), Counter())[name] += count
    return [
        TaskCounts(task=task, queue=queue, counts=dict(counts))
        for (task, queue), counts in sorted(found.items())
    ]


def summary(counts: Iterable[TaskCounts]) -> dict[str, Any]:
    """The sum of counts: the fields of :class:`AttemptCounts`, and ``average_duration``."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each.counts)
    completed, micros = total["completed"], total[COMPLETED_MICROS]
    average = timedelta(microseconds=micros / completed) if completed else None
    # A newer worker may count what is unknown here.
    known = {name: total[name] for name in AttemptCounts.__struct_fields__}
    return {**known, "average_duration": average}


class WorkerState(Value):
    """A worker row as read back."""

    info: WorkerInfo
    started_at: datetime
    seen_at: datetime
    running: tuple[JobId, ...]


class Renewal(Value):
    """The result of renewing the leases of a worker's claims."""

    lost: frozenset[JobId]
    """Claims lost: stop working on these jobs."""
    aborting: frozenset[JobId]
    """Claims still held, whose jobs must stop."""
    disabled: frozenset[JobId] = frozenset()
    """Of the lost claims: those whose jobs are disabled now."""


class PollResult(Value):
    """Everything that is due for a worker, in one query, so that idle workers are cheap."""

    now: datetime
    partitions: tuple[str, ...]
    """Partitions with waiting jobs, as stored."""
    next_due_at: datetime | None
    """When the next scheduled job becomes ready."""
    next_lease_end_at: datetime | None
    """When the first lease expires unless it is renewed."""
    next_deadline_at: datetime | None
    """The first deadline of an unclaimed job."""
    next_sticky_at: datetime | None = None
    """Until when the first job waits for its worker; it may be released before."""
    next_wait_at: datetime | None = None
    """When the next wait of a run is due."""
    next_tick_at: datetime | None = None
    """When the next schedule is due."""
    last_seen_at: datetime | None = None
    """The last heartbeat of any worker; in the future if the clock was set back."""
    paused: tuple[str, ...] = ()
    """Paused queues: jobs of runs do not continue in place into them."""
    has_subscribers: bool = False
    """Whether a client subscribes to live events."""


def is_live(worker: WorkerState, now: datetime, *, leases: float = 1) -> bool:
    """Whether its last heartbeat is within its lease, or a multiple of it.

    ``now`` is the store's time, as for heartbeats.
    """
    return now - worker.seen_at <= leases * worker.info.lease


def has_code(worker: WorkerInfo, *, task: str, flow: str) -> bool:
    """Whether the worker serves this version of the flow, or the task if there is no flow."""
    return flow in worker.flows if flow else task in worker.tasks


def has_tags(own: Collection[str] | None, wanted: Collection[str]) -> bool:
    """Whether a worker with these tags takes jobs with those; a worker without tags takes any."""
    return own is None or all(tag in own for tag in wanted)


def can_run(partition: Partition, *, queues: Collection[str], tags: Collection[str] | None) -> bool:
    """Whether a worker with these queues and tags may claim from a partition."""
    return partition.queue in queues and has_tags(tags, partition.tags)
