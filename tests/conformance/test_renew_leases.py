"""How holders keep their claims, and learn that they lost one."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import JobId
from perdure.model.job import Claim, Status
from perdure.model.outcome import Completed
from perdure.model.worker import Renewal
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    SECOND,
    WORKER,
    claim,
    claim_ids,
    hold,
    insert_many,
    put_in,
    read,
    record_of,
    settle,
    status_of,
)

ALL_KEPT = Renewal(lost=frozenset(), aborting=frozenset())


def lost(*claims: Claim) -> Renewal:
    return Renewal(lost=frozenset(claim.id for claim in claims), aborting=frozenset())


class TestJobsRenew:
    async def test_extends_the_leases_of_all_claims(self, store: Store, clock: ManualClock) -> None:
        await insert_many(store, 3)
        claims = [job.claim for job in (await claim(store)).jobs]
        clock.advance(10 * SECOND)

        assert await store.jobs.renew(WORKER, claims, MINUTE) == ALL_KEPT

        for each in claims:
            assert (await read(store, each.id)).lease_until == clock() + MINUTE

    async def test_leaves_other_jobs_of_the_worker_alone(
        self, store: Store, clock: ManualClock
    ) -> None:
        renewed = await hold(store)
        other = await hold(store)
        before = await record_of(store, other.id)
        clock.advance(SECOND)

        await store.jobs.renew(WORKER, [renewed], LEASE)

        assert await record_of(store, other.id) == before

    async def test_keeps_a_renewed_job_from_being_taken_over(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        for _ in range(5):
            clock.advance(LEASE - SECOND)
            await store.jobs.renew(WORKER, [held], LEASE)

        assert await store.maintenance.take_over_expired(NAMESPACE, 10, 3) == []
        assert await settle(store, held, Completed(output=b"1")) is Status.COMPLETED

    async def test_reports_a_claim_that_is_not_current_as_lost_and_leaves_its_row(
        self, store: Store, clock: ManualClock
    ) -> None:
        stale = await hold(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10, 3)
        await claim_ids(store, worker=OTHER_WORKER)
        before = await record_of(store, stale.id)
        clock.advance(SECOND)

        assert await store.jobs.renew(WORKER, [stale], MINUTE) == lost(stale)
        assert await record_of(store, stale.id) == before

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.ACTIVE, Status.ABORTING}))
    async def test_reports_a_job_that_nobody_holds_as_lost(
        self, store: Store, status: Status
    ) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)

        assert await store.jobs.renew(WORKER, [there], MINUTE) == lost(there)
        assert await record_of(store, there.id) == before

    async def test_reports_a_job_that_is_gone_as_lost(self, store: Store) -> None:
        gone = Claim(id=JobId("gone"), epoch=1)
        held = await hold(store)

        assert await store.jobs.renew(WORKER, [gone, held], MINUTE) == lost(gone)

    async def test_renews_and_reports_an_aborting_job(
        self, store: Store, clock: ManualClock
    ) -> None:
        held, aborting = await hold(store), await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [aborting.id])
        clock.advance(SECOND)

        renewal = await store.jobs.renew(WORKER, [held, aborting], MINUTE)

        assert renewal == Renewal(lost=frozenset(), aborting=frozenset({aborting.id}))
        assert (await read(store, aborting.id)).lease_until == clock() + MINUTE

    async def test_takes_no_claims_at_all(self, store: Store) -> None:
        assert await store.jobs.renew(WORKER, [], LEASE) == ALL_KEPT


class TestJobsCheck:
    async def test_gives_the_answer_of_renewing_and_writes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        held, aborting = await hold(store), await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [aborting.id])
        stale = Claim(id=held.id, epoch=0)
        before = await record_of(store, held.id), await record_of(store, aborting.id)
        clock.advance(SECOND)

        assert await store.jobs.check([held]) == ALL_KEPT
        assert await store.jobs.check([stale]) == lost(stale)
        assert await store.jobs.check([held, aborting]) == Renewal(
            lost=frozenset(), aborting=frozenset({aborting.id})
        )
        assert await store.jobs.check([]) == ALL_KEPT
        after = await record_of(store, held.id), await record_of(store, aborting.id)
        assert after == before

    async def test_reports_a_disabled_job_as_lost(self, store: Store) -> None:
        held = await hold(store)
        await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [held.id])

        assert await store.jobs.check([held]) == lost(held)
        assert await status_of(store, held.id) is Status.DISABLED
