"""Operations and stops in the middle of runs: nothing is lost, nothing is claimed meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    Context,
    Flow,
    RunCancelled,
    RunStatus,
    Status,
    StoreError,
    task,
)
from perdure.engine.runs import Graphs, RunEngine
from perdure.model.payload import PlainCodec
from perdure.worker import service, steps
from perdure.worker.events import AttemptLost, AttemptRequeued, AttemptStarted
from tests.support.refusal import refused
from tests.worker.harness import Gate, soon, until
from tests.worker.watched_store import StoreWatch


@task
async def pass_on(value: Any) -> Any:
    return value


class TestCancel:
    @pytest.mark.parametrize("found_type", ["async", "sync"])
    async def test_stops_bodies_within_a_second(self, client, start_worker, world, found_type):
        gate, stopped = Gate(), asyncio.Event()
        loop = asyncio.get_running_loop()

        @task(name="hold")
        async def hold_async(value: Any) -> None:
            try:
                await gate.pass_through()
            finally:
                stopped.set()

        @task(name="hold")
        def hold_sync(value: Any, ctx: Context = CONTEXT) -> None:
            loop.call_soon_threadsafe(gate._note)
            ctx.abort_signal.wait(15)
            loop.call_soon_threadsafe(stopped.set)

        hold = hold_async if found_type == "async" else hold_sync
        flow = Flow("hold").then(pass_on, name="first").then(hold).then(pass_on).build()
        worker = await start_worker(flows=[flow], concurrency=1)
        run = await client.submit(flow, 1)
        await gate.reached()
        began = time.monotonic()
        await client.runs.cancel(run.id, reason="out of stock", by="ops")
        await soon(stopped.wait())
        took = time.monotonic() - began

        assert took < 1
        with refused("run.cancelled", RunCancelled):
            await run.result(5)
        await worker.emitted(AttemptLost)
        # Its slot is free.
        gate.open()
        other = Flow("other").then(pass_on).build()
        assert await (await world.submit(other, 2, concurrency=1)).result(5) == 2
        assert worker.worker.stats().running == 0

    async def test_while_a_job_continues_stops_the_next_body(self, client, start_worker, watch):
        """The step is written, and the run cancelled before the worker hears of either."""
        began = 0.0

        @task
        async def hold(value: Any) -> None:
            await asyncio.Event().wait()

        async def cancel() -> None:
            nonlocal began
            await client.runs.cancel("r")
            began = time.monotonic()
            await asyncio.sleep(0.1)  # in which the hint comes, and finds no body to stop

        watch.after["runs.commit"] = cancel
        flow = Flow("next").then(pass_on).then(hold).build()
        worker = await start_worker(flows=[flow], store=watch.store)
        await client.submit(flow, 1, id="r")
        lost = await worker.emitted(AttemptLost)

        assert lost.node == "hold"
        assert time.monotonic() - began < 1


class TestPause:
    async def test_takes_running_nodes_back_and_continues(self, client, start_worker, store):
        gate = Gate()
        ran: list[tuple[str | None, int]] = []

        @task
        async def note(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
            ran.append((ctx.node, ctx.attempt))
            if ctx.node == "b":
                await gate.pass_through()
            return value

        flow = Flow("paused")
        for node in "abc":
            flow.then(note, name=node)
        built = flow.build()
        worker = await start_worker(flows=[built])
        run = await client.submit(built, 1)
        await gate.reached()
        began = time.monotonic()
        await run.pause(reason="maintenance", by="ops")
        await worker.emitted(AttemptLost)
        took = time.monotonic() - began
        [parked] = await store.queries.run_jobs("default", run.id)
        paused = await run.record()
        gate.open()
        await run.resume(by="ops")

        assert await run.result(10) == 1
        assert took < 1
        assert parked.attempt == 0
        assert (paused.status, paused.reason, paused.by) == (RunStatus.PAUSED, "maintenance", "ops")
        assert ran == [("a", 1), ("b", 1), ("b", 1), ("c", 1)]
        keys = [event.key for event in await run.events() if event.type == "node_completed"]
        assert keys == ["a", "b", "c"]

    async def test_at_the_moment_a_timer_fires_keeps_it(self, client, start_worker, store, watch):
        """A worker had read that the wait was due when the run was paused."""
        flow = Flow("timer").delay("10ms").then(pass_on).build()
        paused = asyncio.Event()

        async def pause() -> None:
            await client.runs.pause("r")
            paused.set()

        watch.after["maintenance.due_waits"] = pause
        run = await client.submit(flow, 1, id="r")
        await start_worker(flows=[flow], store=watch.store)
        await soon(paused.wait())
        await until(lambda: asked_again(watch, "runs.load"))
        assert len(await store.queries.run_waits("default", run.id)) == 1
        await run.resume()

        assert await run.result(10) == 1


class TestReplacing:
    async def test_a_run_that_is_being_worked_on_starts_from_nothing(self, client, start_worker):
        gate = Gate()

        @task
        async def first(value: int) -> list[int]:
            return [value]

        @task
        async def second(values: list[int]) -> list[int]:
            if values == [1]:
                await gate.pass_through()
            return [*values, len(values)]

        flow = Flow("replaced").then(first).then(second).then(second, name="third").build()
        workers = [await start_worker(flows=[flow], concurrency=2) for _ in range(2)]
        await client.submit(flow, 1, id="r")
        await gate.reached()
        run = await client.submit(flow, 7, id="r", on_conflict="replace")
        result = await run.result(10)
        gate.open()

        assert result == [7, 1, 2]
        keys = [event.key for event in await run.events() if event.key]
        assert keys == ["first", "second", "third"]
        lost = [event for worker in workers for event in worker.all(AttemptLost)]
        assert len(lost) <= 1

    async def test_the_work_of_a_child_run_that_is_gone_is_no_error(
        self, client, start_worker, watch, caplog
    ):
        parent = Flow("parent").flow(Flow("child").then(pass_on).build()).build()
        other = Flow("other").then(pass_on).build()
        await client.submit(parent, 1, id="r")

        async def replace() -> None:
            await client.submit(other, 2, id="r", on_conflict="replace")

        watch.after["jobs.claim"] = replace
        worker = await start_worker(flows=[parent], store=watch.store)
        await worker.emitted(AttemptLost)

        assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []

    async def test_a_run_is_not_taken_for_the_one_it_replaces(self, client, store):
        flow = Flow("mail").wait_for_signal("first").wait_for_signal("second").build()
        runs = RunEngine(store, Graphs(flow.graphs), PlainCodec())
        run = await client.submit(flow, id="r")
        known = await runs.load("default", run.id)
        await client.submit(flow, id="r", on_conflict="replace")
        await client.runs.signal("r", "second")  # so that it has more events than were known
        assert await runs.catch_up([known]) == []


async def asked_again(watch: StoreWatch, method: str) -> bool:
    return watch.calls[method] > 0


# A graceful stop in the middle of runs, and runs that wait: nothing is lost, nothing held.


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
    async def test_requeues_the_running_node_at_no_cost(
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

    async def test_does_not_wait_for_a_silent_store(self, client, start_worker, watch, monkeypatch):
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
    async def test_while_an_outcome_is_written(
        self, client, start_worker, watch, method, monkeypatch
    ):
        monkeypatch.setattr(steps, "RETRY_SECONDS", 0.01)
        watch.after[method] = fail
        flow = Flow("outage").then(pass_on, name="a").then(pass_on, name="b").build()
        worker = await start_worker(flows=[flow], store=watch.store)
        run = await client.submit(flow, 1)

        assert await run.result(10) == 1
        assert watch.calls[method] > 1
        assert [event.key for event in await run.events() if event.key] == ["a", "b"]
        assert len(worker.all(AttemptStarted)) == 2

    async def test_while_others_were_faster(self, watch, monkeypatch, world):
        monkeypatch.setattr(steps, "RETRY_SECONDS", 0.01)
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
        run = await world.submit(flow, 1, store=watch.store)
        await gate.reached()
        await run.signal("s", 2)
        watch.after["runs.load"] = fail
        gate.open()

        assert await run.result(10) == {"x": 1, "s": 2}
        keys = [event.key for event in await run.events() if event.key]
        assert sorted(keys) == ["a", "both", "s", "x", "y"]


async def asked_for(watch: StoreWatch, method: str) -> bool:
    return watch.calls[method] > 0


async def fail() -> None:
    raise StoreError("the connection was lost")
