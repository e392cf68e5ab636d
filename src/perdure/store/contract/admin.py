"""Operations on jobs and queues, and reports for operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from perdure.model.facts import EndedCounts, FlowRuns, RunStats, StorageReport
from perdure.model.ids import JobId
from perdure.model.job import QUEUE_COUNT_MAX, QueueDepth, QueueInfo, StatusChange
from perdure.model.run import FlowCount
from perdure.store.lifecycle import Transition


class AdminStore(Protocol):
    """Operations on jobs and queues, and reports for operators.

    Jobs that are not found are left out of the answer. Changing a job of a run raises
    ``JobBelongsToRun``, and nothing is written. Counts and reports may cost in proportion to the
    number of stored rows.
    """

    @abstractmethod
    async def change_jobs(
        self,
        operation: Transition,
        namespace: str | None,
        ids: Sequence[JobId] = (),
        *,
        group: str | None = None,
    ) -> list[StatusChange]:
        """Abort, disable, enable, retry or resume jobs by id, or all unfinished ones of a group.

        - Moves the jobs that the operation applies to by the transition table; others stay as they
          are.
        - A group is one of the given namespace only.
        - ABORT cancels unclaimed jobs and makes active ones aborting; a hint names their ids, so
          that workers stop immediately.
        - DISABLE keeps jobs from running until they are enabled; an active one loses its claim.
        - ENABLE makes a job waiting, or scheduled if its time is in the future.
        - RETRY requeues failed, dead and cancelled jobs with a fresh budget (failures, snoozes and
          crashes count from zero) and without a deadline. Their failed attempts stay.
          Raises ``FingerprintTaken`` when a live job has the fingerprint of one.
        - RESUME requeues paused (parked) jobs.
        """

    @abstractmethod
    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> bool:
        """Stop claims from the queue until it is resumed; False, changing nothing, if it is paused.

        - Publishes a DUE hint, so that no run continues in place into the queue.
        """

    @abstractmethod
    async def resume_queue(self, namespace: str, queue: str) -> bool:
        """End a pause; False if there is none."""

    @abstractmethod
    async def queue_stats(
        self, namespace: str | None, most: int = QUEUE_COUNT_MAX
    ) -> list[QueueDepth]:
        """How many jobs are in each status, by queue.

        - Exact up to ``most`` of a queue in a status; of more, that many and ``has_more``.
        """

    @abstractmethod
    async def run_stats(self, namespace: str | None, most: int = QUEUE_COUNT_MAX) -> list[RunStats]:
        """How many runs are in each status, wait for people or are orphaned, by namespace.

        - Reads up to ``most`` ended runs of each status, unfinished runs and open approvals of
          each namespace; of more, the statuses are in ``more``.
        """

    @abstractmethod
    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]: ...

    @abstractmethod
    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        """The flow versions of unended runs."""

    @abstractmethod
    async def flow_stats(self, namespace: str | None) -> list[FlowRuns]:
        """Every stored version of every flow, with its runs counted; sorted by name."""

    @abstractmethod
    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        """Count jobs and runs that ended longer ago than ``keep``.

        - Disabled jobs too, by when they were disabled.
        - Pruning removes all of them, except runs with unfinished descendants.
        """

    @abstractmethod
    async def inspect_storage(self) -> StorageReport:
        """Inspect the database itself and find stuck runs, across all namespaces.

        - Names indexes that are missing, and those that are not valid.
        - Names running runs without a job or a wait, unless they are paused; at most
          ``ORPHANS_MAX`` of them.
        """
