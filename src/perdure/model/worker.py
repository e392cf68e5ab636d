"""Workers: their settings, their stored rows, what a poll tells them, and which work they serve."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from perdure.model.ids import JobId, WorkerId
from perdure.model.limit import Limit, LimitInfo
from perdure.model.partition import Partition
from perdure.model.value import Value


class WorkerSettings(Value):
    """What a worker runs, how much at once, and how long it waits for what. All of it checked."""

    namespace: str
    queues: tuple[str, ...]
    tags: tuple[str, ...] | None
    limits: tuple[Limit, ...]
    concurrency: int
    lease: timedelta
    """How long a claim outlives its worker's last sign of life."""
    poll: timedelta
    """How often to poll without a hint."""
    grace: timedelta
    """How long a stop lets running bodies finish."""
    abort_grace: timedelta
    """How long an aborted body may take to end by itself before it is cancelled."""
    hold_off: timedelta
    """How long a retry is left to other workers."""
    max_crashes: int
    """Crashes of workers after which a job is dead-lettered."""
    keep_completed: timedelta | None
    keep_failed: timedelta | None
    keep_dead: timedelta | None
    """None keeps for ever, zero removes at once."""
    payload_max_bytes: int
    allows_scripts: bool
    """Whether commands that come with a flow are executed."""


class TaskLimits(Value, omit_defaults=True):
    """The limits of one task that a worker has code for."""

    task: str
    limits: tuple[LimitInfo, ...]
    flow: str = ""
    """Of a task of a flow: which, as ``name@version``."""


class WorkerInfo(Value):
    """A live worker: who it is and what it can run."""

    id: WorkerId
    namespace: str
    host: str
    pid: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    tags: tuple[str, ...] | None
    concurrency: int
    lease: timedelta
    """It gives a sign of life several times in this span."""
    flows: tuple[str, ...] = ()
    """The versions of flows that it has code for, as ``name@version``."""
    limits: tuple[LimitInfo, ...] = ()
    """Those of its own."""
    task_limits: tuple[TaskLimits, ...] = ()
    """Those of its tasks, where there are some."""


class WorkerState(Value):
    """A worker row as read back."""

    info: WorkerInfo
    started_at: datetime
    seen_at: datetime
    running: tuple[JobId, ...]


class Renewal(Value):
    """What became of a worker's claims when it renewed their leases."""

    lost: frozenset[JobId]
    """No longer held: stop working on them."""
    aborting: frozenset[JobId]
    """Still held, and asked to stop."""


class PollResult(Value):
    """One look that tells a worker everything that is due, so that idle costs one statement."""

    now: datetime
    partitions: tuple[str, ...]
    """Partitions that have a waiting job, as stored texts."""
    next_due_at: datetime | None
    """When the next scheduled job becomes ready."""
    next_lease_end_at: datetime | None
    """When the first lease runs out unless it is renewed."""
    next_deadline_at: datetime | None
    """The first deadline of a job that no worker holds."""
    next_wait_at: datetime | None = None
    """When the next wait of a run is due."""
    next_tick_at: datetime | None = None
    """When the next schedule is to be looked at."""
    paused: tuple[str, ...] = ()
    """Queues that are paused: jobs of runs do not go on into them in place."""


def is_live(worker: WorkerState, now: datetime, *, leases: float = 1) -> bool:
    """Whether it has given a sign of life within its lease, or within so many of them.

    ``now`` is the store's time, as the sign of life is.
    """
    return now - worker.seen_at <= leases * worker.info.lease


def has_code(worker: WorkerInfo, *, task: str, flow: str) -> bool:
    """Whether it has the version of the flow; without a flow, as of plain jobs, the task."""
    return flow in worker.flows if flow else task in worker.tasks


def has_tags(own: Collection[str] | None, wanted: Collection[str]) -> bool:
    """Whether a worker with these tags takes such jobs; without tags it takes any."""
    return own is None or all(tag in own for tag in wanted)


def can_run(partition: Partition, *, queues: Collection[str], tags: Collection[str] | None) -> bool:
    """Whether a worker with these queues and tags may claim from a partition."""
    return partition.queue in queues and has_tags(tags, partition.tags)
