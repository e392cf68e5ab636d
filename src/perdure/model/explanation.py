"""Explanations: why a run or a job is where it is, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from perdure.model.ids import JobId, RunId
from perdure.model.job import FailedAttempt, Job, QueueInfo, Status
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.run import RunStatus, Wait
from perdure.model.value import Value
from perdure.model.worker import WorkerState


class FindingKind(StrEnum):
    RUNNING = "running"
    QUEUED = "queued"
    """A worker can take it, as soon as one has room."""
    RETRY = "retry"
    """An attempt failed, and the next one has its time."""
    QUEUE_PAUSED = "queue paused"
    NO_WORKER = "no worker"
    NO_VERSION = "no version"
    """Workers are live, but none has this version of the flow."""
    NO_TASK = "no task"
    NO_QUEUE = "no queue"
    NO_TAGS = "no tags"
    LIMITED = "limited"
    """A limit leaves no room for it just now."""
    DISABLED = "disabled"
    LOST = "lost"
    """Its worker has not been heard of for longer than its lease."""
    SCHEDULED = "scheduled"
    """It was enqueued for a later time."""
    TIMER = "timer"
    SIGNAL = "signal"
    APPROVAL = "approval"
    """People are to decide."""
    OUTSIDE = "outside"
    """Somebody outside is to report."""
    CHILD = "child"
    PAUSED = "paused"
    UNDOING = "undoing"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MORE = "more"
    """How many findings were left out."""


class Finding(Value):
    """One thing that is known of a run."""

    kind: FindingKind
    text: str
    key: str = ""
    """The part of the run that it is about; empty: the run as a whole."""
    help: str = ""
    """What would change it, if anybody wants that."""


class Explanation(Value):
    """Of a run, of a job, or of a job of a run."""

    status: RunStatus | Status
    """Of the job, if it is about one."""
    summary: str
    """One sentence."""
    findings: tuple[Finding, ...]
    run: RunId | None = None
    job: JobId | None = None


class Surroundings(Value):
    """What is around a run or a job: everything that may keep it from going on."""

    jobs: tuple[Job, ...] = ()
    waits: tuple[Wait, ...] = ()
    workers: tuple[WorkerState, ...] = ()
    """Of the run's namespace, dead ones too."""
    paused_queues: tuple[QueueInfo, ...] = ()
    children: Mapping[RunId, RunStatus] = {}
    """Of the child runs that it waits for."""
    details: Mapping[str, Any] = {}
    """What is kept with the waits, by their keys, as far as it can be read."""
    failures: Mapping[JobId, FailedAttempt] = {}
    """How jobs that wait for another attempt failed last, and those that ended."""
    paused_at: datetime | None = None
    """Since when the run is paused, if it is and its log still tells."""
    limit_uses: Mapping[LimitRule, LimitUse] = {}
    """What is in use under the limits that govern waiting jobs."""
    holders: Mapping[JobId, Job] = {}
    """Jobs that hold what those limits allow."""
