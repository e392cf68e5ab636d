"""The inside of a store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, Job
from perdure.store.contract import Store
from perdure.store.memory.state import State
from perdure.store.memory.store import MemoryStore
from perdure.store.memory.stored_job import StoredJob
from perdure.verify.inside.reads import JobDetails, LimitDetails


class MemoryInside:
    def __init__(self, state: State) -> None:
        self._state = state

    @staticmethod
    def of(store: Store) -> MemoryInside:
        assert isinstance(store, MemoryStore)
        return MemoryInside(store._session.state)

    async def jobs_of(self, namespace: str, run: RunId) -> dict[JobId, JobDetails]:
        with self._state.lock:
            ids = self._state.of_run.ids((namespace, run))
            return {id: _details(self._state.jobs[id]) for id in ids}

    async def jobs(self, ids: Sequence[JobId]) -> dict[JobId, JobDetails]:
        with self._state.lock:
            found = {id: self._state.jobs.get(id) for id in ids}
            return {id: _details(job) for id, job in found.items() if job is not None}

    async def held_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        with self._state.lock:
            waits = self._state.records.waits_of((namespace, run))
            return frozenset(wait.key for wait in waits if wait.is_held)

    async def job_before(self, id: JobId | None) -> JobId | None:
        with self._state.lock:
            listed = (job.id for job in self._state.jobs.values() if not job.is_dropped)
            return max((each for each in listed if id is None or each < id), default=None)

    async def dropped_jobs(self, before: JobId | None, limit: int) -> list[Job]:
        with self._state.lock:
            dropped = [job for job in self._state.jobs.values() if job.is_dropped]
        dropped.sort(key=lambda job: job.id, reverse=True)
        older = [job for job in dropped if before is None or job.id < before]
        return [job.as_job(with_values=False) for job in older[:limit]]

    async def twins(self) -> list[tuple[str, str, str, int]]:
        with self._state.lock:
            counts = Counter(
                (job.namespace, job.lane.queue, job.fingerprint)
                for job in self._state.jobs.values()
                if job.fingerprint is not None and job.status not in FINISHED
            )
        return [(*place, count) for place, count in counts.items() if count > 1]

    async def limits(self) -> list[LimitDetails]:
        with self._state.lock:
            return [
                LimitDetails(
                    namespace=namespace,
                    key=key,
                    closed_until=record.closed_until,
                    last_start_at=record.last_start_at,
                    latest_start_at=max((at for at, _ in record.starts), default=None),
                )
                for (namespace, key), record in self._state.limits.items()
            ]

    async def schedule_times(self) -> dict[tuple[str, str], datetime | None]:
        with self._state.lock:
            schedules = self._state.schedules
            return {
                place: each.state.due_at if place in schedules.due.ids(each.namespace) else None
                for place, each in schedules.by_place.items()
            }

    async def strays(self) -> list[str]:
        with self._state.lock:
            records = self._state.records
            runs = records.runs
            found = [f"events of run {place[1]!r}" for place in records.events if place not in runs]
            found += [f"a wait of run {place[1]!r}" for place in records.waits if place not in runs]
            for owner, steps in records.steps.items():
                kept = runs if isinstance(steps.holder, tuple) else self._state.jobs
                if steps.holder not in kept:
                    found.append(f"steps of {owner!r}")
            return sorted(found)


def _details(job: StoredJob) -> JobDetails:
    return JobDetails(
        status=job.status,
        epoch=job.epoch,
        queue=job.lane.queue,
        task=job.lane.task,
        lane=job.lane.text,
        rank=job.rank,
        limit_keys=job.limit_keys,
        policy=job.policy,
        input=None if job.status in FINISHED else job.input,
    )
