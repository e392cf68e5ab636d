"""What operators do to jobs and queues, and what they ask now and then."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from perdure.model.facts import EndedCounts, FlowRuns, StorageReport
from perdure.model.ids import JobId
from perdure.model.job import QueueDepth, QueueInfo, StatusChange
from perdure.model.run import FlowCount
from perdure.store.lifecycle import Transition


class AdminStore(Protocol):
    """What operators do to jobs and queues, and what they ask now and then.

    Jobs that are not found are left out of the answer. Changing a job of a run raises
    ``JobBelongsToRun``, and nothing is written. Counting and inspecting may cost in proportion to
    what is stored.
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
        """Abort, disable, enable, retry or resume jobs: these, or all unfinished ones of a group.

        - Moves the jobs that the operation applies to by the transition table; others stay as they
          are.
        - A group is one of the given namespace, and of no other.
        - ABORT cancels unheld jobs and makes active ones aborting; a hint names their ids, so that
          holders stop at once.
        - DISABLE keeps jobs from running until they are enabled; an active one is taken from its
          holder.
        - ENABLE makes a job waiting, or scheduled if its time is ahead.
        - RETRY starts failed, dead and cancelled jobs with a fresh budget (failures, postponements
          and crashes count from zero) and without a deadline. Their history of failures is kept.
          Raises ``FingerprintTaken`` when a live job has the fingerprint of one.
        - RESUME puts paused (released) jobs back into the queue.
        """

    @abstractmethod
    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> None:
        """Let no job of the queue be claimed until it is resumed. Pausing twice keeps the first.

        - Tells workers to look (a DUE hint), so that no run goes on into the queue in place.
        """

    @abstractmethod
    async def resume_queue(self, namespace: str, queue: str) -> None:
        """End a pause, if there is one."""

    @abstractmethod
    async def queue_stats(self, namespace: str | None) -> list[QueueDepth]:
        """How many jobs are in each status, by queue."""

    @abstractmethod
    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]: ...

    @abstractmethod
    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        """Which versions of which flows unended runs are of."""

    @abstractmethod
    async def flow_stats(self, namespace: str | None) -> list[FlowRuns]:
        """Every stored version of every flow, with its runs counted; sorted by their names."""

    @abstractmethod
    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        """What ended longer ago than this.

        - Pruning removes all of it, but for runs that something live is below.
        """

    @abstractmethod
    async def inspect_storage(self) -> StorageReport:
        """How the place itself is, and which runs go nowhere; over all namespaces.

        - Names indexes that are missing, and those that are not valid.
        - Names runs that are under way without a job or a wait, unless they are paused; at most
          ``ORPHANS_MAX`` of them.
        """
