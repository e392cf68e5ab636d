"""A worker as its row in the store shows it."""

from __future__ import annotations

from datetime import timedelta

from perdure.model.ids import WorkerId
from perdure.model.worker import WorkerInfo
from perdure.store.contract import Store
from perdure.store.opening import store_at


async def register_worker(place: str | Store, id: str) -> None:
    """Let it give a sign of life now."""
    store = store_at(place)
    await store.open()
    await store.maintenance.register_worker(
        WorkerInfo(
            id=WorkerId(id),
            namespace="default",
            host="here",
            pid=1,
            queues=("default",),
            tasks=("print",),
            tags=None,
            concurrency=1,
            lease=timedelta(seconds=30),
        )
    )
    await store.close()
