"""What a worker reads before it decides: events, values and snapshots."""

from __future__ import annotations

from typing import Any

from perdure.clock import ManualClock
from perdure.model.event import StoredEvent
from perdure.model.ids import RunId
from perdure.model.run import Snapshot
from perdure.store.contract import EventsAfter, EventsBefore, Store
from tests.conformance.builders import SECOND
from tests.conformance.run_builders import (
    CONFLICT,
    NAMESPACE,
    OTHER_NAMESPACE,
    RUN,
    commit,
    event,
    go_on,
    load,
    read_run,
    submit,
)
from tests.conformance.threads import THREADS, at_once


async def run_of(store: Store, count: int, **changes: Any) -> None:
    await submit(store)
    events = tuple(event(f"e{number}", f"v{number}") for number in range(2, count + 1))
    await go_on(store, events=events, **changes)


class TestRunsLoad:
    async def test_gives_the_run_with_its_events(self, store: Store, clock: ManualClock) -> None:
        await submit(store)
        started_at = clock()
        clock.advance(SECOND)
        await go_on(store, events=(event("two"),))

        [loaded] = await store.runs.load([EventsAfter(namespace=NAMESPACE, id=RUN)])

        assert loaded is not None
        assert loaded.run == await read_run(store)
        assert loaded.snapshot is None
        assert loaded.events == [
            StoredEvent(number=1, at=started_at, data=b'{"type":"submitted"}', value=b'"input"'),
            StoredEvent(number=2, at=clock(), data=b'{"type":"two"}', value=None),
        ]

    async def test_begins_with_the_snapshot_if_there_is_one(self, store: Store) -> None:
        await run_of(store, 5, snapshot=Snapshot(number=3, data=b"three"))

        loaded = await load(store, number=None)

        assert loaded.snapshot == Snapshot(number=3, data=b"three")
        assert [each.number for each in loaded.events] == [4, 5]

    async def test_gives_the_events_after_a_number_and_no_snapshot(self, store: Store) -> None:
        await run_of(store, 5, snapshot=Snapshot(number=3, data=b"three"))

        loaded = [await load(store, number=number) for number in (0, 2, 5, 9)]

        numbers = [[event.number for event in each.events] for each in loaded]
        assert numbers == [[1, 2, 3, 4, 5], [3, 4, 5], [], []]
        assert {each.snapshot for each in loaded} == {None}
        assert {each.run.number for each in loaded} == {5}

    async def test_answers_in_the_order_asked_with_none_for_what_is_not_there(
        self, store: Store
    ) -> None:
        first, second = RunId("first"), RunId("second")
        await submit(store, id=first)
        await submit(store, id=second)
        await submit(store, id=first, namespace=OTHER_NAMESPACE, flow="theirs")

        loaded = await store.runs.load(
            [
                EventsAfter(namespace=NAMESPACE, id=second, number=0),
                EventsAfter(namespace=NAMESPACE, id=RunId("nobody")),
                EventsAfter(namespace=OTHER_NAMESPACE, id=first),
                EventsAfter(namespace=OTHER_NAMESPACE, id=second),
                EventsAfter(namespace=NAMESPACE, id=first, number=1),
                EventsAfter(namespace=NAMESPACE, id=second, number=1),
            ]
        )

        found = [
            None if each is None else (each.run.namespace, each.run.id, len(each.events))
            for each in loaded
        ]
        assert found == [
            (NAMESPACE, second, 1),
            None,
            (OTHER_NAMESPACE, first, 1),
            None,
            (NAMESPACE, first, 0),
            (NAMESPACE, second, 0),
        ]
        assert await store.runs.load([]) == []

    async def test_is_one_consistent_view_of_a_run(self, store: Store) -> None:
        """While others write, its number is that of the last event each time."""
        await submit(store)

        async def work(handle: Store, writer: int) -> None:
            for _ in range(25):
                loaded = await load(handle)
                last = loaded.events[-1].number
                assert (loaded.run.number, len(loaded.events)) == (last, last)
                if writer % 2:
                    events = (event("one"), event("two"))
                    result = await commit(handle, last, events=events)
                    assert result.state in ("done", CONFLICT)

        await at_once(store, work)

        assert (await read_run(store)).number > THREADS

    async def test_reads_a_long_run(self, store: Store) -> None:
        await run_of(store, 3000, snapshot=Snapshot(number=2990, data=b"x"))

        assert [each.number for each in (await load(store)).events] == list(range(1, 3001))
        assert len((await load(store, number=None)).events) == 10


class TestRunsLatestEvents:
    async def test_are_read_from_the_end_without_their_values(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        clock.advance(SECOND)
        await go_on(store, events=(event("two", "large"), event("three")))

        [found] = await store.runs.latest_events([EventsBefore(namespace=NAMESPACE, id=RUN)], 2)

        assert found == [
            StoredEvent(number=3, at=clock(), data=b'{"type":"three"}'),
            StoredEvent(number=2, at=clock(), data=b'{"type":"two"}'),
        ]

    async def test_go_on_before_a_number(self, store: Store) -> None:
        await run_of(store, 5)

        pages = await store.runs.latest_events(
            [
                EventsBefore(namespace=NAMESPACE, id=RUN, number=number)
                for number in (5, 3, 2, 1, 0, 99)
            ],
            2,
        )

        numbers = [[each.number for each in page] for page in pages]
        assert numbers == [[4, 3], [2, 1], [1], [], [], [5, 4]]

    async def test_are_in_the_order_asked_and_none_of_what_is_not_there(self, store: Store) -> None:
        first, second = RunId("first"), RunId("second")
        await submit(store, id=first)
        await submit(store, id=second)
        await go_on(store, run=second, events=(event("two"),))

        found = await store.runs.latest_events(
            [
                EventsBefore(namespace=NAMESPACE, id=second),
                EventsBefore(namespace=NAMESPACE, id=RunId("nobody")),
                EventsBefore(namespace=OTHER_NAMESPACE, id=first),
                EventsBefore(namespace=NAMESPACE, id=first),
                EventsBefore(namespace=NAMESPACE, id=second, number=2),
            ],
            10,
        )

        assert [[each.number for each in page] for page in found] == [[2, 1], [], [], [1], [1]]
        assert await store.runs.latest_events([], 10) == []


class TestRunsEventValues:
    async def test_are_those_of_the_events_asked_for(self, store: Store) -> None:
        await run_of(store, 4)

        values = await store.runs.event_values(NAMESPACE, RUN, [4, 1, 3])

        assert values == {1: b'"input"', 3: b'"v3"', 4: b'"v4"'}

    async def test_leave_out_events_without_one_and_events_that_are_not_there(
        self, store: Store
    ) -> None:
        await submit(store)
        await go_on(store, events=(event("none"), event("null", "")))

        assert await store.runs.event_values(NAMESPACE, RUN, [0, 2, 3, 9]) == {3: b'""'}
        assert await store.runs.event_values(NAMESPACE, RunId("nobody"), [1]) == {}
        assert await store.runs.event_values(OTHER_NAMESPACE, RUN, [1]) == {}
        assert await store.runs.event_values(NAMESPACE, RUN, []) == {}
