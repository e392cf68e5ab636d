"""Removing runs that ended long ago."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.clock import ManualClock
from perdure.model.event import Parent
from perdure.model.ids import RunId
from perdure.model.run import ENDED, RunFilter, RunStatus, Snapshot
from perdure.store.contract import EventsAfter, Store
from tests.conformance.builders import HOUR, MINUTE, SECOND
from tests.conformance.run_builders import (
    CANCELLED,
    CHILD,
    COMPLETED,
    FAILED,
    NAMESPACE,
    OTHER_NAMESPACE,
    RUN,
    WAITING,
    child_wait,
    commit,
    due_keys,
    go_on,
    load,
    new_child,
    node_job,
    read_run,
    submit,
    timer,
)

KEEP = dict.fromkeys(ENDED, HOUR)


async def prune(store: Store, limit: int = 10) -> int:
    return await store.maintenance.prune_runs(NAMESPACE, KEEP, limit)


async def left(store: Store) -> set[str]:
    return {run.id for run in await store.queries.list_runs(RunFilter(), 100)}


class TestMaintenancePruneRuns:
    @pytest.mark.parametrize("status", sorted(ENDED))
    async def test_removes_runs_that_ended_longer_ago(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store)
        clock.advance(MINUTE)
        await go_on(store, status=status)

        clock.advance(HOUR - SECOND)
        assert await prune(store) == 0
        clock.advance(SECOND)
        assert await prune(store) == 1

        assert (await store.queries.get_runs([(NAMESPACE, RUN)]))[0] is None
        assert await prune(store) == 0

    async def test_removes_all_that_is_kept_of_them(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(child_wait("left", RunId("gone")), timer(delay=SECOND)))
        await go_on(store, snapshot=Snapshot(number=2, data=b"two"))
        await go_on(store, status=FAILED)
        clock.advance(HOUR)
        assert await prune(store) == 1

        assert await store.runs.load([EventsAfter(namespace=NAMESPACE, id=RUN)]) == [None]
        assert await store.runs.event_values(NAMESPACE, RUN, [1, 2]) == {}
        assert await store.queries.run_waits(NAMESPACE, RUN) == []
        assert await due_keys(store) == []
        assert (await commit(store, 3)).state == "conflict"
        await submit(store)
        loaded = await load(store, number=None)
        assert (loaded.snapshot, [each.number for each in loaded.events]) == (None, [1])

    @pytest.mark.parametrize("status", sorted(set(RunStatus) - ENDED))
    async def test_leaves_runs_that_have_not_ended(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store, status=status)
        clock.advance(1000 * HOUR)

        assert await prune(store) == 0
        assert (await read_run(store)).status is status

    async def test_keeps_each_status_for_its_own_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        for status in (COMPLETED, FAILED, CANCELLED):
            await submit(store, id=RunId(status), status=status)
        clock.advance(HOUR)

        keep: dict[RunStatus, timedelta] = {COMPLETED: HOUR, FAILED: 2 * HOUR}
        assert await store.maintenance.prune_runs(NAMESPACE, keep, 10) == 1

        assert await left(store) == {FAILED, CANCELLED}

    async def test_counts_from_the_last_end_of_a_run_that_was_retried(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        await go_on(store, status=FAILED)
        clock.advance(MINUTE)
        await go_on(store)
        clock.advance(HOUR)
        assert await prune(store) == 0

        await go_on(store, status=COMPLETED)
        clock.advance(HOUR - SECOND)
        assert await prune(store) == 0

    async def test_takes_those_that_ended_first_up_to_the_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        for id in ("c", "a", "b"):
            await submit(store, id=RunId(id), status=COMPLETED)
            clock.advance(SECOND)
        clock.advance(HOUR)

        assert await prune(store, 2) == 2
        assert await left(store) == {"b"}
        assert await prune(store, 2) == 1

    async def test_leaves_other_namespaces_alone(self, store: Store, clock: ManualClock) -> None:
        await submit(store, namespace=OTHER_NAMESPACE, status=COMPLETED)
        clock.advance(HOUR)

        assert await prune(store) == 0
        assert await left(store) == {RUN}


class TestPruningParents:
    async def test_removes_children_with_their_parent_and_not_before(
        self, store: Store, clock: ManualClock
    ) -> None:
        below = RunId("below")
        grandchild = new_child(id=below, parent=Parent(run=CHILD, key="label"), status=COMPLETED)
        child = new_child(status=COMPLETED, children=(grandchild,))
        await submit(store, waits=(child_wait(),), children=(child,))
        clock.advance(HOUR)
        assert await prune(store) == 0
        await go_on(store, status=COMPLETED)
        clock.advance(HOUR)

        await prune(store)

        assert await left(store) == set()
        loaded = await store.runs.load(
            [EventsAfter(namespace=NAMESPACE, id=id) for id in (RUN, CHILD, below)]
        )
        assert loaded == [None, None, None]

    async def test_keeps_a_parent_while_a_child_goes_on(
        self, store: Store, clock: ManualClock
    ) -> None:
        """It failed, and its child is still being cancelled and undone."""
        child = new_child(jobs=(node_job("undo:print", run=CHILD),))
        await submit(store, waits=(child_wait(),), children=(child,))
        await go_on(store, cancel_all=True, status=FAILED)
        clock.advance(HOUR)

        assert await prune(store) == 0
        assert await left(store) == {RUN, CHILD}
        await go_on(store, run=CHILD, cancel_all=True, status=CANCELLED)
        await prune(store)
        assert await left(store) == set()

    async def test_keeps_a_parent_while_a_grandchild_goes_on(
        self, store: Store, clock: ManualClock
    ) -> None:
        below = RunId("below")
        grandchild = new_child(id=below, parent=Parent(run=CHILD, key="label"), status=WAITING)
        child = new_child(status=COMPLETED, children=(grandchild,))
        await submit(store, status=COMPLETED, children=(child,))
        clock.advance(HOUR)

        assert await prune(store) == 0
        assert await left(store) == {RUN, CHILD, below}
        await go_on(store, run=below, status=COMPLETED)
        await prune(store)
        assert await left(store) == set()

    async def test_goes_past_parents_that_have_to_be_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        child = new_child(status=WAITING)
        await submit(store, status=COMPLETED, children=(child,))
        clock.advance(SECOND)
        await submit(store, id=RunId("other"), status=COMPLETED)
        clock.advance(HOUR)

        assert await prune(store, 1) == 1
        assert await left(store) == {RUN, CHILD}
