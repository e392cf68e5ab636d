"""Which jobs a worker claims, in which order, and in which namespace; and who may write."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    AsyncJobQueue,
    ClaimLost,
    Context,
    Flow,
    Status,
    Worker,
    task,
)
from perdure.model.ids import WorkerId
from perdure.model.partition import Partition
from perdure.model.payload import PlainCodec
from perdure.model.worker import Renewal
from perdure.store.contract import POLL_PARTITIONS_MAX
from perdure.tasks.node_type import TaskRegistry
from perdure.testing.contract.builders import claim, new_job
from perdure.worker.attempt import Attempt
from perdure.worker.code import FlowCode, TaskCode
from perdure.worker.events import (
    AttemptCompleted,
    AttemptDisabled,
    AttemptLost,
    AttemptRequeued,
    AttemptStarted,
    WorkerEvents,
)
from perdure.worker.runner import JobRunner
from perdure.worker.secrets import Secrets
from tests.support.tasks import echo, gated, nothing
from tests.worker.harness import WAIT_SECONDS, Gate, soon

pytestmark = pytest.mark.every_store  # processes, clocks and wake-ups differ by store


class TestClaim:
    """Each job is claimed once, the most urgent first, by a worker that can run it."""

    async def test_is_not_starved_by_jobs_of_other_workers(self, client, store, start_worker):
        @task(name="zebra")
        async def known() -> str:
            return "ran"

        partitions = [
            Partition(queue="default", task=f"unknown-{i:05}")
            for i in range(POLL_PARTITIONS_MAX + 50)
        ]
        await store.jobs.insert(
            [new_job(namespace="default", partition=partition) for partition in partitions]
        )
        job = await client.enqueue(known)
        await start_worker(known, poll="1m")

        assert await job.result(10) == "ran"

    async def test_asks_all_partitions_however_many_there_are(self, client, start_worker):
        gates = [Gate() for _ in range(2)]

        @task(tags=["none"])
        async def count(place: int) -> int:
            await gates[place].pass_through()
            return place

        blocked = [
            await client.enqueue_many(count.options(tags=[f"tag-{number:04}"], queue="paused"), [0])
            for number in range(250)
        ]
        await client.queues.pause("paused")
        last = await client.enqueue(count.options(tags=["zzz"], queue="running"), 1)
        gates[0].open()
        gates[1].open()
        worker = await start_worker(count, queues=["paused", "running"], poll="1m", concurrency=300)

        assert await last.result(10) == 1
        assert worker.worker.stats().started == 1
        await client.queues.resume("paused")
        await client.jobs.results([job for jobs in blocked for job in jobs], timeout=10)

    async def test_takes_nothing_of_a_paused_queue_until_it_is_resumed(self, client, start_worker):
        @task(queue="mail")
        async def send() -> str:
            return "sent"

        @task(queue="bulk")
        async def load() -> str:
            return "loaded"

        worker = await start_worker(send, load, poll="1m")
        await client.queues.pause("mail", by="ann")
        held = await client.enqueue(send)
        assert await (await client.enqueue(load)).result(10) == "loaded"
        assert await held.status() is Status.WAITING
        assert [job.task for job in worker.all(AttemptStarted)] == ["load"]
        await client.queues.resume("mail")

        assert await held.result(10) == "sent"

    async def test_prefetching_requeues_jobs_without_a_slot(self, client, start_worker):
        """Fast jobs make a worker claim ahead; slow ones among them must not hold up the rest."""
        gate = Gate()

        @task
        async def work(found_type: str) -> str:
            if found_type == "slow":
                await gate.pass_through()
            return found_type

        await client.queues.pause("default")
        fast = await client.enqueue_many(work.options(priority=1), ["fast"] * 400)
        slow = await client.enqueue_many(work.options(priority=2), ["slow"] * 2)
        rest = await client.enqueue_many(work.options(priority=3), ["rest"] * 10)
        busy = await start_worker(work, concurrency=2)
        await client.queues.resume("default")
        await gate.reached(2)
        other = await start_worker(work, concurrency=2)
        await client.jobs.results([*fast, *rest], timeout=10)

        assert other.worker.stats().completed >= 10
        records = [await client.jobs.get(job.id) for job in rest]
        assert {record.attempt for record in records} == {1}
        assert busy.worker.stats().requeued == len(busy.all(AttemptRequeued))
        gate.open()
        await client.jobs.results(slow, timeout=10)


WORKER = WorkerId("worker")


async def is_over(attempt: Attempt) -> None:
    """Turn by turn of the loop: between two timers there is one."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not attempt.is_over:  # noqa: ASYNC110 (nothing would set an event)
            await asyncio.sleep(0)


class TestPrefetch:
    """Prefetched jobs wait for a slot for a moment, each from its own claim on."""

    @asynccontextmanager
    async def _prefetching(self, store, partitions, *tasks, flows=()):
        """A runner with one slot and a claimed job of each partition; its attempts."""
        worker = Worker(store, tasks=tasks, flows=flows, concurrency=1, id=WORKER)
        code = TaskCode(TaskRegistry(tasks), FlowCode(flows), Secrets(None))
        runner = JobRunner(
            store, code, worker.settings, worker._info(), PlainCodec(), WorkerEvents(WORKER)
        )
        claims = {"namespace": "default", "worker": WORKER, "lease": timedelta(minutes=1)}
        for partition in partitions:
            runner.take(await claim(store, partition, limit=1, **claims), is_fresh=True)
        yield list(runner.claimed.values())
        runner.stop()
        await runner.is_idle.wait()
        await runner.commits.flush()
        runner.close()

    async def test_only_what_waited_too_long_is_requeued(self, client, store):
        """Finding 33: jobs claimed later were requeued with those that had waited too long."""
        gate, wait = gated()
        for _ in range(3):
            await client.enqueue(wait)
        partitions = [Partition(queue="default", task=wait.name)] * 3
        async with self._prefetching(store, partitions, wait) as (_running, early, late):
            await is_over(early)
            is_late_too = late.is_over
            await is_over(late)  # which has a timer of its own
            gate.open()
        counts = [await client.jobs.count(status=status) for status in ("waiting", "completed")]
        assert counts == [2, 1]
        assert not is_late_too

    async def test_the_job_of_a_run_that_was_lowered_waits_for_its_new_turn(
        self, client, store, start_worker
    ):
        gate, wait = gated()
        order: list[tuple[str, int]] = []

        @task
        async def note(name: str, ctx: AsyncContext = CONTEXT) -> None:
            order.append((name, ctx.attempt))

        flow = Flow("noted").then(note).build()
        await client.enqueue(wait)
        run = await client.submit(flow, "lowered", priority="critical")
        node = Partition(queue="default", task=note.name, flow=flow.graph.text)
        partitions = [Partition(queue="default", task=wait.name), node]
        async with self._prefetching(store, partitions, wait, flows=[flow]) as (_, prefetched):
            await client.runs.set_priority(run.id, "minimal")
            await client.enqueue(note, "usual")
            await is_over(prefetched)
            gate.open()
        await start_worker(note, flows=[flow], concurrency=1)
        await run.result(10)
        assert order == [("usual", 1), ("lowered", 1)]


class TestFencing:
    """A worker whose claim is lost changes nothing, and is asked to stop."""

    async def test_a_parked_job_that_was_resumed_is_its_next_workers(
        self, client, store_url, start_worker
    ):
        async with AsyncJobQueue(store_url) as queue:
            job = await client.enqueue(echo.options(max_attempts=3, retries=0), "ours")
            held = await queue.dequeue("other")
            assert held is not None
            await queue.release(held)
            assert await job.status() is Status.PAUSED
            await queue.resume(job.id)
            worker = await start_worker(echo)
            await worker.emitted(AttemptCompleted, job.id)

            with pytest.raises(ClaimLost):
                await queue.ack(held, "too late")
        assert await job.result(10) == "ours"
        assert (await job.record()).attempt == 1

    async def test_a_body_that_ended_before_its_worker_learned_of_it_counts_as_disabled(
        self, client, watch, start_worker
    ):
        gate, wait = gated()

        async def end_body() -> None:
            gate.open()

        worker = await start_worker(wait, store=watch.store)
        job = await client.enqueue(wait)
        await gate.reached()
        watch.answers["jobs.check"] = lambda _: Renewal(lost=frozenset(), aborting=frozenset())
        watch.after["jobs.check"] = end_body
        await client.jobs.disable(job.id)
        await worker.emitted(AttemptDisabled, job.id)

        assert worker.worker.stats().disabled == 1
        assert await job.status() is Status.DISABLED

    async def test_a_sync_body_cannot_write_after_its_claim_was_lost(self, client, start_worker):
        gate = Gate()
        reasons: list[str | None] = []

        @task
        def wait(ctx: Context = CONTEXT) -> str:
            gate.pass_in_thread()
            reasons.append(ctx.abort_signal.reason)
            gate.leave()
            return "late"

        worker = await start_worker(wait, nothing)
        job = await client.enqueue(wait)
        await gate.reached()
        await client.jobs.disable(job.id)
        await worker.emitted(AttemptDisabled, job.id)
        gate.open()
        await gate.left()
        await (await client.enqueue(nothing)).result(10)

        assert reasons == ["the job was disabled"]
        assert await job.status() is Status.DISABLED
        assert worker.all(AttemptCompleted, job.id) == []
        stats = worker.worker.stats()
        assert (stats.disabled, stats.claims_lost) == (1, 0)

    async def test_a_job_back_at_the_same_worker_runs_once_at_a_time(self, client, start_worker):
        gates = [Gate(), Gate()]
        contexts: list[AsyncContext] = []

        @task
        async def wait(ctx: AsyncContext = CONTEXT) -> str:
            contexts.append(ctx)
            number = len(contexts)
            await gates[number - 1].pass_through()
            return f"body {number}"

        worker = await start_worker(wait, concurrency=2)
        job = await client.enqueue(wait)
        await gates[0].reached()
        await client.jobs.disable(job.id)
        await client.jobs.enable(job.id)
        await worker.emitted(AttemptStarted, job.id, count=2)
        await soon(contexts[0].abort_signal.wait_async())
        await worker.emitted(AttemptLost, job.id)
        for gate in gates:
            gate.open()

        assert await job.result(10) == "body 2"
        await worker.emitted(AttemptCompleted, job.id)
        assert (await job.record()).epoch > 1
