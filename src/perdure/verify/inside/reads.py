"""The reads that each backend offers to an audit, found by the kind of the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.model.ids import JobId, RunId
from perdure.model.job import Job
from perdure.model.value import Value
from perdure.store.contract import Store


class JobDetails(Value):
    """What the contract leaves out of a job, as it is stored."""

    status: str
    epoch: int
    """By which it is told whether the job went on since it was read."""
    queue: str
    task: str
    lane: str
    rank: float
    limit_keys: tuple[str, ...]
    policy: bytes | None
    input: bytes | None
    """None for a finished one, and where it is lost."""


class LimitDetails(Value):
    """What is remembered of one limit."""

    namespace: str
    key: str
    closed_until: datetime | None
    last_start_at: datetime | None
    latest_start_at: datetime | None
    """Of those that are counted in a window."""


class InsideReads(Protocol):
    async def jobs_of(self, namespace: str, run: RunId) -> dict[JobId, JobDetails]: ...

    async def jobs(self, ids: Sequence[JobId]) -> dict[JobId, JobDetails]: ...

    async def held_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        """Keys of a run's waits that are kept from becoming due."""

    async def job_before(self, id: JobId | None) -> JobId | None:
        """The job that is listed next after this one, newest first; also one that cannot be."""

    async def dropped_jobs(self, before: JobId | None, limit: int) -> list[Job]:
        """Jobs that only their waiters still see, newest first."""

    async def twins(self) -> list[tuple[str, str, str, int]]:
        """Namespace, queue and fingerprint that several unfinished jobs share, and how many."""

    async def limits(self) -> list[LimitDetails]: ...

    async def schedule_times(self) -> dict[tuple[str, str], datetime | None]:
        """When each schedule is due by what workers look for, by namespace and name."""

    async def strays(self) -> list[str]:
        """What belongs to no run and no job that is there, in words."""


def inside_of(store: Store) -> InsideReads | None:
    """None for a store that is not one of ours: then only what the contract shows is checked."""
    kinds = {kind.__name__ for kind in type(store).__mro__}
    if "MemoryStore" in kinds:
        from perdure.verify.inside.memory import MemoryInside

        return MemoryInside.of(store)
    if "SqliteStore" in kinds:
        from perdure.verify.inside.sqlite import SqliteInside

        return SqliteInside.of(store)
    if "PostgresStore" in kinds:
        from perdure.verify.inside.postgres import PostgresInside

        return PostgresInside.of(store)
    return None
