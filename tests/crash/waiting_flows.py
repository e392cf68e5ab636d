"""Flows that wait in every way there is, for tests that end all workers meanwhile."""

from __future__ import annotations

from typing import Any

from perdure import CONTEXT, AsyncContext, Flow, task
from perdure.flows.built import BuiltFlow

SPAN_SECONDS = 8
"""How long what ends by itself waits: long enough to end all workers meanwhile."""
SPAN = f"{SPAN_SECONDS}s"
LATER = "later"
"""The queue that the first workers do not serve."""


@task
async def begin(value: Any) -> Any:
    """So that a worker reaches the wait."""
    return value


@task
async def finish(value: Any) -> Any:
    return value


@task
async def too_late(value: Any) -> str:
    return "too late"


@task
async def print_label(number: int, ctx: AsyncContext = CONTEXT) -> dict[str, Any]:
    """Leaves its work to an external system."""
    report = await ctx.pause("printer", checkpoint={"ticket": number})
    done = {"failed": report.error} if report.status == "failed" else {"label": report.result}
    return {**done, "pages": ctx.partial}


@task
async def print_once(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    report = await ctx.pause(checkpoint=number)
    return report.result


def started(name: str) -> Flow:
    return Flow(name).then(begin)


nap = started("nap").delay(SPAN).then(finish).build()

letter = started("letter").wait_for_signal("letter").then(finish).build()
payment = (
    started("payment")
    .wait_for_signal(
        "paid",
        where={"property": "order", "op": "eq", "value": "{{ number }}"},
        inputs={"number": "input"},
    )
    .then(finish)
    .build()
)
hurry = (
    started("hurry")
    .wait_for_signal("never", timeout=SPAN, on_timeout="late")
    .then(finish)
    .node("late", too_late, after="never:late")
    .build()
)

question = started("question").approve("Take {{ value }}?", name="ask").then(finish).build()
fail_in_time = started("fail-in-time").approve("Take it?", name="ask", deadline=SPAN).build()

label = started("label").then(print_label).then(finish).build()
early_label = started("early-label").then(print_once, queue=LATER).then(finish).build()
several = (
    started("several")
    .fork(
        person=Flow().approve("And?", name="person"),
        post=Flow().wait_for_signal("post"),
        time=Flow().delay(SPAN, name="time"),
    )
    .join(finish)
    .build()
)
parent = started("parent").flow(question, name="child").then(finish).build()

each_tick = Flow("each-tick").then(finish).build()
last_tick = Flow("last-tick").then(finish).build()

WAITING: list[BuiltFlow] = [
    nap,
    letter,
    payment,
    hurry,
    question,
    fail_in_time,
    label,
    early_label,
    several,
    parent,
    each_tick,
    last_tick,
]
