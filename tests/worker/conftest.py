"""A client and workers on every backend; the workers stop with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure import AsyncClient, AsyncJobHandle, AsyncRunHandle, Task, Worker
from perdure.clock import ManualClock
from perdure.flows.built import BuiltFlow
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
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def still_store(store_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    """The store with a clock that the test turns."""
    store = store_at(store_url, clock=clock)
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
    started: list[Running] = []

    async def start(*tasks: Task[..., Any], store: Any = None, **settings: Any) -> Running:
        running = Running(Worker(store or store_url, tasks=tasks, **settings))
        started.append(running)
        return await running.start()

    yield start
    for running in started:
        await running.stop()


class World:
    """A client and workers on one store, for tests of one task or one flow."""

    def __init__(self, client: AsyncClient, start_worker: StartWorker) -> None:
        self._client = client
        self._start_worker = start_worker

    async def enqueue(self, work: Task[..., Any], *args: Any, **settings: Any) -> AsyncJobHandle:
        """Start a worker with these settings for the task, and enqueue a call of it."""
        await self._start_worker(work.base, **settings)
        return await self._client.enqueue(work, *args)

    async def submit(self, flow: BuiltFlow, *args: Any, **settings: Any) -> AsyncRunHandle:
        """Start a worker with these settings for the flow, and submit a run of it."""
        await self._start_worker(flows=[flow], **settings)
        return await self._client.submit(flow, *args)


@pytest.fixture
def world(client: AsyncClient, start_worker: StartWorker) -> World:
    return World(client, start_worker)
