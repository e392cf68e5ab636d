"""Flows of every construct and of nestings of them, each with an input and what must come out."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from perdure import Flow, Permanent, task
from perdure.tasks.context import CONTEXT, AsyncContext, Context
from tests.flows.declared import FROM_FILES, INPUTS
from tests.flows.people import APPROVALS, PAUSES, PORTS, Case

STEP_SECONDS = 0.01
LONG_SECONDS = 20.0


@task
async def add_one(number: int) -> int:
    return number + 1


@task
def double(number: int) -> int:
    return number * 2


@task
def total(numbers: dict[str, int]) -> int:
    return sum(numbers.values())


@task
async def total_list(numbers: list[int]) -> int:
    return sum(numbers)


@task
async def up_to(number: int) -> list[int]:
    return list(range(number))


@task
async def order(lines: int) -> dict[str, Any]:
    return {"kind": "pay" if lines % 2 else "reject", "lines": list(range(lines))}


@task
def paid(order: dict[str, Any]) -> str:
    return f"paid {len(order['lines'])}"


@task
async def asked(order: dict[str, Any]) -> str:
    return f"asked about {len(order['lines'])}"


@task
async def fail(value: Any) -> Any:
    raise Permanent(f"not with {value}")


@task
def fail_on_two(number: int) -> int:
    if number == 2:
        raise Permanent("not two")
    return number


@task
async def tell(error: dict[str, str]) -> str:
    return error["message"]


@task
def describe(value: Any) -> str:
    return f"<{value}>"


@task
async def who(_: Any, ctx: AsyncContext = CONTEXT) -> list[Any]:
    return [ctx.node, ctx.iteration, ctx.item, ctx.attempt]


@task
async def meet(place: str, ctx: AsyncContext = CONTEXT) -> int:
    """Returns once another body is at the same point: only concurrent bodies do."""
    here = Path(place)
    (here / f"{ctx.node}-{ctx.item}").touch()
    async with asyncio.timeout(LONG_SECONDS):
        while len(list(here.iterdir())) < 3:  # noqa: ASYNC110 (a file sets no event)
            await asyncio.sleep(STEP_SECONDS)
    return 1


@task
def meet_in_thread(place: str, ctx: Context = CONTEXT) -> int:
    here = Path(place)
    (here / f"{ctx.node}-{ctx.item}").touch()
    until = time.monotonic() + LONG_SECONDS
    while len(list(here.iterdir())) < 3:
        assert time.monotonic() < until
        time.sleep(STEP_SECONDS)
    return 1


increment = Flow("increment").then(add_one).then(double).build()
nested = Flow("nested").then(add_one).flow(increment).build()
"""A child of a child, where it is one."""

_in_a_branch = (
    Flow()
    .route(
        lambda number: "small" if number < 10 else "large",
        {
            "small": Flow()
            .fork(left=Flow().then(double, name="left"), right=Flow().then(add_one, name="right"))
            .join(total, name="inner"),
            "large": Flow().then(add_one, name="large"),
        },
        name="size",
    )
    .then(double, name="after_size")
)

CASES: dict[str, Case] = {
    "a chain": Case(Flow("chain").then(add_one).then(double).then(describe).build(), 1, "<4>"),
    "a fork and its join": Case(
        Flow("fork")
        .then(add_one)
        .fork(a=double, b=[Flow().then(add_one, name="b1"), Flow().then(double, name="b2")])
        .join(total)
        .build(),
        1,
        2 * 2 + (2 + 1) * 2,
    ),
    "a fork at the end": Case(
        Flow("open").then(add_one).fork(x=double, y=describe).build(),
        1,
        {"double": 4, "describe": "<2>"},
    ),
    "a route": Case(
        Flow("route").then(order).route("kind", {"pay": paid}, default=asked).build(), 3, "paid 3"
    ),
    "the default of a route": Case(
        Flow("default").then(order).route("kind", {"pay": paid}, default=asked).build(),
        2,
        "asked about 2",
    ),
    "a map": Case(Flow("map").then(up_to).map(double).build(), 5, [0, 2, 4, 6, 8]),
    "a map over a key, some at once": Case(
        Flow("over").then(order).map(double, over="lines", concurrency=2).then(total_list).build(),
        7,
        2 * sum(range(7)),
    ),
    "a map of nothing": Case(Flow("empty").map(double).then(describe).build(), [], "<[]>"),
    "a loop": Case(
        Flow("loop").loop(double, until=lambda number: number > 50).then(describe).build(),
        3,
        "<96>",
    ),
    "a loop until a task says so": Case(
        Flow("asked")
        .loop(add_one, until=task(name="is_enough")(lambda number: number >= 4))
        .build(),
        1,
        4,
    ),
    "a loop to its bound": Case(
        Flow("bound")
        .loop(add_one, until=lambda _: False, max_iterations=3, on_max="continue")
        .build(),
        0,
        3,
    ),
    "a delay": Case(Flow("delay").then(add_one).delay("10ms").then(double).build(), 1, 4),
    "a signal": Case(
        Flow("signal").then(add_one).wait_for_signal("go").then(double).build(),
        1,
        10,
        signals={"go": 5},
    ),
    "a signal that does not come": Case(
        Flow("silence")
        .wait_for_signal("go", timeout="10ms", on_timeout="continue")
        .then(describe)
        .build(),
        1,
        "<None>",
    ),
    "a signal with a default": Case(  # finding 17
        Flow("silence_by_default")
        .wait_for_signal("go", timeout="10ms", on_timeout={"default": {"late": [True]}})
        .then(describe)
        .build(),
        1,
        "<{'late': [True]}>",
    ),
    "a child": Case(Flow("parent").then(add_one).flow(increment).then(describe).build(), 1, "<6>"),
    "a child of a child": Case(Flow("elder").flow(nested).then(describe).build(), 1, "<6>"),
    "a map of children": Case(
        Flow("children").then(up_to).map(increment, concurrency=2).then(total_list).build(),
        4,
        2 * (1 + 2 + 3 + 4),
    ),
    "a loop of a child": Case(
        Flow("again").loop(increment, until=lambda number: number > 20).build(), 1, 22
    ),
    "an error passed over": Case(
        Flow("passed").then(fail, on_error="continue").then(describe).build(), 1, "<None>"
    ),
    "an error with a port": Case(
        Flow("port").then(fail, on_error="sorry").then(tell, after="fail:sorry").build(),
        1,
        "not with 1",
    ),
    "an item passed over": Case(
        Flow("items").then(up_to).map(fail_on_two, on_error="continue").build(), 4, [0, 1, None, 3]
    ),
    "a fork in a route in a fork": Case(
        Flow("deep").fork(a=_in_a_branch, b=add_one).join(total, name="outer").build(),
        3,
        (3 * 2 + 3 + 1) * 2 + 3 + 1,
    ),
    "who a node is": Case(
        Flow("who").map(who, name="each").then(lambda lists: lists[1], name="second").build(),
        ["a", "b"],
        ["each", 0, 1, 1],
    ),
    **APPROVALS,
    **PAUSES,
    **PORTS,
    **INPUTS,
    **FROM_FILES,
}

FLOWS = list({case.flow.version: case.flow for case in CASES.values()}.values())

parallel = (
    Flow("parallel")
    .fork(a=Flow().then(meet, name="a"), b=Flow().then(meet, name="b"), c=meet_in_thread)
    .join(total)
    .build()
)
parallel_items = Flow("parallel_items").map(meet).then(total_list).build()
PARALLEL = [parallel, parallel_items]
