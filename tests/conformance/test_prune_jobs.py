"""Removing finished jobs after their time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.clock import ManualClock
from perdure.model.job import FINISHED, JobFilter, Status
from perdure.model.outcome import Completed
from perdure.store.contract import Store
from tests.conformance.builders import (
    HOUR,
    MINUTE,
    NAMESPACE,
    SECOND,
    claim_one,
    hold,
    insert,
    put_in,
    record_of,
    settle,
)

NOTHING_KEPT = dict.fromkeys(FINISHED, timedelta(0))


class TestMaintenancePruneJobs:
    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_removes_a_job_that_finished_longer_ago_than_its_status_is_kept(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        ended = await put_in(store, status)
        keep = dict.fromkeys(FINISHED, 9 * HOUR) | {status: HOUR}
        clock.advance(HOUR - SECOND)
        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 0
        clock.advance(2 * SECOND)

        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 1
        assert await record_of(store, ended.id) == (None, None, [])

    async def test_counts_from_when_the_job_finished_and_from_no_other_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store)
        clock.advance(HOUR)
        held = await claim_one(store, lease=9 * HOUR)
        clock.advance(HOUR)
        await settle(store, held, Completed(output=b"1"))
        clock.advance(MINUTE)

        assert (
            await store.maintenance.prune_jobs(NAMESPACE, {Status.COMPLETED: 2 * MINUTE}, 10) == 0
        )
        clock.advance(2 * MINUTE)
        assert (
            await store.maintenance.prune_jobs(NAMESPACE, {Status.COMPLETED: 2 * MINUTE}, 10) == 1
        )

    async def test_keeps_for_ever_what_is_not_named(self, store: Store, clock: ManualClock) -> None:
        ended = await put_in(store, Status.DEAD)
        clock.advance(10_000 * HOUR)

        assert (
            await store.maintenance.prune_jobs(
                NAMESPACE, {Status.COMPLETED: HOUR, Status.FAILED: HOUR}, 10
            )
            == 0
        )
        assert await store.maintenance.prune_jobs(NAMESPACE, {}, 10) == 0
        assert (await record_of(store, ended.id))[0] is not None

    @pytest.mark.parametrize("status", sorted(set(Status) - FINISHED))
    async def test_leaves_jobs_that_are_not_finished(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)
        clock.advance(HOUR)

        assert await store.maintenance.prune_jobs(NAMESPACE, NOTHING_KEPT, 10) == 0
        assert await record_of(store, there.id) == before

    async def test_takes_no_more_than_the_limit(self, store: Store, clock: ManualClock) -> None:
        for status in sorted(FINISHED):
            await put_in(store, status)
            await put_in(store, status)
        clock.advance(HOUR)

        removed = []
        while count := await store.maintenance.prune_jobs(NAMESPACE, NOTHING_KEPT, 3):
            removed.append(count)

        assert max(removed) <= 3
        assert sum(removed) == 8
        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_lets_the_same_job_be_inserted_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store, fingerprint="once", group="run-1")
        await settle(store, held, Completed(output=b"1"))
        clock.advance(HOUR)
        await store.maintenance.prune_jobs(NAMESPACE, NOTHING_KEPT, 10)

        assert await insert(store, id=held.id, fingerprint="once") == held.id
        assert (await claim_one(store)).epoch == 1
