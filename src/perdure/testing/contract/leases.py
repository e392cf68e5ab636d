"""Leases: renewing and checking claims, requeueing unknown ones, taking over expired ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.ids import JobId
from perdure.model.job import Claim, JobFilter, Status, TakenOver
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed, Outcome, Parked, Requeued, Retried
from perdure.model.partition import UNSUSPECTED, Suspicion, with_suspicion
from perdure.model.worker import Renewal
from perdure.store.contract import Store
from perdure.store.failures import lease_expired, worker_restarted
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    SECOND,
    SUSPECTED,
    WORKER,
    claim,
    claim_ids,
    claim_new,
    claim_one,
    failure,
    insert,
    insert_in_status,
    insert_many,
    job_record,
    read_job,
    request,
    settle,
    status_of,
)

# Renewing and checking


ALL_KEPT = Renewal(lost=frozenset(), aborting=frozenset())


def lost(*claims: Claim, is_disabled: bool = False) -> Renewal:
    ids = frozenset(claim.id for claim in claims)
    disabled = ids if is_disabled else frozenset[JobId]()
    return Renewal(lost=ids, aborting=frozenset(), disabled=disabled)


class TestJobsRenew:
    async def test_extends_the_leases_of_all_claims(self, store: Store, clock: ManualClock) -> None:
        await insert_many(store, 3)
        claims = [job.claim for job in (await claim(store)).jobs]
        clock.advance(10 * SECOND)

        assert await store.jobs.renew(WORKER, claims, MINUTE) == ALL_KEPT

        for each in claims:
            assert (await read_job(store, each.id)).lease_until == clock() + MINUTE

    async def test_leaves_other_jobs_of_the_worker_alone(
        self, store: Store, clock: ManualClock
    ) -> None:
        renewed = await claim_new(store)
        other = await claim_new(store)
        before = await job_record(store, other.id)
        clock.advance(SECOND)

        await store.jobs.renew(WORKER, [renewed], LEASE)

        assert await job_record(store, other.id) == before

    async def test_keeps_a_renewed_job_from_being_taken_over(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        for _ in range(5):
            clock.advance(LEASE - SECOND)
            await store.jobs.renew(WORKER, [claimed], LEASE)

        assert await store.maintenance.take_over_expired(NAMESPACE, 10) == []
        assert await settle(store, claimed, Completed(output=b"1")) is Status.COMPLETED

    async def test_reports_a_claim_that_is_not_current_as_lost_and_leaves_its_row(
        self, store: Store, clock: ManualClock
    ) -> None:
        stale = await claim_new(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)
        await claim_ids(store, worker=OTHER_WORKER)
        before = await job_record(store, stale.id)
        clock.advance(SECOND)

        assert await store.jobs.renew(WORKER, [stale], MINUTE) == lost(stale)
        assert await job_record(store, stale.id) == before

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.ACTIVE, Status.ABORTING}))
    async def test_reports_an_unclaimed_job_as_lost(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)

        renewal = await store.jobs.renew(WORKER, [there], MINUTE)

        assert renewal == lost(there, is_disabled=status is Status.DISABLED)
        assert await job_record(store, there.id) == before

    async def test_reports_a_job_that_is_gone_as_lost(self, store: Store) -> None:
        gone = Claim(id=JobId("gone"), epoch=1)
        claimed = await claim_new(store)

        assert await store.jobs.renew(WORKER, [gone, claimed], MINUTE) == lost(gone)

    async def test_renews_and_reports_an_aborting_job(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed, aborting = await claim_new(store), await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [aborting.id])
        clock.advance(SECOND)

        renewal = await store.jobs.renew(WORKER, [claimed, aborting], MINUTE)

        assert renewal == Renewal(lost=frozenset(), aborting=frozenset({aborting.id}))
        assert (await read_job(store, aborting.id)).lease_until == clock() + MINUTE

    async def test_takes_no_claims_at_all(self, store: Store) -> None:
        assert await store.jobs.renew(WORKER, [], LEASE) == ALL_KEPT


class TestJobsCheck:
    async def test_gives_the_answer_of_renewing_and_writes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed, aborting = await claim_new(store), await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [aborting.id])
        stale = Claim(id=claimed.id, epoch=0)
        before = await job_record(store, claimed.id), await job_record(store, aborting.id)
        clock.advance(SECOND)

        assert await store.jobs.check([claimed]) == ALL_KEPT
        assert await store.jobs.check([stale]) == lost(stale)
        assert await store.jobs.check([claimed, aborting]) == Renewal(
            lost=frozenset(), aborting=frozenset({aborting.id})
        )
        assert await store.jobs.check([]) == ALL_KEPT
        after = await job_record(store, claimed.id), await job_record(store, aborting.id)
        assert after == before

    async def test_reports_a_disabled_job_as_lost_and_disabled(self, store: Store) -> None:
        claimed, other = await claim_new(store), await claim_new(store)
        await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [claimed.id])

        assert await store.jobs.check([other, claimed]) == lost(claimed, is_disabled=True)
        assert await status_of(store, claimed.id) is Status.DISABLED


# Claims whose answer never reached the worker


class TestJobsRequeueUnknown:
    async def test_requeues_claims_that_the_worker_does_not_know_of(
        self, store: Store, clock: ManualClock
    ) -> None:
        known, unknown = await claim_new(store), await claim_new(store)
        ready_at = clock()
        clock.advance(MINUTE)
        behind = await insert(store)
        before = await job_record(store, known.id)

        assert await store.jobs.requeue_unknown(WORKER, [known.id]) == 1

        job = await read_job(store, unknown.id)
        assert (job.status, job.attempt, job.worker) == (Status.WAITING, 0, None)
        assert (job.ready_at, job.lease_until, job.crashes) == (ready_at, None, 0)
        assert await job_record(store, known.id) == before
        assert await claim_ids(store) == [unknown.id, behind]

    async def test_makes_the_lost_claim_stale(self, store: Store) -> None:
        unknown = await claim_new(store)
        await store.jobs.requeue_unknown(WORKER, [])

        assert await settle(store, unknown, Completed(output=b"1")) is None
        assert (await read_job(store, unknown.id)).epoch > unknown.epoch

    async def test_leaves_claims_of_other_workers(self, store: Store) -> None:
        theirs = await claim_new(store, worker=OTHER_WORKER)

        assert await store.jobs.requeue_unknown(WORKER, []) == 0
        assert await status_of(store, theirs.id) is Status.ACTIVE

    async def test_cancels_what_was_asked_to_stop(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        assert await store.jobs.requeue_unknown(WORKER, []) == 1

        job = await read_job(store, claimed.id)
        assert (job.status, job.finished_at) == (Status.CANCELLED, clock())

    async def test_touches_nothing_that_is_not_claimed(self, store: Store) -> None:
        there = [
            await insert_in_status(store, status)
            for status in sorted(set(Status) - {Status.ACTIVE, Status.ABORTING, Status.WAITING})
        ]
        before = [await job_record(store, each.id) for each in there]

        assert await store.jobs.requeue_unknown(WORKER, []) == 0
        assert [await job_record(store, each.id) for each in there] == before

    @pytest.mark.parametrize("rules", [(), (LimitRule(key="mailer", live_max=9),)])
    async def test_leaves_what_another_incarnation_claimed(
        self, store: Store, rules: tuple[LimitRule, ...]
    ) -> None:
        ids = await insert_many(store, 3)
        for incarnation in (1, 2, None):
            await claim_one(store, incarnation=incarnation, rules=rules)

        assert await store.jobs.requeue_unknown(WORKER, [], 2) == 1
        assert await claim_ids(store) == [ids[1]]
        assert await store.jobs.requeue_unknown(WORKER, []) == 2

    async def test_requeues_many_at_once(self, store: Store) -> None:
        ids = await insert_many(store, 50)
        await claim(store)

        assert await store.jobs.requeue_unknown(WORKER, ids[:10]) == 40
        assert await claim_ids(store) == ids[10:]


# Taking over jobs whose lease expired


class TestMaintenanceTakeOverExpired:
    async def test_puts_the_job_back_into_the_queue_with_its_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        ready_at = clock()
        claimed = await claim_new(store)
        clock.advance(SECOND)
        behind = await insert(store)
        clock.advance(LEASE)

        taken = await store.maintenance.take_over_expired(NAMESPACE, 10)

        [attempt] = await store.queries.failed_attempts(claimed.id)
        assert taken == [
            TakenOver(
                id=claimed.id,
                namespace=NAMESPACE,
                partition=PARTITION,
                worker=WORKER,
                epoch=claimed.epoch,
                attempt=1,
                after=Status.WAITING,
                failure=attempt.failure,
            )
        ]
        job = await read_job(store, claimed.id)
        assert (job.status, job.ready_at, job.worker) == (Status.WAITING, ready_at, None)
        assert job.lease_until is None
        suspects = request(suspicion=SUSPECTED).partitions
        again = await store.jobs.claim(
            replace(request(), partitions=[*request().partitions, *suspects])
        )
        assert [each.claim.id for each in again.jobs] == [claimed.id, behind]

    async def test_counts_a_crash_and_no_failure(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new(store)
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10)

        job = await read_job(store, claimed.id)
        assert (job.attempt, job.failures, job.crashes) == (1, 0, 1)
        [again] = (await claim(store, suspicion=SUSPECTED)).jobs
        assert (again.attempt, again.failures, again.snoozes) == (2, 0, 0)

    async def test_leaves_a_trace_in_the_history_that_names_the_worker(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10)

        [failed] = await store.queries.failed_attempts(claimed.id)
        assert failed.failure == lease_expired(WORKER)
        assert failed.failure.code == "job.lease_expired"
        assert (failed.attempt, failed.worker, failed.at) == (1, WORKER, clock())

    async def test_makes_the_old_claim_stale(self, store: Store, clock: ManualClock) -> None:
        stale = await claim_new(store)
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10)

        assert (await read_job(store, stale.id)).epoch > stale.epoch
        assert (await store.jobs.renew(WORKER, [stale], LEASE)).lost == {stale.id}
        assert await settle(store, stale, Completed(output=b"late")) is None
        assert await settle(store, stale, Requeued()) is None

    async def test_puts_suspects_into_partitions_of_their_own(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 35: a claim must not read past suspects, and takes them one by one."""
        first, second = await claim_new(store), await claim_new(store)
        await insert(store)
        await settle(store, second, Requeued())
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10)

        found = (await store.maintenance.poll(NAMESPACE)).partitions
        assert found == (PARTITION.text, with_suspicion(PARTITION.text, SUSPECTED))
        waiting = JobFilter(status=Status.WAITING, queue=PARTITION.queue, task=PARTITION.task)
        assert await store.queries.count_jobs(waiting) == 3
        [depth] = await store.admin.queue_stats(NAMESPACE)
        assert (depth.queue, depth.count) == (PARTITION.queue, 3)
        assert first.id not in await claim_ids(store)
        [job] = (await claim(store, suspicion=SUSPECTED)).jobs
        assert (job.claim.id, job.partition, job.suspicion) == (first.id, PARTITION, SUSPECTED)
        assert (await read_job(store, first.id)).suspicion == SUSPECTED

    @pytest.mark.parametrize("rules", [(), (LimitRule(key="mailer", live_max=9),)])
    async def test_counts_crashes_alone_and_never_condemns(
        self, store: Store, clock: ManualClock, rules: tuple[LimitRule, ...]
    ) -> None:
        """Finding 35: every job of a dead worker is charged, so only crashes alone are proof."""
        id, suspicion = await insert(store), UNSUSPECTED
        seen = []
        for is_alone in (True, False, True, True):
            await claim_one(store, suspicion=suspicion, rules=rules, is_alone=is_alone)
            clock.advance(LEASE)
            [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10)
            assert (taken.after, taken.partition) == (Status.WAITING, PARTITION)
            suspicion = (await read_job(store, id)).suspicion
            seen.append((suspicion.crashes, suspicion.alone))

        assert seen == [(1, 0), (2, 0), (3, 1), (4, 2)], "the first is never one alone"
        assert (await read_job(store, id)).crashes == 4

    @pytest.mark.parametrize("outcome", [Requeued(), Parked(), Retried(failure=failure())])
    async def test_is_remembered_after_an_attempt_without_a_crash(
        self, store: Store, clock: ManualClock, outcome: Outcome
    ) -> None:
        claimed = await claim_new(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)

        again = await claim_one(store, suspicion=SUSPECTED, is_alone=True)
        await settle(store, again, outcome)
        await store.admin.change_jobs(Transition.RESUME, NAMESPACE, [claimed.id])

        [job] = (await claim(store, suspicion=SUSPECTED, worker=OTHER_WORKER)).jobs
        assert job.claim.id == claimed.id
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)
        after = (await read_job(store, claimed.id)).suspicion
        assert after == Suspicion(crashes=2), "the last claim was not alone"

    async def test_ends_an_aborting_job_cancelled(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])
        clock.advance(LEASE)

        [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10)

        assert taken.after is Status.CANCELLED
        job = await read_job(store, claimed.id)
        assert (job.status, job.finished_at) == (Status.CANCELLED, clock())
        assert (await store.jobs.check([claimed])).lost == {claimed.id}

    async def test_leaves_a_job_whose_lease_lasts(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new(store, lease=MINUTE)
        clock.advance(MINUTE - SECOND)

        assert await store.maintenance.take_over_expired(NAMESPACE, 10) == []
        assert await settle(store, claimed, Completed(output=b"1")) is Status.COMPLETED

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.ACTIVE, Status.ABORTING}))
    async def test_leaves_an_unclaimed_job(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)
        clock.advance(HOUR)

        assert await store.maintenance.take_over_expired(NAMESPACE, 10) == []
        assert await job_record(store, there.id) == before

    async def test_takes_the_longest_expired_first_up_to_the_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        third = await claim_new(store, lease=3 * MINUTE)
        first = await claim_new(store, lease=1 * MINUTE, worker=OTHER_WORKER)
        second = await claim_new(store, lease=2 * MINUTE)
        clock.advance(HOUR)

        taken = await store.maintenance.take_over_expired(NAMESPACE, 2)
        assert {each.id for each in taken} == {first.id, second.id}
        [last] = await store.maintenance.take_over_expired(NAMESPACE, 2)
        assert last.id == third.id


class TestMaintenanceTakeOverFormer:
    async def test_takes_over_before_the_lease_expires_and_counts_a_crash(
        self, store: Store
    ) -> None:
        claimed = await claim_one_new(store, incarnation=1, is_alone=True)

        [taken] = await store.maintenance.take_over_former(NAMESPACE, WORKER, 2, 10)

        [crash] = await store.queries.failed_attempts(claimed.id)
        assert crash.failure == taken.failure == worker_restarted(WORKER)
        assert (taken.id, taken.worker, taken.after) == (claimed.id, WORKER, Status.WAITING)
        job = await read_job(store, claimed.id)
        assert (job.status, job.crashes, job.suspicion) == (Status.WAITING, 1, SUSPECTED)
        assert await settle(store, claimed, Completed(output=b"late")) is None
        assert await claim_ids(store) == [], "it waits among the suspects"

    async def test_counts_a_crash_alone(self, store: Store) -> None:
        claimed = await claim_one_new(store, incarnation=1)
        await store.maintenance.take_over_former(NAMESPACE, WORKER, 2, 10)
        await claim_one(store, suspicion=SUSPECTED, incarnation=2, is_alone=True)
        await store.maintenance.take_over_former(NAMESPACE, WORKER, 3, 10)

        assert (await read_job(store, claimed.id)).suspicion == Suspicion(crashes=2, alone=1)

    async def test_leaves_all_other_claims(self, store: Store) -> None:
        """Those of this incarnation, of none, of another worker and in another namespace."""
        others: list[dict[str, Any]] = [
            {"incarnation": 2},
            {"incarnation": None},
            {"incarnation": 1, "worker": OTHER_WORKER},
        ]
        held = [await claim_one_new(store, **each) for each in others]
        [theirs] = await insert_many(store, 1, namespace="team-b")
        await claim_one(store, namespace="team-b", incarnation=1)

        assert await store.maintenance.take_over_former(NAMESPACE, WORKER, 2, 10) == []
        assert {await status_of(store, each.id) for each in held} == {Status.ACTIVE}
        [taken] = await store.maintenance.take_over_former("team-b", WORKER, 2, 10)
        assert taken.id == theirs

    async def test_cancels_what_was_asked_to_stop(self, store: Store) -> None:
        claimed = await claim_one_new(store, incarnation=1)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        [taken] = await store.maintenance.take_over_former(NAMESPACE, WORKER, 2, 10)

        assert taken.after is Status.CANCELLED
        assert await status_of(store, claimed.id) is Status.CANCELLED

    async def test_takes_over_up_to_the_limit(self, store: Store) -> None:
        ids = await insert_many(store, 3)
        await claim(store, incarnation=1)

        first = await store.maintenance.take_over_former(NAMESPACE, WORKER, 2, 2)
        last = await store.maintenance.take_over_former(NAMESPACE, WORKER, 2, 2)

        assert [len(first), len(last)] == [2, 1]
        assert {each.id for each in [*first, *last]} == set(ids)


async def claim_one_new(store: Store, **changes: Any) -> Claim:
    """Insert a job and claim it as these changes of the request say."""
    await insert(store)
    return await claim_one(store, **changes)
