"""Steps inside a task function, and nodes that are tried again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    BaseContext,
    Context,
    Flow,
    JobFailed,
    Retry,
    RunFailed,
    StoreError,
    task,
)
from perdure.operations.records import EventRecord
from perdure.worker import steps
from tests.support.refusal import failing, fails
from tests.support.tasks import echo
from tests.worker import process_tasks

AGAIN = Retry(3, first=0)


class TestSteps:
    """Steps inside a body: each has one result, however often the body is executed."""

    async def test_step_is_executed_once_in_an_async_node(self, world):
        ran: list[str] = []

        async def fetch(name: str) -> dict[str, Any]:
            ran.append(name)
            return {"name": name, "tries": len(ran)}

        @task(retries=AGAIN)
        async def work(name: str, ctx: AsyncContext = CONTEXT) -> list[Any]:
            first = await ctx.step("first", fetch, name)
            second: Any = await ctx.step("second", ran.append, "second")
            if ctx.attempt < 3:
                raise ValueError("again")
            return [first, second, ctx.attempt]

        flow = Flow("steps").then(work).build()

        assert await (await world.submit(flow, "x", hold_off="0s")).result(10) == [
            {"name": "x", "tries": 1},
            None,
            3,
        ]
        assert ran == ["x", "second"]

    async def test_step_is_executed_once_in_a_sync_node_and_a_job(self, client, start_worker):
        ran: list[str] = []

        def pair(name: str) -> tuple[int, int]:
            ran.append(name)
            return 1, 2

        @task(retries=AGAIN)
        def work(name: str, ctx: Context = CONTEXT) -> list[Any]:
            value = ctx.step("only", pair, name)
            if ctx.attempt == 1:
                raise ValueError("again")
            return [value, ctx.attempt]

        flow = Flow("sync").then(work).build()
        await start_worker(work, flows=[flow], hold_off="0s")
        run = await client.submit(flow, "node")
        job = await client.enqueue(work, "job")

        # As JSON has it, the first time too.
        assert await run.result(10) == [[1, 2], 2]
        assert await job.result(10) == [[1, 2], 2]
        assert sorted(ran) == ["job", "node"]

    async def test_step_is_executed_once_in_a_process(self, client, start_worker):
        flow = Flow("process").then(process_tasks.steps_in_process).build()
        await start_worker(process_tasks.steps_in_process, flows=[flow], hold_off="0s")
        of_node = await (await client.submit(flow, 5)).result(30)
        of_job = await (await client.enqueue(process_tasks.steps_in_process, 6)).result(30)
        assert of_node == [None, "5", 2]
        assert of_job == [None, "6", 2]

    @pytest.mark.parametrize("call", ["runs.load_steps", "runs.save_step"])
    async def test_outage_of_the_store_does_not_fail_the_body(
        self, client, start_worker, watch, monkeypatch, call
    ):
        monkeypatch.setattr(steps, "RETRY_SECONDS", 0.01)
        ran: list[int] = []

        async def disk_full() -> None:
            raise StoreError("disk full")

        def note() -> int:
            ran.append(1)
            return len(ran)

        @task
        async def work(ctx: AsyncContext = CONTEXT) -> object:
            return await ctx.step("only", note)

        watch.after[call] = disk_full
        await start_worker(work, store=watch.store)

        assert await (await client.enqueue(work)).result(10) == 1
        assert watch.calls[call] >= 2
        assert ran == [1]

    async def test_step_belongs_to_one_item_and_one_iteration(self, client, start_worker):
        @task
        async def each(number: int, ctx: AsyncContext = CONTEXT) -> int:
            return int(await ctx.step("same name", lambda: number * 10))

        @task
        async def count(number: int, ctx: AsyncContext = CONTEXT) -> int:
            return int(await ctx.step("same name", lambda: number + 1))

        items = Flow("items").map(each).build()
        loop = Flow("loop").loop(count, until=lambda number: number == 3).build()
        await start_worker(flows=[items, loop])

        assert await (await client.submit(items, [1, 2, 3])).result(10) == [10, 20, 30]
        assert await (await client.submit(loop, 0)).result(10) == 3

    async def test_steps_side_by_side_do_not_forget_each_other(self, world):
        ran: list[str] = []

        async def note(name: str) -> str:
            ran.append(name)
            return name

        @task
        async def work(ctx: AsyncContext = CONTEXT) -> list[str]:
            await asyncio.gather(*(ctx.step(name, note, name) for name in "abc"))
            return [await ctx.step(name, note, name) for name in "abc"]

        assert await (await world.enqueue(work)).result(10) == ["a", "b", "c"]
        assert sorted(ran) == ["a", "b", "c"]

    async def test_step_that_raises_stores_nothing(self, world):
        ran: list[int] = []

        def fail_first() -> int:
            ran.append(1)
            if len(ran) == 1:
                raise ValueError("first")
            return len(ran)

        @task(retries=AGAIN)
        async def work(ctx: AsyncContext = CONTEXT) -> Any:
            return await ctx.step("step", fail_first)

        assert await (await world.enqueue(work, hold_off="0s")).result(10) == 2

    async def test_step_whose_result_cannot_be_stored_fails_the_body(self, world):
        @task
        async def work(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.step("odd", lambda: object())

        await fails(await world.enqueue(work), "payload.not_serializable", JobFailed)

    async def test_who_a_body_is(self, client, start_worker):
        def seen(ctx: BaseContext) -> list[Any]:
            where = [ctx.run_id, ctx.node, ctx.iteration, ctx.item, ctx.attempt]
            return [*where, ctx.idempotency_key]

        @task
        async def tell(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            return seen(ctx)

        @task
        def tell_in_thread(_: Any, ctx: Context = CONTEXT) -> Any:
            return seen(ctx)

        flow = (
            Flow("who")
            .fork(
                node=tell_in_thread,
                items=Flow().then(lambda _: [0, 1], name="two").map(tell, name="item"),
                loop=Flow().loop(tell, name="again", until=lambda who: who[2] == 2),
            )
            .join(lambda parts: parts, name="all")
            .build()
        )
        await start_worker(tell, flows=[flow])
        found = await (await client.submit(flow, id="r-1")).result(10)
        job = await client.enqueue(tell, None)

        assert found == {
            "node": ["r-1", "tell_in_thread", 0, None, 1, "r-1:tell_in_thread:0"],
            "items": [
                ["r-1", "item", 0, 0, 1, "r-1:item:0[0]"],
                ["r-1", "item", 0, 1, 1, "r-1:item:0[1]"],
            ],
            "loop": ["r-1", "again", 2, None, 1, "r-1:again:2"],
        }
        assert await job.result(10) == [None, None, 0, None, 1, job.id]

    async def test_steps_of_one_name_side_by_side_are_executed_once(self, world):
        ran: list[int] = []

        async def note(number: int) -> int:
            ran.append(number)
            await asyncio.sleep(0)
            return number

        @task
        async def work(_: Any, ctx: AsyncContext = CONTEXT) -> list[int]:
            return list(await asyncio.gather(*(ctx.step("same", note, n) for n in range(5))))

        flow = Flow("side").then(work).build()

        assert await (await world.submit(flow)).result(10) == [0] * 5
        assert ran == [0]

    async def test_steps_of_runs_that_read_alike_are_kept_apart(self, client, start_worker, store):
        @task
        async def where(_: Any, ctx: AsyncContext = CONTEXT) -> str:
            return str(await ctx.step("where", lambda: f"{ctx.namespace} {ctx.run_id}"))

        inner = Flow("c").then(where).build()
        outer = Flow("outer").flow(inner).build()
        found = []
        for namespace, flow, id in (("a", outer, "b"), ("a/b", inner, "c")):
            await start_worker(flows=[outer], namespace=namespace)
            async with AsyncClient(store, namespace=namespace) as there:
                found.append(await (await there.submit(flow, id=id)).result(10))

        assert found == ["a b/c", "a/b c"]


AT_ONCE = Retry(3, first=0)
QUICK = {"hold_off": "0s"}


def attempts_failed(events: list[EventRecord]) -> list[tuple[str | None, int, str]]:
    return [
        (event.key, event.details["attempt"], event.failure.message)
        for event in events
        if event.type == "node_retried" and event.failure is not None
    ]


class TestNodeRetries:
    """Nodes that fail: retried as their task or their node says, and each attempt in the log."""

    async def test_retry_of_a_node_is_an_event_each(self, world):
        @task(retries=AT_ONCE)
        async def third_time(_: Any, ctx: AsyncContext = CONTEXT) -> int:
            if ctx.attempt < 3:
                raise ValueError(f"attempt {ctx.attempt}")
            return ctx.attempt

        flow = Flow("retried").then(third_time).then(lambda number: -number, name="minus").build()
        run = await world.submit(flow, **QUICK)

        assert await run.result(10) == -3
        failed = attempts_failed(await run.events())
        assert failed == [("third_time", 1, "attempt 1"), ("third_time", 2, "attempt 2")]

    async def test_retry_starts_at_the_first_attempt_with_each_node(self, world):
        @task(retries=AT_ONCE)
        async def second_time(seen: list[int], ctx: AsyncContext = CONTEXT) -> list[int]:
            if ctx.attempt < 2:
                raise ValueError("again")
            return [*seen, ctx.attempt]

        flow = Flow("twice").then(second_time, name="a").then(second_time, name="b").build()
        assert await (await world.submit(flow, [], **QUICK)).result(10) == [2, 2]

    async def test_retry_uses_up_the_budget_and_fails_the_run(self, world):
        @task(retries=AT_ONCE)
        async def never(_: Any, ctx: AsyncContext = CONTEXT) -> None:
            raise ValueError(f"attempt {ctx.attempt}")

        flow = Flow("never").then(never).build()
        run = await world.submit(flow, **QUICK)
        with failing(None, RunFailed, type="ValueError") as raised:
            await run.result(10)

        assert (raised.value.node, raised.value.failure.message) == ("never", "attempt 4")
        assert [event.type for event in await run.events()] == [
            "run_submitted",
            *["node_retried"] * 3,
            "node_failed",
            "run_failed",
        ]

    async def test_retry_as_the_node_says_wins_over_the_task(self, world):
        @task(retries=9)
        async def fail(_: Any, ctx: AsyncContext = CONTEXT) -> None:
            raise ValueError(f"attempt {ctx.attempt}")

        flow = (
            Flow("override")
            .then(fail, name="none", retries=0, on_error="continue")
            .then(fail, name="one", retries=Retry(1, first=0))
            .build()
        )
        run = await world.submit(flow, **QUICK)
        await fails(run, None, RunFailed, type="ValueError")

        assert attempts_failed(await run.events()) == [("one", 1, "attempt 1")]

    @pytest.mark.parametrize("found_type", ["async", "sync"])
    async def test_timeout_of_a_node_fails_its_attempt(self, world, found_type):
        @task(name="hang", timeout="10s")
        async def hang_async(_: Any) -> None:
            await asyncio.sleep(60)

        @task(name="hang", timeout="10s")
        def hang_sync(_: Any, ctx: Context = CONTEXT) -> None:
            ctx.abort_signal.wait(15)

        hang = hang_async if found_type == "async" else hang_sync
        flow = Flow("timeout").then(hang, timeout="30ms", retries=Retry(1, first=0)).build()
        run = await world.submit(flow, **QUICK)
        await fails(run, "attempt.timeout", RunFailed)
        assert len(attempts_failed(await run.events())) == 1

    async def test_a_check_that_raises_fails_its_loop(self, client, start_worker):
        def is_done(number: int) -> bool:
            raise ValueError("cannot tell")

        @task
        async def is_done_too(number: int) -> bool:
            raise ValueError("cannot tell either")

        quick = Flow("quick").loop(echo, until=is_done).build()
        asked = Flow("asked").loop(echo, until=is_done_too).build()
        await start_worker(flows=[quick, asked])
        for flow in (quick, asked):
            with failing(None, RunFailed, type="ValueError") as raised:
                await (await client.submit(flow, 0)).result(10)
            assert raised.value.node == "echo"
