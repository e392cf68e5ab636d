"""What operators ask a store now and then: how it is, which flows it has, what has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice

from perdure.model.event import StoredEvent
from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, FailedAttempt, Job, QueueInfo, Status
from perdure.model.run import LoadedRun, RunStatus, Wait
from perdure.model.value import Value
from perdure.model.worker import WorkerState

ORPHANS_MAX = 100


class OrphanedRun(Value):
    """A run that goes nowhere: under way, with no job to do and nothing to wait for."""

    run: RunId
    namespace: str


class StorageReport(Value):
    """How the place itself is that a store keeps its contents in."""

    schema_version: int | None = None
    """None: it has no tables."""
    damages: tuple[str, ...] = ()
    missing_indexes: Mapping[str, str] = {}
    """By name, the statement that would make it."""
    invalid_indexes: Mapping[str, str] = {}
    """They are there, and not used: their making was interrupted. The same for making them anew."""
    log_bytes: int | None = None
    """What is written and not yet moved into the database's file; None: it has no such log."""
    orphaned_runs: tuple[OrphanedRun, ...] = ()


class FlowRuns(Value):
    """How many runs of one version of a flow there are."""

    namespace: str
    flow: str
    version: str
    live: int
    ended: int
    last_submitted_at: datetime | None
    """None: no run of it is left."""


class EndedCounts(Value):
    """How many jobs and runs have ended, by how."""

    jobs: Mapping[Status, int]
    runs: Mapping[RunStatus, int]
    """Without child runs, which go with their parents."""


EXPLAINED_MAX = 100
"""Jobs whose last failure, and events, that are read for one explanation."""


class ExplainFacts(Value):
    """What is known of a run or a job, and what may keep it from continuing; as of one moment."""

    now: datetime
    loaded: LoadedRun | None
    """The run, from its snapshot; None if it is about a job, or there is no such run."""
    jobs: tuple[Job, ...]
    """Of the run, or the one job; without values."""
    waits: tuple[Wait, ...]
    failures: Mapping[JobId, FailedAttempt]
    """The last failed attempt of each of the first ``EXPLAINED_MAX`` jobs that wait for another
    attempt or have finished."""
    events: tuple[StoredEvent, ...]
    """The last ``EXPLAINED_MAX`` events of the run, the latest first, without values."""
    children: Mapping[RunId, RunStatus]
    """Of the child runs that the run waits for."""
    workers: tuple[WorkerState, ...]
    """Of the namespace, dead ones too."""
    paused_queues: tuple[QueueInfo, ...]


def may_have_failed(jobs: Iterable[Job]) -> list[JobId]:
    """The jobs whose last failure an explanation tells."""
    failed = (job.id for job in jobs if job.status is Status.SCHEDULED or job.status in FINISHED)
    return list(islice(failed, EXPLAINED_MAX))
