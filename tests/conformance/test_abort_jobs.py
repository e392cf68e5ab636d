"""Stopping jobs, one by one and by group."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, Status, StatusChange
from perdure.model.outcome import Completed
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    NAMESPACE,
    SECOND,
    claim_ids,
    hold,
    insert,
    insert_many,
    put_in,
    read,
    record_of,
    settle,
    status_of,
)

UNHELD = [Status.WAITING, Status.SCHEDULED, Status.PAUSED, Status.DISABLED]


class TestAdminChangeJobs:
    @pytest.mark.parametrize("status", UNHELD)
    async def test_cancels_an_unheld_job_at_once(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await put_in(store, status)
        clock.advance(SECOND)

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=Status.CANCELLED)]
        job = await read(store, there.id)
        assert (job.status, job.finished_at) == (Status.CANCELLED, clock())
        assert await claim_ids(store) == []

    async def test_makes_an_active_job_aborting_and_leaves_it_to_its_holder(
        self, store: Store
    ) -> None:
        held = await hold(store)
        lease_until = (await read(store, held.id)).lease_until

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])

        assert moved == [StatusChange(id=held.id, before=Status.ACTIVE, after=Status.ABORTING)]
        job = await read(store, held.id)
        assert (job.status, job.finished_at) == (Status.ABORTING, None)
        assert (job.epoch, job.lease_until) == (held.epoch, lease_until)

    async def test_does_not_let_a_job_that_ignores_it_overwrite_the_outcome(
        self, store: Store
    ) -> None:
        held = await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])

        assert await settle(store, held, Completed(output=b"1")) is Status.CANCELLED

        assert (await read(store, held.id)).output is None

    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_leaves_a_finished_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await record_of(store, there.id) == before

    async def test_changes_nothing_when_asked_twice(self, store: Store) -> None:
        held = await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])
        before = await record_of(store, held.id)

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])

        assert moved == [StatusChange(id=held.id, before=Status.ABORTING, after=Status.ABORTING)]
        assert await record_of(store, held.id) == before

    async def test_leaves_jobs_that_are_not_found_out_of_the_answer(self, store: Store) -> None:
        id = await insert(store)

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [JobId("gone"), id])

        assert [each.id for each in moved] == [id]
        assert await store.admin.change_jobs(Transition.ABORT, NAMESPACE, []) == []

    async def test_stops_many_at_once(self, store: Store) -> None:
        ids = await insert_many(store, 50)

        moved = await store.admin.change_jobs(Transition.ABORT, None, ids)

        assert {each.id for each in moved} == set(ids)
        assert {each.after for each in moved} == {Status.CANCELLED}


class TestAbortingAGroup:
    async def test_stops_every_unfinished_job_of_the_group_and_of_no_other(
        self, store: Store
    ) -> None:
        unheld = [await put_in(store, status, group="run-1") for status in UNHELD[1:]]
        held = await hold(store, group="run-1")
        waiting = await insert(store, group="run-1")
        others = [
            await insert(store, group="run-2"),
            await insert(store),
            await insert(store, group="run-1", namespace="team-b"),
        ]

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, group="run-1")

        assert {each.id: each.after for each in moved} == {
            **{each.id: Status.CANCELLED for each in unheld},
            held.id: Status.ABORTING,
            waiting: Status.CANCELLED,
        }
        for other in others:
            assert await status_of(store, other) is Status.WAITING

    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_leaves_its_finished_jobs(self, store: Store, status: Status) -> None:
        there = await put_in(store, status, group="run-1")
        before = await record_of(store, there.id)

        assert await store.admin.change_jobs(Transition.ABORT, NAMESPACE, group="run-1") == []
        assert await record_of(store, there.id) == before

    async def test_answers_nothing_for_a_group_without_jobs(self, store: Store) -> None:
        await insert(store)

        assert await store.admin.change_jobs(Transition.ABORT, NAMESPACE, group="nobody") == []

    @pytest.mark.parametrize(
        "operation,status,after",
        [
            (Transition.DISABLE, Status.WAITING, Status.DISABLED),
            (Transition.ENABLE, Status.DISABLED, Status.WAITING),
            (Transition.RESUME, Status.PAUSED, Status.WAITING),
            (Transition.RETRY, Status.WAITING, Status.WAITING),
        ],
    )
    async def test_any_other_operation_takes_a_group_as_well(
        self, store: Store, operation: Transition, status: Status, after: Status
    ) -> None:
        there = await put_in(store, status, group="run-1")
        other = await put_in(store, status, group="run-2")

        changes = await store.admin.change_jobs(operation, NAMESPACE, group="run-1")

        assert changes == [StatusChange(id=there.id, before=status, after=after)]
        assert await status_of(store, other.id) is status
