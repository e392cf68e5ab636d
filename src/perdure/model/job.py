"""Jobs: what is enqueued, what a worker holds, and what the record shows."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import msgspec

from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.partition import Partition
from perdure.model.value import Value

PRIORITY_MIN, PRIORITY_DEFAULT, PRIORITY_MAX = 1, 3, 5
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
"""A worker holds a claim on it."""
FINISHED = frozenset({Status.COMPLETED, Status.FAILED, Status.DEAD, Status.CANCELLED})
"""Final: only an explicit retry starts it anew."""


class NodeRef(Value):
    """The part of a run that a job executes; ``key`` is the text of a ``model.key.Key``."""

    run: RunId
    key: str


class NewJob(Value):
    """One job to insert. Times are relative to the store's clock unless they are moments."""

    id: JobId
    namespace: str
    partition: Partition = msgspec.field(name="lane")
    """Stored under its earlier name: a schedule has a job in it."""
    priority: int
    aging: timedelta
    input: bytes
    input_hash: int
    """63 bits of the hash of task and input, by which ``jobs.find_result`` finds it."""
    delay: timedelta = timedelta(0)
    run_at: datetime | None = None
    """Wins over ``delay``."""
    deadline: timedelta | None = None
    deadline_at: datetime | None = None
    """Wins over ``deadline``."""
    group: str | None = None
    fingerprint: str | None = None
    on_conflict: StoredOnConflict = "return"
    max_attempts: int | None = None
    """Tries that may fail before the dead letter; None leaves it to the task's retries."""
    policy: bytes | None = None
    """Per-call retry policy and timeout, encoded by ``model.policy``."""
    node: NodeRef | None = None


class Inserted(Value):
    """What became of one new job."""

    id: JobId
    """Its own id, or that of the live job with the same fingerprint."""
    is_new: bool


class Claim(Value, cache_hash=True):
    """The right to write a job's outcome. Each claim of a job raises its epoch."""

    id: JobId
    epoch: int


class ClaimedJob(Value):
    """What a worker needs to run one attempt."""

    claim: Claim
    namespace: str
    partition: Partition
    input: bytes
    attempt: int
    """Counts every claim that was not given back, from 1."""
    failures: int
    """Failed tries that count against the budget."""
    snoozes: int
    """Times it said RetryLater."""
    max_attempts: int | None
    policy: bytes | None
    group: str | None
    deadline_at: datetime | None
    created_at: datetime
    priority: int = PRIORITY_DEFAULT
    crashes: int = 0
    """Workers that died with it."""
    node: NodeRef | None = None


class Claimed(Value):
    """The answer to one claim: the jobs, most urgent first."""

    jobs: list[ClaimedJob]
    now: datetime
    """The store's time of the claim, against which deadlines are measured."""
    opens_at: datetime | None = None
    """When a limit that held something back opens by itself, if one does."""
    is_repeated: bool = False
    """The store lost the answer to an earlier try, which may have claimed jobs nobody knows of."""


class Progress(Value):
    percent: float
    message: str = ""
    details: Any = None


class Job(Value):
    """A job as the record shows it. ``input`` and ``output`` are encoded payloads."""

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
    """None when the reader did not ask for values."""
    output: bytes | None = None
    """None unless it completed and the reader asked for values."""
    node: NodeRef | None = None
    limit_keys: tuple[str, ...] = ()
    """The keys of limits that were computed from its input."""


class JobState(Value):
    """What a waiter needs: the status, the progress, and the outcome once there is one."""

    id: JobId
    status: Status
    attempt: int
    progress: Progress
    output: bytes | None = None
    failure: Failure | None = None
    """The last failure, when it ended badly."""


class FailedAttempt(Value):
    """One entry of a job's history of failures."""

    attempt: int
    worker: WorkerId | None
    at: datetime
    failure: Failure


class JobFilter(Value):
    """Which jobs a list or a count is about. None means any."""

    namespace: str | None = None
    status: Status | None = None
    queue: str | None = None
    task: str | None = None
    group: str | None = None
    before: JobId | None = None
    """Only jobs made before this one: the next page."""


class StatusChange(Value):
    """What an operator's act did to one job; ``before == after`` when it did not apply."""

    id: JobId
    before: Status
    after: Status


class TakenOver(Value):
    """A job whose lease ran out, and what became of it."""

    id: JobId
    namespace: str
    partition: Partition
    worker: WorkerId | None
    attempt: int
    after: Status
    failure: Failure


class Expired(Value):
    """A job that failed because its deadline passed while nobody held it."""

    id: JobId
    namespace: str
    partition: Partition
    attempt: int
    failure: Failure


class QueueDepth(Value):
    """How many jobs of one queue are in one status."""

    namespace: str
    queue: str
    status: Status
    count: int


class QueueInfo(Value):
    """A paused queue, by whom and since when."""

    namespace: str
    queue: str
    paused_at: datetime
    paused_by: str | None
