"""Polling, and the maintenance that any worker may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from perdure.model.failure import Failure
from perdure.model.ids import WorkerId
from perdure.model.job import Expired, Status, TakenOver
from perdure.model.partition import Partition
from perdure.model.run import RunStatus, Wait
from perdure.model.schedule import Schedule, scheduled_flows
from perdure.model.times import nearest_duration
from perdure.model.worker import PollResult, TaskCounts, WorkerInfo, counted_since
from perdure.store.contract import POLL_PARTITIONS_MAX, SUBSCRIBER_LEASE, MaintenanceStore
from perdure.store.failures import deadline_expired, lease_expired, worker_restarted
from perdure.store.hints import WriteHints
from perdure.store.lifecycle import after_take_over
from perdure.store.postgres.connection import Connection, Record, Transacting
from perdure.store.postgres.params import (
    AddFailuresParams,
    CountColumns,
    FailureColumns,
    KeepCountsParams,
    PruneJobsParams,
    RegisterWorkerParams,
    RetentionColumns,
    TakenOverColumns,
    TakeOverParams,
)
from perdure.store.postgres.rows import encode_failure, wait_from
from perdure.store.postgres.session import Session
from perdure.store.postgres.submit import prune_runs
from perdure.store.sql.rows import (
    STATUS_OF,
    decode_counts,
    first_readable,
    node_from,
    read_schedule,
)
from perdure.store.sql.statements import arguments_of


class PostgresMaintenance(MaintenanceStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def poll(self, namespace: str, after_partition: str = "") -> PollResult:
        (row,) = await self._session.fetch(
            "poll", self._session.moment(), namespace, after_partition, POLL_PARTITIONS_MAX
        )
        return PollResult(
            now=row[0],
            partitions=tuple(row[1]),
            next_due_at=row[2],
            next_lease_end_at=row[3],
            next_deadline_at=row[4],
            next_sticky_at=row[5],
            next_wait_at=row[6],
            next_tick_at=row[7],
            paused=tuple(row[8]),
            last_seen_at=row[9],
            has_subscribers=row[10],
        )

    async def acquire_lease(self, name: str, worker: WorkerId, lease: timedelta) -> bool:
        span = nearest_duration(lease)
        return bool(
            await self._session.fetch("acquire_lease", self._session.moment(), name, worker, span)
        )

    async def promote_due(self, namespace: str, limit: int) -> int:
        rows = await self._session.fetch("promote_due", self._session.moment(), namespace, limit)
        moves = WriteHints()
        for id, partition in rows:
            moves.moved(id, Status.WAITING, partition)
        self._session.publish(*moves.hints())
        return len(rows)

    async def release_sticky(self, namespace: str, limit: int) -> int:
        rows = await self._session.fetch("release_sticky", self._session.moment(), namespace, limit)
        moves = WriteHints()
        for (partition,) in rows:
            moves.queued(Status.WAITING, partition)
        self._session.publish(*moves.hints())
        return len(rows)

    async def take_over_expired(self, namespace: str, limit: int) -> list[TakenOver]:
        arguments = (self._session.moment(), namespace, limit)
        return await self._take_over("expired_leases", arguments, lease_expired)

    async def take_over_former(
        self, namespace: str, worker: WorkerId, incarnation: int, limit: int
    ) -> list[TakenOver]:
        arguments = (self._session.moment(), namespace, worker, incarnation, limit)
        return await self._take_over("former_claims", arguments, worker_restarted)

    async def _take_over(
        self, statement: str, arguments: Sequence[Any], failure_of: Callable[[str | None], Failure]
    ) -> list[TakenOver]:
        """Take over the jobs that the statement finds and locks."""

        def decide(row: Record) -> tuple[Status, str]:
            _, partition, _, _, status, was_alone, *_ = row
            return after_take_over(STATUS_OF[status], partition, was_alone=was_alone)

        def write(rows: Sequence[Record]) -> tuple[str, Sequence[Any]]:
            decided = [decide(row) for row in rows]
            taken = TakenOverColumns(
                id=[row[0] for row in rows],
                status=[after.value for after, _ in decided],
                partition_key=[partition for _, partition in decided],
            )
            return "take_over", arguments_of(TakeOverParams(now=rows[0][-1], taken=taken))

        taken, moves = [], WriteHints()
        for row, failure in await self._end_attempts(
            statement, arguments, lambda row: failure_of(row[2]), write
        ):
            id, partition, holder, attempt, _, _, was_limited, run, key, epoch, _ = row
            after, partition_after = decide(row)
            moves.moved(id, after, partition_after, frees_limit=was_limited)
            taken.append(
                TakenOver(
                    id=id,
                    namespace=arguments[1],
                    partition=Partition.parse(partition),
                    worker=holder,
                    epoch=epoch,
                    attempt=attempt,
                    after=after,
                    failure=failure,
                    node=node_from(run, key),
                )
            )
        self._session.publish(*moves.hints())
        return taken

    async def bound_times(self, namespace: str, lease: timedelta) -> int:
        session, span = self._session, nearest_duration(lease)
        bounded = await session.fetch("bound_leases", session.moment(), namespace, span)
        if await session.fetch("bound_waits", session.moment(), namespace):
            moves = WriteHints()
            moves.due()
            session.publish(*moves.hints())
        await session.fetch("bound_limits", session.moment(), namespace, None)
        await session.fetch("bound_sticky", session.moment(), namespace)
        await session.fetch("bound_subscribers", session.moment(), namespace, SUBSCRIBER_LEASE)
        await session.fetch("bound_live_events", session.moment(), namespace)
        # Last: until this is written, every poll still detects the clock change.
        await session.fetch("bound_workers", session.moment(), namespace)
        return len(bounded)

    async def expire_deadlines(self, namespace: str, limit: int) -> list[Expired]:
        arguments = (self._session.moment(), namespace, limit)
        expired, moves = [], WriteHints()
        for row, failure in await self._end_attempts(
            "expire_deadlines", arguments, lambda row: deadline_expired(row[4])
        ):
            id, partition, _, attempt, _, _ = row
            moves.moved(id, Status.FAILED, None)
            expired.append(
                Expired(
                    id=id,
                    namespace=namespace,
                    partition=Partition.parse(partition),
                    attempt=attempt,
                    failure=failure,
                )
            )
        self._session.publish(*moves.hints())
        return expired

    async def _end_attempts(
        self,
        statement: str,
        arguments: Sequence[Any],
        failure_of: Callable[[Record], Failure],
        write: Callable[[Sequence[Record]], tuple[str, Sequence[Any]]] | None = None,
    ) -> list[tuple[Record, Failure]]:
        """Run a statement that ends jobs, and record their failures in the same transaction.

        Its rows start with id, partition, worker and attempt, and end with the time. ``write``: the
        statement that ends them, if the first one only locks them.
        """
        statements = self._session.statements

        async def work(connection: Connection, _: bool) -> list[tuple[Record, Failure]]:
            async with Transacting(connection) as transaction:
                rows = await connection.fetch(statements[statement], *arguments)
                failures = [failure_of(row) for row in rows]
                if rows and write is not None:
                    ending, values = write(rows)
                    await connection.fetch(statements[ending], *values)
                if rows:
                    failed = FailureColumns(
                        id=[row[0] for row in rows],
                        attempt=[row[3] for row in rows],
                        worker=[row[2] for row in rows],
                        failure=[encode_failure(failure) for failure in failures],
                    )
                    params = AddFailuresParams(now=rows[0][-1], failed=failed)
                    await connection.fetch(statements["add_failures"], *arguments_of(params))
                else:
                    transaction.undo()
            return list(zip(rows, failures, strict=True))

        return await self._session.connections.run(work)

    async def prune_jobs(self, namespace: str, keep: Mapping[Status, timedelta], limit: int) -> int:
        spans = {status: nearest_duration(span) for status, span in keep.items()}
        completed = spans.pop(Status.COMPLETED, None)
        disabled = spans.pop(Status.DISABLED, None)
        params = PruneJobsParams(
            now=self._session.moment(),
            namespace=namespace,
            completed=completed,
            disabled=disabled,
            kept=RetentionColumns(status=list(spans), span=list(spans.values())),
            limit=limit,
        )
        return len(await self._session.fetch("prune_jobs", *arguments_of(params)))

    async def prune_limits(self, namespace: str, idle: timedelta, limit: int) -> int:
        span = nearest_duration(idle)
        rows = await self._session.fetch(
            "prune_limits", self._session.moment(), namespace, span, limit
        )
        return len(rows)

    async def prune_definitions(self, namespace: str, idle: timedelta, limit: int) -> int:
        span = nearest_duration(idle)

        async def work(connection: Connection, _: bool) -> int:
            statements = self._session.statements
            async with Transacting(connection):
                rows = await connection.fetch(statements["list_schedules"], namespace, None)
                scheduled = scheduled_flows(map(read_schedule, rows))
                if scheduled is None:
                    return 0
                count: int = await connection.fetchval(
                    statements["prune_definitions"],
                    self._session.moment(),
                    namespace,
                    span,
                    limit,
                    scheduled,
                )
                return count

        return await self._session.connections.run(work)

    async def register_worker(
        self, info: WorkerInfo, counts: Sequence[TaskCounts] = (), *, starts: bool = False
    ) -> bool:
        params = RegisterWorkerParams(
            now=self._session.moment(),
            id=info.id,
            namespace=info.namespace,
            info=msgspec.json.encode(info).decode(),
            lease=nearest_duration(info.lease),
            counts=msgspec.json.encode(counts).decode(),
            incarnation=info.incarnation,
            starts=starts,
        )
        arguments = arguments_of(params)
        if starts:
            then = "register_worker", arguments
            await self._keep_counts("counts_of_worker", info.id, then=then)
            return True
        return bool(await self._session.fetch("register_worker", *arguments))

    async def remove_worker(self, id: WorkerId, incarnation: int | None = None) -> None:
        await self._keep_counts("remove_worker", id, incarnation)

    async def prune_workers(self, namespace: str, idle: timedelta) -> int:
        span = nearest_duration(idle)
        return await self._keep_counts("prune_workers", self._session.moment(), namespace, span)

    async def _keep_counts(
        self, statement: str, *arguments: Any, then: tuple[str, Sequence[Any]] | None = None
    ) -> int:
        """Keep the counts of the workers whose rows a statement returns; return how many.

        In the same transaction, before ``then``.
        """
        statements = self._session.statements

        async def work(connection: Connection, _: bool) -> int:
            async with Transacting(connection):
                rows = await connection.fetch(statements[statement], *arguments)
                counted = [
                    (namespace, *row)
                    for namespace, counts, before in rows
                    for row in counted_since(decode_counts(counts), decode_counts(before))
                ]
                if counted:
                    columns = CountColumns(*(list(column) for column in zip(*counted, strict=True)))
                    params = KeepCountsParams(counted=columns)
                    await connection.fetch(statements["keep_counts"], *arguments_of(params))
                if then is not None:
                    await connection.fetch(statements[then[0]], *then[1])
            return len(rows)

        return await self._session.connections.run(work)

    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        found = await self._session.fetch("due_waits", self._session.moment(), namespace, limit)
        return [wait_from(row) for row in found]

    async def due_schedules(self, namespace: str, limit: int) -> list[Schedule]:
        async def first(limit: int) -> list[Record]:
            return await self._session.fetch(
                "due_schedules", self._session.moment(), namespace, limit
            )

        return await first_readable(first, limit)

    async def prune_runs(
        self, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
    ) -> int:
        return await prune_runs(self._session, namespace, keep, limit)
