"""The inside of a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.model.ids import JobId, RunId
from perdure.model.job import Job
from perdure.store.contract import Store
from perdure.store.postgres.rows import job
from perdure.store.postgres.store import PostgresStore
from perdure.verify.inside.reads import JobDetails, LimitDetails

_JOBS = """
SELECT id, status, epoch, queue, task, lane, rank, limit_keys, policy,
       CASE WHEN finished_at IS NULL THEN input END
FROM {schema}.jobs
WHERE
"""
_OF_RUN = _JOBS + "run_id = $1 AND namespace = $2"
_BY_ID = _JOBS + "id = ANY ($1::text[])"
_BEFORE = "SELECT max(id) FROM {schema}.jobs WHERE NOT dropped AND ($1::text IS NULL OR id < $1)"
_DROPPED = """
SELECT id, namespace, lane, status, priority, job_group, fingerprint, attempt, failures, deaths,
       max_attempts, worker, epoch, progress, progress_message, progress_details, created_at,
       ready_at, deadline_at, started_at, finished_at, lease_until, NULL::bytea, NULL::bytea,
       run_id, node_key
FROM {schema}.jobs
WHERE dropped AND ($1::text IS NULL OR id < $1)
ORDER BY id DESC LIMIT $2
"""
_TWINS = """
SELECT namespace, queue, fingerprint, count(*) FROM {schema}.jobs
WHERE fingerprint IS NOT NULL AND finished_at IS NULL
GROUP BY namespace, queue, fingerprint HAVING count(*) > 1
"""
_LIMITS = """
SELECT namespace, key, max(closed_until), max(last_start_at), max(started_at) FROM (
    SELECT namespace, key, closed_until, last_start_at, NULL::timestamptz AS started_at
    FROM {schema}.limits
    UNION ALL
    SELECT namespace, key, NULL, NULL, started_at FROM {schema}.limit_starts
) AS known
GROUP BY namespace, key
"""
_SCHEDULES = "SELECT namespace, name, due_at FROM {schema}.schedules"
_HELD = "SELECT key FROM {schema}.waits WHERE run_id = $1 AND namespace = $2 AND is_held"
_STRAYS = """
SELECT 'events of a run that is gone, number ' || run_serial FROM (
    SELECT DISTINCT run_serial FROM {schema}.events
) AS logs
WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = run_serial)
UNION ALL
SELECT 'a snapshot of a run that is gone, number ' || run_serial FROM {schema}.snapshots
WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = run_serial)
UNION ALL
SELECT 'wait ' || key || ' of run ' || run_id FROM {schema}.waits AS wait
WHERE NOT EXISTS (
    SELECT 1 FROM {schema}.runs AS run
    WHERE run.id = wait.run_id AND run.namespace = wait.namespace
)
UNION ALL
SELECT 'steps of ' || owner FROM (
    SELECT DISTINCT owner, run_serial, job_id FROM {schema}.steps
) AS owners
WHERE (
    run_serial IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = owners.run_serial)
) OR (
    job_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE id = owners.job_id)
)
UNION ALL
SELECT 'failures of job ' || job_id FROM (SELECT DISTINCT job_id FROM {schema}.failures) AS failed
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE id = failed.job_id)
LIMIT 100
"""


class PostgresInside:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._schema = f'"{store._session.address.schema}"'

    @staticmethod
    def of(store: Store) -> PostgresInside:
        assert isinstance(store, PostgresStore)
        return PostgresInside(store)

    async def jobs_of(self, namespace: str, run: RunId) -> dict[JobId, JobDetails]:
        rows = await self._rows(_OF_RUN, run, namespace)
        return {row[0]: _details(row) for row in rows}

    async def jobs(self, ids: Sequence[JobId]) -> dict[JobId, JobDetails]:
        rows = await self._rows(_BY_ID, list(ids))
        return {row[0]: _details(row) for row in rows}

    async def held_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        held = await self._rows(_HELD, run, namespace)
        return frozenset(key for (key,) in held)

    async def job_before(self, id: JobId | None) -> JobId | None:
        [(found,)] = await self._rows(_BEFORE, id)
        return None if found is None else JobId(found)

    async def dropped_jobs(self, before: JobId | None, limit: int) -> list[Job]:
        found = await self._store._session.scan(_DROPPED.format(schema=self._schema), before, limit)
        return [job(row) for row in found]

    async def twins(self) -> list[tuple[str, str, str, int]]:
        found = await self._store._session.scan(_TWINS.format(schema=self._schema))
        return [tuple(row) for row in found]

    async def limits(self) -> list[LimitDetails]:
        return [
            LimitDetails(
                namespace=namespace,
                key=key,
                closed_until=closed,
                last_start_at=last,
                latest_start_at=latest,
            )
            for namespace, key, closed, last, latest in await self._rows(_LIMITS)
        ]

    async def schedule_times(self) -> dict[tuple[str, str], datetime | None]:
        rows = await self._rows(_SCHEDULES)
        return {(namespace, name): due for namespace, name, due in rows}

    async def strays(self) -> list[str]:
        found = await self._store._session.scan(_STRAYS.format(schema=self._schema))
        return [text for (text,) in found]

    async def _rows(self, text: str, *values: Any) -> list[Any]:
        statement = text.format(schema=self._schema)
        return await self._store._session.connections.fetch(statement, *values)


def _details(row: Sequence[Any]) -> JobDetails:
    _, status, epoch, queue, task, lane, rank, keys, policy, input = row
    return JobDetails(
        status=status,
        epoch=epoch,
        queue=queue,
        task=task,
        lane=lane,
        rank=rank,
        limit_keys=tuple(keys or ()),
        policy=policy,
        input=input,
    )
