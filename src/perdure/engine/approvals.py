"""Approvals: who may decide, when the answers decide, reminders and escalations.

An answer counts for every decider that is the person or one of their roles. The history of
an approval is in the log; the state of an open one keeps who has answered so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.engine.completion import complete, end_by_policy
from perdure.engine.decider import Decider, reminder_steps
from perdure.engine.run_view import NULL
from perdure.errors import (
    AlreadyAnswered,
    ApprovalChanged,
    ApprovalDecided,
    ApprovalNotFound,
    InvalidAnswer,
    InvalidInput,
    NotDecider,
    Rejected,
    WaitTimedOut,
)
from perdure.expr.condition import is_same
from perdure.forms.schema import merge_answer, with_defaults
from perdure.model.event import (
    ApprovalAnswered,
    ApprovalEscalated,
    ApprovalReminded,
    NodeNotified,
)
from perdure.model.failure import Failure, failure_of
from perdure.model.graph import APPROVE, FAIL, ORDINARY, REJECT, ApprovalNode
from perdure.model.ids import Key
from perdure.model.principal import normal_name, stands_for
from perdure.model.run import ApprovalState, LiveType, NewWait, NodeStatus, WaitType
from perdure.model.trigger import DecideApproval, WaitDue
from perdure.model.wait import ApprovalRequest, approval_id

ANONYMOUS_ANSWER = declare(
    "approval.anonymous_answer",
    "approval {approval_id!r} needs several answers",
    "Name who decides with `by`, so that no person is counted twice",
)
NOT_OPENED = declare(
    "approval.not_opened", "run {run_id!r} has not reached this approval, or skipped it"
)
NO_DECISION = declare("approval.no_decision", "approval {node!r} was not decided in time")
REJECTED = declare("approval.rejected", "approval {node!r} was rejected by {by}")
UNKNOWN_ANSWER = declare(
    "approval.unknown_answer", "{decision!r} is not one of its answers: {choices}"
)
NOT_AN_OBJECT = declare("form.not_an_object", "data must be an object with the fields of the form")
NO_FORM = declare(
    "approval.no_form",
    "this approval has no form, so an answer cannot change its data",
    "Decide without `data`, or give the approval a `form` with the fields that may change",
)

_UNANSWERED = ApprovalState()


def answer(d: Decider, command: DecideApproval) -> None:
    """Record an answer; if it decides the approval, the run continues."""
    node = _open_approval(d, command)
    represented, data = command.roles, command.data
    if not command.is_recorded:
        represented = _checked_decider(d, node, command)
        data = _checked_data(d, node, command)
    event = ApprovalAnswered(
        node=node.id,
        decision=command.decision,
        by=command.by,
        stands_for=represented,
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
            raise ApprovalNotFound(NOT_OPENED.fault(run_id=d.run), approval_id=id)
        if reached.status is NodeStatus.COMPLETED:
            outcome = "it was decided, or its time was over"
        elif state.is_ended:
            outcome = f"its run is {state.status}"
        else:
            outcome = f"its node is {reached.status}"
        raise ApprovalDecided(approval_id=id, outcome=outcome)
    if command.is_late:
        raise ApprovalDecided(approval_id=id, outcome="the time for an answer is over")
    decided = decision_of(node, state.approvals.get(node.id, _UNANSWERED))
    if decided is not None:
        raise ApprovalDecided(
            approval_id=id, outcome=f"it was decided, {decided!r}, and its run is paused"
        )
    return node


def _checked_decider(d: Decider, node: ApprovalNode, command: DecideApproval) -> tuple[str, ...]:
    """The deciders that this person may answer for."""
    id = approval_id(d.run, node.id)
    state = d.state.approvals.get(node.id, _UNANSWERED)
    deciders = (*node.deciders, *state.deciders)
    represented = stands_for(deciders, command.by, command.roles)
    if deciders and not represented:
        raise NotDecider(approval_id=id, by=command.by, deciders=deciders)
    if command.by is None and node.quorum != 1:
        raise InvalidInput(ANONYMOUS_ANSWER.fault(("by",), approval_id=id))
    who = None if command.by is None else normal_name(command.by)
    for each in state.answers:
        if who == (None if each.by is None else normal_name(each.by)):
            raise AlreadyAnswered(approval_id=id, by=command.by, decision=each.decision)
    approved = {name: each for each in state.answers for name in each.stands_for}
    if node.quorum == 0 and command.decision == APPROVE and approved.keys() >= set(represented):
        first = approved[represented[0]]  # all must approve, and these are covered by an approval
        raise AlreadyAnswered(approval_id=id, by=first.by, decision=first.decision)
    return represented


def _checked_data(d: Decider, node: ApprovalNode, command: DecideApproval) -> bytes:
    """The data of an answer as it is recorded: validated, and merged into nested objects."""
    id = approval_id(d.run, node.id)
    current, revision = _edited(d, node)
    if command.revision is None and not revision:
        pass  # every decider was shown this data
    elif command.revision != revision:
        raise ApprovalChanged(
            approval_id=id, revision=revision, expected=command.revision, data=current
        )
    if command.decision not in node.answers:
        fault = UNKNOWN_ANSWER.fault(decision=command.decision, choices=node.answers)
        raise InvalidAnswer(fault, approval_id=id)
    data = msgspec.json.decode(command.data)
    form = node.form
    if form is None and data is not None:
        raise InvalidAnswer(NO_FORM.fault(("data",)), approval_id=id)
    if form is None or (command.decision == REJECT and data is None):
        return command.data
    if data is not None and not isinstance(data, dict):
        raise InvalidAnswer(NOT_AN_OBJECT.fault(), approval_id=id)
    filled, faults = merge_answer(form, data or {}, current)
    if faults:
        raise InvalidAnswer(
            *{(each.where, each.code): each for each in faults}.values(), approval_id=id
        )
    return msgspec.json.encode(filled)


def edited(request: ApprovalRequest, answers: Iterable[Any]) -> tuple[Any, int]:
    """The data after the answers so far, and its revision: how many of them changed it.

    A default of the form that an answer filled in is no change: every decider was shown it.
    """
    data, revision = request.data, 0
    for each in answers:
        before, data = data, _with_edits(data, each)
        if is_same(data, before):
            continue
        try:
            shown = before if request.form is None else with_defaults(request.form, before)
        except InvalidInput:  # too many defaults
            shown = before
        revision += not is_same(data, shown)
    return data, revision


def _edited(d: Decider, node: ApprovalNode) -> tuple[Any, int]:
    answers = d.state.approvals.get(node.id, _UNANSWERED).answers
    data = [msgspec.json.decode(d.view.json(each.ref)) for each in answers]
    return edited(d.view.approval_request(node), data)


def _with_edits(base: Any, edits: Any) -> Any:
    """The data with an answer merged into it; an answer that is not an object replaces it.

    Nested objects are replaced: an answer is recorded with the current fields of each.
    """
    if edits is None:
        return base
    if isinstance(base, dict) and isinstance(edits, dict):
        return base | edits
    return edits


def _conclude(d: Decider, node: ApprovalNode) -> None:
    """Continue if enough deciders agree."""
    decided = decision_of(node, d.state.approvals.get(node.id, _UNANSWERED))
    if decided is not None and d.state.live.get(node.id) is LiveType.WAIT:
        _end(d, node, decided, "approval", None)


def _end(d: Decider, node: ApprovalNode, decision: str, cause: str, data: Any) -> None:
    output = _output(d, node, decision, data, is_timed_out=cause == "timeout")
    _close(d, node)
    if decision == REJECT:
        by = ", ".join(_names(d, node, decision)) or "an unnamed decider"
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
        for each in d.state.approvals.get(node.id, _UNANSWERED).answers
    ]
    output = {
        "decision": decision,
        "data": _with_edits(_edited(d, node)[0], data),
        "by": _names(d, node, decision),
        "answers": answers,
        "timed_out": is_timed_out,
    }
    return msgspec.json.encode(output)


def _names(d: Decider, node: ApprovalNode, decision: str | None) -> list[str]:
    answers = d.state.approvals.get(node.id, _UNANSWERED).answers
    return [each.by for each in answers if each.by and each.decision == decision]


def _close(d: Decider, node: ApprovalNode) -> None:
    """Close the wait with its reminders and notifications."""
    d.decision.close_waits.append(node.id)
    reminders = d.state.approvals.get(node.id, _UNANSWERED).reminders
    auxiliary = [Key(node=node.id, part="remind"), Key(node=node.id, part="notify")]
    auxiliary += [Key(node=node.id, part="notify", iteration=n + 1) for n in range(reminders)]
    d.decision.cancel_keys.extend(key.text for key in auxiliary if key.text in d.state.live)


def _remind(d: Decider, node: ApprovalNode, late_ms: int) -> None:
    """Send a reminder; an escalation also adds deciders."""
    state, steps = d.state.approvals.get(node.id, _UNANSWERED), reminder_steps(node)
    d.decision.close_waits.append(Key(node=node.id, part="remind").text)
    place = state.reminders
    if place >= len(steps):
        return
    step = steps[place]
    if place + 1 < len(steps):
        d.remind_in(node, steps[place + 1].at_ms - step.at_ms - late_ms)
    deciders = (*node.deciders, *state.deciders, *step.deciders)
    request = d.view.approval_request(node)
    if step.deciders:  # reopen the wait for more inboxes, due at the same time
        left_ms = None if node.timeout_ms is None else node.timeout_ms - step.at_ms - late_ms
        again = NewWait(
            key=node.id,
            type=WaitType.APPROVAL,
            delay=None if left_ms is None else timedelta(milliseconds=max(0, left_ms)),
            deciders=deciders,
            detail=msgspec.json.encode(request),
        )
        d.decision.waits.append(again)
    number = sum(bool(each.deciders) == bool(step.deciders) for each in steps[: place + 1])
    why = "escalation" if step.deciders else "reminder"
    d.notify(node, request, deciders, why, number, step=place + 1)
    effects = d.take_effects()
    if step.deciders:
        d.emit(
            ApprovalEscalated(node=node.id, number=number, deciders=step.deciders, effects=effects)
        )
    else:
        d.emit(ApprovalReminded(node=node.id, number=number, effects=effects))
