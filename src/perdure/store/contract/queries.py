"""Reads for clients and operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from perdure.model.client_event import EndedJob, EndFilter
from perdure.model.facts import ExplainFacts
from perdure.model.ids import JobId, RunId
from perdure.model.job import FailedAttempt, Job, JobFilter, JobState
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.run import Run, RunFilter, Wait, WaitFilter
from perdure.model.worker import TaskCounts, WorkerState


class QueryStore(Protocol):
    """Reads for clients and operators. ``namespace`` None reads all namespaces."""

    @abstractmethod
    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        """One job with its values."""

    @abstractmethod
    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        """Matching jobs without their values, newest first."""

    @abstractmethod
    async def peek(self, namespace: str, partitions: Sequence[str], limit: int) -> list[Job]:
        """The next jobs to claim from these partitions, in that order, without their values."""

    @abstractmethod
    async def count_jobs(self, filter: JobFilter) -> int: ...

    @abstractmethod
    async def job_states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        """The states of these jobs for waiters, including hidden jobs."""

    @abstractmethod
    async def failed_attempts(self, id: JobId) -> list[FailedAttempt]:
        """The job's history of failures, oldest first."""

    @abstractmethod
    async def find_result(
        self, namespace: str, task: str, input_hash: int, input: bytes
    ) -> bytes | None:
        """The output of the latest completed job of this task with exactly this input, if
        stored."""

    @abstractmethod
    async def list_runs(self, filter: RunFilter, limit: int) -> list[Run]:
        """Matching runs, newest first."""

    @abstractmethod
    async def count_runs(self, filter: RunFilter) -> int: ...

    @abstractmethod
    async def get_runs(self, runs: Sequence[tuple[str, RunId]]) -> list[Run | None]:
        """These runs, in the order requested."""

    @abstractmethod
    async def run_jobs(self, namespace: str, run: RunId) -> list[Job]:
        """The run's jobs, oldest first, without their failures (see ``failed_attempts``)."""

    @abstractmethod
    async def run_waits(self, namespace: str, run: RunId) -> list[Wait]: ...

    @abstractmethod
    async def list_waits(self, filter: WaitFilter, limit: int) -> list[Wait]:
        """Matching waits, suspended ones too, the longest open first (then by run and key).

        - With deciders: waits that name one of them, and waits without deciders.
        """

    @abstractmethod
    async def workers(self, namespace: str | None) -> list[WorkerState]:
        """The registered workers, with their claimed jobs."""

    @abstractmethod
    async def work_counts(self, namespace: str | None) -> dict[str, list[TaskCounts]]:
        """The counts of all workers, live and removed, by namespace.

        - One consistent view: a worker that signs off meanwhile counts once.
        """

    @abstractmethod
    async def explain_facts(
        self, namespace: str, run: RunId | None = None, job: JobId | None = None
    ) -> ExplainFacts:
        """All facts that explain the state of a run, or of a job without a run.

        - One consistent view: jobs, waits, events and children are of the same moment.
        - Names the runs that hold the places a queued run waits for, the longest started first.
        - Neither blocks writers nor is blocked by them.
        """

    @abstractmethod
    async def get_jobs(self, namespace: str, ids: Sequence[JobId]) -> list[Job]:
        """The existing ones of these jobs, without their values."""

    @abstractmethod
    async def limit_usage(self, namespace: str, rules: Sequence[LimitRule]) -> list[LimitUse]:
        """The current usage of each rule, in order, as a claim would see it.

        - Names the jobs that count as live under its key, longest claimed first.
        """

    @abstractmethod
    async def ended_jobs(self, filter: EndFilter, limit: int) -> list[EndedJob]:
        """Jobs that ended before ``until``, by time of end and id, hidden ones too."""

    @abstractmethod
    async def ended_runs(self, filter: EndFilter, limit: int) -> list[Run]:
        """Runs that ended before ``until``, by time of end and id, child runs too."""

    @abstractmethod
    async def pruned_until(self, namespace: str) -> Mapping[str, datetime]:
        """The latest time of end that was pruned, by event type, such as ``job.completed``."""
