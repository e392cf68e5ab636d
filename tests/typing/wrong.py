"""Wrong programs: both type checkers reject every line that is marked, and no other."""

from __future__ import annotations

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Client,
    Context,
    Flow,
    Worker,
    resource,
    run_flow,
    task,
)


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(retries=3)
async def fetch(url: str, *, delay: int = 0) -> bytes:
    return url.encode()


@task
def convert(data: bytes, ctx: Context = CONTEXT) -> str:
    first: str = ctx.step("one", add, 1)  # error
    ctx.step("two", add, "1")  # error
    ctx.step("three", add, 1, c=2)  # error
    ctx.step(add, 1)  # error
    ctx.progress("half")  # error
    return first


@task
async def research(ctx: AsyncContext = CONTEXT, topic: str = "") -> str:
    text: str = await ctx.step("one", fetch, topic)  # error
    number: int = ctx.step("two", add, 1)  # error
    await ctx.step("three", fetch, 3)  # error
    report: str = await ctx.pause()  # error
    return f"{text} {number} {report}"


DB = resource("db", bytes)


@task
def load(id: int, db: str = DB) -> str:  # error
    return db


@task
def store(id: int, db: bytes = DB) -> int:
    return db.upper()  # error


def workers() -> None:
    Worker("memory://", tasks=[store], lifespan=lambda: {"db": b""})  # error
    Worker("memory://", tasks=[store], provide=lambda: {"db": b""}, provides=["db"])  # error
    run_flow(Flow("a").then(store).build(), 1, resources=[b""])  # error


@task(retrys=3)  # error
def misspelled() -> None: ...


def options() -> None:
    add.options(prioriti=2)  # error
    add.options(priority="soonest")  # error
    add.options(delay=[5])  # error
    fetch.options(on_conflict="ignore")  # error
    add.options(delay="5m")("one")  # error
    add.local(on_progress=3)  # error
    add.local()("one")  # error
    fetch.local()("a").decode()  # error


def sync(client: Client, connection: object) -> None:
    client.enqueue(add, "1")  # error
    client.enqueue(add)  # error
    client.enqueue(add, 1, 2, 3)  # error
    client.enqueue(add, 1, c=2)  # error
    client.enqueue(add, 1, delay="5m")  # error
    client.enqueue(fetch, "a", delay="5m")  # error
    client.enqueue(add.options(delay="5m"), "1")  # error
    client.enqueue(convert, "text")  # error
    client.enqueue(store, 1, db=3)  # error
    client.enqueue(convert, b"", ctx=3)  # error
    client.enqueue(research, topic=3)  # error
    client.enqueue(print, 1)  # error
    client.enqueue(add, 1).result().upper()  # error
    text: str = client.enqueue(add.options(priority=1), 1).result()  # error
    numbers: list[int] = [each.result() for each in client.enqueue_many(fetch, ["a"])]  # error
    client.enqueue_many(add, 3)  # error
    client.enqueue_many(add, [1], group="july")  # error
    client.using(connection).enqueue(add, "1")  # error
    client.using(connection).enqueue(add, 1).result().upper()  # error
    client.enqueue(add, 1, connection=connection)  # error
    client.using()  # error
    del text, numbers


async def async_(client: AsyncClient, connection: object) -> None:
    await client.enqueue(add, "1")  # error
    await client.enqueue(fetch, b"a")  # error
    await client.enqueue(fetch, "a", delays=3)  # error
    await client.enqueue(fetch.options(group=3), "a")  # error
    (await client.enqueue(fetch, "a")).result().decode()  # error
    (await (await client.enqueue(fetch, "a")).result()).upper(1)  # error
    number: int = await (await client.enqueue(fetch.options(delay=3), "a")).result()  # error
    await client.using(connection).enqueue(research, 3)  # error
    texts: list[str] = await client.enqueue_many(fetch, ["a"])  # error
    del number, texts


built = Flow("pages").then(fetch).then(convert).build()


def flows() -> None:
    Flow("a").then(fetch).then(add)  # error
    Flow("b").then(built).then(add)  # error
    Flow("c").then(add).then(built)  # error
    Flow("d").then(fetch, retrys=2)  # error
    Flow("e").then(fetch, retries="many")  # error
    Flow("f").then(fetch).map(convert, concurency=2)  # error
    run_flow(built, 3)  # error
    run_flow(built, "a").decode()  # error
    result: int = run_flow(Flow("g").then(fetch).map(convert).then(convert).build(), "a")  # error
    del result


def runs(client: Client, connection: object) -> None:
    client.submit(built, 3)  # error
    client.submit(built, "a", on_conflit="fail")  # error
    client.submit(Flow("h").then(fetch), "a")  # error
    client.run(built, "a").decode()  # error
    number: int = client.submit(built, "a").result()  # error
    client.runs.handle("a", built).result().decode()  # error
    client.using(connection).submit(built, 3)  # error
    client.using(connection).submit(built, "a").result().decode()  # error
    del number


async def async_runs(client: AsyncClient, connection: object) -> None:
    await client.submit(built, b"a")  # error
    (await client.submit(built, "a")).result().upper()  # error
    number: int = await client.run(built, "a")  # error
    await client.using(connection).submit(built, 3)  # error
    del number
