"""A graceful stop in the middle of runs, and runs that wait: nothing is lost, nothing held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    Context,
    Flow,
    RunStatus,
    Status,
    StoreError,
    task,
)
from perdure.worker import commits, service
from perdure.worker.events import AttemptCompleted, AttemptRequeued, AttemptStarted
from tests.worker.harness import Gate, until
from tests.worker.watched_store import StoreWatch


@task
async def pass_on(value: Any) -> Any:
    return value


class TestStop:
    async def test_in_a_chain_gives_the_next_node_to_others(self, client, start_worker, store):
        gate = Gate()

        @task
        async def wait(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            await gate.pass_through()
            return [value, ctx.attempt]

        flow = Flow("chain").then(pass_on, name="a").then(wait).then(wait, name="b").build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, 1)
        await gate.reached()
        worker.worker.shutdown("1m")
        gate.open()
        await worker.stopped()
        [left] = await store.queries.run_jobs("default", run.id)
        await start_worker(flows=[flow])

        assert (left.status, left.attempt, left.crashes) == (Status.WAITING, 0, 0)
        assert left.node is not None
        assert left.node.key == "b"
        assert await run.result(10) == [[1, 1], 1]

    @pytest.mark.parametrize("found_type", ["async", "sync"])
    async def test_gives_the_node_that_runs_back_without_costing_an_attempt(
        self, client, start_worker, store, found_type
    ):
        gate = Gate()

        @task(name="wait")
        async def wait_async(value: Any, ctx: AsyncContext = CONTEXT) -> int:
            await gate.pass_through()
            return ctx.attempt

        @task(name="wait")
        def wait_sync(value: Any, ctx: Context = CONTEXT) -> int:
            gate.pass_in_thread()
            return ctx.attempt

        flow = (
            Flow("back")
            .then(pass_on, name="a")
            .then(wait_async if found_type == "async" else wait_sync)
            .build()
        )
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, 1)
        await gate.reached()
        await worker.stop(grace=0.02)
        [left] = await store.queries.run_jobs("default", run.id)
        gate.open()
        await start_worker(flows=[flow])

        assert (left.status, left.attempt, left.crashes) == (Status.WAITING, 0, 0)
        assert [event.node for event in worker.all(AttemptRequeued)] == ["wait"]
        assert await run.result(10) == 1
        node_types = [event.type for event in await run.events()]
        assert node_types == ["run_submitted", "node_completed", "node_completed", "run_completed"]

    async def test_under_load_loses_nothing(self, client, start_worker):
        flow = (
            Flow("load")
            .then(pass_on, name="a")
            .then(lambda value: [value] * 3, name="spread")
            .map(pass_on, name="each")
            .then(pass_on, name="b")
            .build()
        )
        runs = [await client.submit(flow, number) for number in range(30)]
        for _ in range(3):
            worker = await start_worker(flows=[flow], concurrency=4)
            await worker.told(AttemptCompleted, count=20)
            await worker.stop()
        await start_worker(flows=[flow])

        assert [await run.result(15) for run in runs] == [[n] * 3 for n in range(30)]
        for run in runs:
            keys = [event.key for event in await run.events() if event.key]
            assert len(keys) == len(set(keys)) == 7

    async def test_is_not_held_up_by_a_store_that_does_not_answer(
        self,
        client,
        start_worker,
        watch,
        monkeypatch,
    ):
        monkeypatch.setattr(service, "FLUSH_SECONDS", 0.1)
        flow = Flow("hangs").then(pass_on).build()
        watch.hangs.add("runs.commit")
        worker = await start_worker(flows=[flow], store=watch.store)
        await client.submit(flow, 1)
        await until(lambda: asked_for(watch, "runs.commit"))
        async with asyncio.timeout(5):
            await worker.stop(grace=0)


class TestOutage:
    """A store that fails for a while must not cost a node its result."""

    @pytest.mark.parametrize("method", ["runs.load", "runs.commit"])
    async def test_of_the_store_while_an_outcome_is_written(
        self,
        client,
        start_worker,
        watch,
        method,
        monkeypatch,
    ):
        monkeypatch.setattr(commits, "RETRY_SECONDS", 0.01)
        watch.after[method] = fail
        flow = Flow("outage").then(pass_on, name="a").then(pass_on, name="b").build()
        worker = await start_worker(flows=[flow], store=watch.store)
        run = await client.submit(flow, 1)

        assert await run.result(10) == 1
        assert watch.calls[method] > 1
        assert [event.key for event in await run.events() if event.key] == ["a", "b"]
        assert len(worker.all(AttemptStarted)) == 2

    async def test_of_the_store_while_others_were_faster(
        self,
        client,
        start_worker,
        watch,
        monkeypatch,
    ):
        monkeypatch.setattr(commits, "RETRY_SECONDS", 0.01)
        gate = Gate()

        @task
        async def wait(value: Any) -> Any:
            await gate.pass_through()
            return value

        flow = (
            Flow("faster")
            .then(pass_on, name="a")
            .fork(
                x=Flow().then(wait, name="x").then(pass_on, name="y"), s=Flow().wait_for_signal("s")
            )
            .join(pass_on, name="both")
            .build()
        )
        await start_worker(flows=[flow], store=watch.store)
        run = await client.submit(flow, 1)
        await gate.reached()
        await run.signal("s", 2)
        watch.after["runs.load"] = fail
        gate.open()

        assert await run.result(10) == {"x": 1, "s": 2}
        keys = [event.key for event in await run.events() if event.key]
        assert sorted(keys) == ["a", "both", "s", "x", "y"]


class TestWaiting:
    async def test_runs_hold_no_slot_no_job_and_no_lease(self, client, start_worker, store):
        child = Flow("child").wait_for_signal("go").build()
        flows = [
            Flow("signal").then(pass_on).wait_for_signal("go").build(),
            Flow("timer").then(pass_on).delay("1h").build(),
            Flow("parent").then(pass_on).flow(child).build(),
        ]
        worker = await start_worker(flows=flows, concurrency=1)
        runs = [await client.submit(flow, 1) for flow in flows]
        for run in runs:
            await until(lambda run=run: is_waiting(run))  # type: ignore[misc]

        assert [await store.queries.run_jobs("default", run.id) for run in runs] == [[], [], []]
        assert worker.worker.stats().running == 0
        assert await client.jobs.count(status="active") == 0


async def is_waiting(run: Any) -> bool:
    return await run.status() is RunStatus.WAITING


async def asked_for(watch: StoreWatch, method: str) -> bool:
    return watch.calls[method] > 0


async def fail() -> None:
    raise StoreError("the connection was lost")
