"""Keeping jobs from running, and letting them run again."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import JobId
from perdure.model.job import Status, StatusChange
from perdure.model.outcome import Completed
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    HOUR,
    MINUTE,
    NAMESPACE,
    claim_ids,
    hold,
    insert,
    put_in,
    read,
    record_of,
    settle,
)

KEPT_FROM_RUNNING = [Status.WAITING, Status.SCHEDULED, Status.PAUSED, Status.ACTIVE]


class TestDisabling:
    @pytest.mark.parametrize("status", KEPT_FROM_RUNNING)
    async def test_keeps_a_job_from_running(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await put_in(store, status)

        moved = await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=Status.DISABLED)]
        job = await read(store, there.id)
        assert (job.status, job.finished_at, job.lease_until) == (Status.DISABLED, None, None)
        clock.advance(HOUR)
        await store.maintenance.promote_due(NAMESPACE, 10)
        assert await claim_ids(store) == []

    async def test_takes_an_active_job_from_its_holder(self, store: Store) -> None:
        held = await hold(store)

        await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [held.id])

        assert (await store.jobs.check([held])).lost == {held.id}
        assert await settle(store, held, Completed(output=b"late")) is None
        job = await read(store, held.id)
        assert (job.status, job.worker, job.output) == (Status.DISABLED, None, None)
        assert job.epoch > held.epoch

    @pytest.mark.parametrize("status", sorted(set(Status) - set(KEPT_FROM_RUNNING)))
    async def test_leaves_any_other_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)

        moved = await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await record_of(store, there.id) == before

    async def test_leaves_jobs_that_are_not_found_out_of_the_answer(self, store: Store) -> None:
        assert await store.admin.change_jobs(Transition.DISABLE, None, [JobId("gone")]) == []


class TestEnabling:
    async def test_makes_a_disabled_job_waiting_with_its_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = await insert(store)
        await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [first])
        clock.advance(MINUTE)
        second = await insert(store)

        moved = await store.admin.change_jobs(Transition.ENABLE, NAMESPACE, [first])

        assert moved == [StatusChange(id=first, before=Status.DISABLED, after=Status.WAITING)]
        assert await claim_ids(store) == [first, second]

    async def test_schedules_it_if_its_time_lies_ahead(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store, delay=MINUTE)
        await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [id])

        [moved] = await store.admin.change_jobs(Transition.ENABLE, NAMESPACE, [id])

        assert moved.after is Status.SCHEDULED
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 10)
        assert await claim_ids(store) == [id]

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.DISABLED}))
    async def test_leaves_any_other_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)

        moved = await store.admin.change_jobs(Transition.ENABLE, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await record_of(store, there.id) == before
