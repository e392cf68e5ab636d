"""Approvals: who may answer, when it is decided, what follows, and what happens if nobody does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from perdure.errors import (
    AlreadyAnswered,
    ApprovalDecided,
    ApprovalNotFound,
    InvalidAnswer,
    InvalidInput,
    NotDecider,
)
from perdure.forms.schema import by_field
from perdure.model.graph import ApprovalNode, DefaultAnswer, Escalation
from perdure.model.run import LiveType, RunStatus, WaitType
from perdure.model.wait import ApprovalRequest
from tests.engine.graphs import approval, call, chain, graph, named, task
from tests.engine.played import Played

JOB, WAIT = LiveType.JOB, LiveType.WAIT
FORM = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "minimum": 1},
        "reason": {"type": "string", "default": "none given"},
    },
    "required": ["amount"],
}


def asked(input: Any = None, **options: Any) -> Played:
    return Played(chain(approval(**options), task("end")), input)


def request_of(run: Played) -> ApprovalRequest:
    [wait] = [wait for wait in run.decision.waits if wait.type is WaitType.APPROVAL]
    return msgspec.json.decode(wait.detail, type=ApprovalRequest)


class TestAsking:
    def test_opens_a_wait_in_the_inbox_of_its_deciders_and_holds_nothing(self):
        run = asked(deciders=("finance", "ann"), timeout_ms=1000)

        [wait] = run.decision.waits
        assert (wait.key, wait.type, wait.name) == ("ok", WaitType.APPROVAL, "Go on?")
        assert (wait.deciders, wait.delay) == (("finance", "ann"), timedelta(seconds=1))
        assert (run.live, run.status) == ({"ok": WAIT}, RunStatus.WAITING)

    def test_fills_in_texts_and_shows_what_it_is_told_to(self):
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
        run = asked({"draft": "Dear"}, title="Send {{ value.draft }}?")

        request = request_of(run)
        assert request.title == "Send Dear?"
        assert request.show == request.data == {"draft": "Dear"}

    def test_data_is_never_taken_for_a_template(self):
        run = asked({"draft": "{{ secret.KEY }} {{ value.draft }}"}, title="{{ value.draft }}")

        assert request_of(run).title == "{{ secret.KEY }} {{ value.draft }}"

    def test_a_missing_key_fails_the_node(self):
        run = asked({}, title="{{ value.draft }}")

        assert run.state.failure is not None
        assert "draft" in run.state.failure.message


class TestAnswering:
    def test_approving_goes_on_with_who_decided_what(self):
        run = asked({"draft": "Dear"})
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

    def test_an_answer_may_change_the_data(self):
        run = asked({"amount": 30, "to": "Bob"}, form=FORM)
        run.answer("ok", data={"amount": 20})

        assert run.inputs["end"]["data"] == {
            "amount": 20,
            "to": "Bob",
            "reason": "none given",
        }

    def test_the_form_is_prefilled_by_the_data(self):
        run = asked({"amount": 30}, form=FORM)
        run.answer("ok")

        assert run.inputs["end"]["data"]["amount"] == 30

    @pytest.mark.parametrize(
        "data, field",
        [({"amount": 0}, "amount"), ({"amount": "x"}, "amount"), ({"reason": 1}, "reason")],
    )
    def test_data_that_does_not_fit_the_form_changes_nothing(self, data, field):
        run = asked({}, form=FORM)
        before = run.state

        with pytest.raises(InvalidAnswer) as refused:
            run.answer("ok", data=data)
        assert field in by_field(refused.value.faults)
        assert run.state is before

    def test_only_what_the_form_offers_can_be_changed(self):
        run = asked({"amount": 30, "iban": "DE1"}, form=FORM)

        with pytest.raises(InvalidAnswer) as refused:
            run.answer("ok", data={"amount": 5, "iban": "DE99"})
        assert [(each.code, each.where) for each in refused.value.faults] == [
            ("form.unknown_field", ("iban",))
        ]
        run = asked({"iban": "DE1"}, form={**FORM, "additionalProperties": True})
        run.answer("ok", data={"amount": 5, "iban": "DE99"})
        assert run.inputs["end"]["data"]["iban"] == "DE99"

    def test_data_must_be_an_object_where_there_is_a_form(self):
        with pytest.raises(InvalidAnswer, match="object"):
            asked({}, form=FORM).answer("ok", data=[1])

    def test_to_reject_needs_no_form_but_data_that_comes_with_it_must_fit(self):
        run = asked({}, form=FORM, on_reject="continue")

        with pytest.raises(InvalidAnswer, match="amount"):
            run.answer("ok", "reject", data={"amount": 0})
        run.answer("ok", "reject")
        assert (run.inputs["end"]["decision"], run.inputs["end"]["data"]) == ("reject", {})

    def test_an_answer_that_it_does_not_have_is_refused(self):
        with pytest.raises(InvalidAnswer, match="'approve', 'reject'"):
            asked().answer("ok", "approved")

    def test_deciding_twice_is_refused(self):
        run = asked()
        run.answer("ok", by="ann")

        with pytest.raises(ApprovalDecided):
            run.answer("ok", "reject", by="bob")
        assert run.live == {"end": JOB}

    def test_late_is_refused_though_nobody_has_seen_to_it_yet(self):
        with pytest.raises(ApprovalDecided, match="time"):
            asked(timeout_ms=10).answer("ok", is_late=True)

    def test_before_its_time_and_of_other_nodes_there_is_none(self):
        run = Played(chain(task("a"), approval(), task("end")))

        with pytest.raises(ApprovalNotFound, match="not come to it"):
            run.answer("ok")
        with pytest.raises(ApprovalNotFound, match="'run:ok'"):
            run.answer("end")

    def test_after_the_run_was_cancelled_it_is_closed(self):
        run = asked()
        run.cancel()

        with pytest.raises(ApprovalDecided, match="cancelled"):
            run.answer("ok")


class TestDeciders:
    def test_only_those_named_may_decide_by_name_or_role(self):
        run = asked(deciders=("finance", "ann"))

        with pytest.raises(NotDecider, match="'finance', 'ann'"):
            run.answer("ok", by="bob")
        with pytest.raises(NotDecider, match="its deciders are"):
            run.answer("ok")
        run.answer("ok", by="bob", roles=("sales", "finance"))
        assert run.inputs["end"]["by"] == ["bob"]

    def test_any_one_of_them_decides(self):
        run = asked(deciders=("ann", "bob"), on_reject="continue")
        run.answer("ok", "reject", by="bob")

        assert run.inputs["end"]["decision"] == "reject"

    def test_all_must_approve_and_one_may_reject(self):
        run = asked(deciders=("ann", "bob"), quorum=0)
        run.answer("ok", by="ann")
        assert run.live == {"ok": WAIT}
        with pytest.raises(AlreadyAnswered):
            run.answer("ok", by="ann")
        run.answer("ok", by="bob")
        assert run.inputs["end"]["by"] == ["ann", "bob"]

        run = asked(deciders=("ann", "bob"), quorum=0, on_reject="continue")
        run.answer("ok", by="ann")
        run.answer("ok", "reject", by="bob")
        assert run.inputs["end"]["decision"] == "reject"

    def test_at_least_n_must_agree(self):
        run = asked(deciders=("board",), quorum=2)
        run.answer("ok", by="ann", roles=("board",))
        run.answer("ok", "reject", by="bob", roles=("board",))
        assert run.live == {"ok": WAIT}
        run.answer("ok", by="cid", roles=("board",))

        assert run.inputs["end"]["decision"] == "approve"
        assert [each["by"] for each in run.inputs["end"]["answers"]] == ["ann", "bob", "cid"]

    def test_several_answers_need_names(self):
        with pytest.raises(InvalidInput, match="by="):
            asked(quorum=2).answer("ok")

    def test_edits_add_up_in_the_order_of_the_answers(self):
        run = asked({"a": 0, "b": 0, "c": 0}, quorum=2)
        run.answer("ok", data={"a": 1, "b": 1}, by="ann")
        run.answer("ok", data={"b": 2}, by="bob")

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
    def test_rejecting_fails_the_run(self):
        run = asked()
        run.answer("ok", "reject", by="ann")

        assert run.status == RunStatus.FAILED
        assert run.state.failure is not None
        assert run.state.failure.type == "perdure.errors.Rejected"
        assert "ann" in run.state.failure.message

    def test_rejecting_may_have_a_port(self):
        run = ported(on_reject="no", answers=("approve", "reject", "later"))
        run.answer("ok", "reject", by="ann")

        assert run.live == {"no": JOB}
        assert run.inputs["no"]["decision"] == "reject"

    def test_other_answers_are_ports(self):
        run = ported(on_reject="no", answers=("approve", "reject", "later"))
        run.answer("ok", "later", by="ann")

        assert run.live == {"later": JOB}

    def test_a_retry_asks_anew(self):
        run = asked(deciders=("ann",))
        run.answer("ok", "reject", by="ann")
        run.retry()

        assert run.live == {"ok": WAIT}
        run.answer("ok", by="ann")
        assert run.inputs["end"]["decision"] == "approve"


class TestNobody:
    def test_fails_the_run_when_the_time_is_over(self):
        run = asked(timeout_ms=10)
        run.due("ok")

        assert run.state.failure is not None
        assert run.state.failure.type == "perdure.errors.WaitTimedOut"

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
        run = asked({"a": 1}, timeout_ms=10, on_timeout="continue", quorum=2)
        run.answer("ok", data={"a": 2}, by="ann")
        run.due("ok")

        assert run.inputs["end"]["data"] == {"a": 2}
        assert [each["by"] for each in run.inputs["end"]["answers"]] == ["ann"]


MINUTE = 60_000


def reminded(**options: Any) -> Played:
    node: dict[str, Any] = {
        "deciders": ("ann",),
        "reminders_ms": (MINUTE, 3 * MINUTE),
        "escalations": (Escalation(after_ms=2 * MINUTE, deciders=("boss",)),),
        "timeout_ms": 10 * MINUTE,
        "notify": call("tell"),
    }
    return asked(**(node | options))


def delays(run: Played) -> dict[str, timedelta | None]:
    return {wait.key: wait.delay for wait in run.decision.waits}


class TestReminders:
    def test_people_are_told_when_it_opens(self):
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

    def test_before_the_escalation_others_may_not_decide(self):
        with pytest.raises(NotDecider):
            reminded().answer("ok", by="boss")

    def test_where_all_must_agree_one_by_escalation_is_enough(self):
        run = reminded(deciders=("ann", "bob"), quorum=0)
        run.due("remind:ok")
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
        run = asked()
        run.pause()
        run.answer("ok", by="ann")
        assert run.live == {"ok": WAIT}
        with pytest.raises(ApprovalDecided, match="paused"):
            run.answer("ok", "reject", by="bob")
        run.unpause()

        assert run.inputs["end"]["by"] == ["ann"]

    def test_all_that_were_decided_meanwhile_go_on(self):
        run = Played(graph(approval("x"), approval("y"), approval("z"), edges=""))
        run.pause()
        run.answer("z", by="ann")
        run.answer("x", by="bob")
        run.unpause()

        assert run.live == {"y": WAIT}

    def test_the_time_does_not_run_out_in_a_pause(self):
        run = asked(timeout_ms=10)
        run.pause()

        assert run.due("ok").events == []


def test_approvals_side_by_side_are_decided_each_for_itself():
    nodes: list[ApprovalNode] = [approval("x"), approval("y")]
    run = Played(graph(*nodes, task("end", gathers=True), edges="x end, y end"))
    run.answer("y", by="ann")
    run.answer("x", by="bob")

    assert {id: output["by"] for id, output in run.inputs["end"].items()} == {
        "x": ["bob"],
        "y": ["ann"],
    }
