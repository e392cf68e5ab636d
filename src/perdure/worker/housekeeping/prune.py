"""Remove what is kept no longer: ended runs and jobs, idle limits, and workers that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH
from perdure.worker.settings import WorkerSettings

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
