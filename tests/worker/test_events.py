"""Typed events, figures and progress: to listeners that cannot break the worker."""

from __future__ import annotations

import asyncio
import os
import socket
from datetime import timedelta

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    Flow,
    InvalidInput,
    Permanent,
    Progress,
    Retry,
    Status,
    Worker,
    task,
)
from perdure import JobDead as DeadError
from perdure import JobFailed as FailedError
from perdure.model.worker import TaskCounts
from perdure.worker.events import (
    AttemptAborting,
    AttemptCancelled,
    AttemptCompleted,
    AttemptDeadLettered,
    AttemptFailed,
    AttemptLost,
    AttemptProgressed,
    AttemptRequeued,
    AttemptRetried,
    AttemptStarted,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from tests.support.refusal import refused
from tests.support.tasks import echo, flaky, gated, nothing
from tests.worker.harness import WAIT_SECONDS, Gate, Running, soon, until

SOON = Retry(1, first="10ms", jitter=False)


class TestEvents:
    async def test_tell_a_completed_job_from_start_to_end(self, client, start_worker):
        gate = Gate()

        @task(queue="mail")
        async def send(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.progress(50)
            await gate.pass_through()
            await asyncio.sleep(0.02)

        worker = await start_worker(send)
        job = await client.enqueue(send)
        await worker.emitted(AttemptProgressed)
        gate.open()
        completed = await worker.emitted(AttemptCompleted)
        await worker.stop()

        node_types = [type(event) for event in worker.events]
        jobs = [AttemptStarted, AttemptProgressed, AttemptCompleted]
        assert node_types == [WorkerStarted, *jobs, WorkerStopping, WorkerStopped]
        assert {event.worker for event in worker.events} == {worker.id}
        assert (completed.job_id, completed.task, completed.queue) == (job.id, "send", "mail")
        assert completed.attempt == 1
        assert timedelta(milliseconds=20) <= completed.duration < timedelta(seconds=5)

    async def test_tell_that_a_job_was_retried_and_died(self, client, start_worker):
        _, stumble = flaky(*[ValueError("again")] * 2, retries=SOON)
        worker = await start_worker(stumble, hold_off=0)
        job = await client.enqueue(stumble)
        dead = await worker.emitted(AttemptDeadLettered)

        [retried] = worker.all(AttemptRetried)
        assert (retried.attempt, retried.failure.message) == (1, "again")
        assert retried.next_at is not None
        assert (dead.attempt, dead.failure.type) == (2, "ValueError")
        assert await job.status() is Status.DEAD

    async def test_tell_that_a_job_failed(self, client, start_worker):
        _, refuse = flaky(Permanent("never"))
        worker = await start_worker(refuse)
        await client.enqueue(refuse)
        assert (await worker.emitted(AttemptFailed)).failure.message == "never"

    async def test_tell_that_a_job_is_aborting_and_then_cancelled(self, client, start_worker):
        gate, wait = gated()
        worker = await start_worker(wait, abort_grace="10ms")
        job = await client.enqueue(wait)
        await gate.reached()
        await job.cancel()
        await worker.emitted(AttemptCancelled)

        node_types = [
            type(event) for event in worker.all(AttemptAborting) + worker.all(AttemptCancelled)
        ]
        assert node_types == [AttemptAborting, AttemptCancelled]

    async def test_report_that_a_job_was_parked(self, client, start_worker):
        gate, wait = gated()
        # With no slot to spare: a claim under way at the stop would requeue it once more.
        worker = await start_worker(wait, concurrency=1)
        job = await client.enqueue(wait)
        await gate.reached()
        await worker.stop()

        [stopping] = worker.all(WorkerStopping)
        assert (stopping.running, stopping.grace) == (1, timedelta(0))
        assert [event.job_id for event in worker.all(AttemptRequeued)] == [job.id]
        assert isinstance(worker.events[-1], WorkerStopped)

    async def test_report_that_a_job_failed_by_its_deadline_in_the_queue(
        self, client, start_worker
    ):
        worker = await start_worker(nothing, queues=["mail"], poll="50ms")
        job = await client.enqueue(nothing.options(queue="unserved", deadline="10ms"))
        failed = await worker.emitted(AttemptFailed)

        assert (failed.job_id, failed.task, failed.queue) == (job.id, "nothing", "unserved")
        assert failed.failure.type == "perdure.errors.DeadlineExceeded"
        assert worker.worker.stats().failed == 1

    async def test_tell_that_a_claim_was_lost(self, client, start_worker):
        gate, wait = gated()
        worker = await start_worker(wait)
        job = await client.enqueue(wait)
        await gate.reached()
        await client.jobs.disable(job.id)
        assert (await worker.emitted(AttemptLost)).job_id == job.id

    @pytest.mark.parametrize(
        "error", [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit]
    )
    async def test_listeners_that_raise_break_nothing(self, client, start_worker, error):
        def fail(_event: WorkerEvent) -> None:
            raise error("a listener's fault")

        worker = await start_worker(echo)
        worker.worker.on(WorkerEvent, fail)
        jobs = await client.enqueue_many(echo, range(20))

        assert await client.jobs.results(jobs, timeout=10) == list(range(20))
        await worker.emitted(AttemptCompleted, count=20)
        assert worker.worker.stats().running == 0

    async def test_are_no_longer_heard_by_a_listener_that_left(self, client, start_worker):
        heard: list[AttemptCompleted] = []
        worker = await start_worker(nothing)
        leave = worker.worker.on(AttemptCompleted, heard.append)
        await client.enqueue(nothing)
        await worker.emitted(AttemptCompleted)
        leave()
        leave()
        await client.enqueue(nothing)
        await worker.emitted(AttemptCompleted, count=2)

        assert len(heard) == 1


class TestStats:
    async def test_count_every_outcome(self, client, start_worker):
        _, refuse = flaky(Permanent("failed"), name="refuse")
        _, stumble = flaky(*[ValueError("again")] * 2, name="stumble", retries=SOON)
        worker = await start_worker(nothing, refuse, stumble, hold_off=0)
        await (await client.enqueue(nothing)).result(10)
        with pytest.raises(FailedError):
            await (await client.enqueue(refuse)).result(10)
        with pytest.raises(DeadError):
            await (await client.enqueue(stumble)).result(10)
        await worker.emitted(AttemptDeadLettered)
        stats = worker.worker.stats()

        assert (stats.started, stats.completed, stats.failed) == (4, 1, 1)
        assert (stats.retried, stats.dead) == (1, 1)
        assert (stats.cancelled, stats.requeued, stats.claims_lost, stats.running) == (0, 0, 0, 0)
        assert stats.average_duration is not None
        assert stats.average_duration < timedelta(seconds=1)
        assert stats.updated_at is not None

    async def test_show_what_runs_at_this_moment(self, client, start_worker):
        gate, wait = gated()
        worker = await start_worker(wait, concurrency=7)
        jobs = await client.enqueue_many(wait, [() for _ in range(3)])
        await gate.reached(3)
        stats = worker.worker.stats()
        gate.open()
        await client.jobs.results(jobs, timeout=10)
        assert (stats.running, stats.concurrency, stats.completed) == (3, 7, 0)


class TestClusterStats:
    """``client.stats()``: what ``worker.stats()`` tells, over all workers, live and gone."""

    pytestmark = pytest.mark.every_store

    async def test_add_up_workers_live_and_gone_by_task_and_queue(self, client, start_worker):
        gate, wait = gated()

        @task(queue="mail")
        async def end(how: str) -> None:
            if how == "fail":
                raise Permanent("failed")

        gone = await start_worker(end)
        await (await client.enqueue(end, "well")).result(10)
        with pytest.raises(FailedError):
            await (await client.enqueue(end, "fail")).result(10)
        await gone.emitted(AttemptFailed)
        await gone.stop()
        live = await start_worker(end, wait, concurrency=7, lease="300ms")
        await (await client.enqueue(end, "well")).result(10)
        await client.enqueue(wait)
        await gate.reached()

        async def is_reported() -> bool:
            return (await client.stats()).started == 4

        await until(is_reported)
        stats = await client.stats()
        gate.open()

        assert (stats.workers, stats.running, stats.concurrency) == (1, 1, 7)
        assert (stats.completed, stats.failed, stats.requeued) == (2, 1, 0)
        assert stats.average_duration is not None
        assert stats.average_duration < timedelta(seconds=1)
        by_task = {(each.task, each.queue): each for each in stats.tasks}
        assert set(by_task) == {("end", "mail"), (wait.name, wait.queue)}
        ends, waits = by_task["end", "mail"], by_task[wait.name, wait.queue]
        assert (ends.started, ends.completed, ends.failed) == (3, 2, 1)
        assert (waits.started, waits.completed, waits.average_duration) == (1, 0, None)
        await live.stop()
        assert (await client.stats()).completed == 3

    async def test_count_each_attempt_once_when_a_worker_runs_again(self, client, store_url):
        worker = Worker(store_url, tasks=[nothing])
        for _ in range(3):
            await client.enqueue(nothing)
            await worker.serve_until_idle()

        assert worker.stats().completed == 3
        assert (await client.stats()).completed == 3

    async def test_lose_no_more_than_a_heartbeat_of_a_killed_worker_with_its_own_id(
        self, client, store, start_worker
    ):
        """Its successor registers under the same id, before the row is pruned."""
        counts = [TaskCounts(task="send", queue="mail", counts={"started": 5, "completed": 4})]
        info = Worker(store, tasks=[nothing], id="w1")._info()
        await store.maintenance.register_worker(info, starts=True)
        await store.maintenance.register_worker(info, counts)
        await start_worker(nothing, id="w1")
        await (await client.enqueue(nothing)).result(10)

        stats = await client.stats()
        assert stats.started >= 5
        assert stats.completed >= 4


class TestScale:
    async def test_up_starts_more_at_once(self, client, start_worker):
        gate, wait = gated()
        worker = await start_worker(wait, concurrency=1)
        jobs = await client.enqueue_many(wait, [() for _ in range(3)])
        await gate.reached(1)
        assert worker.worker.stats().running == 1
        worker.worker.scale(3)
        await gate.reached(3)
        gate.open()

        await client.jobs.results(jobs, timeout=10)

    async def test_down_leaves_running_work_alone_and_starts_less(self, client, start_worker):
        first, second = Gate(), Gate()

        @task
        async def wait(place: str) -> None:
            await (first if place == "first" else second).pass_through()

        worker = await start_worker(wait, concurrency=3)
        early = await client.enqueue_many(wait, ["first"] * 3)
        await first.reached(3)
        worker.worker.scale(1)
        late = await client.enqueue_many(wait, ["second"] * 2)
        first.open()
        await client.jobs.results(early, timeout=10)
        await second.reached(1)

        assert worker.worker.stats().running == 1
        assert await client.jobs.count(status="waiting") == 1
        second.open()
        await client.jobs.results(late, timeout=10)

    async def test_from_another_thread_takes_effect_at_once(self, client, store_url):
        gate = Gate()

        @task
        def wait() -> None:
            gate.pass_in_thread()

        handle = Worker(store_url, tasks=[wait], concurrency=1, poll="1m", lease="5m").start()
        await client.enqueue_many(wait, [() for _ in range(2)])
        await gate.reached(1)
        handle.scale(2)
        await gate.reached(2)

        gate.open()
        handle.shutdown()
        assert await asyncio.to_thread(handle.join, 10)

    @pytest.mark.parametrize("concurrency", [0, -1, True, 2.5, "4", 1_000_000])
    async def test_to_nonsense_is_refused(self, start_worker, concurrency):
        worker = Worker("memory://", tasks=[nothing], concurrency=2)
        with pytest.raises(InvalidInput) as caught:
            worker.scale(concurrency)  # type: ignore[arg-type]
        assert caught.value.faults[0].args["name"] == "concurrency"
        assert worker.stats().concurrency == 2


class TestLiveWorkers:
    async def test_are_listed_with_what_they_run(self, client, world):
        gate, wait = gated(queue="mail")
        job = await world.enqueue(wait, id="worker-a", tags=["gpu"], concurrency=3, lease="1s")
        await gate.reached()
        [listed] = await client.workers.list()
        gate.open()
        await job.result(10)

        assert (listed.info.id, listed.info.pid) == ("worker-a", os.getpid())
        assert listed.info.host == socket.gethostname()
        assert (listed.info.queues, listed.info.tasks) == (("mail",), ("wait",))
        assert (listed.info.tags, listed.info.concurrency) == (("gpu",), 3)
        assert listed.running == (job.id,)
        assert listed.started_at <= listed.seen_at

    async def test_show_how_they_were_scaled(self, client, start_worker):
        worker = await start_worker(nothing, concurrency=3, lease="1h")  # the next renewal is far
        worker.worker.scale(8)

        async def is_shown() -> bool:
            return (await client.workers.list())[0].info.concurrency == 8

        await until(is_shown)

    async def test_show_how_they_were_scaled_while_they_started(
        self, client, start_worker, watch, caplog
    ):
        async def scale() -> None:
            worker.scale(8)
            await asyncio.sleep(0)  # it takes effect on the next turn of the loop

        watch.after["maintenance.take_over_former"] = scale
        worker = Worker(watch.store, tasks=[nothing], concurrency=3, lease="1h")
        async with asyncio.TaskGroup() as serving:
            serving.create_task(worker.serve())

            async def is_shown() -> bool:
                return [each.info.concurrency for each in await client.workers.list()] == [8]

            await until(is_shown)
            worker.shutdown()
        assert not caplog.text


class TestListeners:
    """Typed events to listeners that cannot break the worker; stats, scale, workers."""

    async def test_a_worker_that_is_running_cannot_be_started_again(self, start_worker):
        running: Running = await start_worker(nothing)
        with refused("worker.running"):
            await soon(running.worker.serve())

    def test_a_worker_without_an_id_gets_one_of_its_host_and_process(self, memory_url):
        ids = {Worker(memory_url, tasks=[nothing]).id for _ in range(2)}
        assert len(ids) == 2
        assert all(id.startswith(f"{socket.gethostname()}-{os.getpid()}-") for id in ids)

    async def test_a_worker_and_its_handle_tell_what_they_are(self, memory_url):
        @task(queue="mail")
        async def nothing() -> None:
            pass

        worker = Worker(memory_url, tasks=[nothing], id="w1", concurrency=3)
        described = f"Worker 'w1' on {memory_url}, queues mail, concurrency 3"
        assert repr(worker) == f"<{described}: not running>"

        handle = await asyncio.to_thread(worker.start)
        assert repr(handle) == f"<WorkerHandle of <{described}: 0 jobs running>>"
        handle.shutdown(0)
        assert await asyncio.to_thread(handle.join, WAIT_SECONDS)


class TestProgress:
    """Progress is clamped, throttled, seen live, and the last one is always written."""

    async def test_is_seen_while_the_job_runs(self, client, start_worker):
        gate = Gate()

        @task
        async def half(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.progress(50, "half way", {"done": 1})
            await gate.pass_through()

        worker = await start_worker(half)
        job = await client.enqueue(half)
        progressed = await worker.emitted(AttemptProgressed)
        seen = await job.progress()
        gate.open()
        await job.result(10)

        expected = Progress(percent=50, message="half way", details={"done": 1})
        assert progressed.progress == expected
        assert seen == expected

    @pytest.mark.parametrize("reported, kept", [(-5, 0), (250, 100), (float("inf"), 100)])
    async def test_is_clamped(self, client, start_worker, reported, kept):
        gate = Gate()

        @task
        async def report(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.progress(reported)
            await gate.pass_through()

        worker = await start_worker(report)
        job = await client.enqueue(report)
        await worker.emitted(AttemptProgressed)

        assert (await job.progress()).percent == kept
        gate.open()
        await job.result(10)

    async def test_is_throttled_and_the_last_one_always_written(self, client, start_worker):
        gate = Gate()

        @task
        async def count(ctx: AsyncContext = CONTEXT) -> None:
            for number in range(1000):
                await ctx.progress(number / 20, f"step {number}")
                if number % 100 == 0:
                    await asyncio.sleep(0.05)
            await gate.pass_through()

        worker = await start_worker(count)
        job = await client.enqueue(count)
        await gate.reached()
        while (
            worker.all(AttemptProgressed)[-1:] != []
            and (await job.progress()).message != "step 999"
        ):
            await worker.emitted(AttemptProgressed, count=len(worker.all(AttemptProgressed)) + 1)
        gate.open()
        await job.result(10)

        assert 2 <= len(worker.all(AttemptProgressed)) <= 8
        assert (await job.progress()).message == "step 999"

    async def test_reported_just_before_the_end_is_kept(self, world):
        @task
        async def hurry(ctx: AsyncContext = CONTEXT) -> None:
            for number in range(5):
                await ctx.progress(number, f"step {number}")

        job = await world.enqueue(hurry)
        await job.result(10)
        assert await job.progress() == Progress(percent=100, message="step 4")

    async def test_is_still_written_after_a_job_that_ended_at_once(self, client, start_worker):
        gate = Gate()

        @task
        async def hurry(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.progress(10)

        @task
        async def linger(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.progress(10, "lingering")
            await gate.pass_through()

        worker = await start_worker(hurry, linger)
        await (await client.enqueue(hurry)).result(10)
        lingering = await client.enqueue(linger)
        progressed = await worker.emitted(AttemptProgressed, lingering.id)

        assert progressed.progress.message == "lingering"
        gate.open()
        await lingering.result(10)

    @pytest.mark.parametrize(
        "message, kept", [("a\x00b", "a\\x00b"), ("\ud800", "\\ud800"), (42, "42"), ("ß…", "ß…")]
    )
    async def test_messages_of_any_text_are_kept(self, world, message, kept):
        @task
        async def report(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.progress(50, message, {"zero": "a\x00b"})

        job = await world.enqueue(report)
        await job.result(10)
        assert await job.progress() == Progress(
            percent=100, message=kept, details={"zero": "a\x00b"}
        )

    @pytest.mark.parametrize("details", [{"at": object()}, float("nan"), "\ud800", "x" * 2**20])
    async def test_unstorable_details_are_refused_in_the_body(self, world, details):
        @task
        async def report(ctx: AsyncContext = CONTEXT) -> str:
            with pytest.raises(InvalidInput):
                await ctx.progress(50, "", details)
            return "went on"

        job = await world.enqueue(report)
        assert await job.result(10) == "went on"


class TestAttemptIds:
    async def test_distinguish_all_executions(self, client, start_worker):
        """Finding 28: nodes that continue in place share a job id, and logs were ambiguous."""
        seen: list[str] = []

        @task(retries=Retry(1, first=0))
        async def note(value: int, ctx: AsyncContext = CONTEXT) -> int:
            seen.append(ctx.attempt_id)
            if ctx.attempt == 1 and ctx.node in (None, "third"):
                raise ValueError("once")
            return value

        flow = Flow("f")
        for name in ("first", "second", "third"):
            flow = flow.then(note, name=name)
        built = flow.build()
        worker = await start_worker(note, flows=[built])
        await (await client.submit(built, 1)).result(10)
        await (await client.enqueue(note, 1)).result(10)
        await worker.emitted(AttemptCompleted, count=4)

        assert len(seen) == len(set(seen)) == 6
        assert [event.attempt_id for event in worker.all(AttemptStarted)] == seen
        assert {event.attempt_id for event in worker.all(AttemptRetried)} == {seen[2], seen[4]}
        first, second = worker.all(AttemptStarted)[:2]
        assert first.job_id == second.job_id
