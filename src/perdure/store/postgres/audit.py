"""Reads for the verifier only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perdure.model.ids import JobId, RunId
from perdure.model.job import Job
from perdure.store.contract.audit import (
    AuditedJob,
    AuditedLimit,
    AuditedPlace,
    AuditStore,
    Orphan,
    SharedFingerprint,
)
from perdure.store.postgres.connection import Record
from perdure.store.postgres.rows import job_from
from perdure.store.postgres.session import Session


class PostgresAudit(AuditStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def jobs(self, ids: Sequence[JobId]) -> dict[JobId, AuditedJob]:
        rows = await self._session.fetch("audit_jobs", list(ids))
        return {row[0]: _columns(row) for row in rows}

    async def jobs_of_run(self, namespace: str, run: RunId) -> dict[JobId, AuditedJob]:
        rows = await self._session.fetch("audit_jobs_of_run", run, namespace)
        return {row[0]: _columns(row) for row in rows}

    async def job_before(self, namespace: str | None, id: JobId | None) -> JobId | None:
        [(found,)] = await self._session.fetch("job_before", namespace, id)
        return None if found is None else JobId(found)

    async def hidden_jobs(
        self, namespace: str | None, before: JobId | None, limit: int
    ) -> list[Job]:
        text = self._session.statements["hidden_jobs"]
        return [job_from(row) for row in await self._session.scan(text, namespace, before, limit)]

    async def suspended_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        rows = await self._session.fetch("suspended_waits", run, namespace)
        return frozenset(key for (key,) in rows)

    async def shared_fingerprints(self, namespace: str | None) -> list[SharedFingerprint]:
        text = self._session.statements["shared_fingerprints"]
        return [
            SharedFingerprint(namespace=place, queue=queue, fingerprint=fingerprint, count=count)
            for place, queue, fingerprint, count in await self._session.scan(text, namespace)
        ]

    async def limits(self, namespace: str | None) -> list[AuditedLimit]:
        return [
            AuditedLimit(
                namespace=place,
                key=key,
                closed_until=closed,
                last_start_at=last,
                latest_start_at=latest,
            )
            for place, key, closed, last, latest in await self._session.fetch(
                "audit_limits", namespace
            )
        ]

    async def places(self, namespace: str | None) -> list[AuditedPlace]:
        rows = await self._session.scan(self._session.statements["audit_places"], namespace)
        return [
            AuditedPlace(
                namespace=place,
                key=key,
                run=run,
                limit=limit,
                started_at=started_at,
                rank=rank,
                is_due=bool(is_due),
            )
            for place, key, run, limit, started_at, rank, is_due in rows
        ]

    async def schedule_times(self, namespace: str | None) -> dict[tuple[str, str], datetime | None]:
        rows = await self._session.fetch("schedule_times", namespace)
        return {(place, name): due for place, name, due in rows}

    async def orphans(self) -> list[Orphan]:
        rows = await self._session.scan(self._session.statements["orphans"])
        return [Orphan(table=table, owner=owner) for table, owner in rows]


def _columns(row: Record) -> AuditedJob:
    _, status, epoch, queue, task, partition, rank, keys, incarnation, policy, input = row
    return AuditedJob(
        status=status,
        epoch=epoch,
        queue=queue,
        task=task,
        partition=partition,
        rank=rank,
        limit_keys=tuple(keys or ()),
        incarnation=incarnation,
        policy=policy,
        input=input,
    )
