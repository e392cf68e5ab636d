"""Broadcasts and reports of external parties: which count, and whom they reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncRunHandle,
    Context,
    Flow,
    InvalidInput,
    NodeNotFound,
    NodeNotWaiting,
    PayloadTooLarge,
    ReportOutcome,
    RunEnded,
    RunStatus,
    WaitType,
    Worker,
    task,
)
from perdure.operations import external
from perdure.store.contract import Store
from tests.client.flows import PEOPLE_FLOWS, answering, filtered, hand_over, keep, outside, refunds
from tests.client.harness import CountedStore, until, worker_at
from tests.support.refusal import refused

# Broadcasts: to all that wait for a signal now and whose filter it passes, and to no other.


other = Flow("other").wait_for_signal("shipped", name="payment").build()
later = Flow("later").then(keep).wait_for_signal("paid").build()
twice = Flow("twice").wait_for_signal("paid", name="a").wait_for_signal("paid", name="b").build()


def on(side: str) -> Flow:
    where = {"property": "side", "op": "eq", "value": side}
    return Flow(side).wait_for_signal("paid", name=side, where=where)


choosy = Flow("choosy").fork(left=on("left"), right=on("right")).join(keep).build()


async def signals(client: AsyncClient, id: str) -> list[Any]:
    events = await client.runs.handle(id).events()
    return [event.value for event in events if event.type == "signal_received"]


class TestBroadcast:
    async def test_reaches_all_that_wait_and_nobody_else(self, client, store):
        for id, flow in (("a", answering), ("b", answering), ("c", other), ("d", later)):
            await client.submit(flow, {"id": 1}, id=id)

        done = await client.runs.broadcast("paid", {"sum": 5}, by="till")

        assert (done.name, done.runs, done.count, done.unmatched) == ("paid", ("a", "b"), 2, 0)
        assert [await signals(client, id) for id in "abcd"] == [[{"sum": 5}], [{"sum": 5}], [], []]
        async with worker_at(store, [*PEOPLE_FLOWS]):
            assert await client.runs.handle("a").result(timeout=20) == {"sum": 5}
        [event] = [
            each
            for each in await client.runs.handle("b").events()
            if each.type == "signal_received"
        ]
        assert event.details["by"] == "till"

    async def test_reaches_only_those_whose_filter_it_passes(self, client):
        for id in (1, 2):
            await client.submit(filtered, {"id": id}, id=f"order-{id}")
        await client.submit(answering, {"id": 3}, id="order-3")
        done = await client.runs.broadcast("paid", {"order": 2})
        assert (set(done.runs), done.unmatched) == ({"order-2", "order-3"}, 1)
        assert await signals(client, "order-1") == []
        assert (await client.runs.get("order-1")).status is RunStatus.WAITING

    async def test_reaches_a_run_by_that_of_its_nodes_that_wants_it(self, client):
        run = await client.submit(choosy, 1, id="a")
        right = await client.runs.broadcast("paid", {"side": "right"})
        again = await client.runs.broadcast("paid", {"side": "right"})
        assert (right.runs, right.unmatched) == (("a",), 0)
        assert (again.runs, again.unmatched) == ((), 1)
        assert list(await run.outputs()) == ["right"]

    async def test_can_be_for_one_flow(self, client):
        await client.submit(answering, {"id": 1}, id="a")
        await client.submit(filtered, {"id": 1}, id="b")
        assert (await client.runs.broadcast("paid", {"order": 1}, flow="filtered")).runs == ("b",)
        assert (await client.runs.broadcast("paid", {"order": 1}, flow=answering)).runs == ("a",)

    async def test_is_delivered_once_to_a_run_that_waits_again_at_once(self, client, clock):
        """It opens its next wait in the broadcast itself, at the same moment or later."""
        await client.submit(twice, 1, id="a")

        done = await client.runs.broadcast("paid", 1)

        assert done.runs == ("a",)
        assert await signals(client, "a") == [1]
        clock.advance(timedelta(seconds=1))
        assert (await client.runs.broadcast("paid", 2)).runs == ("a",)
        assert (await client.runs.get("a")).status is RunStatus.COMPLETED

    async def test_pages_through_all_of_them(self, client, monkeypatch):
        monkeypatch.setattr(external, "RUNS_AT_ONCE", 3)
        ids = [f"order-{number}" for number in range(8)]
        for id in ids:
            await client.submit(answering, 1, id=id)
        done = await client.runs.broadcast("paid")
        assert sorted(done.runs) == ids
        assert [await signals(client, id) for id in ids] == [[None]] * 8

    async def test_of_several_at_once_each_run_takes_one(self, client, store):
        for number in range(5):
            await client.submit(answering, 1, id=f"order-{number}")

        async with AsyncClient(store) as other_client:
            one, another = await asyncio.gather(
                client.runs.broadcast("paid", 1), other_client.runs.broadcast("paid", 2)
            )

        assert sorted(one.runs + another.runs) == [f"order-{number}" for number in range(5)]
        taken = [await signals(client, f"order-{number}") for number in range(5)]
        assert [len(each) for each in taken] == [1] * 5

    @pytest.mark.parametrize("act", ["cancel", "signal"])
    async def test_passes_by_who_stopped_waiting_meanwhile(self, client, store, act):
        """After it was listed, and again after its log was read."""
        for step in ("queries.list_waits", "runs.load"):
            run = await client.submit(answering, 1, id=f"before-{step}")
            counted = CountedStore(store)
            other_act = run.cancel if act == "cancel" else lambda run=run: run.signal("paid", 2)
            counted.after[step] = other_act

            async with AsyncClient(counted.as_store()) as late:
                done = await late.runs.broadcast("paid", 1)

            assert done.runs == ()
            assert 1 not in await signals(client, run.id)

    async def test_is_kept_for_a_run_that_is_paused(self, client):
        run = await client.submit(answering, 1, id="a")
        await run.pause()
        assert (await client.runs.broadcast("paid", 1)).runs == ("a",)
        assert "node_completed" not in [each.type for each in await run.events()]
        await run.resume()
        assert "node_completed" in [each.type for each in await run.events()]

    async def test_without_waiters_writes_nothing(self, client):
        run = await client.submit(answering, 1, id="a")
        done = await client.runs.broadcast("shipped")
        assert (done.runs, done.unmatched) == ((), 0)
        assert len(await run.events()) == 1

    async def test_is_refused_with_what_is_too_large(self, store):
        async with AsyncClient(store, payload_max_bytes=1000) as client:
            await client.submit(answering, 1, id="a")
            with refused("payload.too_large", PayloadTooLarge):
                await client.runs.broadcast("paid", "x" * 1000)
            with refused("payload.too_large", PayloadTooLarge):
                await client.runs.signal("a", "paid", "x" * 1000)
            assert await signals(client, "a") == []

    @pytest.mark.parametrize("wrong", [{"signal": ""}, {"flow": 3}, {"by": ""}])
    async def test_is_refused_with_what_is_no_name(self, client, wrong):
        with pytest.raises(InvalidInput):
            await client.runs.broadcast(**{"signal": "paid", **wrong})


# Reports of outside parties: which count, which are repeated, and which come too late.


@task
def ask_twice(value: Any, ctx: Context = CONTEXT) -> Any:
    return ctx.pause("agent").result


again = Flow("again").loop(ask_twice, until="done", max_iterations=3, name="ask").build()
many = Flow("many").map(hand_over, name="each").build()
slow = Flow("slow").then(hand_over).wait_for_signal("go").build()
FLOWS = [*PEOPLE_FLOWS, again, many, slow]


@pytest.fixture
async def working(store: Store) -> AsyncIterator[Worker]:
    async with worker_at(store, FLOWS) as worker:
        yield worker


@pytest.fixture
async def paused(client: AsyncClient, working: Worker) -> AsyncRunHandle:
    """``order-7``, whose node ``hand_over`` waits for a report."""
    run = await client.submit(outside, 7, id="order-7")
    await until(run, RunStatus.WAITING)
    return run


class TestReport:
    async def test_completed_resumes_the_run_with_the_result(self, client, paused):
        answer = await client.runs.report(
            "order-7", "hand_over", status="completed", result={"ok": True}, by="agent-3"
        )

        assert (answer.outcome, answer.is_accepted) == (ReportOutcome.ACCEPTED, True)
        assert (answer.run, answer.node, answer.status) == ("order-7", "hand_over", "running")
        assert await paused.result(timeout=20) == {"ok": True}
        [event] = [each for each in await paused.events() if each.type == "node_reported"]
        assert (event.details["status"], event.details["by"]) == ("completed", "agent-3")
        assert event.value == {"status": "completed", "result": {"ok": True}}

    async def test_repeated_with_its_key_counts_once(self, client, paused):
        first = await client.runs.report("order-7", "hand_over", progress=1, key="a")
        count = len(await paused.events())
        second = await client.runs.report("order-7", "hand_over", progress=1, key="a")
        third = await client.runs.report("order-7", "hand_over", progress=2, key="b")
        receptions = [first.outcome, second.outcome, third.outcome]
        assert receptions == ["accepted", "repeated", "accepted"]
        assert len(await paused.events()) == count + 1

    async def test_repeated_with_its_time_counts_once_without_a_key(self, client, paused):
        at = datetime(2030, 1, 1, 12, 30, 0, 123, tzinfo=UTC)
        same = at.astimezone(timezone(timedelta(hours=2)))
        options: list[dict[str, Any]] = [
            {"at": at},
            {"at": same},
            {"at": at + timedelta(microseconds=1)},
        ]
        options += [{"at": at, "key": "a"}, {"at": at, "key": "b"}, {}, {}]
        found = [
            (await client.runs.report("order-7", "hand_over", progress=1, **each)).outcome
            for each in options
        ]
        assert found == ["accepted", "repeated", *["accepted"] * 5]
        with refused("argument.naive", InvalidInput, name="at"):
            await client.runs.report("order-7", "hand_over", at=at.replace(tzinfo=None))

    async def test_on_a_node_that_is_not_reached_yet_is_kept_until_it_pauses(self, client, store):
        flow = Flow("relay").then(hand_over, name="first").then(hand_over, name="second").build()
        run = await client.submit(flow, 7)
        early = [
            await client.runs.report(run.id, "second", status="completed", result=number)
            for number in (2, 3)
        ]
        assert [each.outcome for each in early] == ["kept", "ignored"]
        assert [each.is_accepted for each in early] == [True, False]
        [event] = [each for each in await run.events() if each.type == "node_reported"]
        assert (event.node, event.value["result"]) == ("second", 2)

        async with worker_at(store, [flow]):
            await client.runs.report(run.id, "first", status="completed", result=1)
            assert await run.result(timeout=20) == 2

    async def test_after_the_run_has_ended_is_answered_as_before(self, client, paused):
        await client.runs.report("order-7", "hand_over", status="completed", result=1, key="a")
        await paused.result(timeout=20)
        count = len(await paused.events())

        same = await client.runs.report(
            "order-7", "hand_over", status="completed", result=1, key="a"
        )
        other = await client.runs.report("order-7", "hand_over", status="failed", error="no")

        assert (same.outcome, other.outcome) == ("repeated", "ignored")
        assert other.first is not None
        assert (other.first.result, other.status) == (1, "completed")
        assert len(await paused.events()) == count

    async def test_of_several_last_ones_at_once_one_counts(self, client, paused):
        answers = await asyncio.gather(
            *(
                client.runs.report("order-7", "hand_over", status="completed", result=1, key="same")
                for _ in range(4)
            )
        )

        receptions = sorted(answer.outcome for answer in answers)
        assert receptions == ["accepted", "repeated", "repeated", "repeated"]


class TestRefusals:
    @pytest.mark.every_store
    @pytest.mark.parametrize("by", ["poll", " POLL", "ｐｏｌｌ"])
    async def test_is_never_by_the_engine_itself(self, client, store, by):
        """Finding 6: a name does not make a report one of Perdure's own polls."""
        run = await client.submit(outside, 3, id="job-1")
        async with worker_at(store, PEOPLE_FLOWS):
            await until(run, RunStatus.WAITING)
        count = len(await run.events())

        with refused("argument.reserved_name", InvalidInput, name="by"):
            await client.runs.report("job-1", "hand_over", status="progress", progress=1, by=by)
        with refused("argument.reserved_name", InvalidInput, name="by"):
            await client.runs.signal("job-1", "go", by=by)
        assert len(await run.events()) == count

    async def test_of_an_unknown_node_names_the_nearest(self, client):
        run = await client.submit(outside, 7, id="order-7")
        for node in ("hand_ovr", "hand over", "poll:hand_over"):
            with refused("run.node_not_found", NodeNotFound):
                await client.runs.report("order-7", node)
        assert len(await run.events()) == 1

    async def test_of_a_node_that_waits_for_no_report(self, client, paused):
        await client.submit(answering, 7, id="signal")
        await client.submit(refunds, {"id": 1, "amount": 2}, id="refund")
        count = len(await paused.events())
        for run, node in (("signal", "payment"), ("refund", "review")):
            with refused("run.node_not_waiting", NodeNotWaiting, run_id=run, node=node):
                await client.runs.report(run, node, status="completed")
        assert len(await paused.events()) == count

    async def test_of_a_run_that_ended_without_any(self, client):
        await client.submit(outside, 7, id="order-7")
        await client.runs.cancel("order-7")
        with refused("run.ended", RunEnded):
            await client.runs.report("order-7", "hand_over", status="completed")

    @pytest.mark.parametrize(
        "wrong, code, args",
        [
            ({"status": "done"}, "argument.choice", {"name": "status"}),
            ({"result": 1}, "report.wrong_status", {"name": "result", "required": "completed"}),
            (
                {"status": "completed", "error": "no"},
                "report.wrong_status",
                {"name": "error", "required": "failed", "status": "completed"},
            ),
            ({"status": "failed", "port": "x"}, "report.wrong_status", {"name": "port"}),
            ({"status": "failed", "error": 3}, "argument.type", {"name": "error"}),
            ({"status": "failed", "error": "x" * 10_001}, "argument.too_long", {"name": "error"}),
            ({"key": ""}, "argument.name", {"name": "key"}),
            ({"by": 3}, "argument.name", {"name": "by"}),
            ({"progress": object()}, "payload.not_serializable", {"what": "the report"}),
        ],
    )
    async def test_of_what_is_no_report(self, client, wrong, code, args):
        run = await client.submit(outside, 7, id="order-7")
        with refused(code, InvalidInput, **args):
            await client.runs.report("order-7", "hand_over", **wrong)
        assert len(await run.events()) == 1

    async def test_of_what_is_too_large(self, store):
        async with AsyncClient(store, payload_max_bytes=1000) as client:
            await client.submit(outside, 7, id="order-7")
            with refused("payload.too_large", PayloadTooLarge):
                await client.runs.report("order-7", "hand_over", progress="x" * 1000)


class TestWaits:
    async def test_tell_what_outside_parties_need(self, client, paused, clock):
        [wait] = await client.waits.list(type="external")
        assert (wait.run, wait.node, wait.key) == ("order-7", "hand_over", "hand_over")
        assert (wait.type, wait.name) == (WaitType.EXTERNAL, "agent")
        assert wait.detail == {"ticket": "T-7"}
        assert (wait.opened_at, wait.due_at) == (clock(), clock() + timedelta(hours=2))

    async def test_are_not_of_an_unknown_type(self, client):
        with refused("argument.choice", InvalidInput, name="type", nearest=("timer",)):
            await client.waits.list(type="timers")
