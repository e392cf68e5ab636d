"""What any worker may do, one at a time, in bounded batches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from perdure.errors import DeadlineExceeded, WorkerDied
from perdure.model.failure import Failure
from perdure.model.ids import WorkerId
from perdure.model.job import Status, TakenOver
from perdure.model.lane import Lane
from perdure.model.retry import type_name
from perdure.model.worker import Survey, WorkerInfo
from perdure.rules.lifecycle import Operation, after_take_over
from perdure.store.contract import SURVEY_LANES_MAX, HousekeepingStore
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.moving import Move, move
from perdure.store.sqlite.rows import (
    JobRow,
    as_json,
    encode,
    micros_in,
    moment,
    moment_or_none,
)
from perdure.store.sqlite.transaction import Transaction


class SqliteHousekeeping(Handle, HousekeepingStore):
    async def survey(self, namespace: str, after_lane: str = "") -> Survey:
        return await self._read(lambda transaction: _survey(transaction, namespace, after_lane))

    async def lead(self, duty: str, worker: WorkerId, lease: timedelta) -> bool:
        def lead(transaction: Transaction) -> bool:
            now = transaction.now
            until = now + micros_in(lease)
            parameters = {"duty": duty, "worker": worker, "lease_until": until, "now": now}
            return transaction.write("lead", **parameters) > 0

        return await self._write(lead)

    async def promote_due(self, limit: int) -> int:
        def promote(transaction: Transaction) -> int:
            due = _jobs(transaction, "due_jobs", limit)
            moves = [Move(job=job, after=Status.WAITING) for job in due]
            move(transaction, Operation.PROMOTE, moves)
            return len(due)

        return await self._write(promote)

    async def take_over_expired(self, limit: int, deaths_max: int) -> list[TakenOver]:
        def take_over(transaction: Transaction) -> list[TakenOver]:
            expired = _jobs(transaction, "expired_leases", limit)
            moves = [_taken_over(job, deaths_max) for job in expired]
            move(transaction, Operation.TAKE_OVER, moves)
            return [
                TakenOver(
                    id=step.job.id,
                    namespace=step.job.namespace,
                    lane=Lane.parse(step.job.lane),
                    worker=step.job.worker,
                    after=step.after,
                )
                for step in moves
            ]

        return await self._write(take_over)

    async def expire_deadlines(self, limit: int) -> int:
        def expire(transaction: Transaction) -> int:
            late = _jobs(transaction, "past_deadlines", limit)
            move(transaction, Operation.EXPIRE, [_expired(job) for job in late])
            return len(late)

        return await self._write(expire)

    async def prune_jobs(self, keep: Mapping[Status, timedelta], limit: int) -> int:
        def prune(transaction: Transaction) -> int:
            removed = 0
            for status, kept_for in keep.items():
                until = transaction.now - micros_in(kept_for)
                removed += _remove(transaction, status, until, limit - removed)
            return removed

        return await self._write(prune)

    async def register_worker(self, info: WorkerInfo) -> None:
        row = {"id": info.id, "namespace": info.namespace, "info": encode(info)}
        await self._write(
            lambda transaction: transaction.write("register_worker", **row, now=transaction.now)
        )

    async def remove_worker(self, id: WorkerId) -> None:
        await self._write(lambda transaction: transaction.write("remove_worker", id=id))

    async def prune_workers(self, idle: timedelta) -> int:
        return await self._write(
            lambda transaction: transaction.write(
                "prune_workers", until=transaction.now - micros_in(idle)
            )
        )


def _survey(transaction: Transaction, namespace: str, after_lane: str) -> Survey:
    [(lanes, due_at, lease_end_at, deadline_at)] = transaction.rows(
        "survey", namespace=namespace, after_lane=after_lane, lanes_max=SURVEY_LANES_MAX
    )
    return Survey(
        now=moment(transaction.now),
        lanes=msgspec.json.decode(lanes, type=tuple[str, ...]),
        next_due_at=moment_or_none(due_at),
        next_lease_end_at=moment_or_none(lease_end_at),
        next_deadline_at=moment_or_none(deadline_at),
    )


def _jobs(transaction: Transaction, name: str, limit: int) -> list[JobRow]:
    rows = transaction.rows(name, now=transaction.now, limit=limit)
    return [JobRow._make(row) for row in rows]


def _taken_over(job: JobRow, deaths_max: int) -> Move:
    failure = Failure(
        type=type_name(WorkerDied),
        message=f"the lease of worker {job.worker} ran out before it settled the job",
    )
    after = after_take_over(Status(job.status), job.deaths + 1, deaths_max)
    return Move(job=job, after=after, failure=failure, takes_claim=True, deaths=1)


def _expired(job: JobRow) -> Move:
    deadline_at = moment_or_none(job.deadline_at)
    failure = Failure(
        type=type_name(DeadlineExceeded),
        message=f"the deadline {deadline_at} passed before a worker completed the job",
    )
    return Move(job=job, after=Status.FAILED, failure=failure)


def _remove(transaction: Transaction, status: Status, until: int, limit: int) -> int:
    old = transaction.rows("outdated_jobs", status=status, until=until, limit=limit)
    if old:
        ids = as_json([id for _, id in old])
        transaction.write("remove_failures", ids=ids)
        transaction.write("remove_large_inputs", ids=ids)
        transaction.write("remove_jobs", numbers=as_json([number for number, _ in old]))
    return len(old)
