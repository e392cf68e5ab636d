"""Fail jobs whose deadline passed while nobody held them."""

from __future__ import annotations

from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH


async def expire_jobs(store: Store) -> int:
    count = 0
    while expired := await store.expire_deadlines(BATCH):
        count += expired
        if expired < BATCH:
            break
    return count
