"""Large runs: long chains, wide maps and forks, many waiting ones, and loading what is long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import Flow, task
from perdure.flows.built import BuiltFlow
from perdure.model.run import LoadedRun
from perdure.store.contract import EventsAfter, Store

LONG = 1_000


@task
async def pass_on(value: Any) -> Any:
    return value


@task
async def count(values: Any) -> int:
    return len(values)


def chain(length: int) -> BuiltFlow:
    flow = Flow(f"chain-{length}")
    for number in range(length):
        flow.then(pass_on, name=f"step-{number}")
    return flow.build()


@pytest.fixture(params=["memory", "sqlite"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Where a commit is cheap enough for so many of them."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


class TestLong:
    async def test_chain_leaves_snapshots_and_loads_from_the_latest(
        self, client, start_worker, store
    ):
        flow = chain(LONG)
        await start_worker(flows=[flow])
        run = await client.submit(flow, 7)

        assert await run.result(40) == 7
        loaded = await load(store, run.id)
        assert loaded.run.number == LONG + 2
        assert loaded.snapshot is not None
        assert len(loaded.events) < LONG // 2
        assert loaded.snapshot.number + len(loaded.events) == loaded.run.number


class TestWide:
    async def test_map_of_children(self, client, start_worker):
        child = Flow("child").then(pass_on).build()
        flow = Flow("children").map(child).then(count).build()
        await start_worker(flows=[flow], concurrency=50)
        assert await (await client.submit(flow, list(range(500)))).result(40) == 500


class TestTenThousand:
    """Once, where it is quickest."""

    @pytest.fixture
    def store_url(self, memory_url: str) -> str:
        return memory_url

    async def test_items(self, client, start_worker):
        flow = Flow("items").map(pass_on).then(count).build()
        await start_worker(flows=[flow], concurrency=100)
        assert await (await client.submit(flow, list(range(10_000)))).result(50) == 10_000

    async def test_runs_wait_and_are_found_by_their_signals(self, client, start_worker):
        flow = Flow("waiting").wait_for_signal("go", timeout="1h").then(pass_on).build()
        await start_worker(flows=[flow], concurrency=50)
        for number in range(10_000):
            await client.submit(flow, id=f"r{number}")
        waiting = await client.runs.count(status="waiting")
        some = [client.runs.handle(f"r{number}") for number in range(0, 10_000, 500)]
        for run in some:
            await run.signal("go", run.id)

        assert waiting == 10_000
        assert [await run.result(10) for run in some] == [run.id for run in some]
        assert await client.runs.count(status="waiting") == 10_000 - len(some)


async def test_many_timers_fire_together(client, start_worker):
    flow = Flow("timers").delay(timedelta(milliseconds=20)).then(pass_on).build()
    runs = [await client.submit(flow, number) for number in range(500)]
    await start_worker(flows=[flow], concurrency=50)
    assert [await run.result(30) for run in runs] == list(range(500))


async def load(store: Store, id: Any) -> LoadedRun:
    [loaded] = await store.runs.load([EventsAfter(namespace="default", id=id)])
    assert loaded is not None
    return loaded
