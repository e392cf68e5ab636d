"""What becomes of a run, as the one who waits for it sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure import (
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunStatus,
    RunTimeout,
    Worker,
)
from perdure.operations import waiting
from perdure.store.contract import Store
from tests.client.flows import Order, asking, failing, hanging, ordering, reading, shouting
from tests.client.runs import until, worker_at
from tests.support.refusal import refused


@pytest.fixture
async def working(store: Store) -> AsyncIterator[Worker]:
    async with worker_at(store) as worker:
        yield worker


@pytest.mark.usefixtures("working")
class TestResult:
    async def test_is_the_output_of_the_last_node(self, client):
        run = await client.submit(ordering, 3)

        assert await run.result(timeout=20) == 6
        assert await run.status() is RunStatus.COMPLETED

    async def test_has_the_type_that_the_last_task_returns(self, client):
        run = await client.submit(reading, 3)

        assert await run.result(timeout=20) == Order(id=3, lines=["book", "pen"])

    async def test_is_plain_for_a_handle_without_a_flow(self, client):
        run = await client.submit(reading, 3)

        plain = client.runs.handle(run.id)
        typed = client.runs.handle(run.id, reading)

        assert await plain.result(timeout=20) == {"id": 3, "lines": ["book", "pen"]}
        assert await typed.result(timeout=20) == Order(id=3, lines=["book", "pen"])

    async def test_has_the_items_of_a_map_in_order(self, client):
        words = [f"word {number}" for number in range(30)]

        run = await client.submit(shouting, words)

        assert await run.result(timeout=20) == [word.upper() for word in words]

    async def test_of_a_run_that_ended_before_anybody_waited(self, client):
        run = await client.submit(ordering, 3)
        await until(run, RunStatus.COMPLETED)

        assert await run.result(timeout=20) == 6

    async def test_comes_to_one_who_waits_by_a_hint(self, client, monkeypatch):
        monkeypatch.setattr(waiting, "POLL_SECONDS", 3600.0)
        run = await client.submit(asking, 3)
        result = asyncio.create_task(run.result(timeout=20))
        await until(run, RunStatus.WAITING)

        await client.runs.signal(run.id, "answer", {"approved": False})

        assert await result == {"approved": False}

    async def test_raises_what_a_node_failed_with(self, client):
        run = await client.submit(failing, 3, id="order-3")

        with pytest.raises(RunFailed, match=r"'order-3' failed at node 'refuse': .*paper") as e:
            await run.result(timeout=20)

        assert (e.value.run_id, e.value.node) == ("order-3", "refuse")
        assert e.value.failure is not None
        assert e.value.failure.message == "out of paper"
        assert "out of paper" in e.value.__notes__[0]

    async def test_raises_that_it_was_cancelled(self, client):
        run = await client.submit(hanging, id="order-3")
        result = asyncio.create_task(run.result(timeout=20))

        await client.runs.cancel("order-3", reason="out of stock", by="ann")

        with refused(
            "run.cancelled", RunCancelled, run_id="order-3", by="ann", reason="out of stock"
        ):
            await result

    async def test_raises_after_its_timeout(self, client):
        run = await client.submit(asking, 3, id="order-3")
        await until(run, RunStatus.WAITING)

        with refused("run.result_timeout", RunTimeout, timeout=0.05, status="waiting"):
            await run.result(timeout=0.05)

    async def test_of_no_run(self, client):
        with pytest.raises(RunNotFound):
            await client.runs.handle("order-3").result(timeout=20)
