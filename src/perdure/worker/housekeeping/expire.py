"""Fail jobs whose deadline passed while nobody held them."""

from __future__ import annotations

from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH
from perdure.worker.report import Report


async def expire_jobs(store: Store, namespace: str, report: Report) -> int:
    count = 0
    while expired := await store.maintenance.expire_deadlines(namespace, BATCH):
        for job in expired:
            report.expired(job)
        count += len(expired)
        if len(expired) < BATCH:
            break
    return count
