"""Waits whose time has come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timezone

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import RunId
from perdure.model.run import NewWait, Wait, WaitType
from perdure.store.contract import Store
from tests.conformance.builders import HOUR, MINUTE, SECOND
from tests.conformance.run_builders import (
    NAMESPACE,
    OTHER_NAMESPACE,
    PAUSED,
    RUN,
    approval,
    child_wait,
    due_keys,
    go_on,
    outside,
    signal,
    submit,
    timer,
)


class TestMaintenanceDueWaits:
    async def test_are_those_whose_time_has_come(self, store: Store, clock: ManualClock) -> None:
        ask = NewWait(key="ask", type=WaitType.SIGNAL, name="approval", delay=MINUTE)
        opened_at = clock()
        await submit(store, waits=(ask, timer(delay=HOUR), child_wait()))

        clock.advance(MINUTE - SECOND)
        assert await store.maintenance.due_waits(NAMESPACE, 10) == []
        clock.advance(SECOND)

        assert await store.maintenance.due_waits(NAMESPACE, 10) == [
            Wait(
                run=RUN,
                namespace=NAMESPACE,
                key="ask",
                type=WaitType.SIGNAL,
                name="approval",
                opened_at=opened_at,
                due_at=clock(),
            )
        ]

    async def test_tell_who_decides_and_what_they_need_to_know(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(
            store, waits=(approval(deciders=("ann", "bob"), detail=b"form", delay=SECOND),)
        )
        clock.advance(SECOND)

        [wait] = await store.maintenance.due_waits(NAMESPACE, 10)

        assert (wait.type, wait.name) == (WaitType.APPROVAL, "Ship it?")
        assert (wait.deciders, wait.detail) == (("ann", "bob"), b"form")

    @pytest.mark.parametrize("new", [approval, outside, signal, timer])
    async def test_are_of_any_kind_and_given_a_delay_or_a_time(
        self, store: Store, clock: ManualClock, new: Callable[..., NewWait]
    ) -> None:
        await submit(
            store,
            waits=(
                new("delay", delay=SECOND),
                new("time", due_at=clock() + 2 * SECOND),
                new("later", due_at=clock() + MINUTE),
                new("never"),
            ),
        )

        clock.advance(2 * SECOND)

        assert await due_keys(store) == ["delay", "time"]

    async def test_come_at_a_time_that_is_given_in_any_zone(
        self, store: Store, clock: ManualClock
    ) -> None:
        east = timezone(5 * HOUR)
        await submit(store, waits=(approval(due_at=(clock() + SECOND).astimezone(east)),))
        assert await due_keys(store) == []

        clock.advance(SECOND)

        [wait] = await store.maintenance.due_waits(NAMESPACE, 10)
        assert wait.due_at == clock()

    async def test_are_put_off_by_one_that_takes_their_place(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(approval(delay=SECOND),))
        clock.advance(SECOND)
        assert await due_keys(store) == ["check"]

        await go_on(store, waits=(approval(delay=MINUTE),))

        assert await due_keys(store) == []
        clock.advance(MINUTE)
        assert await due_keys(store) == ["check"]

    async def test_are_due_in_a_held_run_if_opened_after_it_was_held(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Holding is an act on what is there; what comes later comes from somebody who knows."""
        await submit(store, waits=(approval(delay=SECOND), timer(delay=SECOND)))
        await go_on(store, suspend=True, status=PAUSED)

        await go_on(store, waits=(approval(delay=SECOND), signal(delay=SECOND)), status=PAUSED)
        clock.advance(SECOND)

        assert sorted(await due_keys(store)) == ["ask", "check"]

    async def test_come_earliest_first_up_to_the_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        delays = {"third": 3, "first": 1, "fifth": 5, "second": 2, "fourth": 4}
        for key, minutes in delays.items():
            await submit(store, id=RunId(f"of-{key}"), waits=(timer(key, delay=minutes * MINUTE),))
        clock.advance(4 * MINUTE)

        due = await store.maintenance.due_waits(NAMESPACE, 3)

        assert [wait.key for wait in due] == ["first", "second", "third"]
        assert await due_keys(store) == ["first", "second", "third", "fourth"]

    async def test_stay_until_they_are_closed(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer(delay=SECOND),))
        clock.advance(SECOND)

        assert await due_keys(store) == await due_keys(store) == ["delay"]
        await go_on(store, close_waits=("delay",))
        assert await due_keys(store) == []

    async def test_are_due_at_once_without_a_delay_to_wait_out(self, store: Store) -> None:
        await submit(store, waits=(timer(delay=0 * SECOND),))

        assert await due_keys(store) == ["delay"]

    async def test_are_none_of_another_namespace(self, store: Store, clock: ManualClock) -> None:
        await submit(store, namespace=OTHER_NAMESPACE, waits=(timer(delay=SECOND),))
        clock.advance(SECOND)

        assert await due_keys(store) == []
        assert await due_keys(store, OTHER_NAMESPACE) == ["delay"]


class TestTheNextWaitInASurvey:
    async def test_is_the_earliest_of_the_namespace(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer("late", delay=HOUR), timer("soon", delay=MINUTE)))
        await submit(store, namespace=OTHER_NAMESPACE, waits=(timer(delay=SECOND),))
        due_at = clock() + MINUTE

        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == due_at
        clock.advance(HOUR)
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == due_at

    async def test_is_none_of_a_run_that_is_paused(self, store: Store, clock: ManualClock) -> None:
        due_at = clock() + MINUTE
        await submit(store, waits=(timer(delay=MINUTE),))

        await go_on(store, suspend=True, status=PAUSED)
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at is None
        await go_on(store, suspend=False)
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == due_at

    async def test_is_none_without_a_wait_that_has_a_time(self, store: Store) -> None:
        await submit(store, waits=(child_wait(), timer(delay=SECOND)))

        await go_on(store, close_waits=("delay",))

        poll = await store.maintenance.poll(NAMESPACE)
        assert (poll.next_wait_at, poll.next_due_at) == (None, None)
