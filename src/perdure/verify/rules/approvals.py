"""Approvals, reports and signals: who may, once, in their order."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model import event as events
from perdure.model.graph import APPROVE, ApprovalNode, Graph, SignalNode
from perdure.model.report import LAST, ReportStatus
from perdure.model.run import AnswerState, ApprovalState, RunState
from perdure.verify.finding import Finding
from perdure.verify.load import RunView
from perdure.verify.replay import Step

_NOBODY = ApprovalState()


def signals_taken_once(view: RunView) -> Iterator[Finding]:
    """A node takes a signal that came before and that no other took, the oldest one for it."""
    taken: dict[int, int] = {}
    for step in view.replay.steps:
        event = step.event
        if not isinstance(event, events.NodeCompleted) or event.cause != "signal":
            continue
        signal = view.replay.steps[event.ref - 1].event if 0 < event.ref < step.number else None
        numbers = (event.ref, step.number)
        if not isinstance(signal, events.SignalReceived):
            text = f"took event {event.ref} as a signal, which is none"
            yield view.finding("I2", "signals_taken_once", text, *numbers, key=event.node)
            continue
        if event.ref in taken:
            text = f"took the signal of event {event.ref}, as event {taken[event.ref]} had done"
            yield view.finding("I2", "signals_taken_once", text, *numbers, key=event.node)
        taken[event.ref] = step.number
        yield from _in_order(view, step, event, signal)


def _in_order(
    view: RunView, step: Step, event: events.NodeCompleted, signal: events.SignalReceived
) -> Iterator[Finding]:
    graph = _graph(view, step.before)
    node = None if graph is None else graph.nodes.get(event.node)
    if not isinstance(node, SignalNode):
        return
    if node.signal != signal.name:
        text = f"waits for signal {node.signal!r}, and took {signal.name!r}"
        numbers = (event.ref, step.number)
        yield view.finding("I2", "signals_taken_once", text, *numbers, key=event.node)
    oldest = min(step.before.mail.get(signal.name, (event.ref,)))
    if node.where is None and oldest < event.ref:
        text = f"took the signal of event {event.ref} before that of event {oldest}"
        yield view.finding("I2", "signals_in_order", text, oldest, step.number, key=event.node)


def reports_count_once(view: RunView) -> Iterator[Finding]:
    """The first last report counts, and one that is repeated counts once."""
    for step in view.replay.steps:
        event, before = step.event, step.before
        if not isinstance(event, events.NodeReported):
            continue
        if event.token and event.token in before.reports.get(event.key, ()):
            text = f"the report with token {event.token!r} was taken before"
            yield view.finding("I2", "reports_count_once", text, step.number, key=event.key)
        if ReportStatus(event.status) in LAST and event.key in before.early:
            first = before.early[event.key]
            text = f"a last report ({event.status}), though that of event {first} came before it"
            yield view.finding("I2", "reports_count_once", text, first, step.number, key=event.key)


def approvals_by_deciders(view: RunView) -> Iterator[Finding]:
    """Who answers may, has not before, and gives one of the answers; nobody after the decision."""
    for step in view.replay.steps:
        event = step.event
        if not isinstance(event, events.ApprovalAnswered):
            continue
        node = _approval(view, step.before, event.node)
        if node is None:
            continue
        state = step.before.approvals.get(node.id, _NOBODY)
        for fault in _faults(node, state, event):
            yield view.finding("I2", "approvals_by_deciders", fault, step.number, key=node.id)


def _faults(
    node: ApprovalNode, state: ApprovalState, event: events.ApprovalAnswered
) -> Iterator[str]:
    deciders = {*node.deciders, *state.deciders}
    if deciders and not (event.stands_for and deciders.issuperset(event.stands_for)):
        may = ", ".join(sorted(deciders))
        yield f"answered by {event.by!r} for {list(event.stands_for)}; those who may are {may}"
    if event.decision not in node.answers:
        yield f"answered {event.decision!r}; the answers are {', '.join(node.answers)}"
    if any(each.by == event.by for each in state.answers):
        yield f"{event.by!r} answered twice"
    decided = decided_by(node, state.answers)
    if decided is not None:
        yield f"{event.by!r} answered after it was decided: {decided!r}"


def approvals_as_decided(view: RunView) -> Iterator[Finding]:
    """An approval goes on when enough people agreed, and as they did."""
    for step in view.replay.steps:
        event = step.event
        if not isinstance(event, events.NodeCompleted | events.NodeFailed):
            continue
        if event.cause != "approval":
            continue
        id = event.node if isinstance(event, events.NodeCompleted) else event.key
        node = _approval(view, step.before, id)
        if node is None:
            continue
        answers = step.before.approvals.get(id, _NOBODY).answers
        decided = decided_by(node, answers)
        if decided is None:
            text = f"went on as decided with {len(answers)} answers, which decide nothing"
            yield view.finding("I2", "approvals_as_decided", text, step.number, key=id)
        elif isinstance(event, events.NodeFailed) and decided == APPROVE:
            text = "failed as rejected, and the answers approve"
            yield view.finding("I2", "approvals_as_decided", text, step.number, key=id)


def decided_by(node: ApprovalNode, answers: tuple[AnswerState, ...]) -> str | None:
    """What answers decide. Written anew, rather than asked of the rules that are checked."""
    if node.quorum:
        for number in range(1, len(answers) + 1):
            said = [each.decision for each in answers[:number]]
            if said.count(said[-1]) >= node.quorum:
                return said[-1]
        return None
    own = set(node.deciders)
    for number, each in enumerate(answers, start=1):
        agreed = {name for one in answers[:number] for name in one.stands_for}
        if each.decision != APPROVE:
            return each.decision
        if any(name not in own for name in each.stands_for) or own <= agreed:
            return APPROVE
    return None


def _approval(view: RunView, state: RunState, id: str) -> ApprovalNode | None:
    graph = _graph(view, state)
    node = None if graph is None else graph.nodes.get(id)
    return node if isinstance(node, ApprovalNode) else None


def _graph(view: RunView, state: RunState) -> Graph | None:
    return view.graphs.get(state.version)


RULES = (signals_taken_once, reports_count_once, approvals_by_deciders, approvals_as_decided)
