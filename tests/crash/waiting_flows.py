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
    """So that it is a worker that comes to the wait."""
    return value


@task
async def finish(value: Any) -> Any:
    return value


@task
async def too_late(value: Any) -> str:
    return "too late"


@task
async def refused(answer: dict[str, Any]) -> str:
    return f"refused: {answer['answers'][0]['note']}"


@task
async def print_label(number: int, ctx: AsyncContext = CONTEXT) -> dict[str, Any]:
    """Leaves its work to somebody outside."""
    report = await ctx.pause("printer", checkpoint={"ticket": number})
    done = {"failed": report.error} if report.status == "failed" else {"label": report.result}
    return {**done, "pages": ctx.partial}


@task
async def print_once(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    report = await ctx.pause(checkpoint=number)
    return report.result


@task
async def print_in_time(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    report = await ctx.pause(deadline=SPAN)
    return report.result


FORM = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1, "maximum": 500}},
    "required": ["amount"],
}


def begun(name: str) -> Flow:
    return Flow(name).then(begin)


nap = begun("nap").delay(SPAN).then(finish).build()
alarm = begun("alarm").delay(until="{{ value.at }}").then(too_late).build()

letter = begun("letter").wait_for_signal("letter").then(finish).build()
letters = (
    begun("letters")
    .wait_for_signal("first")
    .then(begin, name="between")
    .wait_for_signal("second")
    .then(finish)
    .build()
)
payment = (
    begun("payment")
    .wait_for_signal(
        "paid",
        where={"property": "order", "op": "eq", "value": "{{ number }}"},
        inputs={"number": "input"},
    )
    .then(finish)
    .build()
)
news = (
    begun("news")
    .wait_for_signal(
        "news",
        where={"property": "region", "op": "eq", "value": "{{ region }}"},
        inputs={"region": "input.region"},
    )
    .then(finish)
    .build()
)
hurry = (
    begun("hurry")
    .wait_for_signal("never", timeout=SPAN, on_timeout="late")
    .then(finish)
    .node("late", too_late, after="never:late")
    .build()
)

question = (
    begun("question")
    .approve("Take {{ value }}?", name="ask", on_reject="no")
    .then(finish)
    .node("refused", refused, after="ask:no")
    .build()
)
contract = (
    begun("contract")
    .approve(
        "Sign {{ value }}?", name="ask", deciders=["ann", "bob", "cem"], policy={"at_least": 2}
    )
    .then(finish)
    .build()
)
refund = (
    begun("refund")
    .approve("Refund {{ value.amount }}?", name="ask", deciders=["role:finance"], form=FORM)
    .then(finish)
    .build()
)
yes_in_time = (
    begun("yes-in-time")
    .approve("Take it?", name="ask", deadline=SPAN, on_timeout={"decision": "approve"})
    .then(finish)
    .build()
)
port_in_time = (
    begun("port-in-time")
    .approve("Take it?", name="ask", deadline=SPAN, on_timeout="late")
    .then(finish)
    .node("late", too_late, after="ask:late")
    .build()
)
fail_in_time = begun("fail-in-time").approve("Take it?", name="ask", deadline=SPAN).build()

label = begun("label").then(print_label).then(finish).build()
early_label = begun("early-label").then(print_once, queue=LATER).then(finish).build()
silent = (
    begun("silent")
    .then(print_in_time, on_timeout="late")
    .then(finish)
    .node("late", too_late, after="print_in_time:late")
    .build()
)

several = (
    begun("several")
    .fork(
        person=Flow().approve("And?", name="person"),
        post=Flow().wait_for_signal("post"),
        time=Flow().delay(SPAN, name="time"),
    )
    .join(finish)
    .build()
)
parent = begun("parent").flow(question, name="child").then(finish).build()

each_tick = Flow("each-tick").then(finish).build()
last_tick = Flow("last-tick").then(finish).build()

WAITING: list[BuiltFlow] = [
    nap,
    alarm,
    letter,
    letters,
    payment,
    news,
    hurry,
    question,
    contract,
    refund,
    yes_in_time,
    port_in_time,
    fail_in_time,
    label,
    early_label,
    silent,
    several,
    parent,
    each_tick,
    last_tick,
]
