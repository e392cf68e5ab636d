"""Nodes that fail: tried again as their task or their node says, and each attempt in the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    Context,
    Flow,
    Permanent,
    Retry,
    RetryLater,
    RunFailed,
    task,
)
from perdure.operations.records import EventRecord
from perdure.worker.events import AttemptStarted

AT_ONCE = Retry(3, first=0)
QUICK = {"hold_off": "0s"}


def attempts_failed(events: list[EventRecord]) -> list[tuple[str | None, int, str]]:
    return [
        (event.key, event.details["attempt"], event.failure.message)
        for event in events
        if event.type == "node_retried" and event.failure is not None
    ]


async def test_retry_of_a_node_is_an_event_each(client, start_worker):
    @task(retries=AT_ONCE)
    async def third_time(_: Any, ctx: AsyncContext = CONTEXT) -> int:
        if ctx.attempt < 3:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    flow = Flow("retried").then(third_time).then(lambda number: -number, name="minus").build()
    await start_worker(flows=[flow], **QUICK)
    run = await client.submit(flow)

    assert await run.result(10) == -3
    failed = attempts_failed(await run.events())
    assert failed == [("third_time", 1, "attempt 1"), ("third_time", 2, "attempt 2")]


async def test_retry_starts_at_the_first_attempt_with_each_node(client, start_worker):
    @task(retries=AT_ONCE)
    async def second_time(told: list[int], ctx: AsyncContext = CONTEXT) -> list[int]:
        if ctx.attempt < 2:
            raise ValueError("again")
        return [*told, ctx.attempt]

    flow = Flow("twice").then(second_time, name="a").then(second_time, name="b").build()
    await start_worker(flows=[flow], **QUICK)

    assert await (await client.submit(flow, [])).result(10) == [2, 2]


async def test_retry_of_one_item_leaves_the_others_alone(client, start_worker):
    ran: list[int | None] = []

    @task(retries=AT_ONCE)
    async def each(number: int, ctx: AsyncContext = CONTEXT) -> list[Any]:
        ran.append(ctx.item)
        if ctx.item == 1 and ctx.attempt == 1:
            raise ValueError("again")
        return [number, ctx.attempt]

    flow = Flow("items").map(each).build()
    await start_worker(flows=[flow], **QUICK)
    run = await client.submit(flow, [7, 8, 9])

    assert await run.result(10) == [[7, 1], [8, 2], [9, 1]]
    assert sorted(ran, key=str) == [0, 1, 1, 2]
    assert attempts_failed(await run.events()) == [("each[1]", 1, "again")]


async def test_retry_uses_up_the_budget_and_fails_the_run(client, start_worker):
    @task(retries=AT_ONCE)
    async def never(_: Any, ctx: AsyncContext = CONTEXT) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    flow = Flow("never").then(never).build()
    await start_worker(flows=[flow], **QUICK)
    run = await client.submit(flow)
    with pytest.raises(RunFailed, match="attempt 4") as raised:
        await run.result(10)

    assert raised.value.node == "never"
    assert [event.type for event in await run.events()] == [
        "run_submitted",
        *["node_retried"] * 3,
        "node_failed",
        "run_failed",
    ]


async def test_retry_as_the_node_says_wins_over_the_task(client, start_worker):
    @task(retries=9)
    async def fail(_: Any, ctx: AsyncContext = CONTEXT) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    flow = (
        Flow("override")
        .then(fail, name="none", retries=0, on_error="continue")
        .then(fail, name="one", retries=Retry(1, first=0))
        .build()
    )
    await start_worker(flows=[flow], **QUICK)
    run = await client.submit(flow)
    with pytest.raises(RunFailed, match="attempt 2"):
        await run.result(10)

    assert attempts_failed(await run.events()) == [("one", 1, "attempt 1")]


async def test_permanent_is_not_retried(client, start_worker):
    @task(retries=9)
    async def fail(_: Any) -> None:
        raise Permanent("for good")

    flow = Flow("permanent").then(fail).build()
    worker = await start_worker(flows=[flow])
    with pytest.raises(RunFailed, match="for good"):
        await (await client.submit(flow)).result(10)

    assert len(worker.all(AttemptStarted)) == 1


async def test_retry_later_postpones_a_node_without_using_up_its_retries(client, start_worker):
    @task
    def later(_: Any, ctx: Context = CONTEXT) -> int:
        if ctx.attempt < 3:
            raise RetryLater("not yet", after="1ms")
        return ctx.attempt

    flow = Flow("later").then(later).build()
    await start_worker(flows=[flow], **QUICK)
    run = await client.submit(flow)

    assert await run.result(10) == 3
    assert [message for *_, message in attempts_failed(await run.events())] == ["not yet"] * 2


@pytest.mark.parametrize("found_type", ["async", "sync"])
async def test_timeout_of_a_node_fails_its_attempt(client, start_worker, found_type):
    @task(name="hang", timeout="10s")
    async def hang_async(_: Any) -> None:
        await asyncio.sleep(60)

    @task(name="hang", timeout="10s")
    def hang_sync(_: Any, ctx: Context = CONTEXT) -> None:
        ctx.abort_signal.wait(15)

    hang = hang_async if found_type == "async" else hang_sync
    flow = Flow("timeout").then(hang, timeout="30ms", retries=Retry(1, first=0)).build()
    await start_worker(flows=[flow], **QUICK)
    run = await client.submit(flow)
    with pytest.raises(RunFailed) as raised:
        await run.result(10)

    assert raised.value.failure is not None
    assert raised.value.failure.type == "perdure.errors.AttemptTimeout"
    assert len(attempts_failed(await run.events())) == 1


async def test_retry_of_a_loop_goes_on_with_the_iteration_that_failed(client, start_worker):
    @task(retries=AT_ONCE)
    async def count(number: int, ctx: AsyncContext = CONTEXT) -> int:
        if ctx.iteration == 2 and ctx.attempt == 1:
            raise ValueError("again")
        assert ctx.iteration == number + 1
        return number + 1

    flow = Flow("loop").loop(count, until=lambda number: number == 3).build()
    await start_worker(flows=[flow], **QUICK)
    run = await client.submit(flow, 0)

    assert await run.result(10) == 3
    assert attempts_failed(await run.events()) == [("count#2", 1, "again")]


async def test_a_check_that_raises_fails_its_loop(client, start_worker):
    @task
    async def count(number: int) -> int:
        return number + 1

    def is_done(number: int) -> bool:
        raise ValueError("cannot tell")

    @task
    async def is_done_too(number: int) -> bool:
        raise ValueError("cannot tell either")

    quick = Flow("quick").loop(count, until=is_done).build()
    asked = Flow("asked").loop(count, until=is_done_too).build()
    await start_worker(flows=[quick, asked])
    for flow in (quick, asked):
        with pytest.raises(RunFailed, match="cannot tell") as raised:
            await (await client.submit(flow, 0)).result(10)
        assert raised.value.node == "count"
