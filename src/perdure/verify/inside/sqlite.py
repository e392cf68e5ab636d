"""The inside of a store in SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from perdure.model.ids import JobId, RunId
from perdure.model.job import Job
from perdure.store.contract import Store
from perdure.store.sqlite.rows import RECORD_ROW, as_json, job_from, moment_or_none
from perdure.store.sqlite.store import SqliteStore
from perdure.verify.inside.reads import JobDetails, LimitDetails

_JOBS = """
SELECT job.id, job.status, job.epoch, job.queue, job.task, job.lane, job.rank, job.limit_keys,
       job.policy,
       CASE WHEN job.finished_at IS NULL THEN coalesce(job.input, large.input) END
FROM {prefix}jobs AS job LEFT JOIN {prefix}large_inputs AS large ON large.job_id = job.id
WHERE
"""
_OF_RUN = _JOBS + "job.run_id = :run AND job.namespace = :namespace"
_BY_ID = _JOBS + "job.id IN (SELECT value FROM json_each(:ids))"
_BEFORE = "SELECT max(id) FROM {prefix}jobs WHERE NOT dropped AND (:before IS NULL OR id < :before)"
_DROPPED = f"""
SELECT {RECORD_ROW} FROM {{prefix}}jobs AS job
WHERE job.dropped AND (:before IS NULL OR job.id < :before)
ORDER BY job.id DESC LIMIT :limit
"""
_TWINS = """
SELECT namespace, queue, fingerprint, count(*) FROM {prefix}jobs
WHERE fingerprint IS NOT NULL AND finished_at IS NULL
GROUP BY namespace, queue, fingerprint HAVING count(*) > 1
"""
_LIMITS = """
SELECT namespace, key, max(closed_until), max(last_start_at), max(started_at) FROM (
    SELECT namespace, key, closed_until, last_start_at, NULL AS started_at FROM {prefix}limits
    UNION ALL
    SELECT namespace, key, NULL, NULL, started_at FROM {prefix}limit_starts
)
GROUP BY namespace, key
"""
_SCHEDULES = "SELECT namespace, name, due_at FROM {prefix}schedules"
_HELD = """
SELECT key FROM {prefix}waits
WHERE run_id = :run AND namespace = :namespace AND is_held = 1
"""
_STRAYS = """
SELECT 'events of a run that is gone, number ' || run_serial FROM (
    SELECT DISTINCT run_serial FROM {prefix}events
    WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
)
UNION ALL
SELECT 'a snapshot of a run that is gone, number ' || run_serial FROM {prefix}snapshots
WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
UNION ALL
SELECT 'wait ' || key || ' of run ' || run_id FROM {prefix}waits AS wait
WHERE NOT EXISTS (
    SELECT 1 FROM {prefix}runs AS run
    WHERE run.id = wait.run_id AND run.namespace = wait.namespace
)
UNION ALL
SELECT 'steps of ' || owner FROM (
    SELECT DISTINCT owner FROM {prefix}steps
    WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
       OR job_id NOT IN (SELECT id FROM {prefix}jobs)
)
UNION ALL
SELECT 'failures of job ' || job_id FROM (
    SELECT DISTINCT job_id FROM {prefix}failures
    WHERE job_id NOT IN (SELECT id FROM {prefix}jobs)
)
UNION ALL
SELECT 'the input of job ' || job_id FROM {prefix}large_inputs
WHERE job_id NOT IN (SELECT id FROM {prefix}jobs)
LIMIT 100
"""


class SqliteInside:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._prefix = store._session.place.prefix

    @staticmethod
    def of(store: Store) -> SqliteInside:
        assert isinstance(store, SqliteStore)
        return SqliteInside(store)

    async def jobs_of(self, namespace: str, run: RunId) -> dict[JobId, JobDetails]:
        rows = await self._rows(_OF_RUN, namespace=namespace, run=run)
        return {row[0]: _details(row) for row in rows}

    async def jobs(self, ids: Sequence[JobId]) -> dict[JobId, JobDetails]:
        rows = await self._rows(_BY_ID, ids=as_json(list(ids)))
        return {row[0]: _details(row) for row in rows}

    async def held_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        held = await self._rows(_HELD, namespace=namespace, run=run)
        return frozenset(key for (key,) in held)

    async def job_before(self, id: JobId | None) -> JobId | None:
        [(found,)] = await self._rows(_BEFORE, before=id)
        return None if found is None else JobId(found)

    async def dropped_jobs(self, before: JobId | None, limit: int) -> list[Job]:
        rows = await self._rows(_DROPPED, before=before, limit=limit)
        return [job_from(row) for row in rows]

    async def twins(self) -> list[tuple[str, str, str, int]]:
        return await self._rows(_TWINS)

    async def limits(self) -> list[LimitDetails]:
        return [
            LimitDetails(
                namespace=namespace,
                key=key,
                closed_until=moment_or_none(closed),
                last_start_at=moment_or_none(last),
                latest_start_at=moment_or_none(latest),
            )
            for namespace, key, closed, last, latest in await self._rows(_LIMITS)
        ]

    async def schedule_times(self) -> dict[tuple[str, str], datetime | None]:
        rows = await self._rows(_SCHEDULES)
        return {(namespace, name): moment_or_none(due) for namespace, name, due in rows}

    async def strays(self) -> list[str]:
        return [text for (text,) in await self._rows(_STRAYS)]

    async def _rows(self, text: str, **parameters: Any) -> list[Any]:
        statement = text.format(prefix=self._prefix)
        found = await self._store._session.read(
            lambda transaction: transaction.rows_of(statement, **parameters)
        )
        return list(found)


def _details(row: tuple[Any, ...]) -> JobDetails:
    _, status, epoch, queue, task, lane, rank, keys, policy, input = row
    return JobDetails(
        status=status,
        epoch=epoch,
        queue=queue,
        task=task,
        lane=lane,
        rank=rank,
        limit_keys=() if keys is None else msgspec.json.decode(keys, type=tuple[str, ...]),
        policy=policy,
        input=input,
    )
