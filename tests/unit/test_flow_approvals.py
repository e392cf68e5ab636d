"""Approvals in the builder: what they become, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Flow
from perdure.errors import InvalidFlow
from perdure.flows.check import TITLE_MAX
from perdure.model.graph import ApprovalNode, Call, DefaultAnswer, Escalation, Input
from tests.unit.flow_samples import charge, decide, fetch, links, pack, refuse, score

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


def faults(flow: Flow) -> list[str]:
    with pytest.raises(InvalidFlow) as caught:
        flow.build()
    return list(caught.value.errors)


def test_need_no_more_than_a_title() -> None:
    assert approval(asked()) == ApprovalNode(id="approve", title="Pay?")


def test_are_told_everything_in_one_call() -> None:
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


def test_lead_on_from_the_ports_of_their_answers() -> None:
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


def test_are_called_by_name_or_counted() -> None:
    flow = asked().approve("Again?").approve("Last?", name="last").build()

    assert list(flow.graph.nodes) == ["fetch", "approve", "approve-2", "last"]


@pytest.mark.parametrize(
    "policy,quorum", [("any", 1), ("all", 0), (2, 2), ({"at_least": 3}, 3), (5, 5)]
)
def test_say_how_many_must_agree(policy: Any, quorum: int) -> None:
    """More than there are deciders: a role may stand for several people."""
    assert approval(asked(deciders=["finance", "lead"], policy=policy)).quorum == quorum


def test_may_need_several_of_anyone() -> None:
    assert approval(asked(policy=2)).deciders == ()


def test_escalate_by_pairs_too() -> None:
    flow = asked(deciders=["a"], escalate=[("1d", ["cfo"]), ["2d", ["ceo"]]])

    assert [each.deciders for each in approval(flow).escalations] == [("cfo",), ("ceo",)]


def test_tell_people_by_a_function_beside_what_comes_before() -> None:
    flow = Flow("orders").then(score).approve("Pay?", notify=lambda notice: None).build()

    node = flow.graph.nodes["approve"]
    assert isinstance(node, ApprovalNode)
    assert node.notify == Call(task="orders.approve.notify", queue="slow", priority=1)
    assert "orders.approve.notify" in flow.tasks


@pytest.mark.parametrize("on_timeout", ["fail", "continue"])
def test_need_a_deadline_only_for_what_follows_it(on_timeout: str) -> None:
    flow = asked(deadline="1d", on_timeout=on_timeout)

    assert approval(flow).on_timeout == on_timeout


@pytest.mark.parametrize(
    "decision,data", [("approve", None), ("reject", None), ("approve", {"amount": 1})]
)
def test_may_have_an_answer_that_counts_at_the_deadline(decision: str, data: Any) -> None:
    """The fields that it leaves out may be there already."""
    flow = asked(form=FORM, deadline="1d", on_timeout={"decision": decision, "data": data})

    assert approval(flow).default_answer == DefaultAnswer(decision=decision, data=data)


@pytest.mark.parametrize(
    "options,told",
    [
        ({"title": ""}, "it needs a title"),
        ({"title": "  "}, "it needs a title"),
        ({"title": "x" * (TITLE_MAX + 1)}, "its title has more than"),
        ({"message": 7}, "message must be a string (got 7)"),
        ({"form": {"type": "objekt"}}, "form: type: "),
        ({"form": 7}, "form must be a JSON Schema"),
        ({"show": ["order"]}, "show: 'order' is none of its inputs; it declares none"),
        (
            {"show": ["ordre"], "inputs": {"order": "fetch.output"}},
            "show: 'ordre' is none of its inputs; did you mean 'order'?",
        ),
        ({"show": "order"}, "show must be a list of strings (got 'order')"),
        ({"data": object()}, "data cannot be stored"),
        ({"deciders": "finance"}, "deciders must be a list of strings"),
        ({"deciders": ["a", "b", "a"]}, "decider 'a' is there 2 times"),
        ({"deciders": [""]}, "deciders must be a non-empty string of at most 200 characters"),
        ({"policy": "all"}, 'policy="all" needs deciders=[...]'),
        ({"policy": "most"}, 'policy must be "any", "all" or how many'),
        ({"policy": 0}, "(got 0)"),
        ({"policy": True}, "(got True)"),
        ({"policy": {"at_most": 1}}, "(got {'at_most': 1})"),
        ({"answers": ["reject"]}, "answers=['reject'] must have 'approve' among them"),
        ({"answers": ["approved"]}, "among them; did you mean 'approved'?"),
        ({"answers": ["approve", "a", "a"]}, "the answer 'a' is there 2 times"),
        ({"answers": ["approve", "default"]}, "no answer can be called 'default'"),
        ({"answers": []}, "must have 'approve' among them"),
        ({"answers": ["approve"], "on_reject": "continue"}, "on_reject='continue' is in vain"),
        ({"deadline": "soon"}, "deadline must be a duration (got 'soon')"),
        ({"deadline": 0}, "deadline must be greater than zero (got 0)"),
        ({"on_timeout": "continue"}, "on_timeout='continue' needs a deadline=..."),
        ({"on_timeout": {"decision": "approve"}}, "needs a deadline=..."),
        (
            {"deadline": "1d", "on_timeout": {"decision": "aprove"}},
            "the decision 'aprove' is no answer; there is 'approve', 'reject'; did you mean "
            "'approve'?",
        ),
        ({"deadline": "1d", "on_timeout": {}}, "on_timeout.decision must be a non-empty string"),
        (
            {"deadline": "1d", "on_timeout": {"decision": "approve", "dta": 1}},
            "on_timeout: unknown field 'dta'; did you mean 'data'?",
        ),
        (
            {
                "form": FORM,
                "deadline": "1d",
                "on_timeout": {"decision": "approve", "data": {"amount": "much"}},
            },
            "on_timeout: its data does not fit the form at amount: ",
        ),
        (
            {"form": FORM, "deadline": "1d", "on_timeout": {"decision": "approve", "data": 7}},
            "on_timeout: its data must be an object",
        ),
        ({"deadline": "1d", "on_timeout": "late"}, "on_timeout='late' is a port that nothing"),
        ({"on_reject": "refused"}, "on_reject='refused' is a port that nothing follows"),
        ({"reminders": "1d"}, "reminders must be a list of durations"),
        ({"reminders": ["soon"]}, "reminders must be a duration (got 'soon')"),
        ({"reminders": ["1d", "24h"]}, "reminders: 1d is there 2 times"),
        (
            {"deadline": "1d", "reminders": ["1h", "2d"]},
            "reminders: 2d is not before the deadline (1d)",
        ),
        ({"deadline": "1d", "reminders": ["24h"]}, "reminders: 1d is not before the deadline"),
        (
            {"deadline": "1d", "deciders": ["a"], "escalate": {"2d": ["b"]}},
            "escalate: 2d is not before the deadline (1d)",
        ),
        ({"escalate": {"1d": ["b"]}}, "escalate needs deciders=[...]"),
        ({"deciders": ["a"], "escalate": {"1d": []}}, "nobody is named to decide after 1d"),
        ({"deciders": ["a"], "escalate": {"1d": "b"}}, "escalate must be a list"),
        ({"deciders": ["a"], "escalate": ["1d"]}, "escalate must be pairs of when and to whom"),
        ({"deciders": ["a"], "escalate": {"1d": ["a"]}}, "'a' may decide before 1d already"),
        (
            {"deciders": ["a"], "escalate": {"1d": ["b"], "2d": ["b"]}},
            "'b' may decide before 2d already",
        ),
        (
            {"deciders": ["a"], "escalate": {"1d": ["b"], "24h": ["c"]}},
            "escalate: 1d is there 2 times",
        ),
        ({"notify": 7}, "7 is neither a task nor a function"),
        ({"deadlin": "1d"}, "unknown option 'deadlin'"),
    ],
)
def test_are_refused_where_they_cannot_work(options: Any, told: str) -> None:
    [fault] = faults(asked(**options))

    assert fault.startswith("node 'approve' (.approve number 1)")
    assert told in fault


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
def test_ports_are_not_called_like_answers(option: str, port: str) -> None:
    flow = asked(answers=["approve", "reject", "later"], deadline="1d", **{option: port})

    [fault] = faults(flow.then(refuse, after=f"approve:{port}"))
    assert f"{option}={port!r} is one of its answers, and cannot be a port besides" in fault
    hint = f'on_timeout={{"decision": "{port}"}}'
    assert (hint in fault) is (option == "on_timeout")


def test_rejection_may_lead_to_the_port_of_its_name() -> None:
    flow = asked(on_reject="reject").then(refuse, after="approve:reject")

    assert links(flow.build()) == {("fetch", "approve"), ("approve:reject", "refuse")}


def test_rejection_and_timeout_may_lead_to_the_same_port() -> None:
    flow = asked(deadline="1d", on_timeout="refused", on_reject="refused")

    assert approval(flow.then(refuse, after="approve:refused")).on_reject == "refused"


def test_all_faults_are_told_at_once() -> None:
    told = faults(asked("", policy="all", answers=["ok"], deadline="soon", show=["x"]))

    assert len(told) == 5
