"""Approvals: in whose inbox they are, who may decide, and what becomes of a decision."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AlreadyAnswered,
    AmbiguousRun,
    ApprovalChanged,
    ApprovalDecided,
    ApprovalNotFound,
    ApprovalStatus,
    AsyncClient,
    Flow,
    InvalidAnswer,
    InvalidInput,
    NotDecider,
    PayloadTooLarge,
    RunStatus,
)
from perdure.model.ids import RunId
from perdure.model.wait import TITLE_MAX
from perdure.store.opening import store_at
from tests.client.flows import (
    FORM,
    PEOPLE_FLOWS,
    anybody,
    approving,
    both,
    both_edit,
    keep,
    paying,
    refunds,
    timed,
    timing_out,
    two,
)
from tests.client.harness import CountedStore, until, worker_at
from tests.support.codecs import Sealing
from tests.support.refusal import refused

ORDER = {"id": 7, "amount": 120}


class TestInbox:
    async def test_tells_everything_that_a_decider_needs(self, client, clock):
        await client.submit(paying, ORDER, id="order-7")

        [record] = await client.approvals.list("role:finance")

        assert (record.id, record.run, record.node) == ("order-7:review", "order-7", "review")
        assert (record.flow, record.namespace) == ("paying", "default")
        assert (record.title, record.message, record.form) == ("Refund 7", "", FORM)
        assert (record.show, record.data) == (ORDER, ORDER)
        assert (record.deciders, record.choices) == (("role:finance",), ("approve", "reject"))
        assert (record.quorum, record.answers) == (1, ())
        assert (record.status, record.is_open) == (ApprovalStatus.OPEN, True)
        assert (record.opened_at, record.due_at) == (clock(), None)

    async def test_can_be_of_one_flow_wherever_it_is_in_the_list(self, client):
        for number in range(5):
            await client.submit(refunds, ORDER, id=f"refund-{number}")
        await client.submit(paying, ORDER, id="pay")

        assert [record.run for record in await client.approvals.list(flow="paying", limit=1)] == [
            "pay"
        ]
        assert [record.run for record in await client.approvals.list(flow=paying)] == ["pay"]
        assert list(await client.approvals.list(flow="other")) == []

    async def test_names_those_who_answered_already(self, client, clock):
        await client.submit(both, ORDER, id="order-7")
        clock.advance(timedelta(minutes=3))
        await client.approvals.decide("order-7:review", "approve", by="ann", note="fine by me")
        [record] = await client.approvals.list("bob")
        [answer] = record.answers
        assert (answer.by, answer.decision, answer.note) == ("ann", "approve", "fine by me")
        assert (answer.at, answer.stands_for) == (clock(), ("ann",))

    @pytest.mark.every_store
    async def test_of_a_person_leaves_out_what_they_have_answered(self, client):
        """Finding 18: it stays for a role, and for everybody who has still to answer."""
        board = approving("board", deciders=["role:board", "ann"], policy={"at_least": 2})
        await client.submit(both, ORDER, id="a")
        await client.submit(board, ORDER, id="b")
        await client.submit(both, ORDER, id="c")

        async def runs(deciders: str | list[str], **options: Any) -> list[str]:
            return [each.run for each in await client.approvals.list(deciders, **options)]

        await client.approvals.decide("a:review", "approve", by="ann")
        await client.approvals.decide("b:review", "approve", by="ann")

        assert await runs("ann") == await runs("ann ") == ["c"]
        assert await runs("ann", limit=1) == ["c"]
        assert await runs("ann", include_answered=True) == ["a", "b", "c"]
        assert await runs("bob") == await runs(["ann", "bob"]) == ["a", "c"]
        assert await runs("role:board") == ["b"]
        assert await runs(["ann", "role:board"]) == ["c"]
        assert len(await client.approvals.list()) == 3

    @pytest.mark.every_store
    async def test_has_titles_that_no_plain_column_holds(self, client, store):
        """Finding 7: a title may contain anything; it is encoded with the request, and bounded."""
        async with AsyncClient(store, codec=Sealing()) as sealing:
            for id, text in (("nul", "a\0b"), ("bidi", "\u202ea"), ("long", "x" * 500_000)):
                await sealing.submit(anybody, {"id": text}, id=id)
            titles = {str(each.run): each.title for each in await sealing.approvals.list()}
            names = {str(each.run): each.name for each in await sealing.waits.list()}
            explained = (await sealing.runs.explain("nul")).findings[0].args["title"]

        assert titles == names
        assert (titles["nul"], titles["bidi"]) == ("Refund a\0b", "Refund \u202ea")
        assert explained == "Refund a\0b"
        assert len(titles["long"]) == TITLE_MAX
        assert {each.title for each in await client.approvals.list()} == {""}
        [nul] = await store.queries.run_waits("default", RunId("nul"))
        assert (nul.name, nul.detail[:6]) == ("", b"sealed")

    async def test_of_a_run_has_its_own_only(self, client):
        run = await client.submit(refunds, ORDER, id="order-7")
        await client.submit(refunds, ORDER, id="order-8")
        assert [record.id for record in await run.approvals()] == ["order-7:review"]

    @pytest.mark.parametrize(
        "deciders, code",
        [
            (3, "argument.type"),
            ({"a": 1}, "argument.type"),
            ([""], "argument.name"),
            ([None], "argument.name"),
        ],
    )
    async def test_refuses_what_is_no_name(self, client, deciders, code):
        with refused(code, InvalidInput) as caught:
            await client.approvals.list(deciders)  # type: ignore[arg-type]  # as callers without types may
        assert str(caught.value).count("deciders") == 1, "the name does not come twice"

    async def test_refuses_pages_without_a_size(self, client):
        with refused("argument.range", InvalidInput, name="limit"):
            await client.approvals.list(limit=0)


class TestDecide:
    async def test_resumes_the_run_with_who_decided_what(self, client, store, clock):
        run = await client.submit(refunds, ORDER, id="order-7")
        clock.advance(timedelta(minutes=5))

        record = await client.approvals.decide(
            "order-7:review", "approve", by="lea", roles=["finance"], note="ok"
        )

        assert (record.status, record.decision, record.port) == ("decided", "approve", "")
        assert (record.decided_at, record.title) == (clock(), "Refund 7")
        [answer] = record.answers
        assert (answer.by, answer.stands_for, answer.note) == ("lea", ("role:finance",), "ok")
        async with worker_at(store, PEOPLE_FLOWS):
            result = await run.result(timeout=20)
        assert (result["decision"], result["by"], result["data"]) == ("approve", ["lea"], ORDER)

    async def test_is_refused_after_the_decision_and_names_who_decided(self, client, clock):
        run = await client.submit(refunds, ORDER, id="order-7")
        await client.approvals.decide("order-7:review", "approve", by="ann")
        count = len(await run.events())
        with refused("approval.decided", ApprovalDecided) as caught:
            await client.approvals.decide("order-7:review", "reject", by="ann")
        for shown in ("ann", f"{clock():%Y-%m-%d %H:%M:%S}"):
            assert shown in caught.value.outcome
        assert len(await run.events()) == count

    async def test_is_refused_once_its_time_is_over_or_its_run_ended(self, client, clock):
        """Also while no worker has been around to end it."""
        late = await client.submit(timing_out, ORDER, id="late")
        await client.submit(refunds, ORDER, id="ended")
        await client.runs.cancel("ended")
        clock.advance(timedelta(hours=1))

        for id in ("late:review", "ended:review"):
            with refused("approval.decided", ApprovalDecided, approval_id=id):
                await client.approvals.decide(id, "approve", by="ann")
        assert len(await late.events()) == 1

    async def test_is_refused_with_data_that_is_too_large(self, store):
        async with AsyncClient(store, payload_max_bytes=1000) as client:
            await client.submit(anybody, ORDER, id="order-7")
            with refused("payload.too_large", PayloadTooLarge, what="the data of the answer"):
                await client.approvals.decide(
                    "order-7:review", "approve", data={"text": "x" * 1000}
                )

    @pytest.mark.parametrize(
        "wrong",
        [
            {"decision": 3},
            {"by": ""},
            {"roles": "finance"},
            {"roles": [1]},
            {"note": 3},
            {"note": "x" * 3000},
        ],
    )
    async def test_is_refused_with_what_is_no_answer(self, client, wrong):
        run = await client.submit(anybody, ORDER, id="order-7")
        options = {"decision": "approve", **wrong}
        with pytest.raises(InvalidInput):
            await client.approvals.decide("order-7:review", **options)  # type: ignore[arg-type]
        assert len(await run.events()) == 1

    async def test_by_several_at_once_one_wins(self, store_url, client, clock):
        """Through clients of their own, as in several processes."""
        run = await client.submit(refunds, ORDER, id="order-7")
        stores = [store_at(store_url, clock=clock) for _ in range(4)]
        clients = [await AsyncClient(store).open() for store in stores]

        outcomes = await asyncio.gather(
            *(
                each.approvals.decide(
                    "order-7:review", "reject" if number % 2 else "approve", by="ann"
                )
                for number, each in enumerate(clients)
            ),
            return_exceptions=True,
        )

        for each in clients:
            await each.close()
        lost = [each for each in outcomes if isinstance(each, ApprovalDecided)]
        [won] = [each for each in outcomes if not isinstance(each, BaseException)]
        assert len(lost) == 3
        answers = [each for each in await run.events() if each.type == "approval_answered"]
        assert [each.details["decision"] for each in answers] == [won.decision]

    async def test_loses_to_one_that_came_between_its_look_and_its_write(self, client, store):
        run = await client.submit(refunds, ORDER, id="order-7")
        counted = CountedStore(store)
        counted.after["queries.explain_facts"] = lambda: client.approvals.decide(
            "order-7:review", "approve", by="ann"
        )

        async with AsyncClient(counted.as_store()) as late:
            with refused("approval.decided", ApprovalDecided):
                await late.approvals.decide("order-7:review", "reject", by="ann")
        node_types = [event.type for event in await run.events()]
        assert node_types.count("approval_answered") == 1

    async def test_counts_though_its_run_was_removed_at_once(self, client, store, clock):
        await client.submit(refunds, ORDER, id="order-7")
        counted = CountedStore(store)
        keep_nothing = {RunStatus.FAILED: timedelta(0)}

        async def forget() -> None:
            clock.advance(timedelta(seconds=1))
            assert await store.maintenance.prune_runs("default", keep_nothing, 10) == 1

        counted.after["runs.commit"] = forget
        async with AsyncClient(counted.as_store()) as quick:
            record = await quick.approvals.decide("order-7:review", "reject", by="ann")

        assert (record.status, record.decision) == ("decided", "reject")


@pytest.mark.every_store
class TestPeopleAndRoles:
    async def test_are_never_taken_for_each_other(self, client):
        """Finding 9: a person is not the role of that name, nor a role the person."""
        await client.submit(paying, ORDER, id="of-role")
        await client.submit(both, ORDER, id="of-users")

        with refused("approval.not_decider", NotDecider, by="finance"):
            await client.approvals.decide("of-role:review", "approve", by="finance")
        with refused("approval.not_decider", NotDecider):
            await client.approvals.decide("of-users:review", "approve", by="eve", roles=["ann"])
        with refused("argument.reserved_name", InvalidInput, name="by"):
            await client.approvals.decide("of-role:review", "approve", by="role:finance")
        with refused("argument.reserved_name", InvalidInput, name="roles[0]"):
            await client.approvals.decide("of-role:review", "approve", roles=["role:finance"])

        assert [each.run for each in await client.approvals.list("finance")] == []
        assert [each.run for each in await client.approvals.list("role:ann")] == []
        assert [each.run for each in await client.approvals.list(" role: finance")] == ["of-role"]

    @pytest.mark.parametrize("same", ["ada ", "\u00a0ada", "ａｄａ", "ada"])
    async def test_count_once_however_their_name_is_written(self, client, same):
        """Finding 9: names are normalized before they are compared."""
        run = await client.submit(two, ORDER, id="order-7")
        await client.approvals.decide("order-7:review", "approve", by="ada")
        with refused("approval.already_answered", AlreadyAnswered, by="ada"):
            await client.approvals.decide("order-7:review", "approve", by=same)
        assert len(await run.events()) == 2

    @pytest.mark.parametrize(
        "unseen", ["\u200b", "\u202e", "\n", "\u00ad", "\u3164", "\ufe0f", "\ufff0", "\U000e0080"]
    )
    async def test_have_names_that_can_be_seen(self, client, unseen):
        """Finding 9: names that look the same are the same."""
        await client.submit(two, ORDER, id="order-7")
        for wrong in ({"by": f"a{unseen}da"}, {"by": "ada", "roles": [f"a{unseen}da"]}):
            with refused("argument.unseen_character", InvalidInput):
                await client.approvals.decide("order-7:review", "approve", **wrong)
        with refused("argument.unseen_character", InvalidInput):
            await client.approvals.list(f"a{unseen}da")

    async def test_whose_roles_all_have_approved_add_nothing(self, client):
        """Finding 23: an approval for deciders who have approved is refused, a rejection is not."""
        flow = Flow("offices").approve(
            "Go?", name="ok", deciders=["role:finance", "bob"], policy="all", on_reject="continue"
        )
        await client.submit(flow.build(), ORDER, id="order-7")
        await client.approvals.decide("order-7:ok", "approve", by="ann", roles=["finance"])

        with refused("approval.already_answered", AlreadyAnswered, by="ann"):
            await client.approvals.decide("order-7:ok", "approve", by="lea", roles=["finance"])
        done = await client.approvals.decide("order-7:ok", "reject", by="lea", roles=["finance"])
        assert done.decision == "reject"

    async def test_who_have_answered_are_not_suggested(self, client):
        """Finding 23: following the advice of ``explain`` decides the approval."""
        await client.submit(both, ORDER, id="order-7")
        await client.approvals.decide("order-7:review", "approve", by="ann")

        [finding] = (await client.runs.explain("order-7")).findings
        [action] = finding.actions
        assert (action.args["by"], action.asks) == ("bob", ())
        done = await client.approvals.decide(**action.args)
        assert done.status == "decided"


@pytest.mark.every_store
class TestDataOfAnAnswer:
    @pytest.mark.parametrize("form", [None, {"type": "object"}, True])
    async def test_changes_nothing_that_no_form_asks_for(self, client, form):
        """Finding 2: without a form, or with one that names no fields, an answer has no data."""
        flow = Flow("plain").approve("Pay?", name="review", form=form).build()
        run = await client.submit(flow, ORDER, id="order-7")
        code = "approval.no_form" if form is None else "form.unknown_field"

        with refused(code, InvalidAnswer):
            await client.approvals.decide("order-7:review", "approve", data={"amount": 1_000_000})
        assert len(await run.events()) == 1

        await client.approvals.decide("order-7:review", "approve")
        assert (await run.outputs())["review"]["data"] == ORDER

    async def test_is_shown_to_the_next_decider_as_it_was_changed(self, client):
        """Finding 22: a decision after an edit must name the edited revision."""
        run = await client.submit(both_edit, ORDER, id="order-7")
        [shown] = await client.approvals.list("bob")
        assert (shown.data, shown.revision) == (ORDER, 0)
        edited = await client.approvals.decide(
            shown.id, "approve", data={"amount": 1}, by="ann", revision=0
        )
        assert (edited.data["amount"], edited.revision) == (1, 1)
        count = len(await run.events())

        for stale in ({}, {"revision": 0}, {"revision": 2}):
            with refused("approval.changed", ApprovalChanged, revision=1) as caught:
                await client.approvals.decide(shown.id, "approve", by="bob", **stale)
            assert caught.value.data["amount"] == 1
        assert len(await run.events()) == count

        [shown] = await client.approvals.list("bob")
        assert (shown.data["amount"], shown.revision) == (1, 1)
        assert await client.approvals.get(shown.id) == shown
        await client.approvals.decide(shown.id, "approve", by="bob", revision=shown.revision)
        assert (await run.outputs())["review"]["data"]["amount"] == 1

    async def test_loses_to_an_edit_between_its_look_and_its_write(self, client, store):
        """Finding 22: the revision is compared with the data that the answer is written to."""
        await client.submit(both_edit, ORDER, id="order-7")
        counted = CountedStore(store)
        counted.after["queries.explain_facts"] = lambda: client.approvals.decide(
            "order-7:review", "approve", data={"amount": 1}, by="ann"
        )

        async with AsyncClient(counted.as_store()) as late:
            with refused("approval.changed", ApprovalChanged, revision=1, expected=0):
                await late.approvals.decide("order-7:review", "approve", by="bob", revision=0)

    async def test_needs_no_revision_until_it_has_been_changed(self, client):
        """Finding 22: an approval without edits, or with defaults only, is decided as before."""
        run = await client.submit(both_edit, ORDER, id="order-7")
        first = await client.approvals.decide("order-7:review", "approve", by="ann")
        second = await client.approvals.decide("order-7:review", "approve", by="bob")
        assert (first.revision, second.revision) == (0, 0)
        assert (await run.outputs())["review"]["data"] == {**ORDER, "reason": "as asked"}

    @pytest.mark.parametrize("revision", [-1, True, "1", 1.0])
    async def test_has_a_number_as_its_revision(self, client, revision):
        """Finding 22: what is no revision is refused."""
        await client.submit(both_edit, ORDER, id="order-7")
        with refused(f"argument.{'range' if revision == -1 else 'type'}", name="revision"):
            await client.approvals.decide("order-7:review", "approve", by="ann", revision=revision)


class TestApproval:
    async def test_tells_when_nobody_decided_in_time(self, client, store, clock):
        run = await client.submit(timed, ORDER, id="order-7")
        assert (await client.approvals.get("order-7:review")).due_at == clock() + timedelta(hours=1)
        clock.advance(timedelta(hours=2))
        async with worker_at(store, PEOPLE_FLOWS):
            await run.result(timeout=20)

        record = await client.approvals.get("order-7:review")

        assert (record.status, record.decision, record.port) == ("timed out", None, "")
        assert (record.answers, record.decided_at) == ((), clock())

    async def test_is_cancelled_with_its_run(self, client):
        await client.submit(both, ORDER, id="order-7")
        await client.approvals.decide("order-7:review", "approve", by="ann")
        await client.runs.cancel("order-7")
        record = await client.approvals.get("order-7:review")
        assert (record.status, len(record.answers)) == ("cancelled", 1)

    @pytest.mark.parametrize(
        "id, code, args",
        [
            ("order-7", "approval.invalid_id", {}),
            ("", "approval.invalid_id", {}),
            (":review", "approval.invalid_id", {}),
            ("order-8:review", "run.not_found", {"run_id": "order-8"}),
            ("order-7:reviw", "approval.no_such_node", {"nearest": ("review",), "known": ()}),
            ("order-7:keep", "approval.no_such_node", {"nearest": (), "known": ("review",)}),
        ],
    )
    async def test_unknown_is_refused_with_the_known_ones(self, client, id, code, args):
        await client.submit(refunds, ORDER, id="order-7")
        with refused(code, ApprovalNotFound, **args):
            await client.approvals.get(id)
        with refused(code, ApprovalNotFound, **args):
            await client.approvals.decide(id, "approve", by="ann")

    async def test_that_its_run_has_not_reached_is_not_found(self, client, store):
        later = Flow("later").then(keep).approve("And now?", name="review").build()
        run = await client.submit(later, 3, id="order-3")

        with refused("approval.not_opened", ApprovalNotFound, run_id="order-3"):
            await client.approvals.get("order-3:review")
        with refused("approval.not_opened", ApprovalNotFound, run_id="order-3"):
            await client.approvals.decide("order-3:review", "approve")

        async with worker_at(store, [later]):
            await until(run, RunStatus.WAITING)
        assert (await client.approvals.get("order-3:review")).data == 3

    async def test_of_a_run_whose_id_has_colons_is_found(self, client):
        await client.submit(refunds, ORDER, id="eu:order:7")
        assert (await client.approvals.get("eu:order:7:review")).run == "eu:order:7"


class TestAcrossNamespaces:
    async def test_an_id_that_several_have_is_ambiguous(self, client, store):
        async with (
            AsyncClient(store, namespace="team") as team,
            AsyncClient(store, namespace="*") as operator,
        ):
            await client.submit(refunds, ORDER, id="order-7")
            await team.submit(refunds, ORDER, id="order-7")

            with refused("run.ambiguous", AmbiguousRun, namespaces=("default", "team")):
                await operator.approvals.decide("order-7:review", "approve", by="ann")
            assert len(await operator.approvals.list()) == 2


class Hiding:
    """A codec that shows a text in place of what it cannot read, as the command line's does."""

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return b'"hidden"' if data.startswith(b"sealed ") else data


class TestWhatCannotBeReadHere:
    @pytest.mark.parametrize(
        "codec, code", [(None, "payload.unreadable"), (Hiding(), "approval.unreadable")]
    )
    async def test_does_not_hide_the_rest(self, client, store, codec, code):
        await client.submit(anybody, ORDER, id="open")
        async with AsyncClient(store, codec=Sealing()) as other:
            await other.submit(refunds, ORDER, id="sealed")

        async with AsyncClient(store, codec=codec) as ours:
            records = {str(each.run): each for each in await ours.approvals.list()}
            waits = await ours.waits.list()
            alone = await ours.approvals.get("sealed:review")

        assert records.keys() == {"open", "sealed"}
        assert records["open"].fault is None
        sealed = records["sealed"]
        assert sealed.fault is not None
        assert sealed.fault.code == code
        assert (sealed.flow, sealed.deciders) == ("refunds", ("role:finance", "ann"))
        assert (sealed.show, sealed.data, sealed.choices) == (None, None, ())
        assert alone == sealed
        assert {wait.run for wait in waits} == {"open", "sealed"}

    async def test_may_be_an_answer(self, client, store):
        for id in ("a", "b"):
            await client.submit(both_edit, ORDER, id=id)
        async with AsyncClient(store, codec=Sealing()) as other:
            await other.approvals.decide("a:review", "approve", data={"amount": 1}, by="ann")
        await client.approvals.decide("b:review", "approve", by="ann")

        a, b = await client.approvals.list()

        assert a.fault is not None
        assert (a.fault.code, a.answers) == ("payload.unreadable", ())
        assert a.title == "Refund 7"
        assert (b.fault, [each.by for each in b.answers]) == (None, ["ann"])
