"""Behaviour 4: a live worker keeps its leases, a dead one's jobs are taken over within seconds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import pytest

from perdure import CONTEXT, AsyncClient, AsyncContext, JobDead, Status, StoreError, Worker, task
from perdure.model.ids import WorkerId
from perdure.model.job import Claim, Claimed
from perdure.model.partition import Partition
from perdure.model.worker import Renewal
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.store.lifecycle import Transition
from perdure.store.memory.jobs import MemoryJobs
from perdure.store.memory.store import MemoryStore
from perdure.worker import lease_renewal
from perdure.worker.events import AttemptLost, AttemptRequeued, AttemptStarted
from tests.worker.harness import Gate


async def test_leases_survive_a_body_that_blocks_the_event_loop(client, store_url, start_worker):
    bodies: list[int] = []

    @task
    async def block(ctx: AsyncContext = CONTEXT) -> str:
        bodies.append(ctx.attempt)
        time.sleep(2.5)  # what is tested: nothing else on this worker's event loop moves
        return "done"

    @task
    async def other() -> None:
        pass

    handle = Worker(store_url, tasks=[block], lease="1s", poll="200ms").start()
    rival = await start_worker(other, lease="1s", poll="200ms")
    job = await client.enqueue(block)
    result = await job.result(15)
    handle.shutdown()
    assert await asyncio.to_thread(handle.join, 10)

    assert result == "done"
    assert bodies == [1]
    record = await job.record()
    assert (record.attempt, record.crashes, record.epoch) == (1, 0, 1)
    assert handle.stats().claims_lost == 0
    assert rival.worker.stats().started == 0


async def test_leases_survive_a_sync_body_that_blocks(client, start_worker):
    woken = threading.Event()

    @task
    def block() -> str:
        woken.wait(2)
        return "done"

    @task
    async def other() -> None:
        pass

    await start_worker(block, lease="600ms", poll="200ms")
    await start_worker(other, lease="600ms", poll="200ms")
    job = await client.enqueue(block)

    assert await job.result(15) == "done"
    record = await job.record()
    assert (record.attempt, record.crashes) == (1, 0)


async def test_leases_of_a_dead_worker_are_taken_over_within_seconds(client, store, start_worker):
    @task
    async def work(ctx: AsyncContext = CONTEXT) -> int:
        return ctx.attempt

    job = await client.enqueue(work.options(max_attempts=1))
    await claim_and_die(store, job.id)
    await start_worker(work)
    began = time.monotonic()
    attempt = await job.result(10)

    assert attempt == 2
    assert time.monotonic() - began < 4
    record = await job.record()
    assert (record.crashes, record.failures, record.status) == (1, 0, Status.COMPLETED)
    [death] = await job.attempts()
    assert death.failure.type == "perdure.errors.WorkerCrashed"
    assert death.worker == "dead-worker"


async def test_leases_lost_too_often_make_a_job_a_poison_pill(client, store, start_worker):
    @task
    async def deadly() -> None:
        pass

    @task
    async def other() -> None:
        pass

    await start_worker(other, max_crashes=2, poll="100ms")
    job = await client.enqueue(deadly)
    await claim_and_die(store, job.id)
    async for update in job.watch():
        if update.status is Status.WAITING:
            break
    await claim_and_die(store, job.id)

    with pytest.raises(JobDead, match="WorkerCrashed"):
        await job.result(10)
    assert (await job.record()).crashes == 2
    assert len(await job.attempts()) == 2


async def test_leases_of_an_aborting_job_end_with_it_cancelled(client, store, start_worker):
    @task
    async def work() -> None:
        pass

    job = await client.enqueue(work)
    await claim_and_die(store, job.id)
    assert (await job.cancel()).after is Status.ABORTING
    await start_worker(work, poll="100ms")
    final = [update.status async for update in job.watch()][-1]

    assert final is Status.CANCELLED


async def test_leases_that_ran_out_unnoticed_make_the_holder_stop(client, store, start_worker):
    gate = Gate()

    @task
    async def wait(ctx: AsyncContext = CONTEXT) -> str:
        if ctx.attempt == 1:
            await gate.pass_through()
        return f"attempt {ctx.attempt}"

    # A lease this long is not renewed during the test, so it can be made to end under the holder.
    holder = await start_worker(wait, lease="1h", id="holder")
    job = await client.enqueue(wait)
    await gate.reached()
    held = await job.record()
    [moved] = await store.admin.change_jobs(Transition.DISABLE, None, [job.id])
    assert (moved.before, held.worker) == (Status.ACTIVE, "holder")
    other = await start_worker(wait, id="other")
    await client.queues.pause("default")
    await client.jobs.enable(job.id)
    lost = await holder.told(AttemptLost, job.id)
    await holder.stop()
    await client.queues.resume("default")

    assert lost.attempt == 1
    assert await job.result(10) == "attempt 2"
    assert (await job.record()).worker == "other"
    assert other.worker.stats().completed == 1


async def test_leases_of_a_claim_that_was_answered_too_late_are_given_back(
    memory_url, start_worker
):
    @task
    async def work(ctx: AsyncContext = CONTEXT) -> int:
        return ctx.attempt

    slow = SlowToAnswer(memory_url)
    async with AsyncClient(memory_url) as client:
        job = await client.enqueue(work)
        worker = await start_worker(work, store=slow, lease="300ms")
        attempt = await job.result(10)

    assert attempt == 1
    assert [event.job_id for event in worker.all(AttemptRequeued)] == [job.id]
    assert len(worker.all(AttemptStarted)) == 1


class SlowToAnswer(MemoryStore):
    """Answers the first claim that got something when its lease has run out."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.jobs = SlowJobs(self._session)

    def clone(self) -> SlowToAnswer:
        return SlowToAnswer(self.url)


class SlowJobs(MemoryJobs):
    has_been_slow = False

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        if claimed.jobs and not self.has_been_slow:
            self.has_been_slow = True
            await asyncio.sleep(1.2 * request.lease.total_seconds())
        return claimed


async def test_leases_are_renewed_again_when_the_store_stays_silent(
    memory_url, start_worker, monkeypatch
):
    monkeypatch.setattr(lease_renewal, "ANSWER_SECONDS_MIN", 0.5)
    gate = Gate()

    @task
    async def hold_on() -> None:
        await gate.pass_through()

    silent = SilentAtFirst(memory_url)
    async with AsyncClient(memory_url) as client:
        job = await client.enqueue(hold_on)
        await start_worker(hold_on, store=silent, lease="1500ms")
        assert await asyncio.to_thread(SilentAtFirst.answered.wait, 10)
        gate.open()
        await job.result(10)
        record = await job.record()

    assert (record.epoch, record.crashes) == (1, 0)


class SilentAtFirst(MemoryStore):
    """Never answers the first renewal of leases."""

    answered = threading.Event()

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.jobs = SilentJobs(self._session)

    def clone(self) -> SilentAtFirst:
        return SilentAtFirst(self.url)


class SilentJobs(MemoryJobs):
    has_been_silent = False

    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        if not self.has_been_silent:
            self.has_been_silent = True
            await asyncio.Event().wait()
        renewal = await super().renew(worker, claims, lease)
        SilentAtFirst.answered.set()
        return renewal


async def test_leases_of_a_claim_that_got_no_answer_are_given_back(memory_url, start_worker):
    @task
    async def work(ctx: AsyncContext = CONTEXT) -> int:
        return ctx.attempt

    async with AsyncClient(memory_url) as client:
        job = await client.enqueue(work)
        await start_worker(work, store=LosesAnAnswer(memory_url), lease="1h", poll="200ms")
        attempt = await job.result(10)
        record = await job.record()

    assert (attempt, record.crashes) == (1, 0)


class LosesAnAnswer(MemoryStore):
    """Carries out the first claim that gets something, and fails to say so."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.jobs = LossyJobs(self._session)

    def clone(self) -> LosesAnAnswer:
        return LosesAnAnswer(self.url)


class LossyJobs(MemoryJobs):
    has_lost = False

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        if claimed.jobs and not self.has_lost:
            self.has_lost = True
            raise StoreError("lost before it answered")
        return claimed


async def claim_and_die(store: Store, job_id: str) -> None:
    """Hold a job for a moment as a worker that is never heard of again."""
    job = await store.queries.get_job(None, job_id)  # type: ignore[arg-type]
    assert job is not None
    partition = Partition(queue=job.queue, task=job.task)
    claimed = await store.jobs.claim(
        ClaimRequest(
            namespace="default",
            worker=WorkerId("dead-worker"),
            partitions=[PartitionClaim(partition=partition.text, queue=job.queue)],
            limit=1,
            lease=timedelta(milliseconds=200),
        )
    )
    assert [each.claim.id for each in claimed.jobs] == [job_id]
