"""What people do to jobs and queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from perdure.errors import FingerprintTaken, JobBelongsToRun
from perdure.model.hint import HintKind
from perdure.model.ids import JobId
from perdure.model.job import Moved, Status
from perdure.model.moment import nearest_storable
from perdure.rules.lifecycle import Operation, starts_from
from perdure.store.contract import OperatorStore
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.moving import Move, is_held, move
from perdure.store.sqlite.rows import JobRow, as_json, micros
from perdure.store.sqlite.transaction import Transaction

Plan = Callable[[JobRow, int], Move]
"""Where an act takes a job that it applies to, at a moment."""


class SqliteOperators(Handle, OperatorStore):
    async def abort_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return await self._act(Operation.ABORT, _aborted, namespace, ids)

    async def abort_group(self, namespace: str, group: str) -> list[Moved]:
        def abort(transaction: Transaction) -> list[Moved]:
            rows = transaction.rows("unfinished_of_group", namespace=namespace, group=group)
            jobs = [JobRow._make(row) for row in rows]
            return _apply(transaction, Operation.ABORT, _aborted, jobs)

        return await self._write(abort)

    async def disable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return await self._act(Operation.DISABLE, _disabled, namespace, ids)

    async def enable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return await self._act(Operation.ENABLE, _enabled, namespace, ids)

    async def retry_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return await self._act(Operation.RETRY, _queued, namespace, ids)

    async def resume_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return await self._act(Operation.RESUME, _queued, namespace, ids)

    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> None:
        def pause(transaction: Transaction) -> None:
            row = {"namespace": namespace, "queue": queue, "by": by, "now": transaction.now}
            transaction.write("pause_queue", **row)
            transaction.hint_any(HintKind.DUE)

        await self._write(pause)

    async def resume_queue(self, namespace: str, queue: str) -> None:
        def resume(transaction: Transaction) -> None:
            if transaction.write("resume_queue", namespace=namespace, queue=queue):
                transaction.hint_any(HintKind.READY)

        await self._write(resume)

    async def close_limit(self, namespace: str, key: str, until: datetime) -> None:
        row = (namespace, key, micros(nearest_storable(until)))
        await self._write(lambda transaction: transaction.write_rows("close_limits", [row]))

    async def _act(
        self, operation: Operation, plan: Plan, namespace: str | None, ids: Sequence[JobId]
    ) -> list[Moved]:
        each_once = as_json(list(dict.fromkeys(ids)))

        def act(transaction: Transaction) -> list[Moved]:
            rows = transaction.rows("visible_jobs", namespace=namespace, ids=each_once)
            return _apply(transaction, operation, plan, [JobRow._make(row) for row in rows])

        return await self._write(act)


def _apply(
    transaction: Transaction, operation: Operation, plan: Plan, jobs: Sequence[JobRow]
) -> list[Moved]:
    """Do it to the jobs it applies to, and leave the others as they are."""
    for job in jobs:
        if job.run_id is not None:
            raise JobBelongsToRun(job.id, job.run_id)
    movable = [job for job in jobs if job.status in starts_from(operation)]
    moves = [plan(job, transaction.now) for job in movable]
    if operation is Operation.RETRY:
        _check_fingerprints(transaction, movable)
    move(transaction, operation, moves)
    if operation is Operation.RETRY:
        numbers = as_json([job.number for job in movable])
        transaction.write("start_anew", numbers=numbers, now=transaction.now)
    transaction.hint(HintKind.ABORTING, (job.id for job in movable if is_held(job)))
    after = {step.job.id: step.after for step in moves}
    return [
        Moved(id=job.id, before=Status(job.status), after=after.get(job.id, Status(job.status)))
        for job in jobs
    ]


def _aborted(job: JobRow, now: int) -> Move:
    return Move(job=job, after=Status.ABORTING if is_held(job) else Status.CANCELLED)


def _disabled(job: JobRow, now: int) -> Move:
    return Move(job=job, after=Status.DISABLED, takes_claim=is_held(job))


def _enabled(job: JobRow, now: int) -> Move:
    return Move(job=job, after=Status.WAITING if job.ready_at <= now else Status.SCHEDULED)


def _queued(job: JobRow, now: int) -> Move:
    return Move(job=job, after=Status.WAITING)


def _check_fingerprints(transaction: Transaction, jobs: Sequence[JobRow]) -> None:
    """Raise unless all these finished jobs can become live at once."""
    marked = [job for job in jobs if job.fingerprint is not None]
    wanted = as_json([(job.namespace, job.queue, job.fingerprint) for job in marked])
    found = [JobRow._make(row) for row in transaction.rows("live_fingerprints", wanted=wanted)]
    live = {(job.namespace, job.queue, job.fingerprint): job.id for job in found}
    for job in marked:
        rival = live.setdefault((job.namespace, job.queue, job.fingerprint), job.id)
        if rival != job.id:
            raise FingerprintTaken(job.queue, job.fingerprint or "", rival)
