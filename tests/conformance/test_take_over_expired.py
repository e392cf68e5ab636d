"""What becomes of jobs whose worker died or was cut off."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.job import Status, TakenOver
from perdure.model.outcome import Completed, Requeued
from perdure.store.contract import Store
from perdure.store.failures import lease_expired
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    SECOND,
    WORKER,
    claim,
    claim_ids,
    claim_one,
    hold,
    insert,
    put_in,
    read,
    record_of,
    settle,
)

MAX_CRASHES = 3


class TestMaintenanceTakeOverExpired:
    async def test_puts_the_job_back_into_the_queue_with_its_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        ready_at = clock()
        held = await hold(store)
        clock.advance(SECOND)
        behind = await insert(store)
        clock.advance(LEASE)

        taken = await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES)

        [attempt] = await store.queries.failed_attempts(held.id)
        assert taken == [
            TakenOver(
                id=held.id,
                namespace=NAMESPACE,
                partition=PARTITION,
                worker=WORKER,
                attempt=1,
                after=Status.WAITING,
                failure=attempt.failure,
            )
        ]
        job = await read(store, held.id)
        assert (job.status, job.ready_at, job.worker) == (Status.WAITING, ready_at, None)
        assert job.lease_until is None
        assert await claim_ids(store) == [held.id, behind]

    async def test_counts_a_death_and_no_failure(self, store: Store, clock: ManualClock) -> None:
        held = await hold(store)
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES)

        job = await read(store, held.id)
        assert (job.attempt, job.failures, job.crashes) == (1, 0, 1)
        [again] = (await claim(store)).jobs
        assert (again.attempt, again.failures, again.snoozes) == (2, 0, 0)

    async def test_leaves_a_trace_in_the_history_that_names_the_worker(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES)

        [death] = await store.queries.failed_attempts(held.id)
        assert death.failure == lease_expired(WORKER)
        assert death.failure.code == "job.lease_expired"
        assert (death.attempt, death.worker, death.at) == (1, WORKER, clock())

    async def test_makes_the_old_claim_stale(self, store: Store, clock: ManualClock) -> None:
        stale = await hold(store)
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES)

        assert (await read(store, stale.id)).epoch > stale.epoch
        assert (await store.jobs.renew(WORKER, [stale], LEASE)).lost == {stale.id}
        assert await settle(store, stale, Completed(output=b"late")) is None
        assert await settle(store, stale, Requeued()) is None

    async def test_buries_a_job_that_killed_its_workers_too_often(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store)
        afters = []
        for _ in range(MAX_CRASHES):
            await claim_one(store)
            clock.advance(LEASE)
            [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES)
            afters.append(taken.after)

        assert afters == [Status.WAITING, Status.WAITING, Status.DEAD]
        job, state, _ = await record_of(store, id)
        assert job is not None
        assert state is not None
        assert (job.finished_at, job.crashes) == (clock(), MAX_CRASHES)
        assert state.failure == lease_expired(WORKER)
        assert await claim_ids(store) == []

    async def test_ends_an_aborting_job_cancelled(self, store: Store, clock: ManualClock) -> None:
        held = await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])
        clock.advance(LEASE)

        [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10, 1)

        assert taken.after is Status.CANCELLED
        job = await read(store, held.id)
        assert (job.status, job.finished_at) == (Status.CANCELLED, clock())
        assert (await store.jobs.check([held])).lost == {held.id}

    async def test_leaves_a_job_whose_lease_lasts(self, store: Store, clock: ManualClock) -> None:
        held = await hold(store, lease=MINUTE)
        clock.advance(MINUTE - SECOND)

        assert await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES) == []
        assert await settle(store, held, Completed(output=b"1")) is Status.COMPLETED

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.ACTIVE, Status.ABORTING}))
    async def test_leaves_a_job_that_nobody_holds(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)
        clock.advance(HOUR)

        assert await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES) == []
        assert await record_of(store, there.id) == before

    async def test_takes_the_longest_expired_first_up_to_the_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        third = await hold(store, lease=3 * MINUTE)
        first = await hold(store, lease=1 * MINUTE, worker=OTHER_WORKER)
        second = await hold(store, lease=2 * MINUTE)
        clock.advance(HOUR)

        taken = await store.maintenance.take_over_expired(NAMESPACE, 2, MAX_CRASHES)
        assert {each.id for each in taken} == {first.id, second.id}
        [last] = await store.maintenance.take_over_expired(NAMESPACE, 2, MAX_CRASHES)
        assert last.id == third.id
