"""Let scheduled jobs whose time has come into the queue."""

from __future__ import annotations

from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH


async def promote_jobs(store: Store, namespace: str) -> int:
    count = 0
    while promoted := await store.maintenance.promote_due(namespace, BATCH):
        count += promoted
        if promoted < BATCH:
            break
    return count
