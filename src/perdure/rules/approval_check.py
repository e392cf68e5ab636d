"""What is wrong with an approval: who decides, how they can answer, and what happens when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perdure.model.graph import APPROVE, CONTINUE, FAIL, REJECT, ApprovalNode, JsonSchema
from perdure.model.node_words import duration_text
from perdure.rules.form import by_field, check_schema, faults_of
from perdure.rules.graph_check import nearest

TITLE_MAX = 1_000


def approval_faults(node: ApprovalNode) -> Iterator[str]:
    if not node.title.strip():
        yield "it needs a title: what there is to decide"
    elif len(node.title) > TITLE_MAX:
        yield f"its title has more than {TITLE_MAX} characters; put the rest in the message"
    yield from _decider_faults(node)
    yield from _answer_faults(node)
    yield from _port_faults(node)
    yield from _time_faults(node)
    yield from _show_faults(node)


def _decider_faults(node: ApprovalNode) -> Iterator[str]:
    for name, count in Counter(node.deciders).items():
        if count > 1:
            yield f"decider {name!r} is there {count} times"
    if node.quorum == 0 and not node.deciders:
        yield 'policy="all" needs deciders=[...]: without them it is not known who all are'
    known = set(node.deciders)
    for each in node.escalations:
        when = duration_text(each.after_ms)
        if not each.deciders:
            yield f"escalate: nobody is named to decide after {when}"
        elif not node.deciders:
            yield "escalate needs deciders=[...]: without them anyone may decide from the start"
        for name in each.deciders:
            if name in known:
                yield f"escalate: {name!r} may decide before {when} already"
            known.add(name)


def _answer_faults(node: ApprovalNode) -> Iterator[str]:
    if APPROVE not in node.answers:
        near = nearest(APPROVE, node.answers)
        yield f"answers={list(node.answers)} must have {APPROVE!r} among them{near}"
    default = node.default_answer
    if default is None:
        return
    if default.decision not in node.answers:
        known = ", ".join(map(repr, node.answers))
        near = nearest(default.decision, node.answers)
        yield f"on_timeout: the decision {default.decision!r} is no answer; there is {known}{near}"
    if node.form is None or default.data is None or check_schema(node.form):
        return
    if not isinstance(default.data, dict):
        yield "on_timeout: its data must be an object with fields of the form"
        return
    found = by_field(faults_of(_without_required(node.form), default.data))
    for field, reasons in found.items():
        place = f" at {field}" if field else ""
        yield f"on_timeout: its data does not fit the form{place}: {'; '.join(reasons)}"


def _without_required(form: JsonSchema) -> JsonSchema:
    """The form for some of its fields: the data of the approval may have the others."""
    if isinstance(form, bool):
        return form
    return {keyword: value for keyword, value in form.items() if keyword != "required"}


def _port_faults(node: ApprovalNode) -> Iterator[str]:
    if REJECT not in node.answers and node.on_reject != FAIL:
        yield f"on_reject={node.on_reject!r} is in vain, as {REJECT!r} is none of its answers"
    for option in ("on_timeout", "on_reject"):
        port = getattr(node, option)
        # What follows a rejection may be called like the answer that leads there.
        is_own = option == "on_reject" and port == REJECT
        if port in node.answers and port not in (FAIL, CONTINUE) and not is_own:
            yield (
                f"{option}={port!r} is one of its answers, and cannot be a port besides; name "
                f"another port{_default_hint(option, port)}"
            )


def _default_hint(option: str, port: str) -> str:
    if option != "on_timeout":
        return ""
    return f', or let that be the answer: on_timeout={{"decision": "{port}"}}'


def _time_faults(node: ApprovalNode) -> Iterator[str]:
    for at, count in Counter(node.reminders_ms).items():
        if count > 1:
            yield f"reminders: {duration_text(at)} is there {count} times"
    times = Counter(each.after_ms for each in node.escalations)
    for at, count in times.items():
        if count > 1:
            yield f"escalate: {duration_text(at)} is there {count} times; name all deciders at once"
    if node.timeout_ms is None:
        return
    for option, told in (("reminders", node.reminders_ms), ("escalate", tuple(times))):
        for at in told:
            if at >= node.timeout_ms:
                yield (
                    f"{option}: {duration_text(at)} is not before the deadline "
                    f"({duration_text(node.timeout_ms)})"
                )


def _show_faults(node: ApprovalNode) -> Iterator[str]:
    names = [each.name for each in node.inputs]
    for name in node.shows or ():
        if name not in names:
            declared = f"; it has {', '.join(map(repr, names))}" if names else "; it declares none"
            yield f"show: {name!r} is none of its inputs{nearest(name, names) or declared}"
