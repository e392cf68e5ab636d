"""How often operations ask the store: a fresh client each, so a definition is read once."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import AsyncClient, Flow, ReportOutcome, RunStatus, task
from perdure.model.event import StoredEvent
from perdure.model.run import LoadedRun, RunState
from perdure.operations.page import encode_cursor
from perdure.operations.run_log import LOG_PAGE, PACKED_MAX_BYTES, pack_state
from perdure.operations.runs import EventsPosition, decode_events_cursor
from perdure.store.contract import Store
from tests.client.flows import add, approving, asking, hand_over, keep, ordering, parent
from tests.client.harness import CountedStore, until, worker_at
from tests.support.refusal import refused

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


async def cursor_after(client: AsyncClient, run: str, number: int, state: bytes) -> str:
    """A cursor that was edited: the position and state are made up, the run is right."""
    whole = (await client.runs.events(run, limit=1)).next
    assert whole is not None
    position = decode_events_cursor(whole)
    return encode_cursor("runs.events", position._replace(number=number, state=state))


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
        run = await client.submit(parent, 1, id="a")
        async with worker_at(store, [parent]):
            await until(run, RunStatus.WAITING)

        async with counted(store) as (ours, counting):
            record = await ours.runs.get("a")

        assert [child.id for child in record.children] == ["a/asking"]
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
            with refused("approval.decided", perdure.ApprovalDecided):
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
        run = await client.submit(parent, 1, id="a")
        async with worker_at(store, [parent]):
            await until(run, RunStatus.WAITING)
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
        page = await client.runs.events("a", cursor=await cursor_after(client, "a", 1, packed))
        assert tuple(page) == whole[1:]

    async def test_do_not_take_a_state_that_was_made_up_for_a_damaged_log(self, client):
        await client.submit(asking, 0, id="a")
        await client.runs.pause("a")
        whole = (await client.runs.get("a")).events
        forged = pack_state(RunState(number=1, status=RunStatus.COMPLETED))
        page = await client.runs.events("a", cursor=await cursor_after(client, "a", 1, forged))
        assert [event.number for event in page] == [event.number for event in whole[1:]]

    def test_are_accepted_back_however_large_the_state_in_them(self):
        position = EventsPosition(2**63, b"x" * PACKED_MAX_BYTES, "f" * 16)
        assert decode_events_cursor(encode_cursor("runs.events", position)) == position

    async def test_refuse_a_cursor_of_another_run_or_of_one_that_was_replaced(self, client, clock):
        for id in ("a", "b"):
            await client.submit(asking, 0, id=id)
            await client.runs.pause(id)
        cursor = (await client.runs.events("a", limit=1)).next
        clock.advance(timedelta(seconds=1))
        await client.submit(asking, 1, id="a", on_conflict="replace")
        await client.runs.pause("a")

        for id in ("a", "b"):
            with refused("argument.cursor", perdure.InvalidInput):
                await client.runs.events(id, cursor=cursor)

    async def test_refuse_a_cursor_before_the_first(self, client):
        await client.submit(asking, 0, id="a")
        with refused("argument.cursor", perdure.InvalidInput):
            await client.runs.events("a", cursor=encode_cursor("runs.events", (-1, b"", "")))


class TestJobs:
    @pytest.mark.parametrize(
        "operation, asked",
        [
            ("get", {"queries.get_job": 1}),
            ("explain", {"queries.explain_facts": 1}),  # without limits
            ("cancel", {"admin.change_jobs": 1}),
            # A change that is announced also checks for subscribers.
            ("disable", {"admin.change_jobs": 1, "live.subscribers": 1}),
        ],
    )
    async def test_take_one(self, client, store, operation, asked):
        job = await client.enqueue(add, 1)
        async with counted(store) as (ours, counting):
            await getattr(ours.jobs, operation)(job.id)
        assert reads(counting) == asked


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
            with refused("argument.cursor", perdure.InvalidInput):
                await client.runs.list(cursor=each)
        with refused("argument.cursor", perdure.InvalidInput):
            await client.jobs.list(cursor=cursor)


# What people and outside parties ask about a long run does not read its whole log.


ITEMS = 300
VALUE_BYTES = 2_000
READ_MAX_BYTES = 150_000


"""Far below the total size of the map's items, and far above what was asked for."""


@task
def make(number: int) -> str:
    return "x" * VALUE_BYTES


long = (
    Flow("long")
    .map(make, name="made")
    .approve("Fine?", name="review", deciders=["ann", "bob"], policy="all", data={"n": 1})
    .then(keep)
    .wait_for_signal("go")
    .build()
)

reported = Flow("reported").then(hand_over).map(make, name="made").wait_for_signal("go").build()


class WatchedStore(CountedStore):
    """Counts the bytes of the logs that are read, too."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.bytes = 0

    async def count(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        answer = await super().count(name, method, args, kwargs)
        if name in ("runs.load", "runs.latest_events", "runs.event_values"):
            self.bytes += _size(answer)
        return answer


def _size(answer: Any) -> int:
    match answer:
        case bytes():
            return len(answer)
        case StoredEvent():
            return len(answer.data) + len(answer.value or b"")
        case LoadedRun():
            return _size(answer.events) + (len(answer.snapshot.data) if answer.snapshot else 0)
        case dict():
            return sum(_size(each) for each in answer.values())
        case list():
            return sum(_size(each) for each in answer)
        case _:
            return 0


class TestApprovalsOfALongRun:
    async def test_of_a_long_run_are_read_from_the_end_of_its_log(self, client, store, clock):
        """Who answered what and when is there all the same, open and decided."""
        run = await client.submit(long, list(range(ITEMS)), id="long")
        async with worker_at(store, [long]):
            await until(run, RunStatus.WAITING)
        opened_at = (await client.approvals.list())[0].opened_at
        clock.advance(timedelta(minutes=3))
        watched = WatchedStore(store)

        async with AsyncClient(watched.as_store()) as ours:
            open_ = await ours.approvals.get("long:review")
            [unanswered] = await ours.approvals.list("ann")
            assert watched.calls["runs.load"] == 0
            assert watched.calls["runs.latest_events"] == 2
            assert watched.bytes < READ_MAX_BYTES

            first = await ours.approvals.decide("long:review", "approve", by="ann", note="fine")
            answered_at = clock()
            clock.advance(timedelta(minutes=3))
            [asked] = await ours.approvals.list("bob")
            assert watched.calls["queries.explain_facts"] == 1  # what the decision itself needs

            second = await ours.approvals.decide("long:review", "approve", by="bob")
            assert watched.calls["queries.explain_facts"] == 2
            assert watched.calls["runs.load"] == 0
            decided = await ours.approvals.get("long:review")

        assert unanswered == open_
        assert (open_.opened_at, open_.answers) == (opened_at, ())
        assert asked == first
        assert [(each.by, each.note, each.at) for each in asked.answers] == [
            ("ann", "fine", answered_at)
        ]
        assert decided == second
        assert [each.at for each in decided.answers] == [answered_at, clock()]
        assert (decided.status, decided.decision) == ("decided", "approve")
        assert (decided.opened_at, decided.decided_at) == (opened_at, clock())

    async def test_are_found_however_much_came_after(self, client, store):
        """Further back in the log than one page."""
        flow = (
            Flow("after").approve("Fine?", name="review").delay("1d").wait_for_signal("go").build()
        )
        run = await client.submit(flow, 1, id="after")
        await client.approvals.decide("after:review", "approve", by="ann")
        for number in range(2 * LOG_PAGE):
            await run.signal("go", number)
        watched = WatchedStore(store)

        async with AsyncClient(watched.as_store()) as ours:
            record = await ours.approvals.get("after:review")

        assert [each.by for each in record.answers] == ["ann"]
        assert watched.calls["runs.latest_events"] == 3


class TestReports:
    async def test_that_come_too_late_find_the_one_that_counts_without_values_of_others(
        self, client, store
    ):
        run = await client.submit(reported, 7, id="long")
        async with worker_at(store, [reported]):
            await until(run, RunStatus.WAITING)
            items = list(range(ITEMS))
            await client.runs.report(
                "long", "hand_over", status="completed", result=items, key="r-1"
            )
            async for event in run.watch():
                if event.type == "node_completed" and event.node == "made":
                    break
        watched = WatchedStore(store)

        async with AsyncClient(watched.as_store()) as ours:
            live = await ours.runs.report("long", "hand_over", status="failed", error="no")
            assert watched.calls["runs.load"] == 1  # what the report itself needs
            await client.runs.cancel("long")
            with_key = await ours.runs.report(
                "long", "hand_over", status="completed", result=1, key="r-1"
            )
            without = await ours.runs.report("long", "hand_over", status="completed", result=1)

        assert (live.outcome, with_key.outcome) == (ReportOutcome.IGNORED, ReportOutcome.REPEATED)
        assert live.first is not None
        assert live.first.result == items
        assert (without.outcome, without.first) == (ReportOutcome.IGNORED, live.first)
