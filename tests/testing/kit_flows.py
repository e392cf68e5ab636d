"""Flows and tasks that the tests of the kit are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure import CONTEXT, AsyncContext, Concurrency, Context, Flow, Rate, Retry, task


@dataclass(frozen=True)
class Order:
    number: int
    total: int


@task
def fetch(number: int) -> Order:
    raise AssertionError("there is no shop in the tests")


@task(retries=Retry(3, first="1m"))
async def charge(order: Order) -> str:
    raise ConnectionError("there is no bank in the tests")


@task
def ship(receipt: str, ctx: Context = CONTEXT) -> str:
    return f"{receipt} shipped by {ctx.node}"


@task
def refund(receipt: str) -> None:
    raise AssertionError("there is no bank in the tests")


ordering = Flow("ordering").then(fetch).then(charge, undo=refund).then(ship).build()


@task
def remind(nothing: None) -> str:
    return "reminded"


@task
def settle(answer: Any) -> Any:
    return answer


asking = (
    Flow("asking")
    .delay("2h")
    .wait_for_signal("answer", timeout="3d", on_timeout="late")
    .then(settle)
    .node("remind", remind, after="answer:late")
    .build()
)

deciding = (
    Flow("deciding")
    .approve("Pay {{ input }}?", name="boss", deciders=["ann", "bob"], policy="all")
    .then(settle)
    .build()
)


@task
async def send(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    report = await ctx.pause("supplier")
    return [number, report.status, report.result, report.error]


sending = Flow("sending").then(send).build()
parent = Flow("parent").flow(deciding, name="child").build()


@task
def double(number: int) -> int:
    return 2 * number


doubling = Flow("doubling").map(double, name="each").build()
growing = Flow("growing").loop(double, until=lambda number: number > 10, name="grow").build()
routing = (
    Flow("routing")
    .route(
        lambda number: "odd" if number % 2 else "even",
        {"odd": double, "even": settle},
        name="parity",
    )
    .build()
)


@task(limits=[Rate(2, per="1m")])
def call(number: int) -> int:
    return number


@task(limits=[Concurrency(1)])
def narrow(number: int) -> int:
    return number
