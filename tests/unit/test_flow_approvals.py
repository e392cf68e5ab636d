"""Approvals in the builder: what they become, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Flow
from perdure.flows.check import TITLE_MAX
from perdure.model.graph import ApprovalNode, Call, DefaultAnswer, Escalation, Input
from tests.unit.flow_samples import (
    call_of,
    charge,
    codes,
    decide,
    fetch,
    links,
    only_fault,
    pack,
    refuse,
    score,
)

FORM: Any = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "reason": {"type": "string"}},
    "required": ["amount", "reason"],
}
DAY_MS = 86_400_000


def asked(title: Any = "Pay?", **options: Any) -> Flow:
    return Flow("orders").then(fetch).approve(title, **options)


def approval(flow: Flow, id: str = "approve") -> ApprovalNode:
    node = flow.build().graph.nodes[id]
    assert isinstance(node, ApprovalNode)
    return node


def test_need_no_more_than_a_title():
    assert approval(asked()) == ApprovalNode(id="approve", title="Pay?")


def test_are_told_everything_in_one_call():
    flow = asked(
        "Pay {{ order.total }}?",
        message="To {{ name }}",
        form=FORM,
        show=["order"],
        data={"amount": "{{ order.total }}"},
        deciders=["finance", "lead"],
        policy="all",
        answers=["approve", "reject", "later"],
        deadline="3d",
        on_timeout={"decision": "later", "data": {"amount": 0}},
        on_reject="refused",
        reminders=["2d", "1d"],
        escalate={"2d": ["ceo"], "36h": ["cfo"]},
        notify=score,
        inputs={"order": "fetch.output", "name": {"from": "input.name", "default": "x"}},
        on_missing="default",
    ).then(refuse, after="approve:refused")

    assert approval(flow) == ApprovalNode(
        id="approve",
        title="Pay {{ order.total }}?",
        message="To {{ name }}",
        form=FORM,
        shows=("order",),
        data={"amount": "{{ order.total }}"},
        deciders=("finance", "lead"),
        quorum=0,
        answers=("approve", "reject", "later"),
        timeout_ms=3 * DAY_MS,
        default_answer=DefaultAnswer(decision="later", data={"amount": 0}),
        on_reject="refused",
        reminders_ms=(DAY_MS, 2 * DAY_MS),
        escalations=(
            Escalation(after_ms=3 * DAY_MS // 2, deciders=("cfo",)),
            Escalation(after_ms=2 * DAY_MS, deciders=("ceo",)),
        ),
        notify=Call(task="score", queue="slow", priority=1, tags=("gpu",)),
        inputs=(
            Input(name="name", path=("name",), default="x"),
            Input(name="order", source="fetch"),
        ),
        on_missing="default",
    )


def test_lead_on_from_the_ports_of_their_answers():
    flow = (
        asked(
            answers=["approve", "reject", "later"],
            deadline="1d",
            on_timeout="overdue",
            on_reject="refused",
        )
        .then(charge)
        .then(refuse, after="approve:refused")
        .then(pack, after="approve:later")
        .then(decide, after="approve:overdue")
        .build()
    )

    assert links(flow) == {
        ("fetch", "approve"),
        ("approve", "charge"),
        ("approve:refused", "refuse"),
        ("approve:later", "pack"),
        ("approve:overdue", "decide"),
    }
    assert not flow.graph.definition.gathers


def test_are_called_by_name_or_counted():
    flow = asked().approve("Again?").approve("Last?", name="last").build()

    assert list(flow.graph.nodes) == ["fetch", "approve", "approve-2", "last"]


@pytest.mark.parametrize(
    "policy,quorum", [("any", 1), ("all", 0), (2, 2), ({"at_least": 3}, 3), (5, 5)]
)
def test_say_how_many_must_agree(policy, quorum):
    """More than there are deciders: a role may stand for several people."""
    assert approval(asked(deciders=["finance", "lead"], policy=policy)).quorum == quorum


def test_may_need_several_of_anyone():
    assert approval(asked(policy=2)).deciders == ()


def test_escalate_by_pairs_too():
    flow = asked(deciders=["a"], escalate=[("1d", ["cfo"]), ["2d", ["ceo"]]])

    assert [each.deciders for each in approval(flow).escalations] == [("cfo",), ("ceo",)]


def test_tell_people_by_a_function_beside_what_comes_before():
    flow = Flow("orders").then(score).approve("Pay?", notify=lambda notice: None).build()

    node = flow.graph.nodes["approve"]
    assert isinstance(node, ApprovalNode)
    assert node.notify == Call(task="orders.approve.notify", queue="slow", priority=1)
    assert "orders.approve.notify" in flow.tasks


@pytest.mark.parametrize("on_timeout", ["fail", "continue"])
def test_need_a_deadline_only_for_what_follows_it(on_timeout):
    flow = asked(deadline="1d", on_timeout=on_timeout)

    assert approval(flow).on_timeout == on_timeout


@pytest.mark.parametrize(
    "decision,data", [("approve", None), ("reject", None), ("approve", {"amount": 1})]
)
def test_may_have_an_answer_that_counts_at_the_deadline(decision, data):
    """The fields that it leaves out may be there already."""
    flow = asked(form=FORM, deadline="1d", on_timeout={"decision": decision, "data": data})

    assert approval(flow).default_answer == DefaultAnswer(decision=decision, data=data)


@pytest.mark.parametrize(
    "options, code, where",
    [
        ({"title": ""}, "flow.title_missing", ("title",)),
        ({"title": "  "}, "flow.title_missing", ("title",)),
        ({"title": "x" * (TITLE_MAX + 1)}, "flow.title_too_long", ("title",)),
        ({"message": 7}, "argument.type", ("message",)),
        ({"form": {"type": "objekt"}}, "form.any_of", ("form", "type")),
        ({"form": 7}, "argument.type", ("form",)),
        ({"show": ["order"]}, "flow.unknown_shown", ("show", 0)),
        (
            {"show": ["ordre"], "inputs": {"order": "fetch.output"}},
            "flow.unknown_shown",
            ("show", 0),
        ),
        ({"show": "order"}, "argument.type", ("show",)),
        ({"data": object()}, "payload.not_serializable", ("data",)),
        ({"deciders": "finance"}, "argument.type", ("deciders",)),
        ({"deciders": ["a", "b", "a"]}, "flow.duplicate_name", ("deciders", 2)),
        ({"deciders": [""]}, "argument.name", ("deciders", 0)),
        ({"policy": "all"}, "flow.deciders_needed", ("policy",)),
        ({"policy": "most"}, "argument.type", ("policy",)),
        ({"policy": 0}, "argument.type", ("policy",)),
        ({"policy": True}, "argument.type", ("policy",)),
        ({"policy": {"at_most": 1}}, "argument.type", ("policy",)),
        ({"answers": ["reject"]}, "flow.approve_missing", ("answers",)),
        ({"answers": ["approved"]}, "flow.approve_missing", ("answers",)),
        ({"answers": ["approve", "a", "a"]}, "flow.duplicate_name", ("answers", 2)),
        ({"answers": ["approve", "default"]}, "flow.reserved_port", ("answers", 1)),
        ({"answers": []}, "flow.approve_missing", ("answers",)),
        ({"answers": ["approve"], "on_reject": "continue"}, "flow.reject_unused", ("on_reject",)),
        ({"deadline": "soon"}, "argument.duration", ("deadline",)),
        ({"deadline": 0}, "argument.not_positive", ("deadline",)),
        ({"on_timeout": "continue"}, "flow.needs_timeout", ("on_timeout",)),
        ({"on_timeout": {"decision": "approve"}}, "flow.needs_timeout", ("on_timeout",)),
        (
            {"deadline": "1d", "on_timeout": {"decision": "aprove"}},
            "flow.unknown_decision",
            ("on_timeout", "decision"),
        ),
        ({"deadline": "1d", "on_timeout": {}}, "argument.name", ("on_timeout", "decision")),
        (
            {"deadline": "1d", "on_timeout": {"decision": "approve", "dta": 1}},
            "argument.unknown",
            ("on_timeout", "dta"),
        ),
        (
            {
                "form": FORM,
                "deadline": "1d",
                "on_timeout": {"decision": "approve", "data": {"amount": "much"}},
            },
            "form.type",
            ("on_timeout", "data", "amount"),
        ),
        (
            {"form": FORM, "deadline": "1d", "on_timeout": {"decision": "approve", "data": 7}},
            "flow.default_data",
            ("on_timeout", "data"),
        ),
        ({"deadline": "1d", "on_timeout": "late"}, "flow.unused_port", ("on_timeout",)),
        ({"on_reject": "refused"}, "flow.unused_port", ("on_reject",)),
        ({"reminders": "1d"}, "argument.type", ("reminders",)),
        ({"reminders": ["soon"]}, "argument.duration", ("reminders",)),
        ({"reminders": ["1d", "24h"]}, "flow.duplicate_time", ("reminders",)),
        (
            {"deadline": "1d", "reminders": ["1h", "2d"]},
            "flow.after_deadline",
            ("reminders",),
        ),
        ({"deadline": "1d", "reminders": ["24h"]}, "flow.after_deadline", ("reminders",)),
        (
            {"deadline": "1d", "deciders": ["a"], "escalate": {"2d": ["b"]}},
            "flow.after_deadline",
            ("escalate",),
        ),
        ({"escalate": {"1d": ["b"]}}, "flow.deciders_needed", ("escalate",)),
        ({"deciders": ["a"], "escalate": {"1d": []}}, "flow.nobody_named", ("escalate",)),
        ({"deciders": ["a"], "escalate": {"1d": "b"}}, "argument.type", ("escalate",)),
        ({"deciders": ["a"], "escalate": ["1d"]}, "argument.type", ("escalate",)),
        ({"deciders": ["a"], "escalate": {"1d": ["a"]}}, "flow.decides_already", ("escalate",)),
        (
            {"deciders": ["a"], "escalate": {"1d": ["b"], "2d": ["b"]}},
            "flow.decides_already",
            ("escalate",),
        ),
        (
            {"deciders": ["a"], "escalate": {"1d": ["b"], "24h": ["c"]}},
            "flow.duplicate_time",
            ("escalate",),
        ),
        ({"notify": 7}, "flow.not_callable", ("notify",)),
        ({"deadlin": "1d"}, "argument.unknown", ("deadlin",)),
    ],
)
def test_are_refused_where_they_cannot_work(options, code, where):
    fault = only_fault(asked(**options))

    assert (fault.code, fault.where) == (code, ("nodes", "approve", *where))
    assert call_of(fault) == ".approve number 1"


@pytest.mark.parametrize(
    "option,port",
    [
        ("on_timeout", "approve"),
        ("on_timeout", "reject"),
        ("on_timeout", "later"),
        ("on_reject", "approve"),
        ("on_reject", "later"),
    ],
)
def test_ports_are_not_called_like_answers(option, port):
    flow = asked(answers=["approve", "reject", "later"], deadline="1d", **{option: port})

    fault = only_fault(flow.then(refuse, after=f"approve:{port}"))
    assert (fault.code, fault.where[2:]) == ("flow.port_is_answer", (option,))
    assert fault.args["decision"] == (port if option == "on_timeout" else "")


def test_rejection_may_lead_to_the_port_of_its_name():
    flow = asked(on_reject="reject").then(refuse, after="approve:reject")

    assert links(flow.build()) == {("fetch", "approve"), ("approve:reject", "refuse")}


def test_rejection_and_timeout_may_lead_to_the_same_port():
    flow = asked(deadline="1d", on_timeout="refused", on_reject="refused")

    assert approval(flow.then(refuse, after="approve:refused")).on_reject == "refused"


def test_all_faults_are_told_at_once():
    told = codes(asked("", policy="all", answers=["ok"], deadline="soon", show=["x"]))

    assert len(told) == 5
