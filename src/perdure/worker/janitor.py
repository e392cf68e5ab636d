"""Maintenance, by one leading worker per namespace: take over expired leases, expire, prune.

The store decides how a job that is taken over continues: ``store.lifecycle`` has the transitions,
``take_over_expired`` of each backend the statement. Promoting due jobs and releasing sticky ones
are here too, because they are the same loop, but every worker does them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from perdure import clock
from perdure.model.ids import WorkerId
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.model.worker import PollResult, WorkerInfo, WorkerSettings
from perdure.store.admission import is_ahead
from perdure.store.contract import Store
from perdure.worker.events import WorkerEvents

BATCH = 1000
"""Rows per statement."""
LEAD_LEASE_MAX = timedelta(seconds=10)
PRUNE_SECONDS = 60.0
PRUNE_BATCHES = 10
"""Batches in a row before the next poll, in case something is more urgent."""
PRUNE_PAUSE_SECONDS = 0.01
WAITER_GRACE = timedelta(seconds=10)
"""Even without retention, rows stay this long, hidden, so that waiting callers get the result."""
WORKER_IDLE = timedelta(minutes=5)
LIMIT_IDLE = timedelta(days=1)
"""Longer than any worker needs them, so that workers with other settings keep theirs."""
DEFINITION_IDLE = timedelta(days=7)
"""How long an unused definition is kept: it may have been saved for a run that comes later."""
_log = logging.getLogger("perdure.worker")

S = TypeVar("S", Status, RunStatus)
T = TypeVar("T")


class Janitor:
    """Does the maintenance that a poll shows to be due, if no other worker leads."""

    def __init__(
        self, store: Store, settings: WorkerSettings, worker: WorkerId, events: WorkerEvents
    ) -> None:
        self._store = store
        self._settings = settings
        self._worker = worker
        self._events = events
        self._prune_seconds = prune_seconds(settings)
        self._prune_at = clock.monotonic()

    async def process(self, poll: PollResult) -> bool:
        """Take over, expire and prune as needed. A failure is logged and retried after a poll.

        False when there is more to prune: then call again soon, after another poll.
        """
        has_expired_lease = is_due(poll.next_lease_end_at, poll.now)
        has_expired_deadline = is_due(poll.next_deadline_at, poll.now)
        is_prune_due = self._prune_at <= clock.monotonic()
        is_clock_back = is_ahead(poll.last_seen_at, poll.now)
        if not (has_expired_lease or has_expired_deadline or is_prune_due or is_clock_back):
            return True
        try:
            if not await self._lead():
                if is_prune_due:  # another worker leads
                    self._prune_at = clock.monotonic() + self._prune_seconds
                return True
            if is_clock_back:
                await self._bound_times(poll)
            if has_expired_lease:
                await take_over_jobs(self._store, self._settings, self._events)
            if has_expired_deadline:
                await expire_jobs(self._store, self._settings.namespace, self._events)
            is_pruned = await self._prune() if is_prune_due else True
            # Release the lease: if this worker crashes, no other has to wait until it expires.
            await self._lead(timedelta(0))
            return is_pruned
        except Exception:
            _log.exception("maintenance failed; retrying")
            return True

    async def _bound_times(self, poll: PollResult) -> None:
        settings = self._settings
        leases = await self._store.maintenance.bound_times(settings.namespace, settings.lease)
        assert poll.last_seen_at is not None
        seconds = (poll.last_seen_at - poll.now).total_seconds()
        fields = {"seconds": seconds, "leases_bounded": leases}
        _log.warning("store clock was set back", extra={"fields": fields})

    async def _prune(self) -> bool:
        """Prune some batches; True if nothing is left to prune."""
        # Set first, so that a prune that fails is not repeated with every poll.
        self._prune_at = clock.monotonic() + self._prune_seconds
        for _ in range(PRUNE_BATCHES):
            if await prune(self._store, self._settings):
                return True
            # Pause, so that statements of workers come first: pruning is not urgent.
            await asyncio.sleep(PRUNE_PAUSE_SECONDS)
            if not await self._lead():
                return True
        self._prune_at = clock.monotonic()
        return False

    async def _lead(self, lease: timedelta = LEAD_LEASE_MAX) -> bool:
        # No longer than a job's lease, so that jobs of a dead leader are taken over just as soon.
        span = min(lease, self._settings.lease)
        name = leader_row(self._settings.namespace)
        return await self._store.maintenance.acquire_lease(name, self._worker, span)


def leader_row(namespace: str) -> str:
    """The name of a namespace's leader lease. Stored: do not change it."""
    return f"housekeeping:{namespace}"


async def take_over_jobs(store: Store, settings: WorkerSettings, events: WorkerEvents) -> None:
    """Requeue the jobs of dead workers."""
    take_over = store.maintenance.take_over_expired
    await _in_batches(lambda: take_over(settings.namespace, BATCH), events.taken_over)


async def take_over_former(store: Store, info: WorkerInfo, events: WorkerEvents) -> None:
    """Requeue the jobs that this worker had claimed before it restarted."""
    take_over, incarnation = store.maintenance.take_over_former, info.incarnation
    assert incarnation is not None
    await _in_batches(
        lambda: take_over(info.namespace, info.id, incarnation, BATCH), events.taken_over
    )


async def expire_jobs(store: Store, namespace: str, events: WorkerEvents) -> None:
    await _in_batches(lambda: store.maintenance.expire_deadlines(namespace, BATCH), events.expired)


async def _in_batches(
    fetch: Callable[[], Coroutine[Any, Any, Sequence[T]]], each: Callable[[T], None]
) -> None:
    while batch := await fetch():
        for item in batch:
            each(item)
        if len(batch) < BATCH:
            return


async def promote_jobs(store: Store, namespace: str) -> bool:
    """Make due jobs claimable; True if there were any."""
    is_any = False
    while promoted := await store.maintenance.promote_due(namespace, BATCH):
        is_any = True
        if promoted < BATCH:
            break
    return is_any


async def release_jobs(store: Store, namespace: str) -> bool:
    """Let any worker claim the jobs that need not wait for theirs; True if there were any."""
    is_any = False
    while released := await store.maintenance.release_sticky(namespace, BATCH):
        is_any = True
        if released < BATCH:
            break
    return is_any


async def prune(store: Store, settings: WorkerSettings) -> bool:
    """Prune a batch of expired rows; True if that was all."""
    namespace = settings.namespace
    of_jobs = _retention(
        {
            Status.COMPLETED: settings.keep_completed,
            Status.CANCELLED: settings.keep_completed,
            Status.FAILED: settings.keep_failed,
            Status.DEAD: settings.keep_dead,
            Status.DISABLED: settings.keep_disabled,
        }
    )
    if await store.maintenance.prune_jobs(namespace, of_jobs, BATCH) == BATCH:
        return False
    of_runs = _retention(
        {
            RunStatus.COMPLETED: settings.keep_completed,
            RunStatus.CANCELLED: settings.keep_completed,
            RunStatus.SKIPPED: settings.keep_completed,
            RunStatus.FAILED: settings.keep_failed,
        }
    )
    if await store.maintenance.prune_runs(namespace, of_runs, BATCH) == BATCH:
        return False
    if await store.maintenance.prune_limits(namespace, LIMIT_IDLE, BATCH) == BATCH:
        return False
    if await store.maintenance.prune_definitions(namespace, DEFINITION_IDLE, BATCH) == BATCH:
        return False
    await store.maintenance.prune_workers(namespace, WORKER_IDLE)
    return True


def prune_seconds(settings: WorkerSettings) -> float:
    """How long to wait between two prunes: not much longer than the shortest retention.

    A job without retention is hidden when it ends, but a run stays visible until it is pruned.
    """
    keeps = (
        settings.keep_completed,
        settings.keep_failed,
        settings.keep_dead,
        settings.keep_disabled,
    )
    spans = [max(keep, WAITER_GRACE).total_seconds() for keep in keeps if keep is not None]
    return min([PRUNE_SECONDS, *spans])


def _retention(keep: Mapping[S, timedelta | None]) -> dict[S, timedelta]:
    """Drop entries without a retention limit."""
    return {status: max(span, WAITER_GRACE) for status, span in keep.items() if span is not None}


def is_due(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now
