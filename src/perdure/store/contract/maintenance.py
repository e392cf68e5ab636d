"""What workers poll, and the maintenance that any of them may do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from perdure.model.ids import WorkerId
from perdure.model.job import Expired, Status, TakenOver
from perdure.model.run import RunStatus, Wait
from perdure.model.schedule import Schedule
from perdure.model.worker import PollResult, TaskCounts, WorkerInfo

POLL_PARTITIONS_MAX = 1000
"""Maximum partitions per poll; the next poll continues after the last one."""


class MaintenanceStore(Protocol):
    """Maintenance of one namespace, by one worker at a time, in bounded batches.

    Nothing here touches or reveals jobs, limits and workers of another namespace.
    """

    @abstractmethod
    async def poll(self, namespace: str, after_partition: str = "") -> PollResult:
        """Waiting partitions and the next due times, at a cost independent of the number of jobs.

        - Names the partitions of this namespace with waiting jobs, in string order, those after
          ``after_partition``, at most ``POLL_PARTITIONS_MAX`` of them.
        - The times due are those of this namespace; a wait's counts as ``next_wait_at``, a
          schedule's as ``next_tick_at``, that of a job that waits for one worker as
          ``next_sticky_at``.
        - Names the paused queues of this namespace.
        - Reports whether a client subscribes to its live events (see ``live.subscribe``).
        - Reports the last heartbeat of its workers, which shows a clock that was set back.
        """

    @abstractmethod
    async def acquire_lease(self, name: str, worker: WorkerId, lease: timedelta) -> bool:
        """Acquire or renew the named lease; False while another worker has it.

        - A lease that ends too late, because the clock was set back, is free.
        """

    @abstractmethod
    async def promote_due(self, namespace: str, limit: int) -> int:
        """Make scheduled jobs whose time has come waiting, earliest first."""

    @abstractmethod
    async def release_sticky(self, namespace: str, limit: int) -> int:
        """Let any worker claim jobs that have waited for one worker for long enough.

        - Those whose time has come first, then those whose worker has been removed or sends no
          heartbeats. The cost does not grow with the number of jobs that keep waiting.
        """

    @abstractmethod
    async def take_over_expired(self, namespace: str, limit: int) -> list[TakenOver]:
        """Take over jobs whose lease expired.

        - Back to waiting with their rank; counts a crash, not a failure, and raises the suspicion.
        - A suspect waits in a partition of its own, which names its suspicion.
        - A crash counts as one alone if the claim was made with ``is_alone``, unless a step was
          stored since; a stored step also removes the earlier suspicion.
        - An aborting one ends cancelled. The old claim is stale from then on.
        """

    @abstractmethod
    async def take_over_former(
        self, namespace: str, worker: WorkerId, incarnation: int, limit: int
    ) -> list[TakenOver]:
        """Like ``take_over_expired``, for jobs that other incarnations of this worker claimed.

        - Does not wait for their leases to expire.
        - Leaves claims that were made without an incarnation.
        """

    @abstractmethod
    async def bound_times(self, namespace: str, lease: timedelta) -> int:
        """Bound times that are too far ahead after the clock was set back. Return the number of
        leases.

        - A lease ends no later than one lease of its worker from now (``lease`` if its worker is
          unknown): a live worker renews it before, the job of a dead one is taken over after it.
        - A worker was seen no later than now.
        - Starts under limits count as of now at the latest, and a closed limit opens after the
          time it was closed for at the latest.
        - A wait for a child that has ended is due, and so is a queued run with a place.
        - A job waits for one worker no longer if it is not ready yet.
        - A subscriber's lease ends after ``SUBSCRIBER_LEASE`` at the latest, and live events were
          published no later than now.
        - Times that callers set stay: those of scheduled jobs, retries, timers, deadlines and
          schedules.
        """

    @abstractmethod
    async def expire_deadlines(self, namespace: str, limit: int) -> list[Expired]:
        """Fail unclaimed jobs whose deadline has passed, with ``DeadlineExceeded``."""

    @abstractmethod
    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        """Due waits, earliest first; none of a paused run."""

    @abstractmethod
    async def due_schedules(self, namespace: str, limit: int) -> list[Schedule]:
        """Due schedules, earliest first.

        - Unreadable ones are skipped and block no others.
        """

    @abstractmethod
    async def prune_jobs(self, namespace: str, keep: Mapping[Status, timedelta], limit: int) -> int:
        """Remove jobs that finished longer ago than ``keep`` says for their status.

        - Disabled ones if they were disabled longer ago, but none of a run.
        - Records up to which time of end (see ``queries.pruned_until``).
        """

    @abstractmethod
    async def prune_runs(
        self, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
    ) -> int:
        """Remove runs that ended longer ago than ``keep`` says, with all their rows.

        - A child is removed with its parent, not before.
        - Records up to which time of end, children included (see ``queries.pruned_until``).
        """

    @abstractmethod
    async def prune_limits(self, namespace: str, idle: timedelta, limit: int) -> int:
        """Delete limit keys that have had no effect for that long; return how many.

        - One has an effect while it is closed, and while a start counts in its window or spacing.
        - A key in use by a concurrent claim is skipped.
        - Usage is not lost: it is counted from the jobs, which store their keys.
        """

    @abstractmethod
    async def prune_definitions(self, namespace: str, idle: timedelta, limit: int) -> int:
        """Check definitions unused for that long; return how many were checked. Unused ones
        are deleted.

        - In use are those of runs, of schedules, and the child flows of stored definitions; also
          one that a run was migrated away from, while any run of its flow is stored. They are
          checked again after ``idle``.
        - Nothing is deleted while a schedule of the namespace is unreadable.
        """

    @abstractmethod
    async def register_worker(
        self, info: WorkerInfo, counts: Sequence[TaskCounts] = (), *, starts: bool = False
    ) -> bool:
        """Write the worker's row, or refresh it, with what its process has counted so far.

        - Answers False, and writes nothing, if another incarnation has replaced it.
        - A worker that ``starts`` replaces any other incarnation of its id. What that counted in
          this row is kept, as by ``remove_worker``.
        - Counts from before its row was first written, or from before it ``starts``, are not
          added again: they are in the row of its former run, or were never stored.
        - It was seen now. If its last heartbeat is later than that, the clock was set back, and
          ``bound_times`` has to be called first.
        """

    @abstractmethod
    async def remove_worker(self, id: WorkerId, incarnation: int | None = None) -> None:
        """Delete the worker's row, and keep what it counted, once.

        Unless another incarnation has replaced it.
        """

    @abstractmethod
    async def prune_workers(self, namespace: str, idle: timedelta) -> int:
        """Delete workers not seen for ``idle`` and for two of their leases; keep their counts."""
