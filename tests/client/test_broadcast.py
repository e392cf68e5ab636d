"""Broadcasts: to all that wait for a signal now and whose filter it passes, and to nobody else."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import AsyncClient, Flow, InvalidInput, PayloadTooLarge, RunStatus
from perdure.operations import external
from tests.client.counted_store import CountedStore
from tests.client.people import PEOPLE_FLOWS, answering, filtered, keep
from tests.client.runs import worker_at
from tests.support.refusal import refused

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

    async def test_passes_no_filter_without_an_object(self, client):
        await client.submit(filtered, {"id": 1}, id="order-1")

        done = await client.runs.broadcast("paid", [1])

        assert (done.runs, done.unmatched) == ((), 1)

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

    async def test_is_brought_once_to_a_run_that_waits_again_at_once(self, client, clock):
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

    async def test_without_anybody_who_waits_writes_nothing(self, client):
        run = await client.submit(answering, 1, id="a")

        done = await client.runs.broadcast("shipped")

        assert (done.runs, done.unmatched) == ((), 0)
        assert len(await run.events()) == 1

    async def test_stays_in_its_namespace(self, client, store):
        async with (
            AsyncClient(store, namespace="team") as team,
            AsyncClient(store, namespace="*") as operator,
        ):
            await client.submit(answering, 1, id="a")
            await team.submit(answering, 1, id="b")

            assert (await client.runs.broadcast("paid")).runs == ("a",)
            with refused("client.namespace_required", InvalidInput, operation="runs.broadcast"):
                await operator.runs.broadcast("paid")

    async def test_is_refused_with_what_is_too_large(self, store):
        async with AsyncClient(store, payload_max_bytes=1000) as client:
            await client.submit(answering, 1, id="a")

            with pytest.raises(PayloadTooLarge, match="the payload of signal 'paid'"):
                await client.runs.broadcast("paid", "x" * 1000)
            with pytest.raises(PayloadTooLarge, match="the payload of signal 'paid'"):
                await client.runs.signal("a", "paid", "x" * 1000)
            assert await signals(client, "a") == []

    @pytest.mark.parametrize("wrong", [{"signal": ""}, {"flow": 3}, {"by": ""}])
    async def test_is_refused_with_what_is_no_name(self, client, wrong):
        with pytest.raises(InvalidInput):
            await client.runs.broadcast(**{"signal": "paid", **wrong})
