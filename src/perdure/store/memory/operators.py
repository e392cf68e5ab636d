"""What people do to jobs and queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from perdure.errors import FingerprintTaken, JobBelongsToRun
from perdure.model.hint import HintKind
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, HELD, Moved, QueueInfo, Status
from perdure.model.moment import nearest_storable
from perdure.rules.lifecycle import Operation, starts_from
from perdure.rules.rank import moved_rank
from perdure.store.contract import OperatorStore
from perdure.store.memory.inserting import live_rival
from perdure.store.memory.stored_job import NO_PROGRESS, StoredJob
from perdure.store.memory.transaction import Handle, Transaction

Act = Callable[[Transaction, StoredJob], StoredJob]


class MemoryOperators(Handle, OperatorStore):
    async def abort_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return self._apply(Operation.ABORT, _abort, namespace, ids)

    async def abort_group(self, namespace: str, group: str) -> list[Moved]:
        with self._transaction() as transaction:
            members = transaction.visible(
                namespace, transaction.state.groups.ids((namespace, group))
            )
            unfinished = [job for job in members if job.status not in FINISHED]
            return _apply_to(transaction, Operation.ABORT, _abort, unfinished)

    async def disable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return self._apply(Operation.DISABLE, _disable, namespace, ids)

    async def enable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return self._apply(Operation.ENABLE, _enable, namespace, ids)

    async def retry_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return self._apply(Operation.RETRY, _retry, namespace, ids)

    async def resume_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return self._apply(Operation.RESUME, _resume, namespace, ids)

    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> None:
        with self._transaction() as transaction:
            pause = QueueInfo(
                namespace=namespace, queue=queue, paused_at=transaction.now, paused_by=by
            )
            transaction.state.paused.setdefault((namespace, queue), pause)
            transaction.hint(HintKind.DUE)

    async def resume_queue(self, namespace: str, queue: str) -> None:
        with self._transaction() as transaction:
            if transaction.state.paused.pop((namespace, queue), None) is not None:
                transaction.hint_that_any_lane_is_ready()

    async def close_limit(self, namespace: str, key: str, until: datetime) -> None:
        with self._transaction() as transaction:
            transaction.state.limit(namespace, key).close(nearest_storable(until))

    def _apply(
        self, operation: Operation, act: Act, namespace: str | None, ids: Sequence[JobId]
    ) -> list[Moved]:
        with self._transaction() as transaction:
            jobs = transaction.visible(namespace, ids)
            return _apply_to(transaction, operation, act, jobs)


def _apply_to(
    transaction: Transaction, operation: Operation, act: Act, jobs: Sequence[StoredJob]
) -> list[Moved]:
    """Do it to the jobs it applies to, and leave the others as they are."""
    for job in jobs:
        if job.node is not None:
            raise JobBelongsToRun(job.id, job.node.run)
    moved = []
    for job in jobs:
        applies = job.status in starts_from(operation)
        after = act(transaction, job) if applies else job
        moved.append(Moved(id=job.id, before=job.status, after=after.status))
    return moved


def _abort(transaction: Transaction, job: StoredJob) -> StoredJob:
    if job.status is not Status.ACTIVE:
        return transaction.move(job, Operation.ABORT, Status.CANCELLED)
    transaction.hint(HintKind.ABORTING, job.id)
    return transaction.move(job, Operation.ABORT, Status.ABORTING)


def _disable(transaction: Transaction, job: StoredJob) -> StoredJob:
    if job.status not in HELD:
        return transaction.move(job, Operation.DISABLE, Status.DISABLED)
    transaction.hint(HintKind.ABORTING, job.id)
    return transaction.move(job, Operation.DISABLE, Status.DISABLED, epoch=job.epoch + 1)


def _enable(transaction: Transaction, job: StoredJob) -> StoredJob:
    is_due = job.ready_at <= transaction.now
    status = Status.WAITING if is_due else Status.SCHEDULED
    return transaction.move(job, Operation.ENABLE, status)


def _retry(transaction: Transaction, job: StoredJob) -> StoredJob:
    rival = live_rival(transaction, job)
    if rival is not None:
        raise FingerprintTaken(job.lane.queue, job.fingerprint or "", rival.id)
    return transaction.move(
        job,
        Operation.RETRY,
        Status.WAITING,
        ready_at=transaction.now,
        rank=moved_rank(job.rank, job.ready_at, transaction.now),
        failures=0,
        postpones=0,
        deaths=0,
        deadline_at=None,
        avoid_worker=None,
        avoid_until=None,
        started_at=None,
        progress=NO_PROGRESS,
    )


def _resume(transaction: Transaction, job: StoredJob) -> StoredJob:
    return transaction.move(job, Operation.RESUME, Status.WAITING)
