"""How far held jobs have come."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.model.job import Claim, Progress, Status
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    LEASE,
    NAMESPACE,
    OTHER_WORKER,
    claim_ids,
    hold,
    put_in,
    read,
    record_of,
)


class TestJobsSaveProgress:
    async def test_keeps_the_latest_of_held_jobs(self, store: Store) -> None:
        first, second = await hold(store), await hold(store)
        await store.jobs.save_progress(
            [(first, Progress(percent=10)), (second, Progress(percent=20))]
        )

        latest = Progress(percent=55.5, message="half way ☃", details={"done": 1})
        await store.jobs.save_progress([(first, latest)])

        job, state, _ = await record_of(store, first.id)
        assert job is not None
        assert state is not None
        assert (job.progress, state.progress) == (latest, latest)
        assert (await read(store, second.id)).progress == Progress(percent=20)

    @pytest.mark.parametrize("details", [None, 0, False, "", [], {}, [None], {"a": [1, 2.5]}])
    async def test_keeps_details_as_they_are(self, store: Store, details: Any) -> None:
        held = await hold(store)

        await store.jobs.save_progress([(held, Progress(percent=1, details=details))])

        kept = (await read(store, held.id)).progress.details
        assert (kept, type(kept)) == (details, type(details))

    async def test_replaces_message_and_details_by_nothing(self, store: Store) -> None:
        held = await hold(store)
        told = Progress(percent=1, message="half way", details={"done": 1})
        await store.jobs.save_progress([(held, told)])

        await store.jobs.save_progress([(held, Progress(percent=2))])

        assert (await read(store, held.id)).progress == Progress(percent=2)

    async def test_ignores_that_of_a_stale_claim_and_keeps_the_others(
        self, store: Store, clock: ManualClock
    ) -> None:
        stale = await hold(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10, 3)
        await claim_ids(store, worker=OTHER_WORKER)
        held = await hold(store)
        before = await record_of(store, stale.id)

        await store.jobs.save_progress([(stale, Progress(percent=99)), (held, Progress(percent=3))])

        assert await record_of(store, stale.id) == before
        assert (await read(store, held.id)).progress.percent == 3

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.ACTIVE, Status.ABORTING}))
    async def test_ignores_that_of_a_job_nobody_holds(self, store: Store, status: Status) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)

        await store.jobs.save_progress([(there, Progress(percent=99))])

        assert await record_of(store, there.id) == before

    async def test_keeps_that_of_a_job_asked_to_stop(self, store: Store) -> None:
        held = await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])

        await store.jobs.save_progress([(held, Progress(percent=70, message="stopping"))])

        assert (await read(store, held.id)).progress.message == "stopping"

    async def test_takes_no_progress_at_all(self, store: Store) -> None:
        await store.jobs.save_progress([])

    async def test_ignores_a_job_that_is_gone(self, store: Store) -> None:
        held = await hold(store)

        gone = Claim(id=type(held.id)("gone"), epoch=1)
        await store.jobs.save_progress([(gone, Progress(percent=1)), (held, Progress(percent=2))])

        assert (await read(store, held.id)).progress.percent == 2
