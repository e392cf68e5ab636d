"""Reads for the verifier only: raw columns and orphaned rows.

The other parts return decoded values of a run, a job or a namespace. These return the rest. They
may scan whole tables, and never decode values that might be corrupt.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from perdure.model.ids import JobId, RunId
from perdure.model.job import Job
from perdure.model.value import Value


class AuditedJob(Value):
    """Stored columns of a job that the other parts omit."""

    status: str
    epoch: int
    """With the status, detects whether the job changed since it was read."""
    queue: str
    task: str
    partition: str
    rank: float
    limit_keys: tuple[str, ...]
    """The limits it counts under while claimed."""
    incarnation: int | None
    """Of the last claim, which ``JobQueue`` makes without one."""
    policy: bytes | None
    input: bytes | None
    """None if the job is finished, or if the input is lost."""


class AuditedLimit(Value):
    """The stored state of a limit."""

    namespace: str
    key: str
    closed_until: datetime | None
    last_start_at: datetime | None
    latest_start_at: datetime | None
    """The latest start counted in a window."""


class AuditedPlace(Value):
    """A run that holds a place, or waits for one."""

    namespace: str
    key: str
    run: RunId
    limit: int
    """How many may hold one when it starts."""
    started_at: datetime | None
    """None while it waits."""
    rank: float | None
    is_due: bool
    """Whether workers will try to start it."""


class SharedFingerprint(Value):
    """A fingerprint shared by several unfinished jobs of one queue."""

    namespace: str
    queue: str
    fingerprint: str
    count: int


class Orphan(Value):
    """Rows whose run or job no longer exists."""

    table: str
    owner: str
    """The run or job that the rows refer to."""


class AuditStore(Protocol):
    @abstractmethod
    async def jobs(self, ids: Sequence[JobId]) -> Mapping[JobId, AuditedJob]:
        """The existing ones of these jobs."""

    @abstractmethod
    async def jobs_of_run(self, namespace: str, run: RunId) -> Mapping[JobId, AuditedJob]: ...

    @abstractmethod
    async def job_before(self, namespace: str | None, id: JobId | None) -> JobId | None:
        """The next id in a list of jobs, newest first, even if its row is corrupt."""

    @abstractmethod
    async def hidden_jobs(
        self, namespace: str | None, before: JobId | None, limit: int
    ) -> Sequence[Job]:
        """Hidden jobs, which only their waiters still see, newest first."""

    @abstractmethod
    async def suspended_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        """Keys of a run's suspended waits, which do not become due."""

    @abstractmethod
    async def shared_fingerprints(self, namespace: str | None) -> Sequence[SharedFingerprint]: ...

    @abstractmethod
    async def limits(self, namespace: str | None) -> Sequence[AuditedLimit]: ...

    @abstractmethod
    async def places(self, namespace: str | None) -> Sequence[AuditedPlace]:
        """All of them, as of one moment."""

    @abstractmethod
    async def schedule_times(
        self, namespace: str | None
    ) -> Mapping[tuple[str, str], datetime | None]:
        """When each schedule is due, by namespace and name."""

    @abstractmethod
    async def orphans(self) -> Sequence[Orphan]:
        """Rows without a run or a job; only some of them, if there are many."""
