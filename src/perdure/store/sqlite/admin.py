"""Operations on jobs and queues, and reports for operators."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta

from perdure.errors import FingerprintTaken, JobBelongsToRun
from perdure.model.facts import (
    ORPHANS_MAX,
    EndedCounts,
    FlowRuns,
    OrphanedRun,
    RunStats,
    StorageReport,
    run_stats_of,
)
from perdure.model.ids import JobId
from perdure.model.job import (
    QUEUE_COUNT_MAX,
    QueueDepth,
    QueueInfo,
    Status,
    StatusChange,
    queue_depth,
)
from perdure.model.partition import UNSUSPECTED, with_suspicion
from perdure.model.run import FlowCount, RunStatus
from perdure.store.contract import AdminStore
from perdure.store.lifecycle import Transition, starts_from
from perdure.store.sql.migrations import indexes_made, load_migrations
from perdure.store.sql.rows import RUN_STATUS_OF
from perdure.store.sqlite.jobs import Move, is_claimed, move
from perdure.store.sqlite.rows import (
    SqliteJobRow,
    as_json,
    micros_in,
    moment,
    moment_or_none,
    queue_from,
)
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.transaction import PACKAGE, Transaction

Plan = Callable[[SqliteJobRow, int], Move]
"""The move of a job by an operation at a time."""


class SqliteAdmin(AdminStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def change_jobs(
        self,
        operation: Transition,
        namespace: str | None,
        ids: Sequence[JobId] = (),
        *,
        group: str | None = None,
    ) -> list[StatusChange]:
        each_once = as_json(list(dict.fromkeys(ids)))

        def change(transaction: Transaction) -> list[StatusChange]:
            if group is None:
                rows = transaction.rows("visible_jobs", namespace=namespace, ids=each_once)
            else:
                rows = transaction.rows("unfinished_of_group", namespace=namespace, group=group)
            return _change(transaction, operation, [SqliteJobRow._make(row) for row in rows])

        return await self._session.write(change)

    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> bool:
        def pause(transaction: Transaction) -> bool:
            row = {"namespace": namespace, "queue": queue, "by": by, "now": transaction.now}
            if not transaction.write("pause_queue", **row):
                return False
            transaction.hints.due()
            return True

        return await self._session.write(pause)

    async def resume_queue(self, namespace: str, queue: str) -> bool:
        def resume(transaction: Transaction) -> bool:
            if not transaction.write("resume_queue", namespace=namespace, queue=queue):
                return False
            transaction.hints.frees_limit()
            return True

        return await self._session.write(resume)

    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        rows = await self._session.rows("live_flows", namespace=namespace)
        return [
            FlowCount(namespace=place, flow=flow, version=version, count=count)
            for place, flow, version, count in rows
        ]

    async def queue_stats(
        self, namespace: str | None, most: int = QUEUE_COUNT_MAX
    ) -> list[QueueDepth]:
        rows = await self._session.rows("queue_stats", namespace=namespace)
        return [
            queue_depth(place, queue, Status(status), count, most)
            for place, queue, status, count in rows
        ]

    async def run_stats(self, namespace: str | None, most: int = QUEUE_COUNT_MAX) -> list[RunStats]:
        def count(transaction: Transaction) -> list[RunStats]:
            places = [(namespace,)] if namespace else transaction.rows("namespaces_of_runs")
            return run_stats_of(
                (
                    (place, status and RUN_STATUS_OF[status], *counts)
                    for (place,) in places
                    for status, *counts in transaction.rows(
                        "run_stats", namespace=place, most=most + 1
                    )
                ),
                most,
            )

        return await self._session.read(count)

    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]:
        rows = await self._session.rows("paused_queues", namespace=namespace)
        return [queue_from(row) for row in rows]

    async def inspect_storage(self) -> StorageReport:
        wanted = indexes_made(load_migrations(PACKAGE, {"prefix": self._session.place.prefix}))
        path = self._session.place.path

        def inspect(transaction: Transaction) -> StorageReport:
            present = {name for (name,) in transaction.rows("indexes_present")}
            damages = (text for (text,) in transaction.rows("damages"))
            orphaned_runs = transaction.rows("orphaned_runs", limit=ORPHANS_MAX)
            return StorageReport(
                schema_version=transaction.rows("schema_version")[0][0],
                damages=tuple(text for text in damages if text != _SOUND),
                missing_indexes={name: wanted[name] for name in sorted(wanted.keys() - present)},
                log_bytes=_size(f"{path}-wal"),
                orphaned_runs=tuple(
                    OrphanedRun(run=run, namespace=namespace) for run, namespace in orphaned_runs
                ),
                newest_at=moment_or_none(transaction.rows("newest_at")[0][0]),
            )

        return await self._session.read(inspect)

    async def flow_stats(self, namespace: str | None) -> list[FlowRuns]:
        return [
            FlowRuns(
                namespace=place,
                flow=flow,
                version=version,
                live=live,
                ended=ended,
                last_submitted_at=None if last is None else moment(last),
            )
            for place, flow, version, live, ended, last in await self._session.rows(
                "count_flows", namespace=namespace
            )
        ]

    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        def count(transaction: Transaction) -> EndedCounts:
            old = {"namespace": namespace, "until": transaction.now - micros_in(keep)}
            jobs = transaction.rows("count_ended_jobs", **old)
            runs = transaction.rows("count_ended_runs", **old)
            return EndedCounts(
                jobs={Status(status): count for status, count in jobs},
                runs={RunStatus(status): count for status, count in runs},
            )

        return await self._session.read(count)


def _change(
    transaction: Transaction, operation: Transition, jobs: Sequence[SqliteJobRow]
) -> list[StatusChange]:
    """Change the jobs that the operation applies to; the others stay."""
    for job in jobs:
        if job.run_id is not None:
            raise JobBelongsToRun(job_id=job.id, run_id=job.run_id)
    movable = [job for job in jobs if job.status in starts_from(operation)]
    moves = [_MOVES[operation](job, transaction.now) for job in movable]
    if operation is Transition.RETRY:
        _check_fingerprints(transaction, movable)
    move(transaction, operation, moves)
    if operation is Transition.RETRY:
        numbers = as_json([job.number for job in movable])
        transaction.write("restart_jobs", numbers=numbers, now=transaction.now)
    if operation is Transition.DISABLE:
        numbers = as_json([job.number for job in movable])
        transaction.write("note_disabled", numbers=numbers, now=transaction.now)
    for job in movable:
        if is_claimed(job):
            transaction.hints.stopped(job.id)
    after = {step.job.id: step.after for step in moves}
    return [
        StatusChange(
            id=job.id, before=Status(job.status), after=after.get(job.id, Status(job.status))
        )
        for job in jobs
    ]


def _aborted(job: SqliteJobRow, now: int) -> Move:
    return Move(job=job, after=Status.ABORTING if is_claimed(job) else Status.CANCELLED)


def _disabled(job: SqliteJobRow, now: int) -> Move:
    return Move(job=job, after=Status.DISABLED, takes_claim=is_claimed(job))


def _enabled(job: SqliteJobRow, now: int) -> Move:
    return Move(job=job, after=Status.WAITING if job.ready_at <= now else Status.SCHEDULED)


def _queued(job: SqliteJobRow, now: int) -> Move:
    return Move(job=job, after=Status.WAITING)


def _retried(job: SqliteJobRow, now: int) -> Move:
    # The operator gives it another chance: it is no longer suspected of crashing its workers.
    partition = with_suspicion(job.partition, UNSUSPECTED)
    return Move(job=job, after=Status.WAITING, partition=partition)


_MOVES: dict[Transition, Plan] = {
    Transition.ABORT: _aborted,
    Transition.DISABLE: _disabled,
    Transition.ENABLE: _enabled,
    Transition.RETRY: _retried,
    Transition.RESUME: _queued,
}


def _check_fingerprints(transaction: Transaction, jobs: Sequence[SqliteJobRow]) -> None:
    """Raise unless all these finished jobs can become live together."""
    marked = [job for job in jobs if job.fingerprint is not None]
    wanted = as_json([(job.namespace, job.queue, job.fingerprint) for job in marked])
    found = [
        SqliteJobRow._make(row) for row in transaction.rows("live_fingerprints", wanted=wanted)
    ]
    live = {(job.namespace, job.queue, job.fingerprint): job.id for job in found}
    for job in marked:
        rival = live.setdefault((job.namespace, job.queue, job.fingerprint), job.id)
        if rival != job.id:
            raise FingerprintTaken(queue=job.queue, fingerprint=job.fingerprint or "", job_id=rival)


_SOUND = "ok"


def _size(path: str) -> int:
    """The file's size; 0 for a missing WAL, which has been checkpointed."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0
