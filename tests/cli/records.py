"""Workers that only the record has, like those that were killed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from perdure.flows.built import BuiltFlow
from perdure.model.ids import WorkerId
from perdure.model.job import DEFAULT_NAMESPACE
from perdure.model.worker import WorkerInfo
from perdure.store.opening import store_at


def record_worker(
    url: str, *flows: BuiltFlow, id: str = "killed", lease: timedelta = timedelta(minutes=1)
) -> None:
    """Leave the row of a worker that gives no sign of life any more."""
    info = WorkerInfo(
        id=WorkerId(id),
        namespace=DEFAULT_NAMESPACE,
        host="box",
        pid=1,
        queues=("default",),
        tasks=(),
        tags=None,
        concurrency=4,
        lease=lease,
        flows=tuple(flow.graph.text for flow in flows),
    )
    asyncio.run(_register(url, info))


async def _register(url: str, info: WorkerInfo) -> None:
    store = store_at(url)
    await store.open()
    try:
        await store.maintenance.register_worker(info)
    finally:
        await store.close()
