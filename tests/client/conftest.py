"""A client on every backend, and a worker played by hand, so that each step is the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from perdure import AsyncClient, Worker
from perdure.clock import ManualClock
from perdure.store.contract import Store
from perdure.store.opening import store_at
from tests.client.flows import add, echo, embed
from tests.client.harness import PlayedWorker, worker_at


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(store_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    """The store as a worker would use it, with a clock that the test turns."""
    store = store_at(store_url, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, tasks=[add, echo, embed]) as client:
        yield client


@pytest.fixture
def worker(store: Store) -> PlayedWorker:
    return PlayedWorker(store)


@pytest.fixture
async def working(store: Store) -> AsyncIterator[Worker]:
    """A real worker for the flows of these tests."""
    async with worker_at(store) as worker:
        yield worker


PROGRAM = """
import sys
from perdure import Worker
from tests.client.flows import add, asking, until_aborted
Worker(sys.argv[1], tasks=[add, until_aborted], flows=[asking]).run()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """A place that another process can reach, which memory is not."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def worker_process(shared_url: str) -> Iterator[None]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, shared_url], env=environment)
    yield
    process.terminate()
    assert process.wait(30) == 0
