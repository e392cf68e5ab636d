"""Approvals: who may decide, when the answers decide, reminders and escalations.

An answer counts for those of the deciders that the person is, by name or by role. The history of
an approval is in the log; the state of an open one keeps who has answered so far.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.engine.completion import complete, end_by_policy
from perdure.engine.decider import Decider, reminder_steps
from perdure.engine.run_view import NULL
from perdure.errors import (
    AlreadyAnswered,
    ApprovalDecided,
    ApprovalNotFound,
    InvalidAnswer,
    InvalidInput,
    NotDecider,
    Rejected,
    WaitTimedOut,
)
from perdure.forms.schema import UNKNOWN_FIELD, faults_of, with_defaults
from perdure.model.event import ApprovalAnswered, ApprovalReminded, NodeNotified
from perdure.model.failure import Failure, failure_of
from perdure.model.graph import APPROVE, FAIL, ORDINARY, REJECT, ApprovalNode, JsonSchema
from perdure.model.ids import Key
from perdure.model.run import ApprovalState, LiveType, NewWait, NodeStatus, WaitType
from perdure.model.trigger import DecideApproval, WaitDue
from perdure.model.wait import approval_id

ANONYMOUS_ANSWER = declare(
    "approval.anonymous_answer",
    "approval {approval_id!r} needs several answers",
    "Name who decides with `by`, so that nobody is counted twice",
)
NO_DECISION = declare("approval.no_decision", "nobody decided on approval {node!r} in time")
REJECTED = declare("approval.rejected", "approval {node!r} was rejected by {by}")
UNKNOWN_ANSWER = declare(
    "approval.unknown_answer", "{decision!r} is not one of its answers: {choices}"
)
NOT_AN_OBJECT = declare("form.not_an_object", "data must be an object with the fields of the form")

_NOBODY = ApprovalState()
_OPEN_FORM = frozenset(
    {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "if", "$ref"}
)
"""JSON Schema keywords that allow fields other than the form's properties."""


def answer(d: Decider, command: DecideApproval) -> None:
    """Record an answer; if it decides the approval, the run continues."""
    node = _open_approval(d, command)
    stands_for = _checked_decider(d, node, command)
    data = _checked_data(d, node, command)
    event = ApprovalAnswered(
        node=node.id,
        decision=command.decision,
        by=command.by,
        stands_for=stands_for,
        note=command.note,
    )
    d.emit(event, data)
    if not d.state.is_paused:
        _conclude(d, node)


def conclude_all(d: Decider) -> None:
    """Continue approvals that were decided while the run was paused."""
    for id in sorted(d.state.approvals):
        node = d.graph.nodes[id]
        if isinstance(node, ApprovalNode):
            _conclude(d, node)


def approval_due(d: Decider, node: ApprovalNode, due: WaitDue) -> None:
    """The approval expired, or a reminder is due."""
    if due.key.part == "remind":
        _remind(d, node, due.late_ms)
    elif node.default_answer is not None:
        default = node.default_answer
        _end(d, node, default.decision, "timeout", default.data)
    else:
        is_failure = node.on_timeout == FAIL
        output = NULL if is_failure else _output(d, node, None, None, is_timed_out=True)
        _close(d, node)
        failure = failure_of(NO_DECISION.fault(node=node.id), WaitTimedOut)
        end_by_policy(d, Key(node=node.id), node.on_timeout, output, failure, cause="timeout")


def notified(d: Decider, key: Key, failure: Failure | None) -> None:
    """The ``notify`` task ended or failed; the approval stays open either way."""
    d.emit(NodeNotified(key=key.text, failure=failure))


def decision_of(node: ApprovalNode, state: ApprovalState) -> str | None:
    """The decision that the answers so far amount to, if any."""
    if node.quorum:
        counts: Counter[str] = Counter()
        for each in state.answers:
            counts[each.decision] += 1
            if counts[each.decision] >= node.quorum:
                return each.decision
        return None
    for each in state.answers:
        if each.decision != APPROVE:
            return each.decision
        if not set(each.stands_for) <= set(node.deciders):  # an escalation decides for all
            return APPROVE
    agreed = {decider for each in state.answers for decider in each.stands_for}
    return APPROVE if agreed.issuperset(node.deciders) else None


def _open_approval(d: Decider, command: DecideApproval) -> ApprovalNode:
    """The node of an open approval; raises if it is not open."""
    state, id = d.state, approval_id(d.run, command.node)
    node = d.graph.nodes.get(command.node)
    if not isinstance(node, ApprovalNode):
        known = ", ".join(
            repr(approval_id(d.run, each.id))
            for each in d.graph.nodes.values()
            if isinstance(each, ApprovalNode)
        )
        reason = f"its flow has {known}" if known else f"flow {state.flow!r} has no approvals"
        raise ApprovalNotFound(approval_id=id, reason=reason)
    if state.live.get(node.id) is not LiveType.WAIT:
        reached = state.nodes.get(node.id)
        if reached is None:
            raise ApprovalNotFound(approval_id=id, reason="its run has not come to it yet")
        if reached.status is NodeStatus.COMPLETED:
            outcome = "it was decided, or its time was over"
        elif state.is_ended:
            outcome = f"its run is {state.status}"
        else:
            outcome = f"its node is {reached.status}"
        raise ApprovalDecided(approval_id=id, outcome=outcome)
    if command.is_late:
        raise ApprovalDecided(approval_id=id, outcome="the time for an answer is over")
    decided = decision_of(node, state.approvals.get(node.id, _NOBODY))
    if decided is not None:
        raise ApprovalDecided(
            approval_id=id, outcome=f"it was decided, {decided!r}, and its run is paused"
        )
    return node


def _checked_decider(d: Decider, node: ApprovalNode, command: DecideApproval) -> tuple[str, ...]:
    """The deciders that this person may answer for."""
    id = approval_id(d.run, node.id)
    state = d.state.approvals.get(node.id, _NOBODY)
    deciders = (*node.deciders, *state.deciders)
    stands_for = tuple(
        dict.fromkeys(each for each in deciders if each in (command.by, *command.roles))
    )
    if deciders and not stands_for:
        raise NotDecider(approval_id=id, by=command.by, deciders=deciders)
    if command.by is None and node.quorum != 1:
        raise InvalidInput(ANONYMOUS_ANSWER.fault(("by",), approval_id=id))
    for each in state.answers:
        if each.by == command.by:
            raise AlreadyAnswered(approval_id=id, by=command.by, decision=each.decision)
    return stands_for


def _checked_data(d: Decider, node: ApprovalNode, command: DecideApproval) -> bytes:
    """The data of an answer, with defaults filled in and validated against the form."""
    id = approval_id(d.run, node.id)
    if command.decision not in node.answers:
        fault = UNKNOWN_ANSWER.fault(decision=command.decision, choices=node.answers)
        raise InvalidAnswer(fault, approval_id=id)
    data = msgspec.json.decode(command.data)
    form = node.form
    if form is None or (command.decision == REJECT and data is None):
        return command.data
    if data is not None and not isinstance(data, dict):
        raise InvalidAnswer(NOT_AN_OBJECT.fault(), approval_id=id)
    given = data or {}
    if unknown := _beyond_form(form, given):
        faults = [UNKNOWN_FIELD.fault((name,), field=name) for name in unknown]
        raise InvalidAnswer(*faults, approval_id=id)
    # Prefill: the form's fields in the data, overridden by the answers so far.
    data, properties = _data(d, node, None), _properties(form)
    prefilled = {}
    if isinstance(data, dict) and properties is not None:
        prefilled = {name: value for name, value in data.items() if name in properties}
    filled = with_defaults(form, prefilled | given)
    if faults := faults_of(form, filled):
        raise InvalidAnswer(*faults, approval_id=id)
    return msgspec.json.encode(filled)


def _beyond_form(form: JsonSchema, data: dict[str, Any]) -> list[str]:
    """Fields that the form does not have, unless it allows additional ones.

    JSON Schema lets any others pass; but an answer changes data, and only what was asked for.
    """
    properties = _properties(form)
    if properties is None or (isinstance(form, dict) and _OPEN_FORM & form.keys()):
        return []
    return [name for name in data if name not in properties]


def _properties(form: JsonSchema) -> dict[str, Any] | None:
    properties = form.get("properties") if isinstance(form, dict) else None
    return properties if isinstance(properties, dict) else None


def _data(d: Decider, node: ApprovalNode, more: Any) -> Any:
    """The data with the answers so far and ``more`` merged into it."""
    data = d.view.approval_request(node).data
    for each in d.state.approvals.get(node.id, _NOBODY).answers:
        data = _with_edits(data, msgspec.json.decode(d.view.json(each.ref)))
    return _with_edits(data, more)


def _with_edits(base: Any, edits: Any) -> Any:
    """The data with an answer merged into it; an answer that is not an object replaces it."""
    if edits is None:
        return base
    if isinstance(base, dict) and isinstance(edits, dict):
        return base | edits
    return edits


def _conclude(d: Decider, node: ApprovalNode) -> None:
    """Continue if enough deciders agree."""
    decided = decision_of(node, d.state.approvals.get(node.id, _NOBODY))
    if decided is not None and d.state.live.get(node.id) is LiveType.WAIT:
        _end(d, node, decided, "approval", None)


def _end(d: Decider, node: ApprovalNode, decision: str, cause: str, data: Any) -> None:
    output = _output(d, node, decision, data, is_timed_out=cause == "timeout")
    _close(d, node)
    if decision == REJECT:
        by = ", ".join(_names(d, node, decision)) or "nobody in particular"
        failure = failure_of(REJECTED.fault(node=node.id, by=by), Rejected)
        end_by_policy(d, Key(node=node.id), node.on_reject, output, failure, cause=cause)
    else:
        port = ORDINARY if decision == APPROVE else decision
        complete(d, node.id, port, output, cause=cause)


def _output(
    d: Decider, node: ApprovalNode, decision: str | None, data: Any, *, is_timed_out: bool
) -> bytes:
    answers = [
        {
            "by": each.by,
            "decision": each.decision,
            "note": each.note,
            "data": msgspec.Raw(d.view.json(each.ref)),
        }
        for each in d.state.approvals.get(node.id, _NOBODY).answers
    ]
    output = {
        "decision": decision,
        "data": _data(d, node, data),
        "by": _names(d, node, decision),
        "answers": answers,
        "timed_out": is_timed_out,
    }
    return msgspec.json.encode(output)


def _names(d: Decider, node: ApprovalNode, decision: str | None) -> list[str]:
    answers = d.state.approvals.get(node.id, _NOBODY).answers
    return [each.by for each in answers if each.by and each.decision == decision]


def _close(d: Decider, node: ApprovalNode) -> None:
    """Close the wait with its reminders and notifications."""
    d.decision.close_waits.append(node.id)
    reminders = d.state.approvals.get(node.id, _NOBODY).reminders
    aside = [Key(node=node.id, part="remind"), Key(node=node.id, part="notify")]
    aside += [Key(node=node.id, part="notify", iteration=n + 1) for n in range(reminders)]
    d.decision.cancel_keys.extend(key.text for key in aside if key.text in d.state.live)


def _remind(d: Decider, node: ApprovalNode, late_ms: int) -> None:
    """Send a reminder; an escalation also adds deciders."""
    state, steps = d.state.approvals.get(node.id, _NOBODY), reminder_steps(node)
    d.decision.close_waits.append(Key(node=node.id, part="remind").text)
    number = state.reminders + 1
    if number > len(steps):
        return
    step = steps[number - 1]
    if number < len(steps):
        d.remind_in(node, steps[number].at_ms - step.at_ms - late_ms)
    deciders = (*node.deciders, *state.deciders, *step.deciders)
    request = d.view.approval_request(node)
    if step.deciders:  # reopen the wait for more inboxes, due at the same time
        left_ms = None if node.timeout_ms is None else node.timeout_ms - step.at_ms - late_ms
        again = NewWait(
            key=node.id,
            type=WaitType.APPROVAL,
            name=request.title,
            delay=None if left_ms is None else timedelta(milliseconds=max(0, left_ms)),
            deciders=deciders,
            detail=msgspec.json.encode(request),
        )
        d.decision.waits.append(again)
    d.notify(node, request, deciders, "escalation" if step.deciders else "reminder", number)
    event = ApprovalReminded(
        node=node.id, number=number, deciders=step.deciders, effects=d.take_effects()
    )
    d.emit(event)
