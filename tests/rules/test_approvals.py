"""Approvals: what the builder makes of them, who may answer, and what follows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from perdure import Flow
from perdure.errors import (
    AlreadyAnswered,
    ApprovalDecided,
    ApprovalNotFound,
    InvalidAnswer,
    InvalidInput,
    NotDecider,
)
from perdure.forms.schema import by_field
from perdure.model.event import ApprovalEscalated, ApprovalReminded
from perdure.model.graph import ApprovalNode, Call, DefaultAnswer, Escalation, Input
from perdure.model.run import LiveType, RunStatus, WaitType
from perdure.model.wait import TITLE_MAX, ApprovalRequest
from tests.rules.flow_samples import (
    call_of,
    charge,
    decide,
    edges,
    fetch,
    links,
    node_at,
    only_fault,
    pack,
    path_of,
    refuse,
    score,
)
from tests.rules.graphs import approval, call, chain, graph, named, task
from tests.rules.played import Played
from tests.support.refusal import refused

FORM: Any = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "reason": {"type": "string"}},
    "required": ["amount", "reason"],
}

DAY_MS = 86_400_000


def asked(title: Any = "Pay?", **options: Any) -> Flow:
    return Flow("orders").then(fetch).approve(title, **options)


def built_approval(flow: Flow, id: str = "approve") -> ApprovalNode:
    return node_at(flow.build(), id, ApprovalNode)


class TestBuiltApproval:
    """Approvals in the builder: what they become, and what is refused."""

    def test_need_no_more_than_a_title(self):
        assert built_approval(asked()) == ApprovalNode(id="approve", title="Pay?")

    def test_take_everything_in_one_call(self):
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

        assert built_approval(flow) == ApprovalNode(
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

    def test_lead_on_from_the_ports_of_their_answers(self):
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

        assert links(flow) == edges(
            "fetch approve, approve charge, approve:refused refuse, approve:later pack, "
            "approve:overdue decide"
        )
        assert not flow.graph.definition.gathers

    def test_are_called_by_name_or_counted(self):
        flow = asked().approve("Again?").approve("Last?", name="last").build()
        assert list(flow.graph.nodes) == ["fetch", "approve", "approve-2", "last"]

    @pytest.mark.parametrize(
        "policy,quorum", [("any", 1), ("all", 0), (2, 2), ({"at_least": 3}, 3), (5, 5)]
    )
    def test_say_how_many_must_agree(self, policy, quorum):
        """More than there are deciders: a role may stand for several people."""
        assert built_approval(asked(deciders=["finance", "lead"], policy=policy)).quorum == quorum
        assert built_approval(asked(policy=2)).deciders == ()  # of anyone

    def test_escalate_by_pairs_too(self):
        flow = asked(deciders=["a"], escalate=[("1d", ["cfo"]), ["2d", ["ceo"]]])
        assert [each.deciders for each in built_approval(flow).escalations] == [("cfo",), ("ceo",)]

    def test_notify_people_by_a_function_with_the_previous_output(self):
        flow = Flow("orders").then(score).approve("Pay?", notify=lambda notice: None).build()
        node = node_at(flow, "approve", ApprovalNode)
        assert node.notify == Call(task="orders.approve.notify", queue="slow", priority=1)
        assert "orders.approve.notify" in flow.tasks

    @pytest.mark.parametrize("on_timeout", ["fail", "continue"])
    def test_need_a_deadline_only_for_what_follows_it(self, on_timeout):
        flow = asked(deadline="1d", on_timeout=on_timeout)
        assert built_approval(flow).on_timeout == on_timeout

    @pytest.mark.parametrize(
        "decision,data", [("approve", None), ("reject", None), ("approve", {"amount": 1})]
    )
    def test_may_have_an_answer_that_counts_at_the_deadline(self, decision, data):
        """The fields that it leaves out may be there already."""
        flow = asked(form=FORM, deadline="1d", on_timeout={"decision": decision, "data": data})
        assert built_approval(flow).default_answer == DefaultAnswer(decision=decision, data=data)

    @pytest.mark.parametrize(
        "options, code, where",
        [
            ({"title": ""}, "flow.title_missing", "title"),
            ({"title": "  "}, "flow.title_missing", "title"),
            ({"title": "x" * (TITLE_MAX + 1)}, "flow.title_too_long", "title"),
            ({"message": 7}, "argument.type", "message"),
            ({"form": {"type": "objekt"}}, "form.any_of", "form.type"),
            ({"form": 7}, "argument.type", "form"),
            ({"show": ["order"]}, "flow.unknown_shown", "show.0"),
            (
                {"show": ["ordre"], "inputs": {"order": "fetch.output"}},
                "flow.unknown_shown",
                "show.0",
            ),
            ({"show": "order"}, "argument.type", "show"),
            ({"data": object()}, "payload.not_serializable", "data"),
            ({"deciders": "finance"}, "argument.type", "deciders"),
            ({"deciders": ["a", "b", "a"]}, "flow.duplicate_name", "deciders.2"),
            ({"deciders": [""]}, "argument.name", "deciders.0"),
            ({"deciders": ["role:"]}, "argument.name", "deciders.0"),
            ({"deciders": ["Role:a"]}, "argument.reserved_name", "deciders.0"),
            ({"deciders": ["role:role:a"]}, "argument.reserved_name", "deciders.0"),
            ({"deciders": ["a\u200b"]}, "argument.unseen_character", "deciders.0"),
            ({"deciders": ["role:a\u200b"]}, "argument.unseen_character", "deciders.0"),
            ({"deciders": ["a", "role:a", " a"]}, "flow.duplicate_name", "deciders.2"),
            ({"policy": "all"}, "flow.deciders_needed", "policy"),
            ({"policy": "most"}, "argument.type", "policy"),
            ({"policy": 0}, "argument.type", "policy"),
            ({"policy": True}, "argument.type", "policy"),
            ({"policy": {"at_most": 1}}, "argument.type", "policy"),
            ({"answers": ["reject"]}, "flow.approve_missing", "answers"),
            ({"answers": ["approved"]}, "flow.approve_missing", "answers"),
            ({"answers": ["approve", "a", "a"]}, "flow.duplicate_name", "answers.2"),
            ({"answers": ["approve", "default"]}, "flow.reserved_port", "answers.1"),
            ({"answers": []}, "flow.approve_missing", "answers"),
            ({"answers": ["approve"], "on_reject": "continue"}, "flow.reject_unused", "on_reject"),
            ({"deadline": "soon"}, "argument.duration", "deadline"),
            ({"deadline": 0}, "argument.not_positive", "deadline"),
            ({"on_timeout": "continue"}, "flow.needs_timeout", "on_timeout"),
            ({"on_timeout": {"decision": "approve"}}, "flow.needs_timeout", "on_timeout"),
            (
                {"deadline": "1d", "on_timeout": {"decision": "aprove"}},
                "flow.unknown_decision",
                "on_timeout.decision",
            ),
            ({"deadline": "1d", "on_timeout": {}}, "argument.name", "on_timeout.decision"),
            (
                {"deadline": "1d", "on_timeout": {"decision": "approve", "dta": 1}},
                "argument.unknown",
                "on_timeout.dta",
            ),
            (
                {
                    "form": FORM,
                    "deadline": "1d",
                    "on_timeout": {"decision": "approve", "data": {"amount": "much"}},
                },
                "form.type",
                "on_timeout.data.amount",
            ),
            (
                {"form": FORM, "deadline": "1d", "on_timeout": {"decision": "approve", "data": 7}},
                "flow.default_data",
                "on_timeout.data",
            ),
            ({"deadline": "1d", "on_timeout": "late"}, "flow.unused_port", "on_timeout"),
            ({"on_reject": "refused"}, "flow.unused_port", "on_reject"),
            ({"reminders": "1d"}, "argument.type", "reminders"),
            ({"reminders": ["soon"]}, "argument.duration", "reminders"),
            ({"reminders": ["1d", "24h"]}, "flow.duplicate_time", "reminders"),
            ({"deadline": "1d", "reminders": ["1h", "2d"]}, "flow.after_deadline", "reminders"),
            ({"deadline": "1d", "reminders": ["24h"]}, "flow.after_deadline", "reminders"),
            (
                {"deadline": "1d", "deciders": ["a"], "escalate": {"2d": ["b"]}},
                "flow.after_deadline",
                "escalate",
            ),
            ({"escalate": {"1d": ["b"]}}, "flow.deciders_needed", "escalate"),
            ({"deciders": ["a"], "escalate": {"1d": []}}, "flow.no_decider_named", "escalate"),
            ({"deciders": ["a"], "escalate": {"1d": "b"}}, "argument.type", "escalate"),
            ({"deciders": ["a"], "escalate": ["1d"]}, "argument.type", "escalate"),
            ({"deciders": ["a"], "escalate": {"1d": ["a"]}}, "flow.decides_already", "escalate"),
            (
                {"deciders": ["a"], "escalate": {"1d": ["Role:b"]}},
                "argument.reserved_name",
                "escalate",
            ),
            (
                {"deciders": ["a"], "escalate": {"1d": ["b"], "2d": ["b"]}},
                "flow.decides_already",
                "escalate",
            ),
            (
                {"deciders": ["a"], "escalate": {"1d": ["b"], "24h": ["c"]}},
                "flow.duplicate_time",
                "escalate",
            ),
            ({"notify": 7}, "flow.not_callable", "notify"),
            ({"deadlin": "1d"}, "argument.unknown", "deadlin"),
        ],
    )
    def test_are_refused_where_they_cannot_work(self, options, code, where):
        fault = only_fault(asked(**options))
        assert (fault.code, path_of(fault)) == (code, f"approve.{where}")
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
    def test_ports_are_not_called_like_answers(self, option, port):
        flow = asked(answers=["approve", "reject", "later"], deadline="1d", **{option: port})
        fault = only_fault(flow.then(refuse, after=f"approve:{port}"))
        assert (fault.code, fault.where[2:]) == ("flow.port_is_answer", (option,))
        assert fault.args["decision"] == (port if option == "on_timeout" else "")

    def test_rejection_may_lead_to_the_port_of_its_name_or_of_the_timeout(self):
        flow = asked(on_reject="reject").then(refuse, after="approve:reject")
        assert links(flow.build()) == edges("fetch approve, approve:reject refuse")
        flow = asked(deadline="1d", on_timeout="refused", on_reject="refused")
        assert built_approval(flow.then(refuse, after="approve:refused")).on_reject == "refused"


JOB, WAIT = LiveType.JOB, LiveType.WAIT

APPROVAL_FORM = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "minimum": 1},
        "reason": {"type": "string", "default": "none given"},
    },
    "required": ["amount"],
}

OPEN_FORM = {"type": "object", "additionalProperties": True}


def asked_of(input: Any = None, **options: Any) -> Played:
    return Played(chain(approval(**options), task("end")), input)


def by_ann(run: Played) -> None:
    run.answer("ok", by="ann")


def request_of(run: Played) -> ApprovalRequest:
    [wait] = [wait for wait in run.decision.waits if wait.type is WaitType.APPROVAL]
    return msgspec.json.decode(wait.detail, type=ApprovalRequest)


class TestAsking:
    def test_opens_a_wait_in_the_inbox_of_its_deciders_and_holds_nothing(self):
        run = asked_of(deciders=("finance", "ann"), timeout_ms=1000)
        [wait] = run.decision.waits
        assert (wait.key, wait.type, wait.name) == ("ok", WaitType.APPROVAL, "")
        assert (wait.deciders, wait.delay) == (("finance", "ann"), timedelta(seconds=1))
        assert (run.live, run.status) == ({"ok": WAIT}, RunStatus.WAITING)

    def test_fills_in_texts_and_shows_the_chosen_inputs(self):
        run = Played(
            chain(
                task("load"),
                approval(
                    title="Pay {{ order.total }}?",
                    message="For {{ who }}, run {{ run.id }}",
                    shows=("who",),
                    data={"amount": "{{ order.total }}"},
                    inputs=named(order="load.output", who="input.name"),
                ),
            ),
            {"name": "Ann"},
        )
        run.finish("load", {"total": 30})

        request = request_of(run)
        assert (request.title, request.message) == ("Pay 30?", "For Ann, run run")
        assert (request.show, request.data) == ({"who": "Ann"}, {"amount": 30})

    def test_without_inputs_it_is_about_the_value_before_it(self):
        run = asked_of({"draft": "Dear"}, title="Send {{ value.draft }}?")
        request = request_of(run)
        assert request.title == "Send Dear?"
        assert request.show == request.data == {"draft": "Dear"}

    def test_data_is_never_taken_for_a_template(self):
        run = asked_of({"draft": "{{ secret.KEY }} {{ value.draft }}"}, title="{{ value.draft }}")
        assert request_of(run).title == "{{ secret.KEY }} {{ value.draft }}"
        run = asked_of({}, title="{{ value.draft }}")
        assert run.failure.code == "node.invalid_template"


class TestAnswering:
    def test_approving_continues_with_who_decided_what(self):
        run = asked_of({"draft": "Dear"})
        run.answer("ok", by="ann", note="fine")

        assert run.inputs["end"] == {
            "decision": "approve",
            "data": {"draft": "Dear"},
            "by": ["ann"],
            "answers": [{"by": "ann", "decision": "approve", "note": "fine", "data": None}],
            "timed_out": False,
        }
        assert run.decision.close_waits == ["ok"]
        assert not run.state.approvals

    @pytest.mark.parametrize("data, amount", [({"amount": 20}, 20), (None, 30)])
    def test_an_answer_may_change_the_data(self, data, amount):
        run = asked_of({"amount": 30, "to": "Bob"}, form=APPROVAL_FORM)
        run.answer("ok", data=data)
        assert run.inputs["end"]["data"] == {"amount": amount, "to": "Bob", "reason": "none given"}

    @pytest.mark.parametrize(
        "data, field",
        [({"amount": 0}, "amount"), ({"amount": "x"}, "amount"), ({"reason": 1}, "reason")],
    )
    def test_data_that_does_not_fit_the_form_changes_nothing(self, data, field):
        run = asked_of({}, form=APPROVAL_FORM)
        before = run.state
        with pytest.raises(InvalidAnswer) as caught:
            run.answer("ok", data=data)
        assert field in by_field(caught.value.faults)
        assert run.state is before

    def test_only_what_the_form_offers_can_be_changed(self):
        run = asked_of({"amount": 30, "iban": "DE1"}, form=APPROVAL_FORM)

        with refused("form.unknown_field", InvalidAnswer, where=("iban",)):
            run.answer("ok", data={"amount": 5, "iban": "DE99"})
        run = asked_of({"iban": "DE1"}, form={**APPROVAL_FORM, "additionalProperties": True})
        run.answer("ok", data={"amount": 5, "iban": "DE99"})
        assert run.inputs["end"]["data"]["iban"] == "DE99"

    @pytest.mark.parametrize(
        "form",
        [
            {"type": "object"},
            True,
            {"additionalProperties": False},
            {"patternProperties": {"^x": True}},
            {"anyOf": [{"properties": {"to": True}}, {"required": ["amount"]}]},
            {"allOf": [{"properties": {"to": True}}]},
            {"if": {"properties": {"amount": {"const": 1}}}, "then": {"properties": {"to": True}}},
            {"$ref": "#/$defs/to", "$defs": {"to": {"properties": {"to": True}}}},
            {"dependentSchemas": {"amount": {"properties": {"to": True}}}},
        ],
    )
    def test_a_form_is_closed_unless_it_says_otherwise(self, form):
        """Finding 2: JSON Schema allows what it does not name; an answer does not."""
        run = asked_of({"amount": 30}, form=form)

        with refused("form.unknown_field", InvalidAnswer, where=("amount",)):
            run.answer("ok", data={"amount": 31})

    @pytest.mark.parametrize(
        "form",
        [
            OPEN_FORM,
            {"additionalProperties": {"type": "integer"}},
            {"patternProperties": {"^am": True}},
            {"anyOf": [{"properties": {"to": True}}, {"properties": {"amount": True}}]},
            {"$ref": "#/$defs/amount", "$defs": {"amount": {"properties": {"amount": True}}}},
        ],
    )
    def test_a_form_is_open_to_what_it_allows(self, form):
        """Finding 2: fields that a form names anywhere, or allows explicitly, may be changed."""
        run = asked_of({"amount": 30}, form=form)
        run.answer("ok", data={"amount": 31})
        assert run.inputs["end"]["data"] == {"amount": 31}

    def test_nested_fields_that_the_form_does_not_name_cannot_be_changed(self):
        """Finding 2: a form that names a nested field does not open the object around it."""
        order = {"properties": {"note": {"type": "string"}}}
        form = {"type": "object", "properties": {"order": order}}
        run = asked_of({"order": {"note": "", "amount": 30}}, form=form)

        with refused("form.unknown_field", InvalidAnswer, where=("order", "amount")):
            run.answer("ok", data={"order": {"note": "fine", "amount": 31}})
        run.answer("ok", data={"order": {"note": "fine", "amount": 30}})
        assert run.inputs["end"]["data"] == {"order": {"note": "fine", "amount": 30}}

    @pytest.mark.parametrize("data", [None, {}, {"payee": {"note": "b"}}])
    def test_read_only_fields_do_not_make_a_form_unanswerable(self, data):
        """Finding 2: a nested form may say explicitly that it is closed."""
        payee = {"properties": {"note": True}, "additionalProperties": False}
        run = asked_of(
            {"payee": {"iban": "DE1", "note": "b"}}, form={"properties": {"payee": payee}}
        )
        run.answer("ok", data=data)
        assert run.inputs["end"]["data"] == {"payee": {"iban": "DE1", "note": "b"}}

    def test_elements_of_a_list_keep_what_the_form_does_not_name(self):
        """Finding 2: elements are matched by position; new ones have only named fields."""
        lines = {"type": "array", "items": {"properties": {"qty": {"type": "integer"}}}}
        shown = {"lines": [{"qty": 9, "price": 900}, {"qty": 8, "price": 800}]}
        run = asked_of(shown, form={"properties": {"lines": lines}})

        for field in ("price", "sku"):
            with refused("form.unknown_field", InvalidAnswer, where=("lines", 0, field)):
                run.answer("ok", data={"lines": [{"qty": 1, "price": 0, "sku": "evil"}]})
        run.answer("ok", data={"lines": [{"qty": 1}, {"qty": 2, "price": 800}, {"qty": 3}]})
        assert run.inputs["end"]["data"]["lines"] == [
            {"qty": 1, "price": 900},
            {"qty": 2, "price": 800},
            {"qty": 3},
        ]

    @pytest.mark.parametrize("is_recorded, kept", [(False, {"iban": "DE1"}), (True, {})])
    def test_omitted_nested_fields_keep_their_value(self, is_recorded, kept):
        """Finding 2: what an older version recorded replaces nested objects, as it did then."""
        form = {"properties": {"payee": {"properties": {"note": {"type": "string"}}}}}
        run = asked_of({"payee": {"iban": "DE1", "note": "a"}}, form=form)
        run.answer("ok", data={"payee": {"note": "b"}}, is_recorded=is_recorded)
        assert run.inputs["end"]["data"] == {"payee": kept | {"note": "b"}}

    def test_data_must_be_an_object_where_there_is_a_form(self):
        with refused("form.not_an_object", InvalidAnswer):
            asked_of({}, form=APPROVAL_FORM).answer("ok", data=[1])

    def test_to_reject_needs_no_form_but_data_that_comes_with_it_must_fit(self):
        run = asked_of({}, form=APPROVAL_FORM, on_reject="continue")
        with refused("form.minimum", InvalidAnswer, where=("amount",)):
            run.answer("ok", "reject", data={"amount": 0})
        run.answer("ok", "reject")
        assert (run.inputs["end"]["decision"], run.inputs["end"]["data"]) == ("reject", {})

    def test_an_answer_that_it_does_not_have_is_refused(self):
        with refused("approval.unknown_answer", InvalidAnswer, choices=("approve", "reject")):
            asked_of().answer("ok", "approved")

    def test_late_is_refused_though_no_worker_has_processed_it_yet(self):
        with refused("approval.decided", ApprovalDecided):
            asked_of(timeout_ms=10).answer("ok", is_late=True)

    def test_before_its_time_and_of_other_nodes_there_is_none(self):
        run = Played(chain(task("a"), approval(), task("end")))
        for node, code in (("ok", "approval.not_opened"), ("end", "approval.not_found")):
            with refused(code, ApprovalNotFound):
                run.answer(node)

    @pytest.mark.parametrize("ends, live", [(Played.cancel, {}), (by_ann, {"end": JOB})])
    def test_after_it_was_decided_or_the_run_cancelled_it_is_closed(self, ends, live):
        run = asked_of()
        ends(run)
        with refused("approval.decided", ApprovalDecided, approval_id="run:ok"):
            run.answer("ok", "reject", by="bob")
        assert run.live == live


class TestDeciders:
    def test_only_those_named_may_decide_by_name_or_role(self):
        deciders = ("role:finance", "ann")
        run = asked_of(deciders=deciders)
        with refused("approval.not_decider", NotDecider, by="bob", deciders=deciders):
            run.answer("ok", by="bob")
        with refused("approval.not_decider", NotDecider, by=None, deciders=deciders):
            run.answer("ok")
        run.answer("ok", by="bob", roles=("sales", "finance"))
        assert run.inputs["end"]["by"] == ["bob"]

    def test_all_must_approve_and_one_may_reject(self):
        run = asked_of(deciders=("ann", "bob"), quorum=0)
        run.answer("ok", by="ann")
        assert run.live == {"ok": WAIT}
        with pytest.raises(AlreadyAnswered):
            run.answer("ok", by="ann")
        run.answer("ok", by="bob")
        assert run.inputs["end"]["by"] == ["ann", "bob"]

        run = asked_of(deciders=("ann", "bob"), quorum=0, on_reject="continue")
        run.answer("ok", by="ann")
        run.answer("ok", "reject", by="bob")
        assert run.inputs["end"]["decision"] == "reject"

    def test_at_least_n_must_agree(self):
        run = asked_of(deciders=("role:board",), quorum=2)
        run.answer("ok", by="ann", roles=("board",))
        run.answer("ok", "reject", by="bob", roles=("board",))
        assert run.live == {"ok": WAIT}
        run.answer("ok", by="cid", roles=("board",))
        assert run.inputs["end"]["decision"] == "approve"
        assert [each["by"] for each in run.inputs["end"]["answers"]] == ["ann", "bob", "cid"]

    def test_several_answers_need_names(self):
        with refused("approval.anonymous_answer", InvalidInput, where=("by",)):
            asked_of(quorum=2).answer("ok")

    def test_edits_add_up_in_the_order_of_the_answers(self):
        run = asked_of({"a": 0, "b": 0, "c": 0}, quorum=2, form=OPEN_FORM)
        run.answer("ok", data={"a": 1, "b": 1}, by="ann")
        run.answer("ok", data={"b": 2}, by="bob", revision=1)
        assert run.inputs["end"]["data"] == {"a": 1, "b": 2, "c": 0}


def ported(**options: Any) -> Played:
    return Played(
        graph(
            approval(**options),
            task("yes"),
            task("no"),
            task("later"),
            edges="ok yes, ok.no no, ok.later later",
        ),
        "in",
    )


class TestWhatFollows:
    @pytest.mark.parametrize("decision, port", [("reject", "no"), ("later", "later")])
    def test_answers_may_have_ports(self, decision, port):
        run = ported(on_reject="no", answers=("approve", "reject", "later"))
        run.answer("ok", decision, by="ann")
        assert run.live == {port: JOB}
        assert run.inputs[port]["decision"] == decision

    def test_rejecting_fails_the_run(self):
        run = asked_of(deciders=("ann", "bob"))
        run.answer("ok", "reject", by="ann")  # one of them decides
        assert run.status == RunStatus.FAILED
        assert run.failure.type == "perdure.errors.Rejected"
        assert run.failure.code == "approval.rejected"
        run.retry()
        assert run.live == {"ok": WAIT}
        run.answer("ok", by="ann")
        assert run.inputs["end"]["decision"] == "approve"


class TestNobody:
    def test_fails_the_run_when_the_time_is_over_and_there_is_no_pause(self):
        run = asked_of(timeout_ms=10)
        run.pause()
        assert run.due("ok").events == []
        run.unpause()
        run.due("ok")
        assert run.failure.type == "perdure.errors.WaitTimedOut"

    def test_may_have_a_port(self):
        run = ported(timeout_ms=10, on_timeout="later", on_reject="no")
        run.due("ok")
        assert run.inputs["later"]["timed_out"] is True
        assert run.inputs["later"]["decision"] is None

    def test_may_have_a_default_answer(self):
        default = DefaultAnswer(decision="reject", data={"amount": 0})
        run = ported(timeout_ms=10, default_answer=default, on_reject="no", on_timeout="later")
        run.due("ok")
        assert run.inputs["no"]["decision"] == "reject"
        assert run.inputs["no"]["data"] == {"amount": 0}
        assert run.inputs["no"]["timed_out"] is True

    def test_answers_so_far_are_in_the_output(self):
        run = asked_of({"a": 1}, timeout_ms=10, on_timeout="continue", quorum=2, form=OPEN_FORM)
        run.answer("ok", data={"a": 2}, by="ann")
        run.due("ok")
        assert run.inputs["end"]["data"] == {"a": 2}
        assert [each["by"] for each in run.inputs["end"]["answers"]] == ["ann"]


MINUTE = 60_000


def test_reminders_and_escalations_are_counted_apart():
    """Finding 25: the first escalation is number 1, and an event of its own."""
    run = reminded(notify=call("tell"))
    for _ in range(3):
        run.due("remind:ok")

    found = [
        (type(each).__name__, each.number)
        for each in run.log.events
        if isinstance(each, ApprovalReminded | ApprovalEscalated)
    ]
    assert found == [("ApprovalReminded", 1), ("ApprovalEscalated", 1), ("ApprovalReminded", 2)]
    reasons = [run.inputs[f"notify:ok#{number}"] for number in (1, 2, 3)]
    assert [(each["why"], each["number"]) for each in reasons] == [
        ("reminder", 1),
        ("escalation", 1),
        ("reminder", 2),
    ]
    run.answer("ok", by="boss")
    assert run.live == {"end": JOB}


def reminded(**options: Any) -> Played:
    node: dict[str, Any] = {
        "deciders": ("ann",),
        "reminders_ms": (MINUTE, 3 * MINUTE),
        "escalations": (Escalation(after_ms=2 * MINUTE, deciders=("boss",)),),
        "timeout_ms": 10 * MINUTE,
        "notify": call("tell"),
    }
    return asked_of(**(node | options))


def delays(run: Played) -> dict[str, timedelta | None]:
    return {wait.key: wait.delay for wait in run.decision.waits}


class TestReminders:
    def test_people_are_notified_when_it_opens(self):
        run = reminded()

        assert run.live == {"ok": WAIT, "remind:ok": WAIT, "notify:ok": JOB}
        assert run.inputs["notify:ok"] == {
            "approval": "run:ok",
            "why": "opened",
            "title": "Go on?",
            "message": "",
            "deciders": ["ann"],
        }
        assert delays(run)["remind:ok"] == timedelta(minutes=1)
        run.finish("notify:ok")
        assert run.status == RunStatus.WAITING

    def test_telling_may_fail_and_the_approval_stays_open(self):
        run = reminded()
        run.fail("notify:ok", "no mail server")
        assert (run.types[-1], run.status) == ("NodeNotified", RunStatus.WAITING)

    def test_come_one_after_the_other_and_escalations_let_others_decide(self):
        run = reminded()
        run.finish("notify:ok")
        run.due("remind:ok")
        assert run.inputs["notify:ok#1"]["why"] == "reminder"
        assert delays(run) == {"remind:ok": timedelta(minutes=1)}

        run.due("remind:ok")
        assert run.inputs["notify:ok#2"]["why"] == "escalation"
        assert run.inputs["notify:ok#2"]["deciders"] == ["ann", "boss"]
        assert delays(run) == {"remind:ok": timedelta(minutes=1), "ok": timedelta(minutes=8)}
        [wait] = [wait for wait in run.decision.waits if wait.key == "ok"]
        assert wait.deciders == ("ann", "boss")

        run.due("remind:ok")
        assert delays(run) == {}
        assert "remind:ok" not in run.live
        run.answer("ok", by="boss")
        assert run.inputs["end"]["by"] == ["boss"]

    def test_who_may_decide_since_an_escalation_may_after_the_next_one_too(self):
        later = Escalation(after_ms=4 * MINUTE, deciders=("owner",))
        first = Escalation(after_ms=2 * MINUTE, deciders=("boss",))
        run = reminded(reminders_ms=(), escalations=(first, later))
        run.due("remind:ok")
        run.due("remind:ok")

        [wait] = [wait for wait in run.decision.waits if wait.key == "ok"]
        assert wait.deciders == ("ann", "boss", "owner")
        assert run.inputs["notify:ok#2"]["deciders"] == ["ann", "boss", "owner"]
        run.answer("ok", by="boss")
        assert run.inputs["end"]["by"] == ["boss"]

    def test_one_that_comes_late_does_not_delay_those_after_it(self):
        run = reminded()
        run.due("remind:ok", late_ms=90_000)  # at 2:30, half a minute after the escalation's time
        assert delays(run) == {"remind:ok": timedelta(0)}
        run.due("remind:ok", late_ms=30_000)
        assert delays(run) == {"remind:ok": timedelta(seconds=30), "ok": timedelta(minutes=7.5)}

    def test_where_all_must_agree_one_by_escalation_is_enough(self):
        run = reminded(deciders=("ann", "bob"), quorum=0)
        run.due("remind:ok")
        with pytest.raises(NotDecider):
            run.answer("ok", by="boss")
        run.due("remind:ok")
        run.answer("ok", by="boss")
        assert run.inputs["end"]["decision"] == "approve"

    def test_end_with_the_approval(self):
        run = reminded()
        run.due("remind:ok")
        run.answer("ok", by="ann")
        assert run.live == {"end": JOB}
        assert run.decision.close_waits == ["ok"]
        assert sorted(run.decision.cancel_keys) == ["notify:ok", "notify:ok#1", "remind:ok"]
        assert run.finish("notify:ok").events == []
        assert run.due("remind:ok").events == []


class TestPausedRuns:
    def test_answers_are_recorded_and_count_when_the_pause_ends(self):
        run = asked_of()
        run.pause()
        run.answer("ok", by="ann")
        assert run.live == {"ok": WAIT}
        with refused("approval.decided", ApprovalDecided, approval_id="run:ok"):
            run.answer("ok", "reject", by="bob")
        run.unpause()
        assert run.inputs["end"]["by"] == ["ann"]

    def test_all_that_were_decided_meanwhile_continue(self):
        run = Played(graph(approval("x"), approval("y"), approval("z"), edges=""))
        run.pause()
        run.answer("z", by="ann")
        run.answer("x", by="bob")
        run.unpause()
        assert run.live == {"y": WAIT}


class TestApproval:
    """Who may answer, when it is decided, the effects, and what happens without an answer."""

    def test_approvals_side_by_side_are_decided_each_for_itself(self):
        nodes: list[ApprovalNode] = [approval("x"), approval("y")]
        run = Played(graph(*nodes, task("end", gathers=True), edges="x end, y end"))
        run.answer("y", by="ann")
        run.answer("x", by="bob")
        assert {id: output["by"] for id, output in run.inputs["end"].items()} == {
            "x": ["bob"],
            "y": ["ann"],
        }
