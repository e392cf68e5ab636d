"""What operators do: abort, disable, enable, retry, resume, pause; and what they see."""

from __future__ import annotations

import pytest

from perdure import FingerprintTaken, IllegalTransition, JobNotFound, Status
from perdure.model.outcome import Parked
from tests.client.tasks import add, echo, embed


class TestAbort:
    async def test_cancels_a_waiting_job_at_once(self, client):
        handle = await client.enqueue(add, 1)

        outcome = await handle.cancel()

        assert (outcome.before, outcome.after) == (Status.WAITING, Status.CANCELLED)
        assert not outcome.was_finished
        assert await handle.status() is Status.CANCELLED

    async def test_asks_an_active_job_to_stop(self, client, worker):
        handle = await client.enqueue(add, 1)
        job = await worker.claim()

        outcome = await client.jobs.cancel(handle.id)

        assert (outcome.before, outcome.after) == (Status.ACTIVE, Status.ABORTING)
        assert await worker.complete(job, "too late") is Status.CANCELLED
        assert await handle.status() is Status.CANCELLED

    async def test_of_a_finished_job_does_nothing_and_says_so(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.complete(await worker.claim(), 2)

        outcome = await handle.cancel()

        assert outcome.was_finished
        assert outcome.before is outcome.after is Status.COMPLETED
        assert await handle.result(timeout=10) == 2

    async def test_of_an_unknown_job_says_so(self, client):
        with pytest.raises(JobNotFound):
            await client.jobs.cancel("nobody")


class TestAbortGroup:
    async def test_touches_only_that_group(self, client, worker):
        await client.enqueue(add.options(group="run-1"), 1)
        await worker.claim()
        mine = await client.enqueue_many(add.options(group="run-1"), [2, 3])
        other = await client.enqueue(add.options(group="run-2"), 4)
        alone = await client.enqueue(add, 5)

        outcome = await client.jobs.cancel_group("run-1")

        assert (outcome.group, outcome.cancelled, outcome.aborting) == ("run-1", 2, 1)
        assert {await handle.status() for handle in mine} == {Status.CANCELLED}
        assert {await handle.status() for handle in (other, alone)} == {Status.WAITING}

    async def test_leaves_finished_jobs_alone(self, client, worker):
        handle = await client.enqueue(add.options(group="run-1"), 1)
        await worker.complete(await worker.claim(), 2)

        outcome = await client.jobs.cancel_group("run-1")

        assert (outcome.cancelled, outcome.aborting) == (0, 0)
        assert await handle.status() is Status.COMPLETED


class TestDisableAndEnable:
    async def test_keep_a_job_from_running_until_enabled(self, client, worker):
        handle = await client.enqueue(add, 1)

        moved = await client.jobs.disable(handle.id)
        assert (moved.before, moved.after) == (Status.WAITING, Status.DISABLED)
        assert await worker.claim_all() == []

        await client.jobs.enable(handle.id)
        assert (await worker.claim()).claim.id == handle.id

    async def test_refuse_a_status_they_do_not_apply_to(self, client):
        handle = await client.enqueue(add, 1)

        with pytest.raises(IllegalTransition, match=f"cannot enable job {handle.id}: it is wait"):
            await client.jobs.enable(handle.id)
        await handle.cancel()
        with pytest.raises(IllegalTransition, match=r"cannot disable job .*: it is cancelled"):
            await client.jobs.disable(handle.id)

    async def test_say_so_when_there_is_no_such_job(self, client):
        with pytest.raises(JobNotFound):
            await client.jobs.disable("nobody")
        with pytest.raises(JobNotFound):
            await client.jobs.enable("nobody")


class TestRetry:
    async def test_starts_a_failed_job_anew(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.fail(await worker.claim(), ValueError("no"))

        moved = await handle.retry()

        assert (moved.before, moved.after) == (Status.FAILED, Status.WAITING)
        await worker.complete(await worker.claim(), 2)
        assert await handle.result(timeout=10) == 2
        assert len(await handle.attempts()) == 1

    async def test_refuses_a_job_that_is_not_over(self, client):
        handle = await client.enqueue(add, 1)

        with pytest.raises(IllegalTransition, match="cannot retry"):
            await client.jobs.retry(handle.id)

    async def test_refuses_when_its_fingerprint_is_taken_by_now(self, client):
        handle = await client.enqueue(add.options(fingerprint="one"), 1)
        await handle.cancel()
        await client.enqueue(add.options(fingerprint="one"), 1)

        with pytest.raises(FingerprintTaken):
            await handle.retry()


class TestResume:
    async def test_puts_a_released_job_back(self, client, worker):
        handle = await client.enqueue(add, 1)
        assert await worker.settle(await worker.claim(), Parked()) is Status.PAUSED

        moved = await client.jobs.resume(handle.id)

        assert (moved.before, moved.after) == (Status.PAUSED, Status.WAITING)
        assert (await worker.claim()).attempt == 1

    async def test_refuses_a_job_that_is_not_paused(self, client):
        handle = await client.enqueue(add, 1)

        with pytest.raises(IllegalTransition, match="cannot resume"):
            await client.jobs.resume(handle.id)


class TestPauseQueue:
    async def test_lets_nothing_start_until_resumed(self, client, worker):
        await client.enqueue(embed, "hello")
        plain = await client.enqueue(add, 1)

        await client.queues.pause("embeddings", by="ann")
        assert (await worker.claim()).claim.id == plain.id
        queues = {each.name: each.paused_by for each in await client.queues.list()}
        assert queues == {"default": None, "embeddings": "ann"}

        await client.queues.resume("embeddings")
        assert (await worker.claim()).partition.task == "embed"
        assert not any(each.is_paused for each in await client.queues.list())


class TestJobs:
    async def test_are_found_by_what_they_are(self, client, worker):
        failed = await client.enqueue(add.options(group="run-1"), 1)
        await worker.fail(await worker.claim(), ValueError())
        other = await client.enqueue(embed.options(group="run-1"), "x")
        await client.enqueue(echo, 1)

        assert [job.id for job in await client.jobs.list(status="failed")] == [failed.id]
        assert [job.id for job in await client.jobs.list(queue="embeddings")] == [other.id]
        assert [job.id for job in await client.jobs.list(task=embed)] == [other.id]
        assert [job.id for job in await client.jobs.list(task="add")] == [failed.id]
        assert [job.id for job in await client.jobs.list(group="run-1")] == [other.id, failed.id]
        assert await client.jobs.count(group="run-1") == 2
        assert await client.jobs.count(status=Status.WAITING, group="run-1") == 1

    async def test_come_in_pages(self, client):
        handles = await client.enqueue_many(add, range(5))
        newest_first = [handle.id for handle in reversed(handles)]

        page = await client.jobs.list(limit=2)
        following = await client.jobs.list(limit=10, cursor=page.next)

        assert [job.id for job in (*page, *following)] == newest_first
        assert following.next is None


class TestQueues:
    async def test_counts_by_status_and_queue(self, client, worker):
        await client.enqueue(add, 1)
        await worker.complete(await worker.claim())
        await client.enqueue_many(add, [2, 3])
        await client.enqueue(embed.options(delay="1h"), "x")

        queues = await client.queues.list()

        assert {each.name: each.counts for each in queues} == {
            "default": {Status.COMPLETED: 1, Status.WAITING: 2},
            "embeddings": {Status.SCHEDULED: 1},
        }
        assert [each.total for each in queues] == [3, 1]
