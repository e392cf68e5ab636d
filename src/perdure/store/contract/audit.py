"""What only the verifier reads: columns as they are stored, and rows that belong to nothing.

The other parts show what belongs to a run, a job or a namespace, decoded. These show the rest. They
read, may scan whole tables, and never decode what might not be readable.
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
    """What the other parts leave out of a job, as it is stored."""

    status: str
    epoch: int
    """With the status, it tells whether the job changed since it was read."""
    queue: str
    task: str
    partition: str
    rank: float
    limit_keys: tuple[str, ...]
    """The limits that it counts under, while it is held."""
    policy: bytes | None
    input: bytes | None
    """None for a finished one, and where it is lost."""


class AuditedLimit(Value):
    """What is remembered of one limit."""

    namespace: str
    key: str
    closed_until: datetime | None
    last_start_at: datetime | None
    latest_start_at: datetime | None
    """Of those that are counted in a window."""


class SharedFingerprint(Value):
    """A fingerprint that several unfinished jobs of one queue have."""

    namespace: str
    queue: str
    fingerprint: str
    count: int


class Orphan(Value):
    """Rows whose run or job is gone."""

    table: str
    owner: str
    """The run or job, as the rows name it."""


class AuditStore(Protocol):
    @abstractmethod
    async def jobs(self, ids: Sequence[JobId]) -> Mapping[JobId, AuditedJob]:
        """Those that exist."""

    @abstractmethod
    async def jobs_of_run(self, namespace: str, run: RunId) -> Mapping[JobId, AuditedJob]: ...

    @abstractmethod
    async def job_before(self, namespace: str | None, id: JobId | None) -> JobId | None:
        """The id that follows in a list of jobs, newest first, even if its row cannot be read."""

    @abstractmethod
    async def hidden_jobs(
        self, namespace: str | None, before: JobId | None, limit: int
    ) -> Sequence[Job]:
        """Jobs that only their waiters still see, newest first."""

    @abstractmethod
    async def suspended_waits(self, namespace: str, run: RunId) -> frozenset[str]:
        """Keys of a run's waits that are kept from becoming due."""

    @abstractmethod
    async def shared_fingerprints(self, namespace: str | None) -> Sequence[SharedFingerprint]: ...

    @abstractmethod
    async def limits(self, namespace: str | None) -> Sequence[AuditedLimit]: ...

    @abstractmethod
    async def schedule_times(
        self, namespace: str | None
    ) -> Mapping[tuple[str, str], datetime | None]:
        """When workers look at each schedule, by namespace and name."""

    @abstractmethod
    async def orphans(self) -> Sequence[Orphan]:
        """Rows that belong to no run and no job; some of them, if there are many."""
