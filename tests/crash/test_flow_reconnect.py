"""PostgreSQL restarted or cut off in the middle of runs: each node is committed once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from perdure import AsyncClient, AsyncRunHandle
from tests.crash.flow_tasks import busy
from tests.crash.test_flow_recovery import committed
from tests.crash.test_reconnect import cut
from tests.postgres_server import PostgresServer

RUNS = 60
KEYS = sorted(["one", "two", "spread", "each", "sum_up", *(f"each[{item}]" for item in range(4))])


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database()


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        yield client


async def test_runs_survive_a_crash_of_postgresql_and_cut_connections(client, url, server, launch):
    settings = {"flows": "tests.crash.flow_tasks:BUSY", "concurrency": 8}
    workers = await asyncio.gather(
        *(launch(url, lease="3s", poll="300ms", **settings) for _ in range(2))
    )

    async def submit_all() -> list[AsyncRunHandle]:
        return [await client.submit(busy, number, id=f"r{number}") for number in range(RUNS)]

    submitting = asyncio.create_task(submit_all())
    for worker in workers:
        await worker.told("AttemptCompleted")
    cut(url)
    await asyncio.to_thread(server.restart, "immediate")
    runs = await asyncio.wait_for(submitting, 30)
    cut(url)
    results = await asyncio.gather(*(run.result(40) for run in runs))

    assert results == [4 * (number + 3) for number in range(RUNS)]
    assert await client.runs.count() == RUNS
    assert [committed(await run.events()) for run in runs] == [KEYS] * RUNS
