"""Stops and aborts: work may finish, the rest is requeued, and running jobs hear of it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from perdure import (
    CONTEXT,
    Aborted,
    AsyncContext,
    Context,
    JobCancelled,
    Retry,
    Status,
    Worker,
    task,
)
from perdure.worker import attempt
from perdure.worker.events import AttemptCancelled as JobCancelledEvent
from perdure.worker.events import (
    AttemptCompleted,
    AttemptProgressed,
    AttemptRequeued,
    AttemptRetried,
    AttemptStarted,
)
from tests.support.tasks import echo, gated, nothing
from tests.worker import process_tasks
from tests.worker.harness import Gate, Running, soon, stress_start_stop, until

pytestmark = pytest.mark.every_store  # processes, clocks and wake-ups differ by store


class TestStop:
    """A stop lets work finish, gives the rest back, and fails or cancels nothing."""

    async def test_returns_at_once_when_idle(self, start_worker):
        worker = await start_worker(nothing)
        began = time.monotonic()
        await worker.stop(grace=60)
        assert time.monotonic() - began < 1.5

    async def test_start_is_reported_once_the_worker_is_in_the_list(self, client, watch):
        started, before = asyncio.Event(), []

        async def look() -> None:
            before.append(started.is_set())

        watch.after["maintenance.register_worker"] = look
        worker = Worker(watch.store, tasks=[nothing])
        serving = asyncio.create_task(worker.serve(started=started.set))
        await soon(started.wait())

        assert before == [False]
        assert [each.info.id for each in await client.workers.list()] == [worker.id]
        worker.shutdown()
        await soon(serving)

    async def test_lets_work_finish_within_its_grace(self, client, start_worker):
        gate, wait = gated()
        worker = await start_worker(wait, concurrency=2)
        running = await client.enqueue_many(wait, [(), ()])
        await gate.reached(2)
        queued = await client.enqueue(wait)
        worker.worker.shutdown("1m")
        gate.open()
        await worker.stopped()

        assert await client.jobs.results(running, timeout=10) == ["done", "done"]
        assert await queued.status() is Status.WAITING
        assert len(worker.all(AttemptCompleted)) == 2
        assert worker.all(AttemptRequeued) == []

    @pytest.mark.parametrize("found_type", ["async", "sync"])
    async def test_requeues_what_remains_at_no_cost(self, client, start_worker, found_type):
        gate, wait_async = gated(name="wait")

        @task(name="wait")
        def wait_sync() -> str:
            gate.pass_in_thread()
            return "done"

        wait = wait_async if found_type == "async" else wait_sync
        # With no slot to spare: a claim under way at the stop would requeue it once more.
        worker = await start_worker(wait, concurrency=1)
        job = await client.enqueue(wait.options(max_attempts=1))
        await gate.reached()
        await worker.stop(grace=0.05)
        left = await job.record()
        gate.open()
        await start_worker(wait)

        assert (left.status, left.attempt, left.failures) == (Status.WAITING, 0, 0)
        assert [event.job_id for event in worker.all(AttemptRequeued)] == [job.id]
        assert await job.result(10) == "done"
        assert (await job.record()).attempt == 1
        assert await job.attempts() == []

    @pytest.mark.parametrize("timeout", [None, "50ms"], ids=["stop", "timeout"])
    async def test_keeps_the_job_of_a_sync_body_while_its_abort_grace_lasts(
        self, client, start_worker, timeout
    ):
        gate = Gate()

        @task(timeout=timeout, retries=Retry(1, first="1h"))
        def finish(ctx: Context = CONTEXT) -> None:
            ctx.abort_signal.wait(10)
            gate.pass_in_thread()

        worker = await start_worker(finish, abort_grace="1h")
        job = await client.enqueue(finish)
        await worker.emitted(AttemptStarted)
        if timeout is None:
            worker.worker.shutdown(0)
        await gate.reached()
        while_it_ran = await job.status()
        gate.open()

        if timeout is None:
            await worker.stopped()
            record = await job.record()
            assert (record.status, record.attempt) == (Status.WAITING, 0)
        else:
            retried = await worker.emitted(AttemptRetried, job.id)
            assert retried.failure.type == "perdure.errors.AttemptTimeout"
        assert while_it_ran is Status.ACTIVE

    async def test_requeues_a_job_that_answers_cancellation_with_an_error(
        self, client, start_worker
    ):
        gate = Gate()

        @task
        async def wait() -> None:
            try:
                await gate.pass_through()
            except asyncio.CancelledError:
                raise ValueError("a bad end") from None

        worker = await start_worker(wait)
        job = await client.enqueue(wait)
        await gate.reached()
        await worker.stop()

        assert await job.status() is Status.WAITING
        assert await job.attempts() == []

    async def test_does_not_wait_for_a_stubborn_body(self, client, start_worker, monkeypatch):
        monkeypatch.setattr(attempt, "CANCEL_GRACE_SECONDS", 0.1)
        gate = Gate()

        @task
        async def stubborn() -> None:
            while not gate.is_open:
                try:
                    await gate.pass_through()
                except asyncio.CancelledError:
                    continue

        worker = await start_worker(stubborn)
        job = await client.enqueue(stubborn)
        await gate.reached()
        await worker.stop()
        gate.open()

        assert (await job.record()).status is Status.WAITING

    async def test_kills_processes_and_gives_their_jobs_back(self, client, start_worker):
        worker = await start_worker(process_tasks.hang)
        job = await client.enqueue(process_tasks.hang)
        await worker.emitted(AttemptStarted)
        await worker.stop()
        record = await job.record()
        assert (record.status, record.attempt) == (Status.WAITING, 0)

    async def test_asked_again_less_patiently_is_shorter(self, client, start_worker):
        gate, wait = gated()
        worker = await start_worker(wait)
        job = await client.enqueue(wait)
        await gate.reached()
        worker.worker.shutdown("1h")
        await asyncio.sleep(0)
        worker.worker.shutdown("1h")
        worker.worker.shutdown(0)
        await worker.stopped()

        assert await job.status() is Status.WAITING

    async def test_asked_while_the_store_is_being_opened_is_not_lost(self, store_url):
        worker = Worker(store_url, tasks=[nothing])
        serving = asyncio.create_task(worker.serve())
        await asyncio.sleep(0)
        worker.shutdown()
        await soon(serving)

    async def test_of_the_event_loop_itself_fails_no_job(self, client, store, store_url):
        inside = threading.Event()

        @task
        async def wait() -> None:
            inside.set()
            await asyncio.sleep(60)

        async def serve_and_leave() -> None:
            asyncio.create_task(Worker(store_url, tasks=[wait]).serve())  # noqa: RUF006
            await asyncio.to_thread(inside.wait, 10)

        job = await client.enqueue(wait)
        await asyncio.to_thread(asyncio.run, serve_and_leave())
        record = await job.record()

        assert (record.status, record.attempt) == (Status.WAITING, 0)
        assert await job.attempts() == []

    async def test_by_cancelling_serve_is_graceful(self, client, store_url):
        gate, wait = gated()
        serving = asyncio.create_task(Worker(store_url, tasks=[wait]).serve())
        job = await client.enqueue(wait)
        await gate.reached()
        serving.cancel()
        gate.open()
        await asyncio.wait([serving], timeout=10)

        assert serving.cancelled()
        assert await job.result(10) == "done"

    async def test_and_start_may_be_repeated(self, client, store_url):
        worker = Worker(store_url, tasks=[echo])
        for number in range(3):
            job = await client.enqueue(echo, number)
            handle = worker.start()
            assert await job.result(10) == number
            handle.shutdown()
            assert await asyncio.to_thread(handle.join, 10)

        assert worker.stats().completed == 3
        assert list(await client.workers.list()) == []

    async def test_at_any_moment_loses_no_job(self, client, store_url):
        """Start, enqueue and stop over and over, with the stop landing anywhere in between."""
        ran: list[int] = []

        @task
        async def note(number: int) -> int:
            await asyncio.sleep(0.002)
            ran.append(number)
            return number

        jobs = []
        for round_ in range(12):
            jobs += await client.enqueue_many(note, range(round_ * 10, round_ * 10 + 10))
            running = await Running(Worker(store_url, tasks=[note], concurrency=3)).start()
            await asyncio.sleep(round_ * 0.003)  # what varies is where the stop lands
            await running.stop(grace=0 if round_ % 2 else 5)
        last = await Running(Worker(store_url, tasks=[note])).start()
        results = await client.jobs.results(jobs, timeout=20)
        await last.stop()

        assert results == list(range(120))
        assert sorted(set(ran)) == list(range(120))
        records = [await client.jobs.get(job.id) for job in jobs[::10]]
        assert {(record.failures, record.crashes, record.attempt) for record in records} == {
            (0, 0, 1)
        }

    def test_by_a_signal_handler_ends_the_join_of_the_main_thread(self, store_url):
        handle = Worker(store_url, tasks=[nothing]).start()
        before = signal.signal(signal.SIGTERM, lambda *_: handle.shutdown())
        try:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
            assert handle.join(20)
        finally:
            signal.signal(signal.SIGTERM, before)

    async def test_and_start_side_by_side_leave_nothing_behind(self, client, store_url):
        @task
        async def work(number: int) -> int:
            await asyncio.sleep(0.001)
            return number

        jobs = await client.enqueue_many(work, range(50))
        await stress_start_stop(lambda: Worker(store_url, tasks=[work], concurrency=3))
        last = await Running(Worker(store_url, tasks=[work])).start()
        assert await client.jobs.results(jobs, timeout=20) == list(range(50))
        await last.stop()

        assert list(await client.workers.list()) == []
        assert {job.crashes for job in await client.jobs.list(limit=100)} == {0}

    async def test_leaves_no_thread_behind(self, store_url):
        await stress_start_stop(lambda: Worker(store_url, tasks=[nothing]))
        names = [thread.name for thread in threading.enumerate()]
        assert [name for name in names if name.startswith("perdure")] == []


async def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class TestAbort:
    """Waiting jobs are cancelled at once, running ones notified within a second."""

    async def test_cancels_an_active_async_body_after_its_grace(self, client, start_worker):
        gate = Gate()
        ends: list[str] = []

        @task
        async def work() -> None:
            try:
                await gate.pass_through()
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        worker = await start_worker(work, abort_grace="50ms")
        job = await client.enqueue(work)
        await gate.reached()
        outcome = await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(10)

        assert outcome.after is Status.ABORTING
        assert ends == ["cancelled"]
        await worker.emitted(JobCancelledEvent, job.id)
        assert (worker.worker.stats().cancelled, worker.worker.stats().running) == (1, 0)

    async def test_lets_a_body_end_by_itself_within_its_grace(self, client, start_worker):
        ends: list[str] = []

        @task
        async def work(ctx: AsyncContext = CONTEXT) -> str:
            while True:
                try:
                    ctx.check()
                except Aborted as error:
                    ends.append(str(error))
                    return "tidied up"
                await asyncio.sleep(0.01)

        worker = await start_worker(work, abort_grace="1h")
        job = await client.enqueue(work)
        await worker.emitted(AttemptStarted)
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(10)

        assert ends == [f"job {job.id}: the job was aborted"]

    async def test_flags_a_sync_body_and_continues_without_it(self, client, start_worker):
        gate = Gate()
        flags: list[bool] = []

        @task
        def ignore(ctx: Context = CONTEXT) -> str:
            gate.pass_in_thread()
            flags.append(ctx.aborted)
            gate.leave()
            return "overwritten?"

        await start_worker(ignore, echo, abort_grace="50ms", concurrency=1)
        job = await client.enqueue(ignore)
        await gate.reached()
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(10)
        gate.open()
        await gate.left()
        assert await (await client.enqueue(echo, "the slot is free")).result(10)

        assert flags == [True]
        assert await job.status() is Status.CANCELLED
        assert (await job.record()).output is None

    async def test_wakes_a_sync_body_that_waits_for_its_signal(self, client, start_worker):
        heard: list[str | None] = []

        @task
        def wait(ctx: Context = CONTEXT) -> None:
            ctx.progress(1, "waiting")
            ctx.abort_signal.wait(10)
            heard.append(ctx.abort_signal.reason)

        worker = await start_worker(wait, abort_grace="1h")
        job = await client.enqueue(wait)
        await worker.emitted(AttemptProgressed)
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(10)

        assert heard == ["the job was aborted"]

    async def test_wins_over_a_failure_that_would_be_retried(self, client, start_worker):
        @task(retries=Retry(5, first=0))
        async def stumble(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.abort_signal.wait_async()
            raise ValueError("while being aborted")

        worker = await start_worker(stumble, hold_off=0)
        job = await client.enqueue(stumble)
        await worker.emitted(AttemptStarted)
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(10)

        assert len(worker.all(AttemptStarted)) == 1

    async def test_reaches_a_body_in_a_process_and_kills_it_if_need_be(self, client, start_worker):
        worker = await start_worker(process_tasks.heed, process_tasks.hang, abort_grace="1s")
        heeding = await client.enqueue(process_tasks.heed)
        hanging = await client.enqueue(process_tasks.hang)
        await worker.emitted(AttemptProgressed, heeding.id)
        pid = int((await worker.emitted(AttemptProgressed, hanging.id)).progress.message)
        await heeding.cancel()
        await hanging.cancel()
        for job in (heeding, hanging):
            with pytest.raises(JobCancelled):
                await job.result(10)

        assert (await heeding.progress()).message == "heard: the job was aborted"
        await until(lambda: is_gone(pid))
