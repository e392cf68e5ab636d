"""Take jobs from workers whose leases ran out."""

from __future__ import annotations

import logging

from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH

_log = logging.getLogger("perdure.worker")


async def rescue_jobs(store: Store, deaths_max: int) -> int:
    """Give every job of a dead worker back to the queue, or bury it as a poison pill."""
    count = 0
    while taken := await store.take_over_expired(BATCH, deaths_max):
        for job in taken:
            _log.warning(
                "took over job %s from worker %s, now %s", job.id, job.worker, job.after.value
            )
        count += len(taken)
        if len(taken) < BATCH:
            break
    return count
