"""The flows of the runs in databases of the second schema; the code of then could run them too."""

from __future__ import annotations

from typing import Any

from perdure import CONTEXT, AsyncContext, Concurrency, Flow, Retry, task
from perdure.flows.built import BuiltFlow
from tests.upgrade.world import world

ITEMS_THEN = 3
"""How many items of a map were done."""
LOOPS_THEN = 210
"""How many iterations of the long loop were done: enough for a snapshot."""


@task
async def begin(number: int) -> int:
    world.executed.append(f"begin {number}")
    return number + 1


@task
async def stall(number: int) -> int:
    world.executed.append(f"stall {number}")
    await world.stall()
    return number * 10


@task
async def finish(value: Any) -> str:
    world.executed.append(f"finish {value}")
    return f"<{value}>"


@task
async def items(count: int) -> list[int]:
    return list(range(count))


@task
async def item(number: int) -> int:
    world.executed.append(f"item {number}")
    if number >= ITEMS_THEN:
        await world.stall()
    return number * number


@task
async def again(number: int) -> int:
    if number >= LOOPS_THEN:
        world.executed.append(f"again {number}")
        await world.stall()
    return number + 1


@task
async def refuse(number: int) -> int:
    world.executed.append(f"refuse {number}")
    world.fail()
    return number * 10


@task(retries=Retry(3, first="10m", jitter=False))
async def stumble(number: int) -> int:
    world.executed.append(f"stumble {number}")
    world.stumble()
    return number * 10


@task(limits=[Concurrency(1, key="narrow")])
async def narrow(number: int) -> int:
    world.executed.append(f"narrow {number}")
    await world.stall()
    return number * 10


@task
async def steps(number: int, ctx: AsyncContext = CONTEXT) -> list[int]:
    first = await ctx.step("first", stepped, number)
    await world.stall()
    return [first, await ctx.step("second", stepped, first)]


async def stepped(number: int) -> int:
    world.executed.append(f"stepped {number}")
    return number + 1


@task
async def take_back(value: Any) -> None:
    world.executed.append(f"take_back {value}")


@task
async def take_back_slowly(value: Any) -> None:
    world.executed.append(f"take_back_slowly {value}")
    await world.stall()


@task
async def kind_of(number: int) -> dict[str, Any]:
    return {"kind": "small" if number < 10 else "large", "number": number}


chain = Flow("chain").then(begin).then(stall).then(finish).build()
timer = Flow("timer").then(begin).delay("1h").then(finish).build()
asking = Flow("asking").then(begin).wait_for_signal("answer").then(finish).build()
silence = (
    Flow("silence")
    .wait_for_signal("answer", timeout="1h", on_timeout="continue")
    .then(finish)
    .build()
)
parent = Flow("parent").then(begin).flow(asking).then(finish, name="after").build()
family = Flow("family").then(items).map(chain).then(finish, name="after").build()
mapped = Flow("mapped").then(items).map(item, concurrency=2).then(finish).build()
looped = (
    Flow("looped")
    .loop(again, until=lambda number: number >= LOOPS_THEN + 2, max_iterations=1000)
    .then(finish)
    .build()
)
branches = (
    Flow("branches")
    .then(begin)
    .fork(left=finish, right=Flow().then(stall).wait_for_signal("go"))
    .join(finish, name="joined")
    .build()
)
routed = (
    Flow("routed")
    .then(begin)
    .route(lambda number: "odd" if number % 2 else "even", {"odd": stall, "even": refuse})
    .then(finish)
    .build()
)
undone = (
    Flow("undone")
    .then(begin, name="first", undo=take_back_slowly)
    .then(begin, name="second", undo=take_back)
    .then(refuse)
    .build()
)
refused = Flow("refused").then(begin).then(refuse).then(finish).build()
passed = Flow("passed").then(refuse, on_error="continue").delay("1h").then(finish).build()
retried = Flow("retried").then(stumble).then(finish).build()
limited = Flow("limited").then(narrow).then(finish).build()
stepping = Flow("stepping").then(steps).then(finish).build()

FLOWS: list[BuiltFlow] = [
    chain, timer, asking, silence, parent, family, mapped, looped, branches, routed, undone,
    refused, passed, retried, limited, stepping,
]  # fmt: skip

by_key = (
    Flow("by_key")
    .then(kind_of)
    .delay("1h")
    .route("kind", {"small": finish, "large": items}, name="size")
    .build()
)
"""Whose route goes by a key of its input, which was no part of a definition then."""
