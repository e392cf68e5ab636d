"""What people and outside parties ask about a long run does not read its whole log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from perdure import AsyncClient, Flow, ReportOutcome, RunStatus, task
from perdure.model.event import StoredEvent
from perdure.model.run import LoadedRun
from perdure.operations.run_log import LOG_PAGE
from perdure.store.contract import Store
from tests.client.counted_store import CountedStore
from tests.client.people import hand_over, keep
from tests.client.runs import until, worker_at

ITEMS = 300
VALUE_BYTES = 2_000
READ_MAX_BYTES = 150_000
"""Far below what the values of the map's items come to, and far above what was asked for."""


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


class TestApprovals:
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
