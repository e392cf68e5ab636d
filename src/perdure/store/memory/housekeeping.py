"""What any worker may do, one at a time, in bounded batches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from heapq import nsmallest
from itertools import islice

from perdure.errors import DeadlineExceeded, WorkerDied
from perdure.model.duration import nearest_duration
from perdure.model.failure import Failure
from perdure.model.ids import WorkerId
from perdure.model.job import Expired, Status, TakenOver
from perdure.model.retry import type_name
from perdure.model.worker import Survey, WorkerInfo
from perdure.rules.lifecycle import Operation, after_take_over
from perdure.store.contract import SURVEY_LANES_MAX, HousekeepingStore
from perdure.store.memory.removing import forget_steps
from perdure.store.memory.state import DutyLease, WorkerRecord
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.transaction import Handle, Transaction


class MemoryHousekeeping(Handle, HousekeepingStore):
    async def survey(self, namespace: str, after_lane: str = "") -> Survey:
        with self._transaction() as transaction:
            state = transaction.state
            lanes = (
                lane
                for place, lane in state.waiting.groups()
                if place == namespace and lane > after_lane
            )
            return Survey(
                now=transaction.now,
                lanes=tuple(nsmallest(SURVEY_LANES_MAX, lanes)),
                next_due_at=state.scheduled.first(namespace),
                next_lease_end_at=state.held.first(namespace),
                next_deadline_at=state.deadlines.first(namespace),
                next_wait_at=state.records.due.first(namespace),
                next_tick_at=state.schedules.due.first(namespace),
                paused=tuple(sorted(name for place, name in state.paused if place == namespace)),
            )

    async def lead(self, duty: str, worker: WorkerId, lease: timedelta) -> bool:
        with self._transaction() as transaction:
            duties, now = transaction.state.duties, transaction.now
            holder = duties.get(duty)
            if holder is not None and holder.worker != worker and holder.until > now:
                return False
            duties[duty] = DutyLease(worker, now + nearest_duration(lease))
            return True

    async def promote_due(self, namespace: str, limit: int) -> int:
        with self._transaction() as transaction:
            due = transaction.state.scheduled.up_to(transaction.now, limit, namespace)
            for id in due:
                job = transaction.state.jobs[id]
                transaction.move(job, Operation.PROMOTE, Status.WAITING)
            return len(due)

    async def take_over_expired(
        self, namespace: str, limit: int, deaths_max: int
    ) -> list[TakenOver]:
        with self._transaction() as transaction:
            expired = transaction.state.held.up_to(transaction.now, limit, namespace)
            return [
                _take_over(transaction, transaction.state.jobs[id], deaths_max) for id in expired
            ]

    async def expire_deadlines(self, namespace: str, limit: int) -> list[Expired]:
        with self._transaction() as transaction:
            late = transaction.state.deadlines.up_to(transaction.now, limit, namespace)
            return [_expire(transaction, transaction.state.jobs[id]) for id in late]

    async def prune_jobs(self, namespace: str, keep: Mapping[Status, timedelta], limit: int) -> int:
        with self._transaction() as transaction:
            removed = 0
            for status, kept_for in keep.items():
                until = transaction.now - nearest_duration(kept_for)
                group = (namespace, status)
                old = transaction.state.finished.up_to(until, limit - removed, group)
                for id in old:
                    transaction.remove(id)
                    forget_steps(transaction, id)
                removed += len(old)
            return removed

    async def prune_limits(self, namespace: str, idle: timedelta, limit: int) -> int:
        with self._transaction() as transaction:
            limits, until = transaction.state.limits, transaction.now - nearest_duration(idle)
            over = (
                place
                for place, record in limits.items()
                if place[0] == namespace and not record.has_effect_after(until)
            )
            gone = list(islice(over, limit))
            for place in gone:
                del limits[place]
            return len(gone)

    async def register_worker(self, info: WorkerInfo) -> None:
        with self._transaction() as transaction:
            workers, now = transaction.state.workers, transaction.now
            known = workers.get(info.id)
            started_at = now if known is None else known.started_at
            workers[info.id] = WorkerRecord(info, started_at, seen_at=now)

    async def remove_worker(self, id: WorkerId) -> None:
        with self._transaction() as transaction:
            transaction.state.workers.pop(id, None)

    async def prune_workers(self, namespace: str, idle: timedelta) -> int:
        with self._transaction() as transaction:
            workers, now = transaction.state.workers, transaction.now
            span = nearest_duration(idle)
            gone = [
                id
                for id, record in workers.items()
                if record.info.namespace == namespace
                and record.seen_at <= now - max(span, 2 * nearest_duration(record.info.lease))
            ]
            for id in gone:
                del workers[id]
            return len(gone)


def _take_over(transaction: Transaction, job: StoredJob, deaths_max: int) -> TakenOver:
    deaths = job.deaths + 1
    if job.node is None:
        after = after_take_over(job.status, deaths, deaths_max)
    else:
        after = Status.WAITING  # its run decides when enough is enough
    failure = Failure(
        type=type_name(WorkerDied),
        message=f"the lease of worker {job.worker} ran out before it settled the job",
    )
    transaction.move(
        job,
        Operation.TAKE_OVER,
        after,
        deaths=deaths,
        epoch=job.epoch + 1,
        history=transaction.failed(job, failure),
    )
    return TakenOver(
        id=job.id,
        namespace=job.namespace,
        lane=job.lane,
        worker=job.worker,
        attempt=job.attempt,
        after=after,
        failure=failure,
    )


def _expire(transaction: Transaction, job: StoredJob) -> Expired:
    failure = Failure(
        type=type_name(DeadlineExceeded),
        message=f"the deadline {job.deadline_at} passed before a worker completed the job",
    )
    transaction.move(job, Operation.EXPIRE, Status.FAILED, history=transaction.failed(job, failure))
    return Expired(
        id=job.id, namespace=job.namespace, lane=job.lane, attempt=job.attempt, failure=failure
    )
