"""Which context a body gets, where it stands, and what its steps return."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    BaseContext,
    Context,
    Flow,
    InvalidFlow,
    InvalidInput,
    NodeType,
    Retry,
    task,
)
from tests.support.refusal import refused

AGAIN = Retry(3, first=0, jitter=False)


@dataclass
class Page:
    number: int


def read(number: int) -> Page:
    return Page(number)


async def read_later(number: int) -> Page:
    return Page(number)


def named(ctx: BaseContext) -> str:
    return type(ctx).__name__


class TestACall:
    async def test_gives_each_body_its_own_wherever_it_stands(self, client, start_worker):
        @task
        def last(text: str, ctx: Context = CONTEXT) -> str:
            return f"{text} {named(ctx)}"

        @task
        async def first(ctx: AsyncContext = CONTEXT, text: str = "") -> str:
            return f"{text} {named(ctx)}"

        @task
        async def by_name(text: str, *, told: AsyncContext = CONTEXT, more: int = 0) -> str:
            return f"{text}{more} {named(told)}"

        @task
        def without_default(context: Context, text: str) -> str:
            return f"{text} {named(context)}"

        await start_worker(last, first, by_name, without_default)
        jobs: list[Any] = [
            await client.enqueue(last, "a"),
            await client.enqueue(first, text="b"),
            await client.enqueue(by_name, "c", more=1),
            await client.enqueue(without_default, text="d"),  # type: ignore[call-overload]
        ]

        assert await client.jobs.results(jobs, timeout=10) == [
            "a Context",
            "b AsyncContext",
            "c1 AsyncContext",
            "d Context",
        ]

    async def test_gives_a_sync_helper_in_a_thread_the_same_context(self, client, start_worker):
        def help(ctx: Context) -> list[Any]:
            return [named(ctx), ctx.job_id, ctx.step("shared", read, 2)]

        @task
        async def work(ctx: AsyncContext = CONTEXT) -> list[Any]:
            first = await ctx.step("shared", read, 1)
            return [ctx.job_id, first, *await asyncio.to_thread(help, ctx.in_thread())]

        await start_worker(work)
        job = await client.enqueue(work)

        page = {"number": 1}
        assert await job.result(10) == [job.id, page, "Context", job.id, page]

    def test_as_a_function_has_none(self):
        @task
        def work(ctx: Context = CONTEXT) -> str:
            return ctx.job_id

        with refused("task.no_context", InvalidInput, name="job_id"):
            work()


class TestStep:
    async def test_returns_what_the_function_declares_the_first_time_and_again(
        self, client, start_worker
    ):
        seen: list[Page] = []

        @task(retries=AGAIN)
        async def later(ctx: AsyncContext = CONTEXT) -> int:
            seen.append(await ctx.step("one", read_later, 1))
            seen.append(await ctx.step("two", read, 2))
            if ctx.attempt == 1:
                raise ValueError("again")
            return seen[-1].number

        @task(retries=AGAIN)
        def in_thread(ctx: Context = CONTEXT) -> int:
            seen.append(ctx.step("three", read, 3))
            if ctx.attempt == 1:
                raise ValueError("again")
            return seen[-1].number

        await start_worker(later, in_thread, hold_off=0)

        assert await (await client.enqueue(later)).result(10) == 2
        assert await (await client.enqueue(in_thread)).result(10) == 3
        assert seen == [Page(1), Page(2)] * 2 + [Page(3)] * 2


class TestAnotherContext:
    def test_is_refused_when_the_task_is_made(self):
        async def later(ctx: Context = CONTEXT) -> None: ...

        def in_thread(told: AsyncContext = CONTEXT) -> None: ...

        wrong: dict[str, Any] = {
            "body": "async",
            "name": "ctx",
            "declared": "Context",
            "expected": "AsyncContext",
        }
        with refused("task.other_context", InvalidInput, **wrong):
            task(later)
        wrong = {"body": "sync", "name": "told", "declared": "AsyncContext", "expected": "Context"}
        with refused("task.other_context", InvalidInput, **wrong):
            task(retries=3)(in_thread)

    def test_is_refused_in_a_function_and_a_kind_of_a_flow(self):
        async def later(value: int, ctx: Context) -> int:
            return value

        class Odd(NodeType):
            name = "odd"

            def execute(self, config: Any, ctx: AsyncContext) -> None: ...

        untyped: Any = later
        for flow in (Flow("a").then(untyped, name="x"), Flow("b").use(Odd())):
            with pytest.raises(InvalidFlow) as caught:
                flow.build()
            assert [each.code for each in caught.value.faults] == ["task.other_context"]
