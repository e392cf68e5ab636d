"""A client and workers on every backend; the workers stop with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure import AsyncClient, Task, Worker
from perdure.store.contract import Store
from perdure.store.opening import store_at
from tests.worker.harness import Running
from tests.worker.watched_store import StoreWatch

StartWorker = Callable[..., Awaitable[Running]]


@pytest.fixture
async def client(store_url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store_url) as client:
        yield client


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """The store itself, for what no client does: hold a job as a worker that died would."""
    store = store_at(store_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def watch(store_url: str) -> StoreWatch:
    """The same store for a worker, to see and disturb what it does there."""
    return StoreWatch(store_url)


@pytest.fixture
async def start_worker(store_url: str) -> AsyncIterator[StartWorker]:
    """Start a worker for some tasks; settings are those of ``Worker``."""
    hired: list[Running] = []

    async def start(*tasks: Task[..., Any], store: Any = None, **settings: Any) -> Running:
        running = Running(Worker(store or store_url, tasks=tasks, **settings))
        hired.append(running)
        return await running.start()

    yield start
    for running in hired:
        await running.stop()
