"""What workers poll, and the maintenance that any of them may do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from perdure.model.ids import WorkerId
from perdure.model.job import Expired, Status, TakenOver
from perdure.model.run import RunStatus, Wait
from perdure.model.schedule import Schedule
from perdure.model.worker import PollResult, WorkerInfo

POLL_PARTITIONS_MAX = 1000
"""Partitions that one poll names; with more of them, the next poll goes on where it stopped."""


class MaintenanceStore(Protocol):
    """What any worker may do for its namespace, one at a time, in bounded batches.

    Nothing here touches, or tells of, jobs, limits and workers of another namespace.
    """

    @abstractmethod
    async def poll(self, namespace: str, after_partition: str = "") -> PollResult:
        """What waits and what is due next, in one statement whose cost does not grow with jobs.

        - Names the partitions of this namespace with waiting jobs, in text order, those after
          ``after_partition``, at most ``POLL_PARTITIONS_MAX`` of them.
        - The times due are those of this namespace; a wait's counts as ``next_wait_at``, a
          schedule's as ``next_tick_at``.
        - Names the paused queues of this namespace.
        """

    @abstractmethod
    async def acquire_lease(self, duty: str, worker: WorkerId, lease: timedelta) -> bool:
        """Take or keep the lease row of a duty; False while another holds it."""

    @abstractmethod
    async def promote_due(self, namespace: str, limit: int) -> int:
        """Make scheduled jobs whose time has come waiting, earliest first."""

    @abstractmethod
    async def take_over_expired(
        self, namespace: str, limit: int, max_crashes: int
    ) -> list[TakenOver]:
        """Take jobs from holders whose lease ran out.

        - Back to waiting with their rank, no failure counted, a death counted.
        - The ``max_crashes``-th death sends it to the dead letter as a poison pill.
        - An aborting one ends cancelled. The old claim is stale from then on.
        """

    @abstractmethod
    async def expire_deadlines(self, namespace: str, limit: int) -> list[Expired]:
        """Fail unheld jobs whose deadline has passed, with ``DeadlineExceeded``."""

    @abstractmethod
    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        """Waits whose time has come, earliest first; none of a run that is held."""

    @abstractmethod
    async def due_schedules(self, namespace: str, limit: int) -> list[Schedule]:
        """Schedules whose time to be looked at has come, earliest first.

        - Those that cannot be read are left out, and stand in nobody's way.
        """

    @abstractmethod
    async def prune_jobs(self, namespace: str, keep: Mapping[Status, timedelta], limit: int) -> int:
        """Remove jobs that finished longer ago than ``keep`` says for their status."""

    @abstractmethod
    async def prune_runs(
        self, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
    ) -> int:
        """Remove runs that ended longer ago than ``keep`` says, with all that is kept of them.

        - A child is removed with its parent, not before.
        """

    @abstractmethod
    async def prune_limits(self, namespace: str, idle: timedelta, limit: int) -> int:
        """Forget limit keys that have been without effect for that long; how many.

        - One has an effect while it is closed, and while a start counts in its window or spacing.
        - A key that a claim is using just now is left alone.
        - How much runs under a key is not forgotten: jobs know their keys themselves.
        """

    @abstractmethod
    async def register_worker(self, info: WorkerInfo) -> None:
        """Write the worker's row, or say that it is still there."""

    @abstractmethod
    async def remove_worker(self, id: WorkerId) -> None: ...

    @abstractmethod
    async def prune_workers(self, namespace: str, idle: timedelta) -> int:
        """Drop rows of workers not seen for that long, and not for two of their leases."""
