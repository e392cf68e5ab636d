"""The queue as such: the narrow interface for people who write their own worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AsyncJobQueue,
    ClaimLost,
    Flow,
    IllegalTransition,
    InvalidInput,
    JobBelongsToRun,
    JobNotFound,
    JobQueue,
    PayloadTooLarge,
    Permanent,
    QueuedJob,
    RetryLater,
    Status,
)
from perdure.store.contract import Store
from tests.client.flows import add
from tests.client.harness import held_next, worker_at
from tests.support.refusal import refused

MINUTES_5 = timedelta(minutes=5)


@pytest.fixture
async def queue(store: Store) -> AsyncIterator[AsyncJobQueue]:
    async with AsyncJobQueue(store) as queue:
        yield queue


async def held(queue: AsyncJobQueue, **options: Any) -> QueuedJob:
    await queue.enqueue("start", {"run": 1}, **options)
    return await held_next(queue)


class TestDequeue:
    async def test_claims_the_most_urgent_waiting_job(self, queue):
        await queue.enqueue("start", {"run": 1})
        urgent = await queue.enqueue("resume", {"run": 2}, priority=1)
        job = await held_next(queue)
        assert (job.id, job.task, job.payload) == (urgent, "resume", {"run": 2})
        assert (job.queue, job.attempt, job.claim_epoch) == ("default", 1, 1)

    async def test_takes_only_the_queues_and_types_asked_for(self, queue):
        await queue.enqueue("start", 1, queue="other")
        await queue.enqueue("stop", 2)
        assert await queue.dequeue("worker-1", tasks=["start"]) is None
        job = await queue.dequeue("worker-1", queues=["other", "default"], tasks=["start"])
        assert job is not None
        assert job.payload == 1

    async def test_takes_a_delayed_job_once_it_is_due(self, queue, clock):
        await queue.enqueue("start", 1, delay="10s")
        assert await queue.dequeue("worker-1") is None
        clock.advance(timedelta(seconds=10))
        assert await queue.dequeue("worker-1") is not None

    async def test_fails_a_job_past_its_deadline_instead(self, queue, clock):
        id = await queue.enqueue("start", 1, deadline="10s")
        clock.advance(timedelta(seconds=10))
        assert await queue.dequeue("worker-1") is None
        assert (await queue.get_job(id)).status is Status.FAILED

    async def test_takes_the_call_of_a_task_too(self, queue, client):
        handle = await client.enqueue(add, 4)
        job = await held_next(queue)
        assert (job.task, job.payload) == ("add", 4)
        await queue.ack(job, 5)
        assert await handle.result(timeout=10) == 5

    async def test_leaves_nodes_to_workers_that_can_settle_their_run(self, queue, client, store):
        flow = Flow("adding").then(add).build()
        run = await client.submit(flow, 4)
        assert await queue.dequeue("worker-1") is None
        assert await queue.dequeue("worker-1", tasks=["add"]) is None

        async with worker_at(store, [flow]):
            assert await run.result(timeout=10) == 5


class TestAck:
    async def test_completes_the_job_with_its_result(self, queue):
        job = await held(queue)
        assert await queue.ack(job, {"ok": True}) is Status.COMPLETED
        record = await queue.get_job(job.id)
        assert (record.status, record.result) == (Status.COMPLETED, {"ok": True})

    async def test_of_a_job_that_a_heartbeat_says_to_stop_says_that_it_is_cancelled(
        self, queue, client
    ):
        job = await held(queue)
        await client.jobs.cancel(job.id)
        assert await queue.heartbeat(job) is Status.ABORTING
        assert await queue.ack(job) is Status.CANCELLED


class TestNack:
    async def test_tries_again_with_growing_delays_until_attempts_are_used_up(self, queue, clock):
        job = await held(queue, max_attempts=3)

        assert await queue.nack(job, "no luck") is Status.SCHEDULED
        assert (await queue.get_job(job.id)).ready_at == clock() + timedelta(seconds=1)
        clock.advance(timedelta(seconds=1))
        again = await held_next(queue)
        assert await queue.nack(again, ValueError("worse")) is Status.SCHEDULED
        assert (await queue.get_job(job.id)).ready_at == clock() + timedelta(seconds=2)
        clock.advance(timedelta(seconds=2))
        last = await held_next(queue)
        assert last.attempt == 3
        assert await queue.nack(last, "over") is Status.DEAD

    @pytest.mark.parametrize(
        "error, delay, seconds",
        [("no luck", "10s", 10), ("no luck", 0, 0), (RetryLater(after="1h"), None, 3600)],
    )
    async def test_waits_as_long_as_it_is_asked_to(self, queue, clock, error, delay, seconds):
        job = await held(queue, max_attempts=2)
        status = await queue.nack(job, error, delay=delay)
        assert status is (Status.SCHEDULED if seconds else Status.WAITING)
        assert (await queue.get_job(job.id)).ready_at == clock() + timedelta(seconds=seconds)

    async def test_of_a_permanent_error_fails_at_once(self, queue):
        assert await queue.nack(await held(queue), Permanent("never")) is Status.FAILED


class TestHeartbeat:
    async def test_extends_by_the_lease_of_the_job_or_by_what_is_asked(self, queue, clock):
        await queue.enqueue("start", {"run": 1})
        job = await queue.dequeue("worker-1", lease="7m")
        assert job is not None
        clock.advance(timedelta(minutes=4))
        for extend, minutes in ((None, 7), ("1h", 60)):
            assert await queue.heartbeat(job, extend=extend) is Status.ACTIVE
            lease_until = (await queue.get_job(job.id)).lease_until
            assert lease_until == clock() + timedelta(minutes=minutes)


class TestRelease:
    async def test_parks_the_job_without_costing_an_attempt(self, queue):
        job = await held(queue)
        assert await queue.release(job) is Status.PAUSED
        assert await queue.dequeue("worker-1") is None
        await queue.resume(job.id)
        again = await held_next(queue)
        assert (again.id, again.attempt) == (job.id, 1)

    async def test_hands_the_data_of_its_resumption_to_the_next_claim(self, queue):
        job = await held(queue)
        assert job.answer is None
        await queue.release(job)
        await queue.resume(job.id, {"approved": True})
        again = await held_next(queue)
        assert again.answer == {"approved": True}
        await queue.release(again)
        await queue.resume(job.id, "no")
        assert (await held_next(queue)).answer == "no"

    async def test_is_what_resume_undoes_and_nothing_else(self, queue):
        job = await held(queue)
        with refused("job.illegal_transition", IllegalTransition):
            await queue.resume(job.id)
        with pytest.raises(JobNotFound):
            await queue.resume("nobody")


class TestParkedById:
    async def test_is_acknowledged_by_a_process_that_never_claimed_it(self, queue, store):
        job = await held(queue)
        await queue.release(job)
        async with AsyncJobQueue(store) as api:
            assert await api.ack(job.id, {"ok": True}) is Status.COMPLETED
        record = await queue.get_job(job.id)
        assert (record.status, record.result, record.attempt) == (Status.COMPLETED, {"ok": True}, 1)

    async def test_is_retried_or_dead_when_it_is_refused(self, queue, clock):
        job = await held(queue, max_attempts=2)
        await queue.release(job)
        assert await queue.nack(job.id, "no", delay=0) is Status.WAITING
        await queue.release(await held_next(queue))
        assert await queue.nack(job.id, "never") is Status.DEAD

    async def test_stays_parked_when_it_is_released_again(self, queue):
        job = await held(queue)
        await queue.release(job)
        assert await queue.release(job.id) is Status.PAUSED

    @pytest.mark.parametrize("settle", ["ack", "nack", "release"])
    async def test_must_be_parked(self, queue, client, settle):
        call = getattr(queue, settle)
        more = ["no"] if settle == "nack" else []
        job = await held(queue)
        with refused("job.illegal_transition", IllegalTransition, status=Status.ACTIVE) as active:
            await call(job.id, *more)
        assert "the job that dequeue() returned" in str(active.value)
        with pytest.raises(JobNotFound):
            await call("nobody", *more)
        run = await client.submit(Flow("adding").then(add).build(), 4)
        await client.runs.pause(run.id)
        [node] = [each for each in await client.jobs.list() if each.node is not None]
        with pytest.raises(JobBelongsToRun):
            await call(node.id, *more)
        for bad in (None, 3, job.claim):
            with refused("queue.not_a_job", InvalidInput):
                await call(bad, *more)


class TestPeek:
    async def test_shows_what_dequeue_claims_next(self, queue, client):
        await client.submit(Flow("adding").then(add).build(), 4)
        for number, priority in ((1, 4), (2, 2), (3, 3)):
            await queue.enqueue("start", number, priority=priority)
        await queue.enqueue("other", 4, queue="elsewhere")

        found = await queue.peek(10)

        assert [job.id for job in found] == [(await held_next(queue)).id for _ in range(3)]
        assert await queue.peek(10) == []
        [other] = await queue.peek(queues=["elsewhere"])
        assert other.task == "other"
        with refused("argument.range", InvalidInput):
            await queue.peek(0)

    async def test_shows_nothing_of_a_paused_queue(self, queue, client):
        id = await queue.enqueue("start", 1)
        await client.queues.pause("default")
        assert await queue.peek() == []
        assert await client.queues.peek("default") == []
        await client.queues.resume("default")
        assert [job.id for job in await client.queues.peek("default")] == [id]


class TestReclaimExpired:
    async def test_gives_the_jobs_of_dead_workers_to_others(self, queue, clock):
        job = await held(queue)
        assert await queue.reclaim_expired() == 0
        clock.advance(MINUTES_5)
        assert await queue.reclaim_expired() == 1
        again = await queue.dequeue("worker-2")
        assert again is not None
        assert (again.id, again.claim_epoch > job.claim_epoch) == (job.id, True)


class TestFencing:
    async def test_refuses_everything_under_a_stale_claim(self, queue, clock):
        stale = await held(queue)
        clock.advance(MINUTES_5)
        await queue.reclaim_expired()
        current = await queue.dequeue("worker-2")
        assert current is not None
        before = await queue.get_job(stale.id)

        for write in (
            queue.ack(stale, "mine"),
            queue.nack(stale, "mine"),
            queue.release(stale),
            queue.heartbeat(stale),
        ):
            with refused("job.claim_lost", ClaimLost, job_id=stale.id, epoch=stale.claim_epoch):
                await write

        assert await queue.get_job(stale.id) == before
        assert await queue.ack(current, "theirs") is Status.COMPLETED


class TestBadInput:
    async def test_is_refused_before_anything_is_written(self, store):
        async with AsyncJobQueue(store, payload_max_bytes=20) as queue:
            calls: tuple[Callable[[], Awaitable[Any]], ...] = (
                lambda: queue.enqueue("", 1),
                lambda: queue.enqueue("start", 1, priority=9),
                lambda: queue.enqueue("start", 1, fingerprint=str),
                lambda: queue.enqueue("start", 1, retries=3),  # type: ignore[call-arg]
                lambda: queue.dequeue(""),
                lambda: queue.dequeue("worker-1", lease=0),
                lambda: queue.dequeue("worker-1", queues="default"),
                lambda: queue.get_job(""),
            )
            for call in calls:
                with pytest.raises(InvalidInput):
                    await call()
            with refused("payload.too_large", PayloadTooLarge, what="the payload of a job 'start'"):
                await queue.enqueue("start", "x" * 20)

            assert await queue.stats() == []

    def test_includes_the_operators_namespace(self):
        with refused("client.namespace_required", InvalidInput, operation="JobQueue"):
            AsyncJobQueue("memory://all", namespace="*")


class TestSyncFacade:
    def test_does_the_same(self, store_url):
        with JobQueue(store_url) as queue:
            queue.enqueue("start", {"run": 1}, fingerprint="one")
            job = queue.dequeue("worker-1")
            assert job is not None
            assert queue.heartbeat(job) is Status.ACTIVE
            assert queue.release(job) is Status.PAUSED
            assert queue.resume(job.id).after is Status.WAITING
            again = queue.dequeue("worker-1")
            assert again is not None
            assert queue.ack(again, "done") is Status.COMPLETED
            assert queue.get_job(job.id).result == "done"
            assert queue.reclaim_expired() == 0
            assert [each.total for each in queue.stats()] == [1]
            with pytest.raises(ClaimLost):
                queue.nack(job, "late")
