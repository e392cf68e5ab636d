"""Explanations: why a run is where it is, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId
from perdure.model.job import Job, QueueInfo
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
    NO_QUEUE = "no queue"
    NO_TAGS = "no tags"
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
    run: RunId
    status: RunStatus
    summary: str
    """One sentence."""
    findings: tuple[Finding, ...]


class Surroundings(Value):
    """What is around a run: everything that may keep it from going on."""

    jobs: tuple[Job, ...] = ()
    waits: tuple[Wait, ...] = ()
    workers: tuple[WorkerState, ...] = ()
    """Of the run's namespace, dead ones too."""
    paused_queues: tuple[QueueInfo, ...] = ()
    children: Mapping[RunId, RunStatus] = {}
    """Of the child runs that it waits for."""
    details: Mapping[str, Any] = {}
    """What is kept with the waits, by their keys, as far as it can be read."""
    failures: Mapping[JobId, Failure] = {}
    """Why jobs that wait for another attempt failed last."""
