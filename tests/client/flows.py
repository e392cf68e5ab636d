"""The flows that these tests submit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from perdure import CONTEXT, AsyncContext, Concurrency, Context, Flow, Retry, task
from perdure.flows.built import BuiltFlow


@dataclass(frozen=True)
class Order:
    id: int
    lines: list[str]


@task
def read_order(id: int) -> Order:
    return Order(id=id, lines=["book", "pen"])


@task
def total(order: Order) -> int:
    return order.id * len(order.lines)


@task
def refuse(value: Any) -> Any:
    raise ValueError("out of paper")


@task
def keep(value: Any) -> Any:
    return value


@task
def undo_keep(value: Any) -> None:
    pass


@task
def shout(word: str) -> str:
    return word.upper()


@task
async def never(value: Any) -> Any:
    await asyncio.Event().wait()


ordering = Flow("ordering").then(read_order).then(total).build()
reading = Flow("reading").then(read_order).build()
failing = Flow("failing").then(keep).then(refuse).build()
asking = Flow("asking").then(keep).wait_for_signal("answer").build()
hanging = Flow("hanging").then(never).build()
shouting = Flow("shouting").map(shout).build()
parent = Flow("parent").then(keep).flow(asking).build()
grandparent = Flow("grandparent").flow(parent).build()
undoing = Flow("undoing").then(keep, undo=undo_keep).wait_for_signal("answer").build()
late = Flow("late").delay("2h").then(keep).build()
LONG = [f"{letter}{number}" for number in (2, 1) for letter in "cabed"]


def chained(name: str, nodes: list[str]) -> BuiltFlow:
    flow = Flow(name)
    for node in nodes:
        flow.then(keep, name=node)
    return flow.build()


long = chained("long", LONG)

FLOWS: list[BuiltFlow] = [
    ordering,
    reading,
    failing,
    asking,
    hanging,
    shouting,
    parent,
    grandparent,
    undoing,
    late,
    long,
]


# Flows that wait for people, for outside parties and for signals, as these tests submit them.


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "maximum": 500},
        "reason": {"type": "string", "default": "as asked"},
    },
    "required": ["amount"],
    "additionalProperties": False,
}


@task
def hand_over(value: Any, ctx: Context = CONTEXT) -> Any:
    """Pauses until an external system reports."""
    report = ctx.pause("agent", checkpoint={"ticket": f"T-{value}"}, deadline="2h")
    if report.status == "failed":
        raise ValueError(report.error)
    return report.result


def approving(name: str, **options: Any) -> BuiltFlow:
    """A flow that begins with the approval ``review``, so that submitting it opens that."""
    return Flow(name).approve("Refund {{ value.id }}", name="review", **options).then(keep).build()


refunds = approving("refunds", message="Pay {{ value.amount }}?", deciders=["role:finance", "ann"])
anybody = approving("anybody")
paying = approving("paying", deciders=["role:finance"], form=FORM)
both = approving("both", deciders=["ann", "bob"], policy="all")
both_edit = approving(
    "both_edit", deciders=["ann", "bob"], policy="all", form={**FORM, "additionalProperties": True}
)
two = approving("two", policy={"at_least": 2})
timed = approving("timed", deciders=["role:finance"], deadline="1h", on_timeout="continue")
timing_out = approving("failing", deadline="1h")
sorting = (
    Flow("sorting")
    .approve("Where to?", name="review", answers=["approve", "hold"])
    .then(keep)
    .node("parked", keep, after="review:hold")
    .build()
)
outside = Flow("outside").then(hand_over).then(keep).build()
answering = Flow("answering").wait_for_signal("paid", name="payment").then(keep).build()
filtered = (
    Flow("filtered")
    .wait_for_signal(
        "paid",
        name="payment",
        where={"property": "order", "op": "eq", "value": "{{ id }}"},
        inputs={"id": "input.id"},
    )
    .then(keep)
    .build()
)

PEOPLE_FLOWS = [
    refunds,
    anybody,
    paying,
    both,
    two,
    timed,
    timing_out,
    sorting,
    outside,
    answering,
    filtered,
]


# The tasks that these tests enqueue.


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task
def echo(value: Any) -> Any:
    return value


@task(queue="embeddings", priority=2, retries=Retry(5), timeout="30s", tags=["gpu"])
async def embed(text: str, ctx: AsyncContext = CONTEXT) -> dict[str, Any]:
    await ctx.progress(50, "half way")
    return {"text": text}


@task
def mirror(point: Point) -> Point:
    return Point(point.y, point.x)


@task
def named(*, queue: str, text: str = "") -> str:
    return f"{queue} {text}"


@task(limits=[Concurrency(2, key=lambda user, _text="": f"user:{user}")])
def for_user(user: str, text: str = "") -> str:
    return user + text


@task
async def until_aborted(ctx: AsyncContext = CONTEXT) -> None:
    await ctx.progress(50, "half way", {"done": 1})
    await ctx.abort_signal.wait_async()
