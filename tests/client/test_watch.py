"""Progress and changes of state, seen live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from perdure import JobNotFound, JobUpdate, Progress, Status
from tests.client.played_worker import PlayedWorker
from tests.client.tasks import add


class TestWatch:
    async def test_yields_the_state_now_and_after_each_change(self, client, worker):
        handle = await client.enqueue(add, 1)
        updates = handle.watch()

        assert (await anext(updates)).status is Status.WAITING
        job = await worker.claim()
        await worker.report(job, 50, "half way")
        half = await first_that(updates, lambda update: update.progress.percent == 50)
        assert (half.status, half.attempt) == (Status.ACTIVE, 1)
        assert half.progress == Progress(percent=50, message="half way")
        await worker.complete(job, 2)
        last = await anext(updates)
        assert (last.status, last.progress.percent, last.is_final) == (Status.COMPLETED, 100, True)
        with pytest.raises(StopAsyncIteration):
            await anext(updates)

    async def test_tells_that_a_job_was_claimed(self, client, worker):
        handle = await client.enqueue(add, 1)
        updates = handle.watch()
        await anext(updates)

        await worker.claim()

        assert (await anext(updates)).status is Status.ACTIVE
        await updates.aclose()

    async def test_of_a_finished_job_yields_once(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.fail(await worker.claim(), ValueError("no"))

        assert [update.status async for update in handle.watch()] == [Status.FAILED]

    async def test_tells_changes_that_come_too_fast_as_one(self, client, worker):
        handle = await client.enqueue(add, 1)
        updates = handle.watch()
        await anext(updates)
        job = await worker.claim()

        for percent in range(0, 100, 10):
            await worker.report(job, percent)
        await worker.complete(job)

        seen = [update async for update in updates]
        assert seen[-1].status is Status.COMPLETED
        assert_each_differs(seen)

    async def test_serves_several_watchers_of_one_job(self, client, worker):
        handle = await client.enqueue(add, 1)
        watchers = [handle.watch(), client.jobs.handle(handle.id).watch()]
        for updates in watchers:
            await anext(updates)

        await worker.complete(await worker.claim())

        for updates in watchers:
            await first_that(updates, lambda update: update.is_final)

    async def test_sees_what_another_handle_on_the_place_reports(self, store, client):
        handle = await client.enqueue(add, 1)
        updates = handle.watch()
        await anext(updates)
        elsewhere = store.clone()
        await elsewhere.open()

        worker = PlayedWorker(elsewhere)
        await worker.report(await worker.claim(), 30, "on my way")

        update = await first_that(updates, lambda update: update.progress.percent == 30)
        assert update.progress.message == "on my way"
        await updates.aclose()
        await elsewhere.close()

    async def test_of_an_unknown_job_says_so(self, client):
        with pytest.raises(JobNotFound):
            await anext(client.jobs.handle("nobody").watch())


class TestProgress:
    async def test_is_what_was_reported_last(self, client, worker):
        handle = await client.enqueue(add, 1)
        assert await handle.progress() == Progress(percent=0)

        await worker.report(await worker.claim(), 12.5, "an eighth")

        assert await handle.progress() == Progress(percent=12.5, message="an eighth")
        assert (await handle.record()).progress.message == "an eighth"


async def first_that(
    updates: AsyncIterator[JobUpdate], is_wanted: Callable[[JobUpdate], bool]
) -> JobUpdate:
    """Skip what comes before: that a job was claimed may be seen by itself, or not."""
    async for update in updates:
        if is_wanted(update):
            return update
    raise AssertionError("the updates ended without it")


def assert_each_differs(updates: list[JobUpdate]) -> None:
    assert all(before != after for before, after in pairwise(updates))
