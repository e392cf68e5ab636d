"""Starting finished jobs anew, and putting released ones back into the queue."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.errors import FingerprintTaken
from perdure.model.job import JobFilter, Progress, Status, StatusChange
from perdure.model.outcome import Completed, DeadLettered, Parked, Retried
from perdure.model.partition import Partition
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    claim,
    claim_ids,
    claim_one,
    failure,
    hold,
    insert,
    put_in,
    read,
    record_of,
    settle,
    status_of,
)

RETRIABLE = [Status.FAILED, Status.DEAD, Status.CANCELLED]


class TestRetrying:
    @pytest.mark.parametrize("status", RETRIABLE)
    async def test_starts_the_job_anew(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        ended = await put_in(store, status)
        clock.advance(HOUR)

        moved = await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [ended.id])

        assert moved == [StatusChange(id=ended.id, before=status, after=Status.WAITING)]
        job = await read(store, ended.id)
        assert (job.finished_at, job.worker, job.ready_at) == (None, None, clock())
        again = await claim_one(store)
        assert await settle(store, again, Completed(output=b"2")) is Status.COMPLETED
        assert (await store.queries.job_states([ended.id]))[ended.id].failure is None

    async def test_counts_failures_postponements_and_deaths_from_zero(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store)
        await settle(store, await claim_one(store), Retried(failure=failure()))
        await settle(store, await claim_one(store), Retried(failure=failure(), is_snoozed=True))
        await claim_one(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10, 3)
        last = await claim_one(store)
        await settle(store, last, DeadLettered(failure=failure()))

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [id])

        [job] = (await claim(store)).jobs
        assert (job.failures, job.snoozes, (await read(store, id)).crashes) == (0, 0, 0)
        assert job.claim.epoch > last.epoch, "old claims stay stale"

    async def test_forgets_the_deadline(self, store: Store, clock: ManualClock) -> None:
        id = await insert(store, deadline=MINUTE)
        clock.advance(HOUR)
        await store.maintenance.expire_deadlines(NAMESPACE, 10)

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [id])

        assert (await read(store, id)).deadline_at is None
        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 10)) == 0
        assert await claim_ids(store) == [id]

    async def test_keeps_the_history_of_failures(self, store: Store) -> None:
        held = await hold(store)
        await settle(store, held, DeadLettered(failure=failure("first life")))
        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [held.id])
        await settle(store, await claim_one(store), DeadLettered(failure=failure("second life")))

        history = await store.queries.failed_attempts(held.id)

        assert [each.failure.message for each in history] == ["first life", "second life"]

    async def test_starts_its_progress_anew(self, store: Store) -> None:
        held = await hold(store)
        await store.jobs.save_progress([(held, Progress(percent=80, message="nearly"))])
        await settle(store, held, DeadLettered(failure=failure()))

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [held.id])

        assert (await read(store, held.id)).progress == Progress(percent=0)

    async def test_begins_its_waiting_anew(self, store: Store, clock: ManualClock) -> None:
        ended = await put_in(store, Status.DEAD)
        clock.advance(MINUTE)
        waiting = await insert(store)
        clock.advance(MINUTE)

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [ended.id])

        assert await claim_ids(store) == [waiting, ended.id]

    async def test_does_not_hold_off_the_worker_that_failed_it(self, store: Store) -> None:
        held = await hold(store)
        await settle(store, held, Retried(failure=failure(), hold_off=HOUR))
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [held.id])

        assert await claim_ids(store) == [held.id]

    async def test_raises_when_a_live_job_has_its_fingerprint_and_retries_none(
        self, store: Store
    ) -> None:
        other = await put_in(store, Status.DEAD)
        ended = await put_in(store, Status.DEAD, fingerprint="once")
        rival = await insert(store, fingerprint="once")

        with pytest.raises(FingerprintTaken) as caught:
            await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [other.id, ended.id])

        assert (caught.value.fingerprint, caught.value.job_id) == ("once", rival)
        assert await status_of(store, ended.id) is Status.DEAD
        assert await status_of(store, other.id) is Status.DEAD

    async def test_does_not_mind_a_live_job_of_another_queue_with_its_fingerprint(
        self, store: Store
    ) -> None:
        ended = await put_in(store, Status.DEAD, fingerprint="once")
        await insert(store, fingerprint="once", partition=Partition(queue="other", task="send"))

        [moved] = await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [ended.id])

        assert moved.after is Status.WAITING

    async def test_makes_its_fingerprint_taken_again(self, store: Store) -> None:
        ended = await put_in(store, Status.DEAD, fingerprint="once")
        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [ended.id])

        assert await insert(store, fingerprint="once") == ended.id

    async def test_raises_when_two_of_them_have_one_fingerprint(self, store: Store) -> None:
        first = await put_in(store, Status.DEAD, fingerprint="once")
        second = await put_in(store, Status.FAILED, fingerprint="once")

        with pytest.raises(FingerprintTaken) as caught:
            await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [first.id, second.id])

        assert caught.value.job_id == first.id
        assert await store.queries.count_jobs(JobFilter(status=Status.WAITING)) == 0

    @pytest.mark.parametrize("status", sorted(set(Status) - set(RETRIABLE)))
    async def test_leaves_any_other_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await put_in(store, status, fingerprint="once")
        before = await record_of(store, there.id)

        moved = await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await record_of(store, there.id) == before


class TestResuming:
    async def test_puts_a_released_job_back_with_its_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        await settle(store, held, Parked())
        clock.advance(MINUTE)
        behind = await insert(store)

        moved = await store.admin.change_jobs(Transition.RESUME, NAMESPACE, [held.id])

        assert moved == [StatusChange(id=held.id, before=Status.PAUSED, after=Status.WAITING)]
        assert await claim_ids(store) == [held.id, behind]

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.PAUSED}))
    async def test_leaves_any_other_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)

        moved = await store.admin.change_jobs(Transition.RESUME, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await record_of(store, there.id) == before
