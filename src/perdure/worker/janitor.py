"""Maintenance that one worker per namespace does: take over, expire, prune, promote, in batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from perdure import clock
from perdure.model.ids import WorkerId
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.model.worker import PollResult
from perdure.store.contract import Store
from perdure.worker.events import Report
from perdure.worker.settings import WorkerSettings

BATCH = 1000
"""Rows that one statement of a duty may touch."""


async def expire_jobs(store: Store, namespace: str, report: Report) -> int:
    count = 0
    while expired := await store.maintenance.expire_deadlines(namespace, BATCH):
        for job in expired:
            report.expired(job)
        count += len(expired)
        if len(expired) < BATCH:
            break
    return count


WAITER_GRACE = timedelta(seconds=10)
"""Even what is kept for no time stays this long, hidden, so that its waiters get the result."""
WORKER_IDLE = timedelta(minutes=5)
LIMIT_IDLE = timedelta(days=1)
"""Longer than any rule needs it, so that workers whose rules differ do not forget for others."""


def retention(settings: WorkerSettings) -> Mapping[Status, timedelta]:
    """How long each kind of finished job stays; what is kept for ever is left out."""
    wanted = {
        Status.COMPLETED: settings.keep_completed,
        Status.CANCELLED: settings.keep_completed,
        Status.FAILED: settings.keep_failed,
        Status.DEAD: settings.keep_dead,
    }
    return {status: max(keep, WAITER_GRACE) for status, keep in wanted.items() if keep is not None}


def run_retention(settings: WorkerSettings) -> Mapping[RunStatus, timedelta]:
    """The same for ended runs."""
    wanted = {
        RunStatus.COMPLETED: settings.keep_completed,
        RunStatus.CANCELLED: settings.keep_completed,
        RunStatus.SKIPPED: settings.keep_completed,
        RunStatus.FAILED: settings.keep_failed,
    }
    return {status: max(keep, WAITER_GRACE) for status, keep in wanted.items() if keep is not None}


async def prune(store: Store, settings: WorkerSettings) -> bool:
    """Remove a batch of it, and say whether that was all."""
    namespace = settings.namespace
    if await store.maintenance.prune_jobs(namespace, retention(settings), BATCH) == BATCH:
        return False
    if await store.maintenance.prune_runs(namespace, run_retention(settings), BATCH) == BATCH:
        return False
    if await store.maintenance.prune_limits(namespace, LIMIT_IDLE, BATCH) == BATCH:
        return False
    await store.maintenance.prune_workers(namespace, WORKER_IDLE)
    return True


async def rescue_jobs(store: Store, settings: WorkerSettings, report: Report) -> int:
    """Give every job of a dead worker back to the queue, or bury it as a poison pill."""
    count = 0
    while taken := await store.maintenance.take_over_expired(
        settings.namespace, BATCH, settings.deaths_max
    ):
        for job in taken:
            report.taken_over(job)
        count += len(taken)
        if len(taken) < BATCH:
            break
    return count


LEAD_LEASE_MAX = timedelta(seconds=10)
PRUNE_SECONDS = 60.0
PRUNE_BATCHES = 10
"""So many in a row, and then a look whether something is more urgent."""
PRUNE_PAUSE_SECONDS = 0.01
_log = logging.getLogger("perdure.worker")


def duty_in(namespace: str) -> str:
    """The duty of keeping house: each namespace has its own, and is kept by its own workers."""
    return f"housekeeping:{namespace}"


class Housekeeper:
    """Does what a survey shows to be due, if no other worker is at it."""

    def __init__(
        self, store: Store, settings: WorkerSettings, worker: WorkerId, report: Report
    ) -> None:
        self._store = store
        self._settings = settings
        self._worker = worker
        self._report = report
        self._prune_at = clock.monotonic()

    async def tend(self, survey: PollResult) -> bool:
        """Take over, expire and prune as needed. A failure is logged and tried again next time.

        False when there is more to prune: then do so again soon, after another survey.
        """
        is_pruned = True
        prune_due = self._prune_at <= clock.monotonic()
        try:
            lease_over = _is_over(survey.next_lease_end_at, survey.now)
            deadline_over = _is_over(survey.next_deadline_at, survey.now)
            if not (lease_over or deadline_over or prune_due) or not await self._lead():
                return True
            if lease_over:
                await rescue_jobs(self._store, self._settings, self._report)
            if deadline_over:
                await expire_jobs(self._store, self._settings.namespace, self._report)
            if prune_due:
                is_pruned = await self._prune()
            # Done: should this worker die, nobody has to wait for the lease to run out.
            await self._lead(timedelta(0))
        except Exception:
            _log.exception("housekeeping failed; it is tried again")
        finally:
            if prune_due and is_pruned:
                self._prune_at = clock.monotonic() + PRUNE_SECONDS
        return is_pruned

    async def _prune(self) -> bool:
        for _ in range(PRUNE_BATCHES):
            if await prune(self._store, self._settings):
                return True
            # Let the workers' own statements in between: nobody waits for this one.
            await asyncio.sleep(PRUNE_PAUSE_SECONDS)
            if not await self._lead():
                return True
        return False

    async def _lead(self, lease: timedelta = LEAD_LEASE_MAX) -> bool:
        # No longer than a job's: the dead are found out about as soon when one kept house.
        span = min(lease, self._settings.lease)
        return await self._store.maintenance.acquire_lease(
            duty_in(self._settings.namespace), self._worker, span
        )


def _is_over(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now


async def promote_jobs(store: Store, namespace: str) -> int:
    count = 0
    while promoted := await store.maintenance.promote_due(namespace, BATCH):
        count += promoted
        if promoted < BATCH:
            break
    return count
