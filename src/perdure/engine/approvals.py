"""Approvals: who may answer what, when it is decided, and what follows from that or from nobody.

An answer counts for those of the deciders that the person is, by name or by role. The history of
an approval is in the log; what is kept of an open one is who has answered so far.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.engine.approval_requests import notice_of, request_of, steps_of, with_edits
from perdure.engine.completion import complete, fail
from perdure.engine.decider import Deciding
from perdure.engine.decision import Following, ms
from perdure.engine.failures import failure_of
from perdure.errors import (
    AlreadyAnswered,
    ApprovalDecided,
    ApprovalNotFound,
    InvalidAnswer,
    InvalidInput,
    NotADecider,
    Rejected,
    WaitTimedOut,
)
from perdure.forms.schema import UNKNOWN_FIELD, faults_of, with_defaults
from perdure.model.event import ApprovalAnswered, ApprovalReminded, NodeNotified
from perdure.model.failure import Failure
from perdure.model.graph import APPROVE, CONTINUE, FAIL, ORDINARY, REJECT, ApprovalNode, JsonSchema
from perdure.model.ids import Key
from perdure.model.run import ApprovalState, LiveKind, NewWait, NodeStatus, WaitKind
from perdure.model.trigger import Answered, WaitDue
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
"""Keywords with which a form may have fields besides its properties."""


def answer(deciding: Deciding, happening: Answered) -> None:
    """Somebody answered: recorded, and if that decides it the run goes on."""
    node = _open(deciding, happening)
    stands_for = _checked_decider(deciding, node, happening)
    data = _checked_data(deciding, node, happening)
    event = ApprovalAnswered(
        node=node.id,
        decision=happening.decision,
        by=happening.by,
        stands_for=stands_for,
        note=happening.note,
    )
    deciding.emit(event, data)
    if not deciding.state.is_paused:
        _conclude(deciding, node)


def conclude_all(deciding: Deciding) -> None:
    """After a pause, in which answers were only recorded."""
    for id in sorted(deciding.state.approvals):
        node = deciding.graph.nodes[id]
        if isinstance(node, ApprovalNode):
            _conclude(deciding, node)


def approval_due(deciding: Deciding, node: ApprovalNode, happening: WaitDue) -> None:
    """The time for an answer is over, or it is time to remind people."""
    if happening.key.part == "remind":
        _remind(deciding, node, happening.late_ms)
    elif node.default_answer is not None:
        default = node.default_answer
        _end(deciding, node, default.decision, "timeout", default.data)
    elif node.on_timeout == FAIL:
        _close(deciding, node)
        failure = failure_of(NO_DECISION.fault(node=node.id), WaitTimedOut)
        fail(deciding, Key(node=node.id), failure, "timeout")
    else:
        port = ORDINARY if node.on_timeout == CONTINUE else node.on_timeout
        output = _output(deciding, node, None, None, is_timed_out=True)
        _close(deciding, node)
        complete(deciding, node.id, port, output, cause="timeout")


def notified(deciding: Deciding, key: Key, output: bytes, failure: Failure | None) -> None:
    """People were told, or could not be; either way the approval is open."""
    deciding.emit(NodeNotified(key=key.text, failure=failure))


def decision_of(node: ApprovalNode, state: ApprovalState) -> str | None:
    """What the answers so far decide, if they do."""
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
        if not set(each.stands_for) <= set(node.deciders):  # by escalation: for all the others
            return APPROVE
    agreed = {decider for each in state.answers for decider in each.stands_for}
    return APPROVE if agreed.issuperset(node.deciders) else None


def _open(deciding: Deciding, happening: Answered) -> ApprovalNode:
    """The approval, if it is still to be decided."""
    state, id = deciding.state, approval_id(deciding.run, happening.node)
    node = deciding.graph.nodes.get(happening.node)
    if not isinstance(node, ApprovalNode):
        known = ", ".join(
            repr(approval_id(deciding.run, each.id))
            for each in deciding.graph.nodes.values()
            if isinstance(each, ApprovalNode)
        )
        reason = f"its flow has {known}" if known else f"flow {state.flow!r} has no approvals"
        raise ApprovalNotFound(approval_id=id, reason=reason)
    if state.live.get(node.id) is not LiveKind.WAIT:
        reached = state.nodes.get(node.id)
        if reached is None:
            raise ApprovalNotFound(approval_id=id, reason="its run has not come to it yet")
        raise ApprovalDecided(approval_id=id, outcome=_closing(deciding, reached.status))
    if happening.is_late:
        raise ApprovalDecided(approval_id=id, outcome="the time for an answer is over")
    decided = decision_of(node, state.approvals.get(node.id, _NOBODY))
    if decided is not None:
        raise ApprovalDecided(
            approval_id=id, outcome=f"it was decided, {decided!r}, and its run is paused"
        )
    return node


def _closing(deciding: Deciding, status: NodeStatus) -> str:
    if status is NodeStatus.COMPLETED:
        return "it was decided, or its time was over; client.approval(id) tells by whom"
    if deciding.state.is_ended:
        return f"its run is {deciding.state.status}"
    return f"its node is {status}"


def _checked_decider(
    deciding: Deciding, node: ApprovalNode, happening: Answered
) -> tuple[str, ...]:
    """Those of the deciders that this person is."""
    id = approval_id(deciding.run, node.id)
    state = deciding.state.approvals.get(node.id, _NOBODY)
    deciders = (*node.deciders, *state.deciders)
    stands_for = tuple(
        dict.fromkeys(each for each in deciders if each in (happening.by, *happening.roles))
    )
    if deciders and not stands_for:
        raise NotADecider(approval_id=id, by=happening.by, deciders=deciders)
    if happening.by is None and node.quorum != 1:
        raise InvalidInput(ANONYMOUS_ANSWER.fault(("by",), approval_id=id))
    for each in state.answers:
        if each.by == happening.by:
            raise AlreadyAnswered(approval_id=id, by=happening.by, decision=each.decision)
    return stands_for


def _checked_data(deciding: Deciding, node: ApprovalNode, happening: Answered) -> bytes:
    """The data of an answer as it is kept: defaults filled in, and checked against the form."""
    id = approval_id(deciding.run, node.id)
    if happening.decision not in node.answers:
        fault = UNKNOWN_ANSWER.fault(decision=happening.decision, choices=node.answers)
        raise InvalidAnswer(fault, approval_id=id)
    data = msgspec.json.decode(happening.data)
    if node.form is None or (happening.decision == REJECT and data is None):
        return happening.data
    if data is not None and not isinstance(data, dict):
        raise InvalidAnswer(NOT_AN_OBJECT.fault(), approval_id=id)
    if unknown := _beyond_form(node.form, data or {}):
        faults = [UNKNOWN_FIELD.fault((name,), field=name) for name in unknown]
        raise InvalidAnswer(*faults, approval_id=id)
    filled = with_defaults(node.form, _prefilled(deciding, node) | (data or {}))
    if faults := faults_of(node.form, filled):
        raise InvalidAnswer(*faults, approval_id=id)
    return msgspec.json.encode(filled)


def _beyond_form(form: JsonSchema, data: dict[str, Any]) -> list[str]:
    """Fields that the form does not offer, unless it says that there may be others.

    JSON Schema lets any others pass; but an answer changes data, and only what was asked for.
    """
    if not isinstance(form, dict) or not isinstance(form.get("properties"), dict):
        return []
    if _OPEN_FORM & form.keys():
        return []
    return [name for name in data if name not in form["properties"]]


def _prefilled(deciding: Deciding, node: ApprovalNode) -> dict[str, Any]:
    """What the form has already: its fields in the data, with the answers so far over it."""
    data = _data(deciding, node, None)
    properties = node.form.get("properties", {}) if isinstance(node.form, dict) else {}
    if not isinstance(data, dict) or not isinstance(properties, dict):
        return {}
    return {name: value for name, value in data.items() if name in properties}


def _data(deciding: Deciding, node: ApprovalNode, more: Any) -> Any:
    """The data as the answers so far left it."""
    data = request_of(deciding, node).data
    for each in deciding.state.approvals.get(node.id, _NOBODY).answers:
        data = with_edits(data, msgspec.json.decode(deciding.json(each.ref)))
    return with_edits(data, more)


def _conclude(deciding: Deciding, node: ApprovalNode) -> None:
    """Go on if enough people agree."""
    decided = decision_of(node, deciding.state.approvals.get(node.id, _NOBODY))
    if decided is not None and deciding.state.live.get(node.id) is LiveKind.WAIT:
        _end(deciding, node, decided, "approval", None)


def _end(deciding: Deciding, node: ApprovalNode, decision: str, cause: str, data: Any) -> None:
    is_timed_out = cause == "timeout"
    output = _output(deciding, node, decision, data, is_timed_out=is_timed_out)
    _close(deciding, node)
    if decision == REJECT and node.on_reject == FAIL:
        by = ", ".join(_names(deciding, node, decision)) or "nobody in particular"
        failure = failure_of(REJECTED.fault(node=node.id, by=by), Rejected)
        fail(deciding, Key(node=node.id), failure, cause)
        return
    port = decision
    if decision == APPROVE or (decision == REJECT and node.on_reject == CONTINUE):
        port = ORDINARY
    elif decision == REJECT:
        port = node.on_reject
    complete(deciding, node.id, port, output, cause=cause)


def _output(
    deciding: Deciding,
    node: ApprovalNode,
    decision: str | None,
    data: Any,
    *,
    is_timed_out: bool = False,
) -> bytes:
    answers = [
        {
            "by": each.by,
            "decision": each.decision,
            "note": each.note,
            "data": msgspec.Raw(deciding.json(each.ref)),
        }
        for each in deciding.state.approvals.get(node.id, _NOBODY).answers
    ]
    output = {
        "decision": decision,
        "data": _data(deciding, node, data),
        "by": _names(deciding, node, decision),
        "answers": answers,
        "timed_out": is_timed_out,
    }
    return msgspec.json.encode(output)


def _names(deciding: Deciding, node: ApprovalNode, decision: str | None) -> list[str]:
    answers = deciding.state.approvals.get(node.id, _NOBODY).answers
    return [each.by for each in answers if each.by and each.decision == decision]


def _close(deciding: Deciding, node: ApprovalNode) -> None:
    """End the wait, and whatever stands beside it."""
    deciding.decision.closes.append(node.id)
    reminders = deciding.state.approvals.get(node.id, _NOBODY).reminders
    aside = [Key(node=node.id, part="remind"), Key(node=node.id, part="notify")]
    aside += [Key(node=node.id, part="notify", iteration=n + 1) for n in range(reminders)]
    live = deciding.state.live
    deciding.decision.drops.extend(key.text for key in aside if key.text in live)


def _remind(deciding: Deciding, node: ApprovalNode, late_ms: int) -> None:
    """Tell people once more, and let others decide too if it is time for that."""
    state = deciding.state.approvals.get(node.id, _NOBODY)
    steps = steps_of(node)
    key = Key(node=node.id, part="remind")
    deciding.decision.closes.append(key.text)
    number = state.reminders + 1
    if number > len(steps):
        return
    step, following = steps[number - 1], Following()
    if number < len(steps):
        deciding.remind_in(following, node.id, steps[number].at_ms - step.at_ms - late_ms)
    deciders = (*node.deciders, *state.deciders, *step.deciders)
    request = request_of(deciding, node)
    if step.deciders:
        left = None if node.timeout_ms is None else node.timeout_ms - step.at_ms - late_ms
        again = NewWait(
            key=node.id,
            kind=WaitKind.APPROVAL,
            name=request.title,
            delay=None if left is None else ms(max(0, left)),
            deciders=deciders,
            detail=msgspec.json.encode(request),
        )
        deciding.decision.waits.append(again)
    if node.notify is not None:
        why = "escalation" if step.deciders else "reminder"
        told = notice_of(deciding.run, request, deciders, why, number)
        notify = Key(node=node.id, part="notify", iteration=number)
        deciding.schedule(following, notify, node.notify, told)
    event = ApprovalReminded(
        node=node.id, number=number, deciders=step.deciders, then=following.then()
    )
    deciding.emit(event)
