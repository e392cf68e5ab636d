"""Flows that wait for people, for outside parties and for signals, as these tests submit them."""

from __future__ import annotations

from typing import Any

from perdure import CONTEXT, Context, Flow, task
from perdure.flows.built import BuiltFlow

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
def keep(value: Any) -> Any:
    return value


@task
def hand_over(value: Any, ctx: Context = CONTEXT) -> Any:
    """Pauses until somebody outside is done."""
    report = ctx.pause("agent", checkpoint={"ticket": f"T-{value}"}, deadline="2h")
    if report.status == "failed":
        raise ValueError(report.error)
    return report.result


def approving(name: str, **options: Any) -> BuiltFlow:
    """A flow that begins with the approval ``review``, so that submitting it opens that."""
    return Flow(name).approve("Refund {{ value.id }}", name="review", **options).then(keep).build()


refunds = approving("refunds", message="Pay {{ value.amount }}?", deciders=["finance", "ann"])
anybody = approving("anybody")
paying = approving("paying", deciders=["finance"], form=FORM)
both = approving("both", deciders=["ann", "bob"], policy="all")
two = approving("two", policy={"at_least": 2})
timed = approving("timed", deciders=["finance"], deadline="1h", on_timeout="continue")
failing = approving("failing", deadline="1h")
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
    failing,
    sorting,
    outside,
    answering,
    filtered,
]
