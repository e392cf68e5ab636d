"""Time as the caller sets it: delay, run_at, deadline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from perdure import InvalidInput, JobFailed, Status
from tests.client.tasks import add

HOUR = timedelta(hours=1)


class TestDelay:
    async def test_schedules_the_job(self, client, store, worker, clock):
        handle = await client.enqueue(add.options(delay="5s"), 1)
        assert await handle.status() is Status.SCHEDULED

        clock.advance(timedelta(seconds=5))
        await store.maintenance.promote_due("default", 10)

        assert (await worker.claim()).claim.id == handle.id

    async def test_of_zero_is_no_delay(self, client):
        handle = await client.enqueue(add.options(delay=0), 1)

        assert await handle.status() is Status.WAITING


class TestRunAt:
    async def test_schedules_for_that_moment_in_any_time_zone(self, client, clock):
        at = (clock() + HOUR).astimezone(timezone(timedelta(hours=5)))

        handle = await client.enqueue(add.options(run_at=at), 1)

        record = await client.jobs.get(handle.id)
        assert (record.status, record.ready_at) == (Status.SCHEDULED, at)

    async def test_in_the_past_is_due_at_once(self, client, clock):
        handle = await client.enqueue(add.options(run_at=clock() - HOUR), 1)

        assert await handle.status() is Status.WAITING


class TestDeadline:
    async def test_fails_a_job_that_did_not_start_in_time(self, client, store, clock):
        handle = await client.enqueue(add.options(deadline="1m"), 1)

        clock.advance(timedelta(minutes=1))
        await store.maintenance.expire_deadlines("default", 10)

        with pytest.raises(JobFailed, match="DeadlineExceeded"):
            await handle.result(timeout=10)

    async def test_may_be_a_moment(self, client, clock):
        handle = await client.enqueue(add.options(deadline=clock() + HOUR), 1)

        assert (await client.jobs.get(handle.id)).deadline_at == clock() + HOUR

    async def test_that_has_passed_by_the_clock_of_the_store_is_refused(self, client, clock):
        with pytest.raises(InvalidInput, match="deadline"):
            await client.enqueue(add.options(deadline=clock() - HOUR), 1)
        with pytest.raises(InvalidInput, match="deadline"):
            await client.enqueue_many(
                add.options(deadline=datetime(2000, 1, 1, tzinfo=UTC)), [1, 2]
            )

        assert await client.jobs.count() == 0
