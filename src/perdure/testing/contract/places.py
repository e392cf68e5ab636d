"""Places of flows that limit how many of their runs are in progress (``max_running``)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.model.hint import HintType
from perdure.model.ids import RUN_START, RunId
from perdure.model.run import CommitState, NewRun, PlaceChange, Priorities, RunStatus
from perdure.model.settings import RunSettings
from perdure.store.admission import rank_of
from perdure.store.contract import AuditStore, Store
from perdure.store.contract.audit import AuditedPlace
from perdure.testing.contract.builders import (
    AGING,
    CANCELLED,
    COMPLETED,
    DONE,
    FAILED,
    FLOW,
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_NAMESPACE,
    PAUSED,
    QUEUED,
    RUNNING,
    SECOND,
    WAITING,
    new_child,
    new_run,
    read_run,
    step,
    timer,
)
from perdure.testing.contract.handles import Listener

FULL = CommitState.FULL


def queued_run(id: str, limit: int = 1, key: str = "", **changes: Any) -> NewRun:
    settings = RunSettings(max_running=limit, running_key=key)
    waits = (timer(RUN_START),)
    given = {"status": QUEUED, "settings": settings, "waits": waits, "aging": AGING, **changes}
    return new_run(id=RunId(id), **given)


async def submit(store: Store, *ids: str, **changes: Any) -> None:
    for id in ids:
        await store.runs.submit(queued_run(id, **changes))


async def commit(store: Store, id: str, key: str = "", **changes: Any) -> CommitState:
    """One step of a run, with its place."""
    namespace = changes.get("namespace", NAMESPACE)
    run = await read_run(store, RunId(id), namespace)
    place = PlaceChange(key=f"{FLOW}@{key}", aging=AGING)
    given = {"status": RUNNING, "place": place, **changes}
    answer = await store.runs.commit([step(run.number, run=RunId(id), **given)])
    return answer.results[0].state


async def start(store: Store, id: str, key: str = "", **changes: Any) -> CommitState:
    given = {"is_started": True, "close_waits": (RUN_START,), **changes}
    return await commit(store, id, key, **given)


async def due(store: Store, namespace: str = NAMESPACE) -> set[str]:
    waits = await store.maintenance.due_waits(namespace, 100)
    return {wait.run for wait in waits if wait.key == RUN_START}


class TestPlacesOfRuns:
    async def test_are_offered_to_as_many_as_there_are(self, store: Store) -> None:
        await submit(store, "a", "b", "c", limit=2)

        assert await due(store) == {"a", "b"}
        assert [await start(store, id) for id in ("a", "b", "c")] == [DONE, DONE, FULL]

        run = await read_run(store, RunId("c"))
        assert (run.status, run.number, run.started_at) == (QUEUED, 1, None)
        assert await due(store) == set()

    async def test_are_checked_for_each_run_of_a_batch(self, store: Store) -> None:
        await submit(store, "a", "b", "c", limit=2)
        place = PlaceChange(key=f"{FLOW}@", aging=AGING)
        steps = [
            step(run=RunId(id), is_started=True, close_waits=(RUN_START,), place=place)
            for id in ("c", "b", "a")
        ]

        answer = await store.runs.commit(steps)

        assert [result.state for result in answer.results] == [FULL, DONE, DONE]

    @pytest.mark.parametrize("status", [WAITING, PAUSED, RunStatus.COMPENSATING])
    async def test_are_held_until_the_end_whatever_the_run_does(
        self, store: Store, status: RunStatus
    ) -> None:
        await submit(store, "a", "b")
        await start(store, "a")

        await commit(store, "a", status=status)

        assert await start(store, "b") is FULL
        assert await due(store) == set()

    @pytest.mark.parametrize("status", [COMPLETED, FAILED, CANCELLED])
    async def test_go_to_the_next_run_with_the_commit_that_ends_one(
        self, store: Store, second: Store, status: RunStatus
    ) -> None:
        await submit(store, "a", "b", "c")
        await start(store, "a")
        listeners = [Listener(handle) for handle in (store, second)]

        await commit(store, "a", status=status)

        assert await due(store) == {"b"}
        for listener in listeners:
            await listener.receives(HintType.DUE)
        assert await start(store, "b") is DONE

    async def test_go_to_the_lowest_rank_and_age(self, store: Store, clock: ManualClock) -> None:
        await submit(store, "a")
        await start(store, "a")
        await submit(store, "low", priority=4)
        clock.advance(AGING - SECOND)
        await submit(store, "normal", priority=3)
        clock.advance(2 * SECOND)
        await submit(store, "later", priority=3)

        ended, order = "a", []
        for _ in range(3):
            await commit(store, ended, status=COMPLETED)
            [ended] = await due(store)
            order.append(ended)
            assert await start(store, ended) is DONE

        assert order == ["normal", "low", "later"]

    async def test_are_not_taken_ahead_of_a_run_that_is_next(self, store: Store) -> None:
        await submit(store, "a", "b")
        await start(store, "a")
        await commit(store, "a", status=COMPLETED)

        await submit(store, "c")

        assert await due(store) == {"b"}
        assert await start(store, "c") is FULL

    @pytest.mark.parametrize("other", [{"key": "x"}, {"namespace": OTHER_NAMESPACE}])
    async def test_are_counted_by_key_and_namespace(
        self, store: Store, other: dict[str, str]
    ) -> None:
        await submit(store, "a", "b")
        await start(store, "a")
        await submit(store, "z", **other)

        assert await start(store, "z", **other) is DONE
        assert await commit(store, "z", status=COMPLETED, **other) is DONE
        assert await due(store) == set()

    async def test_are_counted_across_versions(self, store: Store) -> None:
        await submit(store, "a", version="v1")
        await submit(store, "b", version="v2")

        assert [await start(store, id) for id in "ab"] == [DONE, FULL]

    async def test_are_limited_by_each_runs_own_bound_in_order(self, store: Store) -> None:
        await submit(store, "a", "b")
        await submit(store, "c", limit=3)
        await submit(store, "urgent", limit=3, priority=1)
        await start(store, "urgent")

        assert await start(store, "c") is FULL  # a is ahead, and has no place
        await commit(store, "urgent", status=COMPLETED)
        await start(store, "a")
        assert await start(store, "c") is FULL  # b is ahead
        await commit(store, "a", status=COMPLETED)
        assert await start(store, "b") is DONE
        assert await due(store) == {"c"}

    async def test_are_looked_for_by_a_run_that_has_waited_for_its_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        settings = RunSettings(max_running=1, delay_ms=60_000)
        await submit(store, "late", settings=settings, waits=(timer(RUN_START, delay=MINUTE),))
        await submit(store, "a")
        await start(store, "a")
        clock.advance(MINUTE)
        assert await due(store) == {"late"}

        assert await start(store, "late") is FULL
        assert await due(store) == set()
        clock.advance(SECOND)
        await submit(store, "b")
        await commit(store, "a", status=COMPLETED)

        assert await due(store) == {"late"}

    async def test_are_freed_by_a_run_that_is_replaced(self, store: Store) -> None:
        await submit(store, "a", "b")
        await start(store, "a")

        await submit(store, "a", key="x", on_existing="replace")

        assert await due(store) == {"a", "b"}

    async def test_are_freed_by_the_only_run_of_a_key_when_it_is_replaced(
        self, store: Store
    ) -> None:
        await submit(store, "a")
        await start(store, "a")
        async with asyncio.timeout(10):  # a store may look again for the place to lock
            await submit(store, "a", key="x", on_existing="replace")
        assert await due(store) == {"a"}

    async def test_are_queued_for_again_by_a_run_that_is_retried(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, "a", "b", "c")
        await start(store, "a")
        await commit(store, "a", status=FAILED)
        await start(store, "b")
        clock.advance(SECOND)

        await commit(store, "a", status=QUEUED, is_started=False, waits=(timer(RUN_START),))
        retried = await read_run(store, RunId("a"))
        await commit(store, "b", status=COMPLETED)

        assert (retried.started_at, retried.finished_at) == (None, None)
        assert await due(store) == {"c"}
        await start(store, "c")
        await commit(store, "c", status=COMPLETED)
        assert await due(store) == {"a"}

    async def test_are_left_to_others_by_a_run_that_is_paused_or_cancelled(
        self, store: Store
    ) -> None:
        await submit(store, "a", "b", "c")
        assert await due(store) == {"a"}

        await commit(store, "a", status=PAUSED, suspend=True)
        assert await due(store) == {"b"}
        await commit(store, "b", status=CANCELLED, cancel_all=True)
        assert await due(store) == {"c"}
        await start(store, "c")
        await commit(store, "a", status=QUEUED, suspend=False)
        await start(store, "a")
        await commit(store, "c", status=COMPLETED)

        assert await due(store) == {"a"}

    async def test_follow_a_change_of_priority(self, store: Store) -> None:
        await submit(store, "a", "b", "c")
        await start(store, "a")

        changed = Priorities(run=1, jobs=(), aging=AGING)
        await commit(store, "c", status=QUEUED, priorities=changed)
        await commit(store, "a", status=COMPLETED)

        assert await due(store) == {"c"}

    async def test_are_taken_once_by_a_commit_that_is_repeated(self, store: Store) -> None:
        await submit(store, "a")
        place = PlaceChange(key=f"{FLOW}@", aging=AGING)
        first = step(run=RunId("a"), is_started=True, close_waits=(RUN_START,), place=place)

        states = [(await store.runs.commit([first])).results[0].state for _ in range(2)]

        assert states == [DONE, DONE]
        assert (await read_run(store, RunId("a"))).number == 2

    async def test_are_not_needed_without_a_bound(self, store: Store) -> None:
        await store.runs.submit(new_run(children=(new_child(),)))

        facts = await store.queries.explain_facts(NAMESPACE, run=new_run().id)

        assert facts.place_holders == ()

    async def test_are_found_after_the_clock_was_set_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, "a")
        await submit(store, "late", key="x", waits=(timer(RUN_START, delay=HOUR),))
        clock.advance(-MINUTE)
        assert await due(store) == set()

        await store.maintenance.bound_times(NAMESPACE, LEASE)

        assert "a" in await due(store)

    async def test_name_who_holds_them(self, store: Store, clock: ManualClock) -> None:
        await submit(store, "z", "a", limit=2)
        for id in ("z", "a"):
            await start(store, id)
            clock.advance(SECOND)
        await submit(store, "b", limit=2)

        facts = await store.queries.explain_facts(NAMESPACE, run=RunId("b"))
        of_holder = await store.queries.explain_facts(NAMESPACE, run=RunId("a"))

        assert facts.place_holders == ("z", "a")
        assert of_holder.place_holders == ()


class TestConcurrentStarts:
    async def test_share_out_the_places(self, store: Store, second: Store) -> None:
        ids = [f"run-{number}" for number in range(8)]
        await submit(store, *ids, limit=3)

        states = await asyncio.gather(
            *(start((store, second)[number % 2], id) for number, id in enumerate(ids))
        )

        assert (states.count(DONE), states.count(FULL)) == (3, 5)

    async def test_lose_no_run_that_is_queued_while_another_ends(
        self, store: Store, second: Store
    ) -> None:
        for number in range(20):
            held, queued = f"held-{number}", f"queued-{number}"
            await submit(store, held, key=str(number))
            await start(store, held, str(number))

            await asyncio.gather(
                commit(store, held, str(number), status=COMPLETED),
                submit(second, queued, key=str(number)),
            )

            assert queued in await due(store)


class TestAuditPlaces:
    async def test_gives_who_holds_one_and_who_waits(
        self, store: Store, audit: AuditStore, clock: ManualClock
    ) -> None:
        await submit(store, "a", "b", "c", limit=2)
        await start(store, "a")
        await submit(store, "z", namespace=OTHER_NAMESPACE)

        found = {str(each.run): each for each in await audit.places(NAMESPACE)}

        assert found.keys() == {"a", "b", "c"}
        rank = rank_of(clock(), 3, AGING)
        assert found["b"] == AuditedPlace(
            namespace=NAMESPACE,
            key=f"{FLOW}@",
            run=RunId("b"),
            limit=2,
            started_at=None,
            rank=rank,
            is_due=True,
        )
        assert (found["a"].started_at, found["a"].is_due) == (clock(), False)
        assert not found["c"].is_due
        assert len(await audit.places(None)) == 4
