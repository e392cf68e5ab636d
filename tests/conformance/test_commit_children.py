"""Children: runs that a run starts, and whose end it waits for."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.event import Parent
from perdure.model.ids import RunId
from perdure.model.run import RunStatus
from perdure.store.contract import Store
from tests.conformance.builders import HOUR, MINUTE, SECOND
from tests.conformance.run_builders import (
    CANCELLED,
    CHILD,
    COMPLETED,
    DONE,
    FAILED,
    NAMESPACE,
    OTHER_NAMESPACE,
    RUN,
    RUNNING,
    WAITING,
    child_wait,
    due_keys,
    event,
    go_on,
    jobs_by_key,
    load,
    new_child,
    node_job,
    read_run,
    record_of_run,
    step,
    submit,
    timer,
    waits_by_key,
)


async def parent_with_child(store: Store) -> None:
    await submit(store)
    await go_on(store, waits=(child_wait(), timer(delay=HOUR)), children=(new_child(),))


class TestChildrenOfACommit:
    async def test_are_inserted_with_all_that_is_theirs(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        clock.advance(SECOND)
        below = RunId("below")
        child = new_child(
            jobs=(node_job("print", run=CHILD),),
            waits=(timer("truck", delay=MINUTE), child_wait("label", below)),
            children=(new_child(id=below, parent=Parent(run=CHILD, key="label")),),
        )

        await go_on(store, waits=(child_wait(),), children=(child,))

        run = await read_run(store, CHILD)
        assert (run.flow, run.version, run.status, run.number) == ("shipping", "v7", RUNNING, 1)
        assert (run.parent, run.created_at) == (Parent(run=RUN, key="ship"), clock())
        [first] = (await load(store, CHILD)).events
        assert (first.number, first.at, first.value) == (1, clock(), b'"parcel"')
        assert list(await jobs_by_key(store, CHILD)) == ["print"]
        assert (await waits_by_key(store, CHILD))["truck"].due_at == clock() + MINUTE
        assert (await read_run(store, below)).parent == Parent(run=CHILD, key="label")

    async def test_are_inserted_by_the_hundred(self, store: Store) -> None:
        await submit(store)
        children = tuple(
            new_child(
                id=RunId(f"child-{item}"),
                parent=Parent(run=RUN, key=f"ship[{item}]"),
                jobs=(node_job("print", run=RunId(f"child-{item}")),),
            )
            for item in range(300)
        )
        waits = tuple(child_wait(f"ship[{item}]", RunId(f"child-{item}")) for item in range(300))

        await go_on(store, children=children, waits=waits)

        assert len(await store.queries.run_waits(NAMESPACE, RUN)) == 300
        assert list(await jobs_by_key(store, RunId("child-299"))) == ["print"]

    async def test_leave_a_run_alone_that_has_their_id_already(self, store: Store) -> None:
        await submit(store, id=CHILD, jobs=(node_job("theirs", run=CHILD),))
        before = await record_of_run(store, CHILD)
        await submit(store)

        child = new_child(jobs=(node_job("print", run=CHILD),), waits=(timer(),))
        await go_on(store, waits=(child_wait(),), children=(child,))

        assert await record_of_run(store, CHILD) == before
        assert (await read_run(store)).number == 2

    async def test_may_be_over_at_once(self, store: Store, clock: ManualClock) -> None:
        await submit(store)
        child = new_child(status=FAILED, events=(event("submitted"), event("failed")))

        await go_on(store, waits=(child_wait(), timer(delay=HOUR)), children=(child,))

        assert (await read_run(store, CHILD)).finished_at == clock()
        assert await due_keys(store) == ["ship"]


class TestTheEndOfAChild:
    @pytest.mark.parametrize("status", [COMPLETED, FAILED, CANCELLED])
    async def test_makes_the_wait_of_its_parent_due_at_once(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await parent_with_child(store)
        clock.advance(SECOND)

        await go_on(store, run=CHILD, status=status)

        [wait] = await store.maintenance.due_waits(NAMESPACE, 10)
        assert (wait.run, wait.key, wait.name, wait.due_at) == (RUN, "ship", CHILD, clock())
        assert (await read_run(store)).number == 2, "the parent decides for itself"

    async def test_is_not_made_by_a_step_that_does_not_end_it(self, store: Store) -> None:
        await parent_with_child(store)

        await go_on(store, run=CHILD, status=WAITING)

        assert await due_keys(store) == []

    async def test_does_nothing_to_a_wait_for_another_run(self, store: Store) -> None:
        """An older child of the same key, which a retry left behind."""
        await parent_with_child(store)
        await go_on(store, close_waits=("ship",), waits=(child_wait("ship", RunId("newer")),))

        await go_on(store, run=CHILD, status=CANCELLED)

        assert await due_keys(store) == []
        assert (await waits_by_key(store))["ship"].due_at is None

    async def test_at_once_does_nothing_to_a_wait_for_another_run(self, store: Store) -> None:
        await submit(
            store,
            waits=(child_wait("ship", RunId("newer")),),
            children=(new_child(status=COMPLETED),),
        )

        assert await due_keys(store) == []

    async def test_does_nothing_to_a_wait_that_is_closed(self, store: Store) -> None:
        await parent_with_child(store)
        await go_on(store, close_waits=("ship",))

        await go_on(store, run=CHILD, status=COMPLETED)

        assert set(await waits_by_key(store)) == {"delay"}

    async def test_does_nothing_to_parents_of_that_id_elsewhere(self, store: Store) -> None:
        await submit(store, namespace=OTHER_NAMESPACE, waits=(child_wait(),))
        await parent_with_child(store)

        await go_on(store, run=CHILD, status=COMPLETED)

        assert await due_keys(store, OTHER_NAMESPACE) == []

    async def test_leaves_a_time_alone_that_has_come_already(
        self, store: Store, clock: ManualClock
    ) -> None:
        await parent_with_child(store)
        await go_on(store, cancel_all=True, status=FAILED)
        given_up_at = clock()
        clock.advance(MINUTE)

        await go_on(store, run=CHILD, status=CANCELLED)

        assert (await waits_by_key(store))["ship"].due_at == given_up_at

    async def test_of_many_may_be_committed_at_once(self, store: Store) -> None:
        await submit(store)
        ids = [RunId(f"child-{item}") for item in range(20)]
        await go_on(
            store,
            children=tuple(
                new_child(id=id, parent=Parent(run=RUN, key=f"ship[{item}]"))
                for item, id in enumerate(ids)
            ),
            waits=tuple(child_wait(f"ship[{item}]", id) for item, id in enumerate(ids)),
        )

        answer = await store.runs.commit([step(run=id, status=COMPLETED) for id in ids])

        assert {each.state for each in answer.results} == {DONE}
        assert set(await due_keys(store)) == {f"ship[{item}]" for item in range(20)}
