"""Operations on jobs and queues, and reports for operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from perdure.errors import FingerprintTaken, JobBelongsToRun
from perdure.model.facts import (
    ORPHANS_MAX,
    EndedCounts,
    FlowRuns,
    OrphanedRun,
    RunCountRow,
    RunStats,
    StorageReport,
    run_stats_of,
)
from perdure.model.ids import JobId
from perdure.model.job import (
    CLAIMED,
    FINISHED,
    QUEUE_COUNT_MAX,
    JobFilter,
    QueueDepth,
    QueueInfo,
    Status,
    StatusChange,
    queue_depth,
)
from perdure.model.partition import UNSUSPECTED
from perdure.model.run import ENDED, FlowCount, RunStatus, WaitType
from perdure.model.times import nearest_duration
from perdure.store.admission import moved_rank
from perdure.store.contract import AdminStore
from perdure.store.lifecycle import Transition, starts_from
from perdure.store.memory.jobs import live_rival
from perdure.store.memory.queries import newest_jobs
from perdure.store.memory.records import NO_PROGRESS, StoredJob, StoredRun
from perdure.store.memory.state import Index, MemoryState
from perdure.store.memory.transaction import Session, Transaction

Change = Callable[[Transaction, StoredJob], StoredJob]


class MemoryAdmin(AdminStore):
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
        with self._session.transaction() as transaction:
            if group is None:
                jobs = transaction.visible(namespace, ids)
            else:
                members = transaction.state.groups.ids((namespace, group))
                jobs = transaction.visible(namespace, members)
                jobs = [job for job in jobs if job.status not in FINISHED]
            for job in jobs:
                if job.node is not None:
                    raise JobBelongsToRun(job_id=job.id, run_id=job.node.run)
            changes = []
            for job in jobs:
                applies = job.status in starts_from(operation)
                after = _CHANGES[operation](transaction, job) if applies else job
                changes.append(StatusChange(id=job.id, before=job.status, after=after.status))
            return changes

    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> bool:
        with self._session.transaction() as transaction:
            if (namespace, queue) in transaction.state.paused:
                return False
            pause = QueueInfo(
                namespace=namespace, queue=queue, paused_at=transaction.now, paused_by=by
            )
            transaction.state.paused[namespace, queue] = pause
            transaction.hints.due()
            return True

    async def resume_queue(self, namespace: str, queue: str) -> bool:
        with self._session.transaction() as transaction:
            if transaction.state.paused.pop((namespace, queue), None) is None:
                return False
            transaction.hints.frees_limit()
            return True

    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        with self._session.transaction() as transaction:
            live = transaction.state.records.live
            return [
                FlowCount(
                    namespace=place, flow=flow, version=version, count=len(live.entries(group))
                )
                for group in sorted(live.groups())
                for place, flow, version in [group]
                if namespace in (None, place)
            ]

    async def queue_stats(
        self, namespace: str | None, most: int = QUEUE_COUNT_MAX
    ) -> list[QueueDepth]:
        with self._session.transaction() as transaction:
            jobs = newest_jobs(transaction, JobFilter(namespace=namespace))
            counts = Counter((job.namespace, job.partition.queue, job.status) for job in jobs)
            return [
                queue_depth(place, queue, status, count, most)
                for (place, queue, status), count in sorted(counts.items())
            ]

    async def run_stats(self, namespace: str | None, most: int = QUEUE_COUNT_MAX) -> list[RunStats]:
        with self._session.transaction() as transaction:
            state = transaction.state
            asking = {
                (wait.namespace, wait.run)
                for waits in state.records.waits.values()
                for wait in waits.values()
                if wait.type is WaitType.APPROVAL
            }
            rows: list[RunCountRow] = [(place, None, 0, 1, 0) for place, _ in asking]
            for run in state.records.runs.values():
                is_orphaned = _is_orphaned(state, run)
                counts = int(run.parent is None)
                is_read = int(not run.is_ended)
                rows.append((run.namespace, run.status, is_read, counts, int(is_orphaned)))
            return run_stats_of((row for row in rows if namespace in (None, row[0])), most)

    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]:
        with self._session.transaction() as transaction:
            pauses = sorted(transaction.state.paused.items())
            return [pause for (place, _), pause in pauses if namespace in (None, place)]

    async def inspect_storage(self) -> StorageReport:
        with self._session.transaction() as transaction:
            state, records = transaction.state, transaction.state.records
            oldest_first = (records.runs[place] for place in records.by_age.ids())
            orphaned_runs = (
                OrphanedRun(run=run.id, namespace=run.namespace)
                for run in oldest_first
                if _is_orphaned(state, run)
            )
            recorded = [
                *(at for job in state.jobs.values() for at in _recorded_at(job)),
                *(at for run in records.runs.values() for at in (run.created_at, run.finished_at)),
                *(worker.seen_at for worker in state.workers.values()),
            ]
            return StorageReport(
                orphaned_runs=tuple(islice(orphaned_runs, ORPHANS_MAX)),
                newest_at=max((at for at in recorded if at is not None), default=None),
            )

    async def flow_stats(self, namespace: str | None) -> list[FlowRuns]:
        with self._session.transaction() as transaction:
            records = transaction.state.records
            return [
                _counted(definition, records.runs.values())
                for definition in sorted(records.definitions)
                if namespace in (None, definition[0])
            ]

    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        with self._session.transaction() as transaction:
            state, until = transaction.state, transaction.now - nearest_duration(keep)
            jobs = {each: _ended(state.finished, until, (namespace, each)) for each in FINISHED}
            disabled = (namespace, Status.DISABLED)
            jobs[Status.DISABLED] = _ended(state.disabled, until, disabled)
            runs = {each: _ended(state.records.ended, until, (namespace, each)) for each in ENDED}
            return EndedCounts(
                jobs={status: count for status, count in jobs.items() if count},
                runs={status: count for status, count in runs.items() if count},
            )


def _abort(transaction: Transaction, job: StoredJob) -> StoredJob:
    if job.status is not Status.ACTIVE:
        return transaction.move(job, Transition.ABORT, Status.CANCELLED)
    transaction.hints.stopped(job.id)
    return transaction.move(job, Transition.ABORT, Status.ABORTING)


def _disable(transaction: Transaction, job: StoredJob) -> StoredJob:
    if job.status not in CLAIMED:
        return transaction.move(
            job, Transition.DISABLE, Status.DISABLED, disabled_at=transaction.now
        )
    transaction.hints.stopped(job.id)
    return transaction.move(
        job,
        Transition.DISABLE,
        Status.DISABLED,
        disabled_at=transaction.now,
        epoch=job.epoch + 1,
    )


def _enable(transaction: Transaction, job: StoredJob) -> StoredJob:
    is_due = job.ready_at <= transaction.now
    status = Status.WAITING if is_due else Status.SCHEDULED
    return transaction.move(job, Transition.ENABLE, status)


def _retry(transaction: Transaction, job: StoredJob) -> StoredJob:
    rival = live_rival(transaction, job)
    if rival is not None:
        raise FingerprintTaken(
            queue=job.partition.queue, fingerprint=job.fingerprint or "", job_id=rival.id
        )
    return transaction.move(
        job,
        Transition.RETRY,
        Status.WAITING,
        ready_at=transaction.now,
        rank=moved_rank(job.rank, job.ready_at, transaction.now),
        failures=0,
        snoozes=0,
        crashes=0,
        suspicion=UNSUSPECTED,
        deadline_at=None,
        avoid_worker=None,
        avoid_until=None,
        started_at=None,
        progress=NO_PROGRESS,
    )


def _resume(transaction: Transaction, job: StoredJob) -> StoredJob:
    return transaction.move(job, Transition.RESUME, Status.WAITING)


_CHANGES: dict[Transition, Change] = {
    Transition.ABORT: lambda transaction, job: _abort(transaction, job),
    Transition.DISABLE: lambda transaction, job: _disable(transaction, job),
    Transition.ENABLE: lambda transaction, job: _enable(transaction, job),
    Transition.RETRY: lambda transaction, job: _retry(transaction, job),
    Transition.RESUME: lambda transaction, job: _resume(transaction, job),
}


def _recorded_at(job: StoredJob) -> tuple[datetime | None, ...]:
    return job.created_at, job.started_at, job.finished_at


def _is_orphaned(state: MemoryState, run: StoredRun) -> bool:
    if run.is_ended or run.status is RunStatus.PAUSED or state.records.waits_of(run.place):
        return False
    return all(state.jobs[id].status in FINISHED for id in state.of_run.ids(run.place))


def _counted(definition: tuple[str, str, str], runs: Iterable[StoredRun]) -> FlowRuns:
    namespace, flow, version = definition
    of_it = [each for each in runs if (each.namespace, each.flow, each.version) == definition]
    ended = sum(run.is_ended for run in of_it)
    return FlowRuns(
        namespace=namespace,
        flow=flow,
        version=version,
        live=len(of_it) - ended,
        ended=ended,
        last_submitted_at=max((run.created_at for run in of_it), default=None),
    )


def _ended(index: Index[Any, Any], until: datetime, group: tuple[str, str]) -> int:
    return len(index.entries(group)) - index.count_after(until, group)
