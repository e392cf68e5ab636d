"""Facts about a store for operators: storage, flows, ended work, explanations."""

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
    """An unfinished run without jobs, timers or waits, which can never continue."""

    run: RunId
    namespace: str


class StorageReport(Value):
    """The condition of a store's database."""

    schema_version: int | None = None
    """None if it has no tables."""
    damages: tuple[str, ...] = ()
    missing_indexes: Mapping[str, str] = {}
    """Names, with the statements that create them."""
    invalid_indexes: Mapping[str, str] = {}
    """Unused because their creation was interrupted; with the statements that recreate them."""
    log_bytes: int | None = None
    """The size of the write-ahead log; None if the database has none."""
    orphaned_runs: tuple[OrphanedRun, ...] = ()
    newest_at: datetime | None = None
    """The latest time at which a job, run or worker was recorded; None without any. It is in the
    future if the clock was set back."""


class FlowRuns(Value):
    """The number of runs of one version of a flow."""

    namespace: str
    flow: str
    version: str
    live: int
    ended: int
    last_submitted_at: datetime | None
    """None if no run is left."""


class EndedCounts(Value):
    """The number of ended jobs and runs by status."""

    jobs: Mapping[Status, int]
    runs: Mapping[RunStatus, int]
    """Without child runs, which are removed with their parents."""


EXPLAINED_MAX = 100
"""The number of failures, and of events, loaded for one explanation."""


class ExplainFacts(Value):
    """A consistent view of a run or job, and of everything that may block it."""

    now: datetime
    loaded: LoadedRun | None
    """The run from its snapshot; None for a job, or if the run does not exist."""
    jobs: tuple[Job, ...]
    """The jobs of the run, or the one job; without values."""
    waits: tuple[Wait, ...]
    failures: Mapping[JobId, FailedAttempt]
    """The last failed attempt of each of the first ``EXPLAINED_MAX`` jobs that wait for another
    attempt or have finished."""
    events: tuple[StoredEvent, ...]
    """The last ``EXPLAINED_MAX`` events of the run, the latest first, without values."""
    children: Mapping[RunId, RunStatus]
    """The child runs that the run waits for."""
    workers: tuple[WorkerState, ...]
    """All workers of the namespace, including dead ones."""
    paused_queues: tuple[QueueInfo, ...]
    place_holders: tuple[RunId, ...] = ()
    """The first ``EXPLAINED_MAX`` runs, by start, that hold the places a queued run waits for."""


def may_have_failed(jobs: Iterable[Job]) -> list[JobId]:
    """The jobs whose last failure is part of an explanation."""
    failed = (job.id for job in jobs if job.status is Status.SCHEDULED or job.status in FINISHED)
    return list(islice(failed, EXPLAINED_MAX))
