"""What deciders are asked, and when they are reminded: an approval as its node says it."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.engine.run_view import Reading, scope_of
from perdure.model.graph import ApprovalNode
from perdure.model.ids import RunId
from perdure.model.value import Value
from perdure.model.wait import ApprovalRequest, Notice, approval_id


class ReminderStep(Value):
    """A reminder, or an escalation, which lets others decide too."""

    at_ms: int
    """From the opening on."""
    deciders: tuple[str, ...] = ()


def steps_of(node: ApprovalNode) -> list[ReminderStep]:
    """Reminders and escalations in the order of their times."""
    steps = [ReminderStep(at_ms=at) for at in node.reminders_ms]
    steps += [
        ReminderStep(at_ms=each.after_ms, deciders=each.deciders) for each in node.escalations
    ]
    return sorted(steps, key=lambda step: step.at_ms)


def request_of(reading: Reading, node: ApprovalNode) -> ApprovalRequest:
    """What is asked, with all templates filled in."""
    input = reading.input_of(node.id)
    texts = {"title": node.title, "message": node.message, "data": node.data}
    filled = reading.rendered(node, texts, input)
    scope = scope_of(reading.run, reading.graph, node, input)
    given = msgspec.json.decode(input)
    return ApprovalRequest(
        node=node.id,
        flow=reading.graph.name,
        title=str(filled["title"]),
        message=str(filled["message"]),
        form=node.form,
        show=given if node.shows is None else {name: scope.get(name) for name in node.shows},
        data=given if node.data is None else filled["data"],
        answers=node.answers,
        quorum=node.quorum,
    )


def notice_of(
    run: RunId, request: ApprovalRequest, deciders: tuple[str, ...], why: str, number: int = 0
) -> bytes:
    """What the task that tells people of an approval is called with."""
    return msgspec.json.encode(
        Notice(
            approval=approval_id(run, request.node),
            why=why,
            title=request.title,
            message=request.message,
            deciders=deciders,
            number=number,
        )
    )


def with_edits(base: Any, edits: Any) -> Any:
    """The data with the fields of an answer over it; an answer that is no object replaces it."""
    if edits is None:
        return base
    if isinstance(base, dict) and isinstance(edits, dict):
        return base | edits
    return edits
