"""Take jobs from workers whose leases ran out."""

from __future__ import annotations

from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH
from perdure.worker.report import Report
from perdure.worker.settings import WorkerSettings


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
