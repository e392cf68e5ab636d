"""Remove what is kept no longer: finished jobs, and rows of workers that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from perdure.model.job import Status
from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH
from perdure.worker.settings import WorkerSettings

WAITER_GRACE = timedelta(seconds=10)
"""Even what is kept for no time stays this long, hidden, so that its waiters get the result."""
WORKER_IDLE = timedelta(minutes=5)


def retention(settings: WorkerSettings) -> Mapping[Status, timedelta]:
    """How long each kind of finished job stays; what is kept for ever is left out."""
    wanted = {
        Status.COMPLETED: settings.keep_completed,
        Status.CANCELLED: settings.keep_completed,
        Status.FAILED: settings.keep_failed,
        Status.DEAD: settings.keep_dead,
    }
    return {status: max(keep, WAITER_GRACE) for status, keep in wanted.items() if keep is not None}


async def prune(store: Store, settings: WorkerSettings) -> int:
    count = 0
    while pruned := await store.prune_jobs(retention(settings), BATCH):
        count += pruned
        if pruned < BATCH:
            break
        # Let the workers' own statements in between: nobody waits for this one.
        await asyncio.sleep(0.01)
    await store.prune_workers(WORKER_IDLE)
    return count
