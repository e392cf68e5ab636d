"""Flows that wait in every way there is, and tasks that continue only when the test lets them."""

from __future__ import annotations

from typing import Any

from perdure import CONTEXT, AsyncContext, Flow, Retry, RetryLater, Task, task


class Gate:
    """Closed while the work is made and moved, so that none of it is over too soon."""

    is_open = False
    fetched = 0
    """How often the first step of ``fetch_twice`` was done."""


SOON = "200ms"
ITEMS = [1, 2, 30, 40]


@task
async def begin(value: Any) -> Any:
    return value


@task
async def finish(value: Any) -> Any:
    return value


@task
async def weigh(item: int) -> int:
    """The light items are weighed at once, the heavy ones after the move."""
    if item > 9 and not Gate.is_open:
        raise RetryLater("too heavy for now", after=SOON)
    return item * 2


@task
async def add_up(items: list[int]) -> int:
    return sum(items)


@task
async def print_label(number: Any, ctx: AsyncContext = CONTEXT) -> Any:
    report = await ctx.pause("printer", checkpoint={"ticket": number})
    return {"label": report.result, "pages": ctx.partial}


@task
async def fetch_twice(value: Any, ctx: AsyncContext = CONTEXT) -> list[str]:
    """Its first step is stored before the move, and not done again after it."""

    async def fetched() -> str:
        Gate.fetched += 1
        return f"first of {value}"

    first = await ctx.step("first", fetched)
    if not Gate.is_open:
        raise RetryLater("nothing more for now", after=SOON)
    return [first, "second"]


@task(retries=Retry(50, first=SOON, factor=1, jitter=False))
async def flaky(text: str) -> str:
    if not Gate.is_open:
        raise ConnectionError("the line is cut")
    return text.upper()


@task(queue="stopped")
async def stopped(number: int) -> int:
    return number


nap = Flow("nap").then(begin).delay("1s").then(finish).build()
letter = Flow("letter").then(begin).wait_for_signal("letter").then(finish).build()
question = (
    Flow("question")
    .then(begin)
    .approve("Take {{ value }}?", name="ask", deciders=["ann", "role:finance"])
    .then(finish)
    .build()
)
label = Flow("label").then(begin).then(print_label).then(finish).build()
sorting = Flow("sorting").then(begin).map(weigh).then(add_up).build()
parent = Flow("parent").then(begin).flow(letter).then(finish).build()
stepping = Flow("stepping").then(fetch_twice).build()
tick = Flow("tick").then(begin).build()
calm = Flow("calm", cooldown="1h").then(begin).build()

FLOWS = [nap, letter, question, label, sorting, parent, stepping, tick, calm]
TASKS: list[Task[..., Any]] = [flaky, stopped]
