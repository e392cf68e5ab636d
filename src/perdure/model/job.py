"""Jobs: as enqueued, as claimed by a worker, and as read back."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import msgspec

from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.partition import UNSUSPECTED, Partition, Suspicion
from perdure.model.value import Value

PRIORITY_MIN, PRIORITY_DEFAULT, PRIORITY_MAX = 1, 3, 5
PriorityName = Literal["critical", "high", "normal", "low", "minimal"]
Priority = int | PriorityName
PRIORITY_NAMES: dict[str, int] = {"critical": 1, "high": 2, "normal": 3, "low": 4, "minimal": 5}
MAX_SNOOZES = 10
"""How often a job may raise ``RetryLater`` if nothing else bounds its attempts."""
DEFAULT_QUEUE = "default"
DEFAULT_NAMESPACE = "default"
ALL_NAMESPACES = "*"

StoredOnConflict = Literal["return", "raise", "replace"]


class Status(StrEnum):
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    ACTIVE = "active"
    PAUSED = "paused"
    ABORTING = "aborting"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    DISABLED = "disabled"
    CANCELLED = "cancelled"


CLAIMED = frozenset({Status.ACTIVE, Status.ABORTING})
"""A worker has a claim on it."""
FINISHED = frozenset({Status.COMPLETED, Status.FAILED, Status.DEAD, Status.CANCELLED})
"""Final: only an explicit retry restarts it."""


class NodeRef(Value):
    """The part of a run that a job executes; ``key`` is a ``model.ids.Key`` as a string."""

    run: RunId
    key: str


class NewJob(Value):
    """A job to insert. Durations are relative to the store's clock."""

    id: JobId
    namespace: str
    partition: Partition = msgspec.field(name="lane")
    """Stored under its earlier name, since schedules store jobs."""
    priority: int
    aging: timedelta
    input: bytes
    input_hash: int
    """63 bits of the hash of task and input, for ``jobs.find_result``."""
    delay: timedelta = timedelta(0)
    run_at: datetime | None = None
    """Takes precedence over ``delay``."""
    deadline: timedelta | None = None
    deadline_at: datetime | None = None
    """Takes precedence over ``deadline``."""
    group: str | None = None
    fingerprint: str | None = None
    on_conflict: StoredOnConflict = "return"
    max_attempts: int | None = None
    """Failed attempts before the job is dead-lettered; None for the task's retries."""
    policy: bytes | None = None
    """Retry policy and timeout of the call, encoded by ``model.retry``."""
    node: NodeRef | None = None


class Inserted(Value):
    """The result of inserting one job."""

    id: JobId
    """Its own id, or the id of the live job with the same fingerprint."""
    is_new: bool


class Claim(Value, cache_hash=True):
    """The right to write a job's outcome. Each claim of a job raises its epoch."""

    id: JobId
    epoch: int


def _attempt_id(claim: Claim, node: NodeRef | None) -> str:
    return f"{claim.id}:{claim.epoch}" + ("" if node is None else f":{node.key}")


class ClaimedJob(Value):
    """The data that a worker needs to run one attempt."""

    claim: Claim
    namespace: str
    partition: Partition
    input: bytes
    attempt: int
    """Counts claims that were not requeued, from 1."""
    failures: int
    """Failed attempts that count against the retries."""
    snoozes: int
    """How often it raised RetryLater."""
    max_attempts: int | None
    policy: bytes | None
    group: str | None
    deadline_at: datetime | None
    created_at: datetime
    priority: int = PRIORITY_DEFAULT
    crashes: int = 0
    """Worker crashes on this job."""
    suspicion: Suspicion = UNSUSPECTED
    node: NodeRef | None = None

    @property
    def attempt_id(self) -> str:
        """Unique to one execution of a body: no two have the same claim and node.

        Nodes that a job continues with in place share its claim.
        """
        return _attempt_id(self.claim, self.node)


class Claimed(Value):
    """The result of one claim: the jobs, most urgent first."""

    jobs: list[ClaimedJob]
    now: datetime
    """The store's time of the claim, for deadlines."""
    opens_at: datetime | None = None
    """When the next limit that blocked a job opens by itself, if any does."""
    is_repeated: bool = False
    """The result of an earlier claim was lost, so the worker may have unknown claims."""
    has_skipped: bool = False
    """Jobs that could be claimed were locked by another transaction: claim again soon."""


class Progress(Value):
    """The last progress that a job reported."""

    percent: float
    message: str = ""
    details: Any = None


class Job(Value):
    """A job as stored. ``input`` and ``output`` are encoded payloads."""

    id: JobId
    namespace: str
    queue: str
    task: str
    tags: tuple[str, ...]
    status: Status
    priority: int
    group: str | None
    fingerprint: str | None
    attempt: int
    failures: int
    """Failed attempts that count against the retries."""
    snoozes: int
    """How often it raised RetryLater, which counts against them too."""
    crashes: int
    max_attempts: int | None
    worker: WorkerId | None
    epoch: int
    progress: Progress
    created_at: datetime
    ready_at: datetime
    deadline_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    input: bytes | None = None
    """None if values were not requested."""
    output: bytes | None = None
    """None unless the job is completed and values were requested."""
    node: NodeRef | None = None
    limit_keys: tuple[str, ...] = ()
    """The limit keys computed from its input."""
    suspicion: Suspicion = UNSUSPECTED
    sticky_worker: WorkerId | None = None
    """The only worker that may claim it until ``sticky_until``."""
    sticky_until: datetime | None = None


class JobState(Value):
    """The status, progress and outcome of a job, for waiters."""

    id: JobId
    status: Status
    attempt: int
    progress: Progress
    output: bytes | None = None
    failure: Failure | None = None
    """The last failure, if the job was unsuccessful."""


class FailedAttempt(Value):
    """One entry of a job's history of failures."""

    attempt: int
    worker: WorkerId | None
    at: datetime
    failure: Failure


class JobFilter(Value):
    """Selects jobs for a list or a count. None means any."""

    namespace: str | None = None
    status: Status | None = None
    queue: str | None = None
    task: str | None = None
    group: str | None = None
    before: JobId | None = None
    """For the next page: only jobs created before this one."""


class StatusChange(Value):
    """The effect of an operation on one job; ``before == after`` if it did not apply."""

    id: JobId
    before: Status
    after: Status


class TakenOver(Value):
    """A job whose lease expired, and its new status."""

    id: JobId
    namespace: str
    partition: Partition
    worker: WorkerId | None
    epoch: int
    """Of the claim that this worker lost."""
    attempt: int
    after: Status
    failure: Failure
    node: NodeRef | None = None

    @property
    def attempt_id(self) -> str:
        """Of the attempt that the crash ended, as in ``ClaimedJob``."""
        return _attempt_id(Claim(id=self.id, epoch=self.epoch), self.node)


class Expired(Value):
    """An unclaimed job that failed because its deadline passed."""

    id: JobId
    namespace: str
    partition: Partition
    attempt: int
    failure: Failure


QUEUE_COUNT_MAX = 10_000
"""How many jobs of one queue and status queue stats count."""


class QueueDepth(Value):
    """The number of jobs of one queue in one status."""

    namespace: str
    queue: str
    status: Status
    count: int
    has_more: bool = False
    """There are more than were counted."""


def queue_depth(namespace: str, queue: str, status: Status, count: int, most: int) -> QueueDepth:
    """The depth for a count that may exceed ``most``."""
    return QueueDepth(
        namespace=namespace,
        queue=queue,
        status=status,
        count=min(count, most),
        has_more=count > most,
    )


class QueueInfo(Value):
    """A paused queue."""

    namespace: str
    queue: str
    paused_at: datetime
    paused_by: str | None
