"""Approvals: in whose inbox they are, who may decide, and what becomes of a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from perdure import (
    AlreadyAnswered,
    AmbiguousRun,
    ApprovalDecided,
    ApprovalNotFound,
    ApprovalStatus,
    AsyncClient,
    Client,
    InvalidAnswer,
    InvalidInput,
    NotDecider,
    PayloadTooLarge,
    RunStatus,
)
from perdure.store.opening import store_at
from tests.client.counted_store import CountedStore
from tests.client.flows import asking
from tests.client.people import (
    FORM,
    PEOPLE_FLOWS,
    anybody,
    both,
    failing,
    paying,
    refunds,
    sorting,
    timed,
    two,
)
from tests.client.runs import until, worker_at
from tests.support.refusal import refused

ORDER = {"id": 7, "amount": 120}


class TestInbox:
    async def test_tells_everything_that_a_decider_needs(self, client, clock):
        await client.submit(paying, ORDER, id="order-7")

        [record] = await client.approvals.list("finance")

        assert (record.id, record.run, record.node) == ("order-7:review", "order-7", "review")
        assert (record.flow, record.namespace) == ("paying", "default")
        assert (record.title, record.message, record.form) == ("Refund 7", "", FORM)
        assert (record.show, record.data) == (ORDER, ORDER)
        assert (record.deciders, record.choices) == (("finance",), ("approve", "reject"))
        assert (record.quorum, record.answers) == (1, ())
        assert (record.status, record.is_open) == (ApprovalStatus.OPEN, True)
        assert (record.opened_at, record.due_at) == (clock(), None)

    async def test_has_what_one_of_the_names_may_decide_and_what_everybody_may(self, client):
        for id, flow in (("a", refunds), ("b", paying), ("c", both), ("d", anybody)):
            await client.submit(flow, ORDER, id=id)

        async def runs(deciders: str | list[str] | None) -> set[str]:
            return {record.run for record in await client.approvals.list(deciders)}

        assert await runs(None) == {"a", "b", "c", "d"}
        assert await runs("finance") == {"a", "b", "d"}
        assert await runs(["ann"]) == {"a", "c", "d"}
        assert await runs(["bob", "finance"]) == {"a", "b", "c", "d"}
        assert await runs("nobody") == {"d"}

    async def test_has_the_longest_open_first_page_by_page(self, client, clock):
        for id in ("e", "d", "c", "b", "a"):
            await client.submit(refunds, ORDER, id=id)
            if id != "c":  # two were opened at the same moment
                clock.advance(timedelta(seconds=1))

        first = await client.approvals.list(limit=2)
        second = await client.approvals.list(limit=2, cursor=first.next)
        await client.approvals.decide(second[-1].id, "approve", by="ann")
        third = await client.approvals.list(limit=2, cursor=second.next)

        assert [record.run for record in (*first, *second, *third)] == ["e", "d", "b", "c", "a"]

    async def test_can_be_of_one_flow_wherever_it_is_in_the_list(self, client):
        for number in range(5):
            await client.submit(refunds, ORDER, id=f"refund-{number}")
        await client.submit(paying, ORDER, id="pay")

        assert [record.run for record in await client.approvals.list(flow="paying", limit=1)] == [
            "pay"
        ]
        assert [record.run for record in await client.approvals.list(flow=paying)] == ["pay"]
        assert list(await client.approvals.list(flow="other")) == []

    async def test_tells_who_answered_already(self, client, clock):
        await client.submit(both, ORDER, id="order-7")
        clock.advance(timedelta(minutes=3))
        await client.approvals.decide("order-7:review", "approve", by="ann", note="fine by me")

        [record] = await client.approvals.list("bob")

        [answer] = record.answers
        assert (answer.by, answer.decision, answer.note) == ("ann", "approve", "fine by me")
        assert (answer.at, answer.stands_for) == (clock(), ("ann",))

    async def test_of_a_run_has_its_own_only(self, client):
        run = await client.submit(refunds, ORDER, id="order-7")
        await client.submit(refunds, ORDER, id="order-8")

        assert [record.id for record in await run.approvals()] == ["order-7:review"]

    async def test_has_nothing_that_is_decided_or_given_up(self, client):
        await client.submit(refunds, ORDER, id="decided")
        await client.submit(refunds, ORDER, id="cancelled")

        await client.approvals.decide("decided:review", "approve", by="ann")
        await client.runs.cancel("cancelled")

        assert list(await client.approvals.list()) == []

    @pytest.mark.parametrize("deciders", [3, {"a": 1}, [""], [None]])
    async def test_refuses_what_is_no_name(self, client, deciders):
        with pytest.raises(InvalidInput, match="deciders"):
            await client.approvals.list(deciders)  # type: ignore[arg-type]  # as callers without types may

    async def test_refuses_pages_without_a_size(self, client):
        with refused("argument.range", InvalidInput, name="limit"):
            await client.approvals.list(limit=0)


class TestDecide:
    async def test_lets_the_run_go_on_with_who_decided_what(self, client, store, clock):
        run = await client.submit(refunds, ORDER, id="order-7")
        clock.advance(timedelta(minutes=5))

        record = await client.approvals.decide(
            "order-7:review", "approve", by="lea", roles=["finance"], note="ok"
        )

        assert (record.status, record.decision, record.port) == ("decided", "approve", "")
        assert (record.decided_at, record.title) == (clock(), "Refund 7")
        [answer] = record.answers
        assert (answer.by, answer.stands_for, answer.note) == ("lea", ("finance",), "ok")
        async with worker_at(store, PEOPLE_FLOWS):
            result = await run.result(timeout=20)
        assert (result["decision"], result["by"], result["data"]) == ("approve", ["lea"], ORDER)

    async def test_may_change_the_data(self, client, store):
        run = await client.submit(paying, ORDER, id="order-7")

        await client.approvals.decide(
            "order-7:review", "approve", data={"amount": 90}, roles=["finance"]
        )

        async with worker_at(store, PEOPLE_FLOWS):
            result = await run.result(timeout=20)
        assert result["data"] == {"id": 7, "amount": 90, "reason": "as asked"}

    async def test_goes_on_from_the_port_of_the_answer(self, client, store):
        run = await client.submit(sorting, ORDER, id="order-7")

        record = await client.approvals.decide("order-7:review", "hold")

        assert (record.decision, record.port) == ("hold", "hold")
        async with worker_at(store, PEOPLE_FLOWS):
            await run.result(timeout=20)
        assert set(await run.outputs()) == {"review", "parked"}

    async def test_of_several_says_that_it_is_still_open(self, client):
        await client.submit(two, ORDER, id="order-7")

        one = await client.approvals.decide("order-7:review", "approve", by="ann")
        another = await client.approvals.decide("order-7:review", "approve", by="bob")

        assert (one.status, len(one.answers), one.quorum) == ("open", 1, 2)
        assert (another.status, len(another.answers)) == ("decided", 2)

    async def test_to_reject_where_there_is_no_way_on_fails_the_run(self, client):
        await client.submit(refunds, ORDER, id="order-7")

        record = await client.approvals.decide(
            "order-7:review", "reject", by="ann", note="too much"
        )

        assert (record.status, record.decision, record.port) == ("decided", "reject", None)
        assert (await client.runs.get("order-7")).status is RunStatus.FAILED

    async def test_is_refused_with_the_faults_of_each_field(self, client):
        run = await client.submit(paying, ORDER, id="order-7")
        data = {"amount": 900, "color": "red"}

        with pytest.raises(InvalidAnswer, match="order-7:review") as caught:
            await client.approvals.decide("order-7:review", "approve", data=data, roles=["finance"])

        assert {each.where for each in caught.value.faults} == {("amount",), ("color",)}
        assert len(await run.events()) == 1

    async def test_is_refused_with_a_decision_that_it_does_not_offer(self, client):
        await client.submit(sorting, ORDER, id="order-7")

        with pytest.raises(InvalidAnswer, match=r"'reject'.*'approve', 'hold'"):
            await client.approvals.decide("order-7:review", "reject")

    async def test_is_refused_from_who_may_not(self, client):
        run = await client.submit(refunds, ORDER, id="order-7")

        with pytest.raises(NotDecider, match=r"'eve'.*'finance', 'ann'") as caught:
            await client.approvals.decide("order-7:review", "approve", by="eve", roles=["sales"])

        assert caught.value.deciders == ("finance", "ann")
        assert len(await run.events()) == 1

    async def test_is_refused_from_who_has_answered(self, client):
        await client.submit(both, ORDER, id="order-7")
        await client.approvals.decide("order-7:review", "approve", by="ann")

        with refused("approval.already_answered", AlreadyAnswered, by="ann"):
            await client.approvals.decide("order-7:review", "approve", by="ann")

    async def test_is_refused_once_it_is_decided_with_by_whom(self, client, clock):
        run = await client.submit(refunds, ORDER, id="order-7")
        await client.approvals.decide("order-7:review", "approve", by="ann")
        count = len(await run.events())

        with pytest.raises(ApprovalDecided, match="approve by ann at") as caught:
            await client.approvals.decide("order-7:review", "reject", by="ann")

        assert f"{clock():%Y-%m-%d %H:%M:%S}" in caught.value.outcome
        assert len(await run.events()) == count

    async def test_is_refused_when_its_time_is_over(self, client, clock):
        """Also while no worker has been around to end it."""
        run = await client.submit(failing, ORDER, id="order-7")
        clock.advance(timedelta(hours=1))

        with pytest.raises(ApprovalDecided, match="time for an answer is over"):
            await client.approvals.decide("order-7:review", "approve")
        assert len(await run.events()) == 1

    async def test_is_refused_of_a_run_that_was_cancelled(self, client):
        await client.submit(refunds, ORDER, id="order-7")
        await client.runs.cancel("order-7")

        with pytest.raises(ApprovalDecided, match="its run ended"):
            await client.approvals.decide("order-7:review", "approve", by="ann")

    async def test_is_refused_with_data_that_is_too_large(self, store):
        async with AsyncClient(store, payload_max_bytes=1000) as client:
            await client.submit(anybody, ORDER, id="order-7")

            with pytest.raises(PayloadTooLarge, match="the data of the answer"):
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
            with pytest.raises(ApprovalDecided, match="approve by ann"):
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

    async def test_while_the_run_is_paused_counts_once_it_goes_on(self, client):
        run = await client.submit(refunds, ORDER, id="order-7")
        await run.pause()

        record = await client.approvals.decide("order-7:review", "approve", by="ann")

        assert (record.status, len(record.answers)) == ("open", 1)
        await run.resume()
        assert (await client.approvals.get("order-7:review")).status == "decided"


class TestApproval:
    async def test_tells_of_an_open_one_what_the_inbox_tells(self, client):
        await client.submit(refunds, ORDER, id="order-7")

        assert [await client.approvals.get("order-7:review")] == list(await client.approvals.list())

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

    async def test_is_asked_anew_when_its_run_is_retried(self, client, clock):
        run = await client.submit(refunds, ORDER, id="order-7")
        await client.approvals.decide("order-7:review", "reject", by="ann")
        clock.advance(timedelta(minutes=1))
        await run.retry()

        record = await client.approvals.get("order-7:review")

        assert (record.status, record.answers, record.opened_at) == ("open", (), clock())
        assert (await client.approvals.decide(record.id, "approve", by="ann")).decision == "approve"

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
    async def test_that_there_is_not_is_told_with_what_there_is(self, client, id, code, args):
        await client.submit(refunds, ORDER, id="order-7")

        with refused(code, ApprovalNotFound, **args):
            await client.approvals.get(id)
        with refused(code, ApprovalNotFound, **args):
            await client.approvals.decide(id, "approve", by="ann")

    async def test_of_a_flow_without_any_says_so(self, client):
        await client.submit(asking, 3, id="order-3")

        with refused("approval.no_such_node", ApprovalNotFound, node="answer", known=()):
            await client.approvals.get("order-3:answer")

    async def test_that_its_run_has_not_come_to_is_not_there(self, client, store):
        from perdure import Flow
        from tests.client.people import keep

        later = Flow("later").then(keep).approve("And now?", name="review").build()
        run = await client.submit(later, 3, id="order-3")

        with refused("approval.not_opened", ApprovalNotFound, run_id="order-3"):
            await client.approvals.get("order-3:review")
        with pytest.raises(ApprovalNotFound, match="has not come to it"):
            await client.approvals.decide("order-3:review", "approve")

        async with worker_at(store, [later]):
            await until(run, RunStatus.WAITING)
        assert (await client.approvals.get("order-3:review")).data == 3

    async def test_of_a_run_whose_id_has_colons_is_found(self, client):
        await client.submit(refunds, ORDER, id="eu:order:7")

        assert (await client.approvals.get("eu:order:7:review")).run == "eu:order:7"


class TestAcrossNamespaces:
    async def test_an_operator_sees_all_and_acts_by_id(self, client, store):
        async with (
            AsyncClient(store, namespace="team") as team,
            AsyncClient(store, namespace="*") as operator,
        ):
            await client.submit(refunds, ORDER, id="order-7")
            await team.submit(refunds, ORDER, id="order-8")

            found = {(each.namespace, each.id) for each in await operator.approvals.list("ann")}
            await operator.approvals.decide("order-8:review", "approve", by="ann")

            assert found == {("default", "order-7:review"), ("team", "order-8:review")}
            assert list(await team.approvals.list()) == []
            assert len(await client.approvals.list()) == 1

    async def test_an_id_that_several_have_is_ambiguous(self, client, store):
        async with (
            AsyncClient(store, namespace="team") as team,
            AsyncClient(store, namespace="*") as operator,
        ):
            await client.submit(refunds, ORDER, id="order-7")
            await team.submit(refunds, ORDER, id="order-7")

            with pytest.raises(AmbiguousRun, match="'default', 'team'"):
                await operator.approvals.decide("order-7:review", "approve", by="ann")
            assert len(await operator.approvals.list()) == 2

    async def test_one_namespace_has_nothing_of_another(self, client, store):
        await client.submit(refunds, ORDER, id="order-7")
        async with AsyncClient(store, namespace="team") as team:
            assert list(await team.approvals.list()) == []
            with refused("run.not_found", ApprovalNotFound, run_id="order-7"):
                await team.approvals.decide("order-7:review", "approve", by="ann")


class TestBlocking:
    @pytest.fixture
    def blocking(self, store_url: str) -> Iterator[Client]:
        with Client(store_url) as client:
            yield client

    def test_it_is_the_same_without_an_event_loop(self, blocking):
        run = blocking.submit(refunds, ORDER, id="order-7")

        [record] = blocking.approvals.list("ann")
        decided = blocking.approvals.decide(record.id, "approve", by="ann")

        assert run.approvals() == []
        assert blocking.approvals.get(record.id) == decided


class Sealing:
    """A codec that others do not have."""

    def encode(self, data: bytes) -> bytes:
        return b"sealed " + data

    def decode(self, data: bytes) -> bytes:
        return data.removeprefix(b"sealed ")


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
        assert (sealed.flow, sealed.deciders) == ("refunds", ("finance", "ann"))
        assert (sealed.show, sealed.data, sealed.choices) == (None, None, ())
        assert alone == sealed
        assert {wait.run for wait in waits} == {"open", "sealed"}

    async def test_may_be_an_answer(self, client, store):
        for id in ("a", "b"):
            await client.submit(both, ORDER, id=id)
        async with AsyncClient(store, codec=Sealing()) as other:
            await other.approvals.decide("a:review", "approve", data={"amount": 1}, by="ann")
        await client.approvals.decide("b:review", "approve", by="ann")

        a, b = await client.approvals.list()

        assert a.fault is not None
        assert (a.fault.code, a.answers) == ("payload.unreadable", ())
        assert a.title == "Refund 7"
        assert (b.fault, [each.by for each in b.answers]) == (None, ["ann"])
