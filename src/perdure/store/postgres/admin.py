"""Operations on jobs and queues, and reports for operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import asyncpg

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
from perdure.model.hint import Hint, HintType
from perdure.model.ids import JobId
from perdure.model.job import (
    CLAIMED,
    QUEUE_COUNT_MAX,
    QueueDepth,
    QueueInfo,
    Status,
    StatusChange,
    queue_depth,
)
from perdure.model.run import FlowCount, RunStatus
from perdure.model.times import nearest_duration
from perdure.store.contract import AdminStore
from perdure.store.hints import WriteHints
from perdure.store.lifecycle import Transition, starts_from
from perdure.store.postgres.connection import Connection
from perdure.store.postgres.rows import queue_from
from perdure.store.postgres.session import PACKAGE, Session, place_in_sql
from perdure.store.sql.migrations import indexes_made, load_migrations
from perdure.store.sql.rows import RUN_STATUS_OF, STATUS_OF
from perdure.store.sql.statements import fill

_CHANGES = {
    Transition.ABORT: """\
status      = CASE jobs.status WHEN 'active' THEN 'aborting' ELSE 'cancelled' END,
        lease_until = CASE jobs.status WHEN 'active' THEN jobs.lease_until END,
        finished_at = CASE WHEN jobs.status <> 'active' THEN moment.now END""",
    # Raising the epoch revokes a claim.
    Transition.DISABLE: """\
status      = 'disabled',
        epoch       = epoch + CASE jobs.status WHEN 'active' THEN 1 ELSE 0 END,
        lease_until = NULL,
        finished_at = NULL,
        disabled_at = moment.now,
        worker      = NULL""",
    Transition.ENABLE: """\
status      = CASE WHEN ready_at <= moment.now THEN 'waiting' ELSE 'scheduled' END,
        lease_until = NULL,
        finished_at = NULL""",
    Transition.RETRY: """\
status           = 'waiting',
        ready_at         = moment.now,
        rank             = rank + date_part('epoch', moment.now - ready_at),
        failures         = 0,
        snoozes        = 0,
        crashes           = 0,
        partition_key    = rtrim(partition_key, '~.0123456789'),
        worker           = NULL,
        avoid_worker     = NULL,
        avoid_until      = NULL,
        deadline_at      = NULL,
        started_at       = NULL,
        lease_until      = NULL,
        finished_at      = NULL,
        progress         = 0,
        progress_message = '',
        progress_details = NULL""",
    Transition.RESUME: """\
status      = 'waiting',
        lease_until = NULL,
        finished_at = NULL""",
}
"""The columns that each operation writes. PostgreSQL checks the update against the *old* version of
a row that it waited for, before it follows the row to its newest version: whatever the old
status, the new row must satisfy the table's CHECKs. So each column is computed from the row
itself, never from ``found``, which has the newest one.
"""
_SCOPES = {
    "ids": "id = ANY ($2::text[]) AND ($1::text IS NULL OR namespace = $1)",
    "group": "job_group = $2 AND namespace = $1 AND finished_at IS NULL",
}


class PostgresAdmin(AdminStore):
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
        scope = "ids" if group is None else "group"
        statement = change_statement(self._session.statements["change_jobs"], operation, scope)
        wanted = list(ids) if group is None else group
        rows = None
        while rows is None:
            try:
                rows = await self._session.connections.fetch(
                    statement, namespace, wanted, self._session.moment()
                )
            except asyncpg.UniqueViolationError as error:  # only RETRY makes jobs live again
                rivals = await self._session.fetch("find_retry_rival", namespace, list(ids))
                for queue, fingerprint, rival in rivals:
                    raise FingerprintTaken(
                        queue=queue, fingerprint=fingerprint, job_id=rival
                    ) from error
                # The conflicting job has finished since: try again.
        changes, moves = {}, WriteHints()
        for id, old, new, partition, frees_limit, run in rows:
            if run is not None:
                raise JobBelongsToRun(job_id=id, run_id=run)
            before, after = STATUS_OF[old], STATUS_OF[new]
            changes[id] = StatusChange(id=JobId(id), before=before, after=after)
            if before is not after:
                moves.moved(id, after, partition, frees_limit=frees_limit)
                if before in CLAIMED:
                    moves.stopped(id)
        self._session.publish(*moves.hints())
        order = sorted(changes) if group is not None else dict.fromkeys(ids)
        return [changes[id] for id in order if id in changes]

    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> bool:
        arguments = (self._session.moment(), namespace, queue, by)
        is_paused = await self._changes("pause_queue", *arguments)
        if is_paused:
            self._session.publish(Hint(type=HintType.DUE))
        return is_paused

    async def resume_queue(self, namespace: str, queue: str) -> bool:
        is_resumed = await self._changes("resume_queue", namespace, queue)
        if is_resumed:
            self._session.publish(Hint(type=HintType.READY))
        return is_resumed

    async def _changes(self, statement: str, *arguments: Any) -> bool:
        """Whether a statement changed a row; assumed if its first execution got no response."""
        text = self._session.statements[statement]

        async def work(connection: Connection, is_repeated: bool) -> bool:
            return bool(await connection.fetch(text, *arguments)) or is_repeated

        return await self._session.connections.run(work)

    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        return [
            FlowCount(namespace=row[0], flow=row[1], version=row[2], count=row[3])
            for row in await self._session.fetch("live_flows", namespace)
        ]

    async def queue_stats(
        self, namespace: str | None, most: int = QUEUE_COUNT_MAX
    ) -> list[QueueDepth]:
        return [
            queue_depth(row[0], row[1], STATUS_OF[row[2]], row[3], most)
            for row in await self._session.fetch("queue_stats", namespace, most + 1)
        ]

    async def run_stats(self, namespace: str | None, most: int = QUEUE_COUNT_MAX) -> list[RunStats]:
        return run_stats_of(
            (
                (place, status and RUN_STATUS_OF[status], *counts)
                for place, status, *counts in await self._session.fetch(
                    "run_stats", namespace, most + 1
                )
            ),
            most,
        )

    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]:
        rows = await self._session.fetch("paused_queues", namespace)
        return [queue_from(row) for row in rows]

    async def inspect_storage(self) -> StorageReport:
        schema = self._session.address.schema
        wanted = indexes_made(load_migrations(PACKAGE, place_in_sql(schema)))
        present = dict(await self._session.fetch("indexes_present", schema))
        statements = self._session.statements
        orphaned_runs = await self._session.scan(statements["orphaned_runs"], ORPHANS_MAX)
        [(newest_at,)] = await self._session.scan(statements["newest_at"])
        return StorageReport(
            schema_version=(await self._session.fetch("schema_version"))[0][0],
            missing_indexes={name: wanted[name] for name in sorted(wanted.keys() - present.keys())},
            invalid_indexes={
                name: f'REINDEX INDEX CONCURRENTLY "{schema}".{name};'
                for name in sorted(wanted)
                if present.get(name) is False
            },
            orphaned_runs=tuple(
                OrphanedRun(run=run, namespace=namespace) for run, namespace in orphaned_runs
            ),
            newest_at=newest_at,
        )

    async def flow_stats(self, namespace: str | None) -> list[FlowRuns]:
        return [
            FlowRuns(
                namespace=place,
                flow=flow,
                version=version,
                live=live,
                ended=ended,
                last_submitted_at=last,
            )
            for place, flow, version, live, ended, last in await self._session.scan(
                self._session.statements["count_flows"], namespace
            )
        ]

    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        old = (self._session.moment(), namespace, nearest_duration(keep))
        jobs = await self._session.scan(self._session.statements["count_ended_jobs"], *old)
        runs = await self._session.scan(self._session.statements["count_ended_runs"], *old)
        return EndedCounts(
            jobs={Status(status): count for status, count in jobs},
            runs={RunStatus(status): count for status, count in runs},
        )


@lru_cache(maxsize=64)
def change_statement(template: str, operation: Transition, scope: str) -> str:
    """``change_jobs`` for one operation on jobs given by "ids" or by "group"."""
    before = ", ".join(f"'{status.value}'" for status in sorted(starts_from(operation)))
    return fill(
        template, {"scope": _SCOPES[scope], "change": _CHANGES[operation], "before": before}
    )
