"""Workers: settings, stored rows, results of polls, and the work they serve."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

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
    next_wait_at: datetime | None = None
    """When the next wait of a run is due."""
    next_tick_at: datetime | None = None
    """When the next schedule is due."""
    last_seen_at: datetime | None = None
    """The last heartbeat of any worker; in the future if the clock was set back."""
    paused: tuple[str, ...] = ()
    """Paused queues: jobs of runs do not continue in place into them."""
    has_subscribers: bool = False
    """Whether somebody subscribes to live events."""


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
