"""Right programs: both type checkers accept every line, and infer these types."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, assert_type

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    AsyncJobHandle,
    AsyncRunHandle,
    AsyncTask,
    BaseContext,
    BuiltFlow,
    Client,
    Context,
    Flow,
    JobHandle,
    Report,
    Retry,
    RunHandle,
    Task,
    Worker,
    resource,
    run_flow,
    run_flow_async,
    task,
)


@dataclass
class Page:
    number: int


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue="pages", retries=3)
async def fetch(url: str, *, delay: int = 0) -> Page:
    return Page(len(url) + delay)


@task
def convert(page: Page, ctx: Context = CONTEXT) -> str:
    assert_type(ctx.step("one", add, 1), int)
    assert_type(ctx.step("two", helper, "x"), Page)
    assert_type(ctx.pause("outside"), Report)
    ctx.progress(50, "half way")
    noted(ctx)
    return str(page.number)


@task(timeout="10m")
async def research(ctx: AsyncContext = CONTEXT, topic: str = "") -> list[str]:
    assert_type(await ctx.step("one", helper, topic), Page)
    assert_type(await ctx.step("two", later, topic), Page)
    assert_type(await ctx.step("three", fetch, topic, delay=1), Page)
    assert_type(await ctx.pause("outside"), Report)
    assert_type(ctx.in_thread(), Context)
    await ctx.progress(50)
    noted(ctx)
    return [topic]


class Pool(Protocol):
    def find(self, id: int) -> Page: ...


DB = resource("db", Pool)
assert_type(DB, Pool)
assert_type(resource("cache", dict[str, int]), dict[str, int])


@task
def load(id: int, db: Pool = DB, ctx: Context = CONTEXT) -> Page:
    assert_type(ctx.resources["db"], Any)
    return db.find(id)


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, Pool]]:
    yield {}


@contextmanager
def session(ctx: BaseContext) -> Iterator[dict[str, object]]:
    yield {"id": ctx.arguments["id"]}


async def tenant(ctx: BaseContext) -> dict[str, int]:
    return {}


def workers() -> None:
    Worker("memory://", tasks=[load], lifespan=lifespan, provide=session, provides=["id"])
    Worker("memory://", tasks=[load], provide=tenant, provides=["id"])
    Worker("memory://", tasks=[load], provide=lambda ctx: {"id": ctx.job_id}, provides=["id"])


@task
def nothing(*, context: Context = CONTEXT) -> None: ...


def helper(text: str) -> Page:
    return Page(len(text))


async def later(text: str) -> Page:
    return Page(len(text))


def noted(ctx: BaseContext) -> str:
    return ctx.job_id


async def tasks() -> None:
    assert_type(add(1), int)
    assert_type(await fetch("a", delay=1), Page)
    assert_type(add.options(delay="5m", priority=2)(1, b=2), int)
    assert_type(convert.local(on_progress=print)(Page(1)), str)
    assert_type(await fetch.local(resources={"db": 1})("a", delay=2), Page)
    assert_type(await fetch.options(queue="slow", retries=Retry(2))("a"), Page)
    any_task: Task[..., Any] = fetch
    one: Task[[str], Page] = task(name="later")(later)
    two: AsyncTask[[str], Page] = task(later)
    assert_type(any_task.name, str)
    assert_type([one.name, two.name], list[str])


def sync(client: Client, connection: sqlite3.Connection) -> None:
    assert_type(client.enqueue(add, 1), JobHandle[int])
    assert_type(client.enqueue(add, 1, b=2).result(), int)
    assert_type(client.enqueue(add.options(delay="5m"), 1).result(timeout=10), int)
    assert_type(client.enqueue(fetch.options(priority=1), "a", delay=3).result(), Page)
    assert_type(client.enqueue(convert, Page(1)).result(), str)
    assert_type(client.enqueue(research, topic="x").result(), list[str])
    assert_type(client.enqueue(nothing), JobHandle[None])
    assert_type(client.enqueue(load, 1).result(), Page)
    assert_type(client.enqueue("by name", 1, anything=2), JobHandle[Any])
    client.enqueue(client.task("by name").options(group="july"), 1)
    many = client.enqueue_many(fetch.options(fingerprint=lambda url: url), ["a", "b"])
    assert_type(many, list[JobHandle[Page]])
    assert_type(client.jobs.results(many), Sequence[Page])
    assert_type(client.jobs.handle("id", add).result(), int)
    assert_type(client.submit(chain, "a"), RunHandle[str])
    assert_type(client.submit(child, "a", id="b").result(timeout=10), int)
    assert_type(client.submit("by name", {"any": 1}), RunHandle[Any])
    assert_type(client.run(chain, "a", timeout="1m"), str)
    assert_type(client.runs.handle("b", child).result(), int)
    client.run(graph, {"anything": 1})
    within = client.using(connection)
    assert_type(within.enqueue(add.options(group="g"), 1), JobHandle[int])
    assert_type(within.enqueue_many(add, [1, 2]), list[JobHandle[int]])
    assert_type(within.submit(chain, "a").result(), str)
    handle: JobHandle = client.jobs.handle("any")
    run: RunHandle = client.runs.handle("any")
    handles(handle, run)


def handles(handle: JobHandle, run: RunHandle) -> list[str]:
    return [handle.id, run.id]


async def async_(client: AsyncClient, connection: object) -> None:
    assert_type(await client.enqueue(add, 1), AsyncJobHandle[int])
    assert_type(await (await client.enqueue(fetch.options(delay=3), "a")).result(), Page)
    assert_type(await (await client.enqueue(convert, Page(1))).result(10), str)
    assert_type(await client.enqueue_many(add, [1, (2, 3)]), list[AsyncJobHandle[int]])
    within = client.using(connection)
    assert_type(await within.enqueue(fetch, "a"), AsyncJobHandle[Page])
    assert_type(await within.enqueue_many(fetch, ["a"]), list[AsyncJobHandle[Page]])
    assert_type(await within.submit(child, "a"), AsyncRunHandle[int])
    assert_type(await client.submit(chain, "a"), AsyncRunHandle[str])
    assert_type(await (await client.submit(child, "a")).result(), int)
    assert_type(await client.run(child, "a", id="c"), int)


chain = Flow("pages").then(fetch).then(convert, retries=2, name="text").build()
child = Flow("books").then(chain).then(len, name="length").build()
mixed = Flow("mixed").then(fetch).map(convert).delay("1h").then(sum, name="total").build()
named = Flow("named").then(fetch).then(add, inputs={"a": "fetch.output.number"}).build()
graph = Flow("graph").node("a", fetch).node("b", add, after="a").then(add, after="b").build()
inline = Flow("inline").then(lambda text: len(text), name="length").then(add).build()


async def flows() -> None:
    assert_type(chain, BuiltFlow[str, str])
    assert_type(child, BuiltFlow[str, int])
    assert_type(named, BuiltFlow[str, Any])
    assert_type(graph, BuiltFlow[Any, Any])
    assert_type(run_flow(chain, "a"), str)
    assert_type(await run_flow_async(child, "a", timeout="10s"), int)
    run_flow(mixed, "a")
    run_flow(inline, "a")
    grown = Flow("grown")
    for each in ("a", "b"):
        grown.then(convert, name=each)
    untyped: BuiltFlow = grown.build()
    run_flow(untyped, {"anything": 1})
