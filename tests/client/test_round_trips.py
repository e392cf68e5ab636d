"""How often operations ask the store: a fresh client each, so a definition is read once."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import AsyncClient, Worker
from perdure.operations.page import encode_cursor
from perdure.store.contract import Store
from tests.client.counted_store import CountedStore
from tests.client.flows import asking, ordering, parent
from tests.client.people import approving
from tests.client.tasks import add

SECOND = timedelta(seconds=1)
DEFINITION = "runs.get_definition"
ORDER = {"id": 7, "amount": 3}
one_of_two = approving("one_of_two", deciders=["ann", "bob"])
both_in_time = approving("both_in_time", deciders=["ann", "bob"], policy="all", deadline="1h")


@asynccontextmanager
async def counted(store: Store) -> AsyncIterator[tuple[AsyncClient, CountedStore]]:
    counting = CountedStore(store)
    async with AsyncClient(counting.as_store()) as client:
        yield client, counting


def reads(counting: CountedStore) -> dict[str, int]:
    """What was asked, without the definitions of flows, which are kept for good."""
    return {name: count for name, count in counting.calls.items() if name != DEFINITION}


class TestRuns:
    async def test_get_reads_the_log_once(self, client, store):
        await client.submit(asking, 1, id="a")

        async with counted(store) as (ours, counting):
            run = await ours.runs.get("a")

        assert [node.id for node in run.nodes] == ["keep", "answer"]
        assert reads(counting) == {"runs.load": 1}
        assert counting.calls[DEFINITION] == 1

    async def test_get_reads_child_runs_together(self, client, store):
        await client.submit(parent, 1, id="a")
        worker = Worker(store, flows=[parent], poll="10ms").start()
        try:
            async for event in client.runs.watch("a"):
                if event.status == "waiting":
                    break
        finally:
            worker.shutdown()
            worker.join()

        async with counted(store) as (ours, counting):
            run = await ours.runs.get("a")

        assert [child.id for child in run.children] == ["a/asking"]
        assert reads(counting) == {"runs.load": 1, "queries.get_runs": 1}

    async def test_explain_reads_all_facts_at_once(self, client, store):
        await client.submit(asking, 1, id="a")

        async with counted(store) as (ours, counting):
            assert (await ours.runs.explain("a")).findings

        assert reads(counting) == {"queries.explain_facts": 1}

    @pytest.mark.parametrize("act", ["pause", "cancel"])
    async def test_commands_load_and_commit(self, client, store, act):
        await client.submit(asking, 1, id="a")

        async with counted(store) as (ours, counting):
            await getattr(ours.runs, act)("a")

        assert reads(counting) == {"runs.load": 1, "runs.commit": 1}

    async def test_signal_loads_and_commits(self, client, store):
        await client.submit(asking, 1, id="a")

        async with counted(store) as (ours, counting):
            await ours.runs.signal("a", "answer", 1)

        assert reads(counting) == {"runs.load": 1, "runs.commit": 1}

    async def test_lists_and_counts_take_one(self, client, store):
        await client.submit(ordering, 1, id="a")

        async with counted(store) as (ours, counting):
            await ours.runs.list()
            await ours.runs.count()
            await ours.waits.list()

        assert reads(counting) == {
            "queries.list_runs": 1,
            "queries.count_runs": 1,
            "queries.list_waits": 1,
        }


class TestApprovals:
    async def test_decide_reads_the_record_from_what_it_wrote(self, client, store, clock):
        await client.submit(one_of_two, ORDER, id="a")

        async with counted(store) as (ours, counting):
            decided = await ours.approvals.decide("a:review", "approve", by="ann", note="fine")

        assert reads(counting) == {"queries.explain_facts": 1, "runs.commit": 1}
        assert decided == await client.approvals.get("a:review")
        assert decided.decided_at == clock()

    @pytest.mark.parametrize("namespace, most", [("default", 3), ("*", 4)])
    async def test_decide_reads_earlier_answers_where_several_must_agree(
        self, client, store, namespace, most
    ):
        await client.submit(both_in_time, ORDER, id="a")

        counting = CountedStore(store)
        async with AsyncClient(counting.as_store(), namespace=namespace) as ours:
            first = await ours.approvals.decide("a:review", "approve", by="ann")
            assert first == await client.approvals.get("a:review")
            counting.calls.clear()
            second = await ours.approvals.decide("a:review", "approve", by="bob")

        assert sum(reads(counting).values()) <= most
        assert second == await client.approvals.get("a:review")
        assert [answer.by for answer in second.answers] == ["ann", "bob"]

    async def test_decide_is_refused_by_what_it_read(self, client, store):
        await client.submit(both_in_time, ORDER, id="a")
        for by in ("ann", "bob"):
            await client.approvals.decide("a:review", "approve", by=by)

        async with counted(store) as (ours, counting):
            with pytest.raises(perdure.ApprovalDecided, match="approve by ann and bob"):
                await ours.approvals.decide("a:review", "approve", by="ann")

        assert reads(counting) == {"queries.explain_facts": 1, "runs.event_values": 1}


class TestEvents:
    async def test_of_a_later_page_read_no_earlier_ones(self, client, store):
        await client.submit(asking, 0, id="a")
        for number in range(6):
            await client.runs.signal("a", "answer", number)
        await client.runs.pause("a")
        whole = (await client.runs.get("a")).events
        first = await client.runs.events("a", limit=3)

        async with counted(store) as (ours, counting):
            second = await ours.runs.events("a", limit=3, cursor=first.next)

        assert reads(counting) == {
            "queries.get_runs": 1,
            "runs.latest_events": 1,
            "runs.event_values": 1,
        }
        [([asked], limit)] = counting.arguments["runs.latest_events"]
        assert (asked.number, limit) == (7, 3)
        rest = await client.runs.events("a", cursor=second.next)
        assert (*first, *second, *rest) == whole
        assert rest.next is None

    async def test_have_their_status_on_pages_of_any_size(self, client, store):
        await client.submit(parent, 1, id="a")
        worker = Worker(store, flows=[parent], poll="10ms").start()
        try:
            async for event in client.runs.watch("a"):
                if event.status == "waiting":
                    break
        finally:
            worker.shutdown()
            worker.join()
        await client.runs.pause("a")
        await client.runs.resume("a")
        await client.runs.cancel("a")
        whole = (await client.runs.get("a")).events

        found: list[Any] = []
        cursor = None
        while True:
            page = await client.runs.events("a", limit=1, cursor=cursor)
            found += page
            if (cursor := page.next) is None:
                break

        assert tuple(found) == whole
        assert {event.status for event in found} >= {"running", "waiting", "paused", "cancelled"}

    @pytest.mark.parametrize("packed", [b"", b"x", zlib.compress(b"[]"), zlib.compress(b"{" * 9)])
    async def test_follow_a_cursor_without_a_usable_state(self, client, packed):
        """As that of a state that is too large for a cursor."""
        await client.submit(asking, 0, id="a")
        await client.runs.pause("a")
        whole = (await client.runs.get("a")).events

        page = await client.runs.events("a", cursor=encode_cursor("runs.events", (1, packed)))

        assert tuple(page) == whole[1:]

    async def test_refuse_a_cursor_before_the_first(self, client):
        await client.submit(asking, 0, id="a")

        with pytest.raises(perdure.InvalidInput) as caught:
            await client.runs.events("a", cursor=encode_cursor("runs.events", (-1, b"")))

        assert caught.value.faults[0].code == "argument.cursor"


class TestJobs:
    async def test_get_takes_one(self, client, store):
        job = await client.enqueue(add, 1)

        async with counted(store) as (ours, counting):
            await ours.jobs.get(job.id)

        assert reads(counting) == {"queries.get_job": 1}

    async def test_explain_takes_one_without_limits(self, client, store):
        job = await client.enqueue(add, 1)

        async with counted(store) as (ours, counting):
            await ours.jobs.explain(job.id)

        assert reads(counting) == {"queries.explain_facts": 1}

    @pytest.mark.parametrize("act", ["cancel", "disable"])
    async def test_changes_take_one(self, client, store, act):
        job = await client.enqueue(add, 1)

        async with counted(store) as (ours, counting):
            await getattr(ours.jobs, act)(job.id)

        assert reads(counting) == {"admin.change_jobs": 1}


class TestCursors:
    async def test_survive_that_what_they_point_at_is_pruned(self, client, store, clock):
        enqueued = []
        for number in range(4):
            clock.advance(SECOND)
            await client.submit(asking, 1, id=f"run-{number}")
            enqueued.append(await client.enqueue(add, number))
        runs = await client.runs.list(limit=2)
        jobs = await client.jobs.list(limit=2, task=add)
        await client.runs.cancel(runs[-1].id)
        await client.jobs.cancel(jobs[-1].id)
        clock.advance(60 * SECOND)
        assert await client.store.prune(older_than=0) == 2

        rest = await client.runs.list(limit=5, cursor=runs.next)
        assert [run.id for run in (*runs, *rest)] == ["run-3", "run-2", "run-1", "run-0"]
        later = await client.jobs.list(limit=5, cursor=jobs.next, task=add)
        assert [job.id for job in (*jobs, *later)] == [job.id for job in reversed(enqueued)]

    async def test_go_through_every_list(self, client, clock):
        for number in range(3):
            clock.advance(SECOND)
            await client.submit(one_of_two, ORDER, id=f"run-{number}")
            await client.enqueue(add.options(queue=f"queue-{number}"), 1)
            await client.schedules.save(f"schedule-{number}", add, every="1h", args=[1])
        lists: dict[str, tuple[Any, int]] = {
            "runs": (client.runs.list, 3),
            "jobs": (client.jobs.list, 3),
            "approvals": (client.approvals.list, 3),
            "waits": (client.waits.list, 3),
            "schedules": (client.schedules.list, 3),
            "queues": (client.queues.list, 3),
            "flows": (client.flows.list, 1),
        }
        for name, (list_, count) in lists.items():
            found: list[Any] = []
            cursor = None
            while True:
                page = await list_(limit=1, cursor=cursor)
                found += page
                if (cursor := page.next) is None:
                    break
            assert found == list(await list_(limit=1000)), name
            assert len(found) == count, name

    async def test_of_another_list_or_of_nowhere_are_refused(self, client):
        for number in range(2):
            await client.submit(asking, 1, id=f"run-{number}")
        cursor = (await client.runs.list(limit=1)).next
        assert cursor is not None
        hostile = [
            cursor[:-3],
            cursor + "AAAA",
            "",
            "x" * 100_000,
            "\x00",
            "é",
            "W10",
            "bnVsbA",
            "WyJydW5zLmxpc3QiLFsiMDAwMS0wMS0wMVQwMDowMDowMCIsImEiXV0",  # a year without a zone
            "W1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1s" * 40,
        ]
        for each in hostile:
            with pytest.raises(perdure.InvalidInput) as caught:
                await client.runs.list(cursor=each)
            assert caught.value.faults[0].code == "argument.cursor"
        with pytest.raises(perdure.InvalidInput) as caught:
            await client.jobs.list(cursor=cursor)
        assert caught.value.faults[0].code == "argument.cursor"
