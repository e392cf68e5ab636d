"""What operators do to jobs and queues, and what they ask now and then."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from perdure.model.ids import JobId
from perdure.model.insight import EndedCounts, FlowRuns, StorageReport
from perdure.model.job import (
    QueueDepth,
    QueueInfo,
    StatusChange,
)
from perdure.model.run import (
    FlowCount,
)


class AdminStore(Protocol):
    """What operators do to jobs and queues, and what they ask now and then.

    Jobs that are not found are left out of the answer. Changing a job of a run raises
    ``JobBelongsToRun``, and nothing is written. Counting and inspecting may cost in proportion to
    what is stored.
    """

    @abstractmethod
    async def abort_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        """Stop jobs: unheld ones are cancelled, active ones become aborting, finished ones stay.

        - Tells the holders at once (a hint names the ids).
        """

    @abstractmethod
    async def abort_group(self, namespace: str, group: str) -> list[StatusChange]:
        """The same for every unfinished job of one group and of no other."""

    @abstractmethod
    async def disable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        """Keep jobs from running until enabled; an active one is taken from its holder."""

    @abstractmethod
    async def enable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        """Let disabled jobs run again: waiting, or scheduled if their time lies ahead."""

    @abstractmethod
    async def retry_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        """Start failed, dead or cancelled jobs anew.

        - With a fresh budget: failures, postponements and deaths count from zero.
        - Without a deadline, which has had its say. Its history of failures is kept.
        - Raises ``FingerprintTaken`` when a live job has its fingerprint by now.
        """

    @abstractmethod
    async def resume_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        """Put paused (released) jobs back into the queue."""

    @abstractmethod
    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> None:
        """Let no job of the queue be claimed until it is resumed. Pausing twice keeps the first.

        - Tells workers to look (a DUE hint), so that no run goes on into the queue in place.
        """

    @abstractmethod
    async def resume_queue(self, namespace: str, queue: str) -> None:
        """End a pause, if there is one."""

    @abstractmethod
    async def close_limit(self, namespace: str, key: str, until: datetime) -> None:
        """Let nothing start under ``key`` before ``until``; an earlier time changes nothing."""

    @abstractmethod
    async def depth(self, namespace: str | None) -> list[QueueDepth]:
        """How many jobs are in each status, by queue."""

    @abstractmethod
    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]: ...

    @abstractmethod
    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        """Which versions of which flows unended runs are of."""

    @abstractmethod
    async def count_flows(self, namespace: str | None) -> list[FlowRuns]:
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
          ``STRAYS_MAX`` of them.
        """
