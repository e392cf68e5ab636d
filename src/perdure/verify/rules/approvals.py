"""Rules on approvals, reports and signals: permissions, uniqueness and order."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.diagnostics import Finding, declare
from perdure.model import event as events
from perdure.model.graph import APPROVE, ApprovalNode, Graph, SignalNode
from perdure.model.run import AnswerState, ApprovalState, RunState
from perdure.model.wait import LAST, ReportStatus
from perdure.verify.load import AuditedRun

_UNANSWERED = ApprovalState()


SIGNALS_CONSUMED_ONCE_NOT_A_SIGNAL = declare(
    "verify.signals_consumed_once.not_a_signal", "consumed event {ref} as a signal, which it is not"
)
SIGNALS_CONSUMED_ONCE_TAKEN_BEFORE = declare(
    "verify.signals_consumed_once.taken_before",
    "consumed the signal of event {ref}, as event {taken} had already",
)
SIGNALS_CONSUMED_ONCE_OTHER_NAME = declare(
    "verify.signals_consumed_once.other_name", "waits for signal {signal!r}, but consumed {name!r}"
)
SIGNALS_IN_ORDER = declare(
    "verify.signals_in_order", "consumed the signal of event {ref} before that of event {oldest}"
)


def signals_consumed_once(view: AuditedRun) -> Iterator[Finding]:
    """A node receives the oldest earlier signal that no other node received."""
    taken: dict[int, int] = {}
    for step in view.replay.steps:
        event = step.event
        if not isinstance(event, events.NodeCompleted) or event.cause != "signal":
            continue
        signal = view.replay.steps[event.ref - 1].event if 0 < event.ref < step.number else None
        numbers = (event.ref, step.number)
        if not isinstance(signal, events.SignalReceived):
            yield view.finding(
                "I2", SIGNALS_CONSUMED_ONCE_NOT_A_SIGNAL, *numbers, key=event.node, ref=event.ref
            )
            continue
        if event.ref in taken:
            yield view.finding(
                "I2",
                SIGNALS_CONSUMED_ONCE_TAKEN_BEFORE,
                *numbers,
                key=event.node,
                ref=event.ref,
                taken=taken[event.ref],
            )
        taken[event.ref] = step.number
        graph = _graph(view, step.before)
        node = None if graph is None else graph.nodes.get(event.node)
        if not isinstance(node, SignalNode):
            continue
        if node.signal != signal.name:
            yield view.finding(
                "I2",
                SIGNALS_CONSUMED_ONCE_OTHER_NAME,
                *numbers,
                key=event.node,
                signal=node.signal,
                name=signal.name,
            )
        oldest = min(step.before.signals.get(signal.name, (event.ref,)))
        if node.where is None and oldest < event.ref:
            yield view.finding(
                "I2",
                SIGNALS_IN_ORDER,
                oldest,
                step.number,
                key=event.node,
                ref=event.ref,
                oldest=oldest,
            )


REPORTS_APPLIED_ONCE_REPEATED = declare(
    "verify.reports_applied_once.repeated", "the report with token {token!r} was already applied"
)
REPORTS_APPLIED_ONCE_AFTER_LAST = declare(
    "verify.reports_applied_once.after_last",
    "a final report ({status}) after the final report of event {first}",
)


def reports_applied_once(view: AuditedRun) -> Iterator[Finding]:
    """The first final report counts, and a repeated report counts once."""
    for step in view.replay.steps:
        event, before = step.event, step.before
        if not isinstance(event, events.NodeReported):
            continue
        if event.token and event.token in before.reports.get(event.key, ()):
            yield view.finding(
                "I2", REPORTS_APPLIED_ONCE_REPEATED, step.number, key=event.key, token=event.token
            )
        if ReportStatus(event.status) in LAST and event.key in before.early_reports:
            first = before.early_reports[event.key]
            yield view.finding(
                "I2",
                REPORTS_APPLIED_ONCE_AFTER_LAST,
                first,
                step.number,
                key=event.key,
                status=event.status,
                first=first,
            )


APPROVALS_BY_DECIDERS_NOT_A_DECIDER = declare(
    "verify.approvals_by_deciders.not_a_decider",
    "answered by {by!r} for {stands_for}; the deciders are {may}",
)
APPROVALS_BY_DECIDERS_UNKNOWN_ANSWER = declare(
    "verify.approvals_by_deciders.unknown_answer",
    "answered {decision!r}; the answers are {answers}",
)
APPROVALS_BY_DECIDERS_TWICE = declare("verify.approvals_by_deciders.twice", "{by!r} answered twice")
APPROVALS_BY_DECIDERS_AFTER_DECISION = declare(
    "verify.approvals_by_deciders.after_decision",
    "{by!r} answered after it was decided: {decided!r}",
)


def approvals_by_deciders(view: AuditedRun) -> Iterator[Finding]:
    """Each answer is by a permitted decider, once, valid, and before the decision."""
    for step in view.replay.steps:
        event = step.event
        if not isinstance(event, events.ApprovalAnswered):
            continue
        node = _approval(view, step.before, event.node)
        if node is None:
            continue
        state = step.before.approvals.get(node.id, _UNANSWERED)
        number, id = step.number, node.id
        deciders = {*node.deciders, *state.deciders}
        if deciders and not (event.stands_for and deciders.issuperset(event.stands_for)):
            may = tuple(sorted(deciders))
            yield view.finding(
                "I2",
                APPROVALS_BY_DECIDERS_NOT_A_DECIDER,
                number,
                key=id,
                by=event.by,
                stands_for=event.stands_for,
                may=may,
            )
        if event.decision not in node.answers:
            yield view.finding(
                "I2",
                APPROVALS_BY_DECIDERS_UNKNOWN_ANSWER,
                number,
                key=id,
                decision=event.decision,
                answers=node.answers,
            )
        if any(each.by == event.by for each in state.answers):
            yield view.finding("I2", APPROVALS_BY_DECIDERS_TWICE, number, key=id, by=event.by)
        decided = decided_by(node, state.answers)
        if decided is not None:
            yield view.finding(
                "I2",
                APPROVALS_BY_DECIDERS_AFTER_DECISION,
                number,
                key=id,
                by=event.by,
                decided=decided,
            )


APPROVALS_AS_DECIDED_UNDECIDED = declare(
    "verify.approvals_as_decided.undecided",
    "continued as decided with {answers_count:answer|answers}, which decide nothing",
)
APPROVALS_AS_DECIDED_APPROVED = declare(
    "verify.approvals_as_decided.approved", "failed as rejected, but the answers approve"
)


def approvals_as_decided(view: AuditedRun) -> Iterator[Finding]:
    """An approval completes when enough deciders agreed, with their decision."""
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
        answers = step.before.approvals.get(id, _UNANSWERED).answers
        decided = decided_by(node, answers)
        if decided is None:
            yield view.finding(
                "I2",
                APPROVALS_AS_DECIDED_UNDECIDED,
                step.number,
                key=id,
                answers_count=len(answers),
            )
        elif isinstance(event, events.NodeFailed) and decided == APPROVE:
            yield view.finding("I2", APPROVALS_AS_DECIDED_APPROVED, step.number, key=id)


def decided_by(node: ApprovalNode, answers: tuple[AnswerState, ...]) -> str | None:
    """The decision that answers lead to. Independent of the engine, which is being checked."""
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


def _approval(view: AuditedRun, state: RunState, id: str) -> ApprovalNode | None:
    graph = _graph(view, state)
    node = None if graph is None else graph.nodes.get(id)
    return node if isinstance(node, ApprovalNode) else None


def _graph(view: AuditedRun, state: RunState) -> Graph | None:
    return view.graphs.get(state.version)


RULES = (signals_consumed_once, reports_applied_once, approvals_by_deciders, approvals_as_decided)
