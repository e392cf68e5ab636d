"""A worker that serves the flows of these tests, and waiting for what becomes of their runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from perdure import AsyncRunHandle, EventRecord, RunStatus, Worker
from perdure.flows.built import BuiltFlow
from perdure.store.contract import Store
from tests.client.flows import FLOWS


@asynccontextmanager
async def worker_at(
    store: Store, flows: Sequence[BuiltFlow] = FLOWS, namespace: str = "default"
) -> AsyncIterator[Worker]:
    worker = Worker(store, flows=flows, namespace=namespace)
    started = asyncio.Event()
    serving = asyncio.create_task(worker.serve(started=started.set))
    await started.wait()
    yield worker
    worker.shutdown(grace=0)
    await serving


async def until(run: AsyncRunHandle, status: RunStatus) -> list[EventRecord]:
    """Follow a run until an event led to this status; its events so far."""
    seen: list[EventRecord] = []
    async with asyncio.timeout(20):
        async for event in run.watch():
            seen.append(event)
            if event.status is status:
                return seen
    raise AssertionError(f"run {run.id} ended without having been {status}")
