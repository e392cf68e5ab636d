"""Reads for the verifier only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

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
from perdure.store.sqlite.rows import as_json, job_from, moment_or_none
from perdure.store.sqlite.session import Session


class SqliteAudit(AuditStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def jobs(self, ids: Sequence[JobId]) -> dict[JobId, AuditedJob]:
        rows = await self._session.rows("audit_jobs", ids=as_json(list(ids)))
        return {row[0]: _columns(row) for row in rows}

    async def jobs_of_run(self, namespace: str, run: RunId) -> dict[JobId, AuditedJob]:
        rows = await self._session.rows("audit_jobs_of_run", namespace=namespace, run=run)
        return {row[0]: _columns(row) for row in rows}

    async def job_before(self, namespace: str | None, id: JobId | None) -> JobId | None:
        [(found,)] = await self._session.rows("job_before", namespace=namespace, before=id)
        return None if found is None else JobId(found)

    async def hidden_jobs(
        self, namespace: str | None, before: JobId | None, limit: int
    ) -> list[Job]:
        place = {"namespace": namespace, "before": before, "limit": limit}
        return [job_from(row) for row in await self._session.rows("hidden_jobs", **place)]

    async def suspended_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        rows = await self._session.rows("suspended_waits", namespace=namespace, run=run)
        return frozenset(key for (key,) in rows)

    async def shared_fingerprints(self, namespace: str | None) -> list[SharedFingerprint]:
        return [
            SharedFingerprint(namespace=place, queue=queue, fingerprint=fingerprint, count=count)
            for place, queue, fingerprint, count in await self._session.rows(
                "shared_fingerprints", namespace=namespace
            )
        ]

    async def limits(self, namespace: str | None) -> list[AuditedLimit]:
        return [
            AuditedLimit(
                namespace=place,
                key=key,
                closed_until=moment_or_none(closed),
                last_start_at=moment_or_none(last),
                latest_start_at=moment_or_none(latest),
            )
            for place, key, closed, last, latest in await self._session.rows(
                "audit_limits", namespace=namespace
            )
        ]

    async def places(self, namespace: str | None) -> list[AuditedPlace]:
        rows = await self._session.rows("audit_places", namespace=namespace)
        return [
            AuditedPlace(
                namespace=place,
                key=key,
                run=run,
                limit=limit,
                started_at=moment_or_none(started_at),
                rank=rank,
                is_due=bool(is_due),
            )
            for place, key, run, limit, started_at, rank, is_due in rows
        ]

    async def schedule_times(self, namespace: str | None) -> dict[tuple[str, str], datetime | None]:
        rows = await self._session.rows("schedule_times", namespace=namespace)
        return {(place, name): moment_or_none(due) for place, name, due in rows}

    async def orphans(self) -> list[Orphan]:
        rows = await self._session.rows("orphans")
        return [Orphan(table=table, owner=owner) for table, owner in rows]


def _columns(row: tuple[Any, ...]) -> AuditedJob:
    _, status, epoch, queue, task, partition, rank, keys, incarnation, policy, input = row
    return AuditedJob(
        status=status,
        epoch=epoch,
        queue=queue,
        task=task,
        partition=partition,
        rank=rank,
        limit_keys=() if keys is None else msgspec.json.decode(keys, type=tuple[str, ...]),
        incarnation=incarnation,
        policy=policy,
        input=input,
    )
