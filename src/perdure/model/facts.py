"""Facts about a store for operators: storage, flows, ended work, explanations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice

from perdure.model.event import StoredEvent
from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, FailedAttempt, Job, QueueInfo, Status
from perdure.model.run import ENDED, LoadedRun, RunStatus, Wait
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


class RunStats(Value):
    """The runs of a namespace: how many are in each status, wait for people, or are orphaned."""

    namespace: str
    counts: Mapping[RunStatus, int] = {}
    """Without zeros and without child runs; exact up to 10,000."""
    more: tuple[RunStatus, ...] = ()
    """Statuses that may have more runs than were counted."""
    waiting_for_people: int = 0
    """Runs with open approvals, child runs too; at most 10,000 approvals are read."""
    orphaned: int = 0
    """Runs that can never continue, child runs too; of 10,000 unfinished runs."""


RunCountRow = tuple[str, RunStatus | None, int, int, int]
"""Namespace, status, the number of unfinished runs read, runs to count, and orphaned runs. Without
a status: the runs that wait for people are to be counted."""


def run_stats_of(rows: Iterable[RunCountRow], most: int) -> list[RunStats]:
    """The rows by namespace; ``most``: how many runs of a status, and unfinished runs, count."""
    found: dict[str, list[RunCountRow]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    stats = []
    for namespace, every in sorted(found.items()):
        counts = Counter[RunStatus]()
        for _, status, _, count, _ in every:
            if status is not None and count:
                counts[status] += count
        has_more = {status for status, count in counts.items() if count > most}
        if sum(read for _, _, read, _, _ in every) > most:
            has_more |= set(RunStatus) - ENDED
        one = RunStats(
            namespace=namespace,
            counts={status: min(count, most) for status, count in sorted(counts.items())},
            more=tuple(sorted(has_more)),
            waiting_for_people=sum(count for _, status, _, count, _ in every if status is None),
            orphaned=sum(orphaned for *_, orphaned in every),
        )
        if one != RunStats(namespace=namespace):
            stats.append(one)
    return stats


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
