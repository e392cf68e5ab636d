"""Reads for the verifier only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from perdure.model.ids import RUN_START, JobId, RunId
from perdure.model.job import FINISHED, Job
from perdure.store.contract.audit import (
    AuditedJob,
    AuditedLimit,
    AuditedPlace,
    AuditStore,
    Orphan,
    SharedFingerprint,
)
from perdure.store.memory.records import StoredJob, StoredRun, StoredWait
from perdure.store.memory.transaction import Session


class MemoryAudit(AuditStore):
    def __init__(self, session: Session) -> None:
        self._state = session.state

    async def jobs(self, ids: Sequence[JobId]) -> dict[JobId, AuditedJob]:
        with self._state.lock:
            found = {id: self._state.jobs.get(id) for id in ids}
            return {id: _columns(job) for id, job in found.items() if job is not None}

    async def jobs_of_run(self, namespace: str, run: RunId) -> dict[JobId, AuditedJob]:
        with self._state.lock:
            ids = self._state.of_run.ids((namespace, run))
            return {id: _columns(self._state.jobs[id]) for id in ids}

    async def job_before(self, namespace: str | None, id: JobId | None) -> JobId | None:
        with self._state.lock:
            listed = [job.id for job in self._jobs(namespace) if not job.is_hidden]
            return max((each for each in listed if id is None or each < id), default=None)

    async def hidden_jobs(
        self, namespace: str | None, before: JobId | None, limit: int
    ) -> list[Job]:
        with self._state.lock:
            hidden = [job for job in self._jobs(namespace) if job.is_hidden]
        hidden.sort(key=lambda job: job.id, reverse=True)
        older = [job for job in hidden if before is None or job.id < before]
        return [job.as_job(with_values=False) for job in older[:limit]]

    async def suspended_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        with self._state.lock:
            waits = self._state.records.waits_of((namespace, run))
            return frozenset(wait.key for wait in waits if wait.is_suspended)

    async def shared_fingerprints(self, namespace: str | None) -> list[SharedFingerprint]:
        with self._state.lock:
            counts = Counter(
                (job.namespace, job.partition.queue, job.fingerprint)
                for job in self._jobs(namespace)
                if job.fingerprint is not None and job.status not in FINISHED
            )
        return [
            SharedFingerprint(namespace=place, queue=queue, fingerprint=fingerprint, count=count)
            for (place, queue, fingerprint), count in counts.items()
            if count > 1
        ]

    async def limits(self, namespace: str | None) -> list[AuditedLimit]:
        with self._state.lock:
            return [
                AuditedLimit(
                    namespace=place,
                    key=key,
                    closed_until=record.closed_until,
                    last_start_at=record.last_start_at,
                    latest_start_at=max((at for at, _ in record.starts), default=None),
                )
                for (place, key), record in self._state.limits.items()
                if namespace in (None, place)
            ]

    async def places(self, namespace: str | None) -> list[AuditedPlace]:
        with self._state.lock:
            records, found = self._state.records, list[AuditedPlace]()
            for index in (records.holders, records.queued):
                for group in list(index.groups()):
                    runs = [records.runs[place] for place in index.ids(group)]
                    found += [_place(run, records.wait(*run.place, RUN_START)) for run in runs]
            return [each for each in found if namespace in (None, each.namespace)]

    async def schedule_times(self, namespace: str | None) -> dict[tuple[str, str], datetime | None]:
        with self._state.lock:
            schedules = self._state.schedules
            return {
                place: each.state.due_at if place in schedules.due.ids(each.namespace) else None
                for place, each in schedules.by_place.items()
                if namespace in (None, each.namespace)
            }

    async def orphans(self) -> list[Orphan]:
        with self._state.lock:
            records = self._state.records
            runs = records.runs
            found = [("events", str(place[1])) for place in records.events if place not in runs]
            found += [("waits", str(place[1])) for place in records.waits if place not in runs]
            for owner, steps in records.steps.items():
                kept = runs if isinstance(steps.holder, tuple) else self._state.jobs
                if steps.holder not in kept:
                    found.append(("steps", str(owner)))
        return [Orphan(table=table, owner=owner) for table, owner in sorted(found)]

    def _jobs(self, namespace: str | None) -> list[StoredJob]:
        return [job for job in self._state.jobs.values() if namespace in (None, job.namespace)]


def _place(run: StoredRun, wait: StoredWait | None) -> AuditedPlace:
    return AuditedPlace(
        namespace=run.namespace,
        key=run.place_key or "",
        run=run.id,
        limit=run.place_limit or 0,
        started_at=run.started_at,
        rank=run.rank,
        is_due=wait is not None and wait.due_at is not None and not wait.is_suspended,
    )


def _columns(job: StoredJob) -> AuditedJob:
    return AuditedJob(
        status=job.status,
        epoch=job.epoch,
        queue=job.partition.queue,
        task=job.partition.task,
        partition=job.partition_key,
        rank=job.rank,
        limit_keys=job.limit_keys,
        incarnation=job.incarnation,
        policy=job.policy,
        input=None if job.status in FINISHED else job.input,
    )
