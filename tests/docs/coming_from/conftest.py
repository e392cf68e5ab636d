"""A store in memory whose clock the test turns, with a client, a queue and workers on it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure import AsyncClient, AsyncJobQueue, Worker
from perdure.clock import ManualClock
from perdure.store.contract import Store
from perdure.store.opening import store_at
from tests.worker.harness import Running

StartWorker = Callable[..., Awaitable[Running]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    store = store_at(f"memory://{secrets.token_hex(8)}", clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store) as client:
        yield client


@pytest.fixture
async def queue(store: Store) -> AsyncIterator[AsyncJobQueue]:
    async with AsyncJobQueue(store) as queue:
        yield queue


@pytest.fixture
async def start_worker(store: Store) -> AsyncIterator[StartWorker]:
    """Start a worker; settings are those of ``Worker``. It stops with the test."""
    hired: list[Running] = []

    async def start(**settings: Any) -> Running:
        running = Running(Worker(store, **{"hold_off": 0, "poll": "20ms", **settings}))
        hired.append(running)
        return await running.start()

    yield start
    for running in hired:
        await running.stop()
