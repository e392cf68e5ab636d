"""Polling, and the maintenance that any worker may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from perdure.model.failure import Failure
from perdure.model.ids import WorkerId
from perdure.model.job import Expired, Status, TakenOver
from perdure.model.partition import Partition, with_worker
from perdure.model.run import RunStatus, Wait
from perdure.model.schedule import Schedule, scheduled_flows
from perdure.model.worker import PollResult, TaskCounts, WorkerInfo, counted_since
from perdure.store.contract import POLL_PARTITIONS_MAX, SUBSCRIBER_LEASE, MaintenanceStore
from perdure.store.failures import deadline_expired, lease_expired, worker_restarted
from perdure.store.lifecycle import Transition, after_take_over
from perdure.store.sql.rows import decode_counts, first_readable, node_from, read_schedule
from perdure.store.sqlite.jobs import Move, bound_limits, move
from perdure.store.sqlite.rows import (
    Row,
    SqliteJobRow,
    as_json,
    encode,
    micros_in,
    moment,
    moment_or_none,
    wait_from,
)
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.submit import remove_jobs, remove_run
from perdure.store.sqlite.transaction import Transaction


class SqliteMaintenance(MaintenanceStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def poll(self, namespace: str, after_partition: str = "") -> PollResult:
        return await self._session.read(
            lambda transaction: _poll(transaction, namespace, after_partition)
        )

    async def acquire_lease(self, name: str, worker: WorkerId, lease: timedelta) -> bool:
        def lead(transaction: Transaction) -> bool:
            parameters = {"lease_name": name, "worker": worker, "lease": micros_in(lease)}
            parameters["now"] = transaction.now
            return transaction.write("acquire_lease", **parameters) > 0

        return await self._session.write(lead)

    async def promote_due(self, namespace: str, limit: int) -> int:
        def promote(transaction: Transaction) -> int:
            due = _jobs(transaction, "due_jobs", namespace, limit)
            moves = [Move(job=job, after=Status.WAITING) for job in due]
            move(transaction, Transition.PROMOTE, moves)
            return len(due)

        return await self._session.write(promote)

    async def release_sticky(self, namespace: str, limit: int) -> int:
        def find(transaction: Transaction) -> list[SqliteJobRow]:
            late = _jobs(transaction, "late_sticky_jobs", namespace, limit)
            left = limit - len(late)
            return [*late, *_jobs(transaction, "orphaned_sticky_jobs", namespace, left)]

        def release(transaction: Transaction) -> int:
            jobs = find(transaction)
            numbers = as_json([job.number for job in jobs])
            transaction.write("release_jobs", numbers=numbers)
            for job in jobs:
                transaction.hints.queued(job.status, with_worker(job.partition, None))
            return len(jobs)

        # Every worker asks often, and hardly ever finds any.
        return await self._session.write(release) if await self._session.read(find) else 0

    async def take_over_expired(self, namespace: str, limit: int) -> list[TakenOver]:
        def take_over(transaction: Transaction) -> list[TakenOver]:
            expired = _jobs(transaction, "expired_leases", namespace, limit)
            return _take_over(transaction, expired, lease_expired)

        return await self._session.write(take_over)

    async def take_over_former(
        self, namespace: str, worker: WorkerId, incarnation: int, limit: int
    ) -> list[TakenOver]:
        def take_over(transaction: Transaction) -> list[TakenOver]:
            rows = transaction.rows(
                "former_claims",
                namespace=namespace,
                worker=worker,
                incarnation=incarnation,
                limit=limit,
            )
            former = [SqliteJobRow._make(row) for row in rows]
            return _take_over(transaction, former, worker_restarted)

        return await self._session.write(take_over)

    async def bound_times(self, namespace: str, lease: timedelta) -> int:
        def bound(transaction: Transaction) -> int:
            within = {"namespace": namespace, "now": transaction.now}
            bounded = transaction.write("bound_leases", **within, lease=micros_in(lease))
            if transaction.write("bound_waits", **within):
                transaction.hints.due()
            bound_limits(transaction, namespace, None)
            transaction.write("bound_sticky", **within)
            transaction.write("bound_subscribers", **within, lease=micros_in(SUBSCRIBER_LEASE))
            transaction.write("bound_live_events", **within)
            transaction.write("bound_workers", **within)
            return bounded

        return await self._session.write(bound)

    async def expire_deadlines(self, namespace: str, limit: int) -> list[Expired]:
        def expire(transaction: Transaction) -> list[Expired]:
            late = _jobs(transaction, "past_deadlines", namespace, limit)
            expired = [_expired(job) for job in late]
            moves = [
                Move(job=job, after=Status.FAILED, failure=over.failure)
                for job, over in zip(late, expired, strict=True)
            ]
            move(transaction, Transition.EXPIRE, moves)
            return expired

        return await self._session.write(expire)

    async def prune_jobs(self, namespace: str, keep: Mapping[Status, timedelta], limit: int) -> int:
        def prune(transaction: Transaction) -> int:
            removed = 0
            for status, kept_for in keep.items():
                within = {"namespace": namespace, "limit": limit - removed}
                within["until"] = transaction.now - micros_in(kept_for)
                if status is Status.DISABLED:
                    old = transaction.rows("outdated_disabled_jobs", **within)
                else:
                    old = transaction.rows("outdated_jobs", status=status, **within)
                    numbers = as_json([number for number, _ in old])
                    transaction.write("record_pruned_jobs", numbers=numbers)
                remove_jobs(transaction, old)
                removed += len(old)
            return removed

        return await self._session.write(prune)

    async def prune_limits(self, namespace: str, idle: timedelta, limit: int) -> int:
        def prune(transaction: Transaction) -> int:
            until = transaction.now - micros_in(idle)
            idle_keys = transaction.rows(
                "idle_limits", namespace=namespace, until=until, limit=limit
            )
            keys = as_json([key for (key,) in idle_keys])
            if idle_keys:
                transaction.write("remove_starts", namespace=namespace, keys=keys)
                transaction.write("remove_limits", namespace=namespace, keys=keys)
            return len(idle_keys)

        return await self._session.write(prune)

    async def prune_definitions(self, namespace: str, idle: timedelta, limit: int) -> int:
        def prune(transaction: Transaction) -> int:
            rows = transaction.rows("list_schedules", namespace=namespace, schedule=None)
            scheduled = scheduled_flows(map(read_schedule, rows))
            if scheduled is None:
                return 0
            old = transaction.rows(
                "old_definitions",
                namespace=namespace,
                until=transaction.now - micros_in(idle),
                limit=limit,
                scheduled=as_json(scheduled),
            )
            for flow, version, is_used in old:
                place = namespace, flow, version
                if is_used:
                    transaction.run("keep_definition", (transaction.now, *place))
                else:
                    transaction.run("remove_definition", place)
            return len(old)

        return await self._session.write(prune)

    async def register_worker(
        self, info: WorkerInfo, counts: Sequence[TaskCounts] = (), *, starts: bool = False
    ) -> bool:
        row = {
            "id": info.id,
            "namespace": info.namespace,
            "info": encode(info),
            "lease": micros_in(info.lease),
            "counts": encode(counts),
            "incarnation": info.incarnation,
            "starts": starts,
        }

        def register(transaction: Transaction) -> bool:
            if starts:
                _keep_counts(transaction, transaction.rows("counts_of_worker", id=info.id))
            return transaction.write("register_worker", **row, now=transaction.now) > 0

        return await self._session.write(register)

    async def remove_worker(self, id: WorkerId, incarnation: int | None = None) -> None:
        def remove(transaction: Transaction) -> None:
            gone = transaction.rows("remove_worker", id=id, incarnation=incarnation)
            _keep_counts(transaction, gone)

        await self._session.write(remove)

    async def prune_workers(self, namespace: str, idle: timedelta) -> int:
        def prune(transaction: Transaction) -> int:
            within = {"namespace": namespace, "now": transaction.now, "idle": micros_in(idle)}
            gone = transaction.rows("prune_workers", **within)
            _keep_counts(transaction, gone)
            return len(gone)

        return await self._session.write(prune)

    async def prune_runs(
        self, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
    ) -> int:
        def prune(transaction: Transaction) -> int:
            removed = 0
            for status, kept_for in keep.items():
                until = transaction.now - micros_in(kept_for)
                removed += _prune(transaction, namespace, status, until, limit - removed)
            return removed

        return await self._session.write(prune)

    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        rows = await self._session.read(
            lambda transaction: transaction.rows(
                "due_waits", namespace=namespace, now=transaction.now, limit=limit
            )
        )
        return [wait_from(row) for row in rows]

    async def due_schedules(self, namespace: str, limit: int) -> list[Schedule]:
        async def first(limit: int) -> Sequence[Row]:
            return await self._session.read(
                lambda transaction: transaction.rows(
                    "due_schedules", namespace=namespace, now=transaction.now, limit=limit
                )
            )

        return await first_readable(first, limit)


def _poll(transaction: Transaction, namespace: str, after_partition: str) -> PollResult:
    [row] = transaction.rows(
        "poll",
        namespace=namespace,
        after_partition=after_partition,
        partitions_max=POLL_PARTITIONS_MAX,
        now=transaction.now,
    )
    partitions, *times, paused, last_seen_at, has_subscribers = row
    due_at, lease_end_at, deadline_at, sticky_at, wait_at, tick_at = map(moment_or_none, times)
    return PollResult(
        now=moment(transaction.now),
        partitions=msgspec.json.decode(partitions, type=tuple[str, ...]),
        next_due_at=due_at,
        next_lease_end_at=lease_end_at,
        next_deadline_at=deadline_at,
        next_sticky_at=sticky_at,
        next_wait_at=wait_at,
        next_tick_at=tick_at,
        paused=msgspec.json.decode(paused, type=tuple[str, ...]),
        last_seen_at=moment_or_none(last_seen_at),
        has_subscribers=bool(has_subscribers),
    )


def _keep_counts(transaction: Transaction, workers: Sequence[Row]) -> None:
    """Keep the counts of these workers, given their rows."""
    for namespace, counts, before in workers:
        counted = counted_since(decode_counts(counts), decode_counts(before))
        transaction.write_rows("keep_counts", [(namespace, *row) for row in counted])


def _jobs(transaction: Transaction, name: str, namespace: str, limit: int) -> list[SqliteJobRow]:
    rows = transaction.rows(name, namespace=namespace, now=transaction.now, limit=limit)
    return [SqliteJobRow._make(row) for row in rows]


def _take_over(
    transaction: Transaction,
    jobs: Sequence[SqliteJobRow],
    failure_of: Callable[[str | None], Failure],
) -> list[TakenOver]:
    moves = [_take_over_move(job, failure_of(job.worker)) for job in jobs]
    move(transaction, Transition.TAKE_OVER, moves)
    return [_taken_over(each) for each in moves]


def _take_over_move(job: SqliteJobRow, failure: Failure) -> Move:
    status, was_alone = Status(job.status), bool(job.claimed_alone)
    after, partition = after_take_over(status, job.partition, was_alone=was_alone)
    return Move(
        job=job,
        after=after,
        failure=failure,
        takes_claim=True,
        crashes=1,
        partition=partition,
    )


def _taken_over(over: Move) -> TakenOver:
    assert over.failure is not None
    return TakenOver(
        id=over.job.id,
        namespace=over.job.namespace,
        partition=Partition.parse(over.job.partition),
        worker=over.job.worker,
        epoch=over.job.epoch,
        attempt=over.job.attempt,
        after=over.after,
        failure=over.failure,
        node=node_from(over.job.run_id, over.job.node_key),
    )


def _expired(job: SqliteJobRow) -> Expired:
    assert job.deadline_at is not None
    return Expired(
        id=job.id,
        namespace=job.namespace,
        partition=Partition.parse(job.partition),
        attempt=job.attempt,
        failure=deadline_expired(moment(job.deadline_at)),
    )


def _prune(
    transaction: Transaction, namespace: str, status: RunStatus, until: int, limit: int
) -> int:
    old = transaction.rows(
        "outdated_runs", status=status, namespace=namespace, until=until, limit=limit
    )
    for (id,) in old:
        remove_run(transaction, namespace, id, is_pruned=True)
    return len(old)
