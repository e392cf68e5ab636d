"""The flows that these tests submit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from perdure import Flow, task
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
