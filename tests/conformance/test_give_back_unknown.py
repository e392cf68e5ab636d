"""Claims whose answer never reached the worker."""

from __future__ import annotations

from perdure.clock import ManualClock
from perdure.model.job import Status
from perdure.model.outcome import Completed
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    WORKER,
    claim,
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


class TestJobsRequeueUnknown:
    async def test_gives_back_what_the_worker_holds_and_does_not_know_of(
        self, store: Store, clock: ManualClock
    ) -> None:
        known, unknown = await hold(store), await hold(store)
        ready_at = clock()
        clock.advance(MINUTE)
        behind = await insert(store)
        before = await record_of(store, known.id)

        assert await store.jobs.requeue_unknown(WORKER, [known.id]) == 1

        job = await read(store, unknown.id)
        assert (job.status, job.attempt, job.worker) == (Status.WAITING, 0, None)
        assert (job.ready_at, job.lease_until, job.crashes) == (ready_at, None, 0)
        assert await record_of(store, known.id) == before
        assert await claim_ids(store) == [unknown.id, behind]

    async def test_makes_the_lost_claim_stale(self, store: Store) -> None:
        unknown = await hold(store)
        await store.jobs.requeue_unknown(WORKER, [])

        assert await settle(store, unknown, Completed(output=b"1")) is None
        assert (await read(store, unknown.id)).epoch > unknown.epoch

    async def test_leaves_what_other_workers_hold(self, store: Store) -> None:
        theirs = await hold(store, worker=OTHER_WORKER)

        assert await store.jobs.requeue_unknown(WORKER, []) == 0
        assert await status_of(store, theirs.id) is Status.ACTIVE

    async def test_cancels_what_was_asked_to_stop(self, store: Store, clock: ManualClock) -> None:
        held = await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])

        assert await store.jobs.requeue_unknown(WORKER, []) == 1

        job = await read(store, held.id)
        assert (job.status, job.finished_at) == (Status.CANCELLED, clock())

    async def test_touches_nothing_that_is_not_held(self, store: Store) -> None:
        there = [
            await put_in(store, status)
            for status in sorted(set(Status) - {Status.ACTIVE, Status.ABORTING, Status.WAITING})
        ]
        before = [await record_of(store, each.id) for each in there]

        assert await store.jobs.requeue_unknown(WORKER, []) == 0
        assert [await record_of(store, each.id) for each in there] == before

    async def test_gives_back_many_at_once(self, store: Store) -> None:
        ids = await insert_many(store, 50)
        await claim(store)

        assert await store.jobs.requeue_unknown(WORKER, ids[:10]) == 40
        assert await claim_ids(store) == ids[10:]
