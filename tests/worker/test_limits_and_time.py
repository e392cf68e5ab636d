"""Limits hold across workers; delays, deadlines and timeouts."""

from __future__ import annotations

import asyncio
import json
import os
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    BaseContext,
    Concurrency,
    Context,
    Flow,
    InvalidInput,
    JobDead,
    JobFailed,
    Rate,
    Retry,
    RunFailed,
    Spacing,
    Status,
    task,
)
from perdure.model.job import JobFilter
from perdure.model.payload import PlainCodec
from perdure.worker import attempt
from perdure.worker.events import AttemptFailed as JobFailedEvent
from perdure.worker.events import AttemptProgressed, AttemptStarted
from perdure.worker.log_setup import JsonLines
from tests.support.refusal import failing, fails, refused
from tests.support.tasks import echo, flaky, gated, nothing
from tests.worker import process_tasks
from tests.worker.harness import Gate, Peak, until

pytestmark = pytest.mark.every_store  # processes, clocks and wake-ups differ by store
BRIEFLY = 0.01
TIMED = [Spacing("10ms"), Rate(1, per="10ms"), Rate(100, per="1s", evenly=True)]


class TestWhatOpensByItself:
    @pytest.mark.parametrize("limit", TIMED, ids=["spacing", "rate", "evenly"])
    async def test_lets_the_next_one_start_alongside_the_last(self, client, start_worker, limit):
        together = asyncio.Barrier(3)

        @task(limits=[limit])
        async def meet(number: int) -> int:
            await together.wait()
            return number

        await start_worker(meet, concurrency=10, poll="1m")
        jobs = await client.enqueue_many(meet, range(3))

        assert await client.jobs.results(jobs, timeout=15) == [0, 1, 2]


class TestConcurrency:
    async def test_of_a_task_holds_across_workers(self, client, start_worker):
        peak = Peak()

        @task(limits=[Concurrency(3)])
        async def work(number: int) -> None:
            with peak:
                await asyncio.sleep(BRIEFLY)

        for _ in range(2):
            await start_worker(work, concurrency=10, poll="1m")
        await client.jobs.results(await client.enqueue_many(work, range(30)), timeout=15)

        assert peak.most == 3


KEYS = {"function": lambda order: order["tenant"], "template": "{{ order.tenant }}"}
ORDERS = [{"tenant": tenant} for tenant in ("acme", "umbrella") for _ in range(4)]


class TestNodes:
    """Finding 21: a task whose limit key is computed from the input could not be a node."""

    @pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
    @pytest.mark.parametrize("shape", ["map", "chain", "inputs", "arguments"])
    async def test_are_limited_by_the_key_of_their_input(
        self, client, start_worker, store_url, key, shape
    ):
        peaks = {"acme": Peak(), "umbrella": Peak()}
        attempts = []

        @task(limits=[Concurrency(1, key=key)])
        async def work(order: dict[str, str], ctx: AsyncContext = CONTEXT) -> str:
            attempts.append(ctx.attempt)
            with peaks[order["tenant"]]:
                await asyncio.sleep(BRIEFLY)
            return order["tenant"]

        @task
        async def first(order: dict[str, str]) -> dict[str, str]:
            return order

        flow = {
            "map": Flow("map").map(work),
            "chain": Flow("chain").then(first).then(work),
            "inputs": Flow("inputs").then(first).then(work, inputs={"order": "first.output"}),
            "arguments": Flow("arguments")
            .then(first)
            .then(work, inputs={"given": "first.output"}, config={"order": "{{ given }}"}),
        }[shape].build()
        workers = [await start_worker(flows=[flow], concurrency=8, poll="1m") for _ in range(2)]
        inputs = [ORDERS] if shape == "map" else ORDERS
        runs = [await client.submit(flow, input) for input in inputs]
        results = [await run.result(20) for run in runs]

        found = results[0] if shape == "map" else results
        assert sorted(found) == sorted(order["tenant"] for order in ORDERS)
        assert {tenant: peak.most for tenant, peak in peaks.items()} == {"acme": 1, "umbrella": 1}
        assert attempts == [1] * len(ORDERS)
        assert not any(each.all(JobFailedEvent) for each in workers)

    async def test_have_the_key_of_a_template_as_soon_as_they_are_scheduled(self, client, store):
        @task(limits=[Concurrency(1, key="tenant-{{ input.tenant }}"), Spacing("1s", key="all")])
        def work(order: dict[str, Any]) -> None: ...

        flow = Flow("orders").then(work).build()
        await client.submit(flow, {"tenant": "acme", "input": {"tenant": "other"}}, id="run-1")
        await client.enqueue(work, {"tenant": "acme"})

        jobs = await store.queries.list_jobs(JobFilter(), 10)
        assert [job.limit_keys for job in jobs] == [("tenant-acme",)] * 2

    @pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
    async def test_fail_where_the_input_has_no_key(self, world, key):
        @task(limits=[Concurrency(1, key=key)], retries=3)
        async def work(order: dict[str, str]) -> None: ...

        flow = Flow("orders").then(work).build()
        run = await world.submit(flow, {}, poll="1m")

        with pytest.raises(RunFailed):
            await run.result(20)

    def test_refuse_a_template_that_is_malformed(self):
        with refused("template.not_closed", InvalidInput, where=("limits", 0)):
            task(limits=[Concurrency(1, key="{{ order")])(nothing.function)


class _SlowAtFirst(PlainCodec):
    """Makes the first body start late after its claim."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.decoded = 0

    def decode(self, data: bytes) -> bytes:
        self.decoded += 1
        if self.decoded == 1:
            time.sleep(self._seconds)
        return data


class TestRate:
    @pytest.mark.parametrize("limit", [Rate(1, per="300ms"), Spacing("300ms")], ids=str)
    @pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
    async def test_counts_bodies_that_start_late(self, client, start_worker, limit, is_async):
        """Finding 26: the window holds between starts of bodies, not only between claims."""
        starts: list[float] = []

        def call(number: int) -> None:
            starts.append(time.monotonic())

        async def call_async(number: int) -> None:
            call(number)

        limited = task(limits=[limit], name="call")(call_async if is_async else call)
        codec = _SlowAtFirst(0.2)
        await start_worker(limited, codec=codec, poll="1m")
        await client.jobs.results(await client.enqueue_many(limited, range(3)), timeout=15)

        assert codec.decoded == 3, "none was requeued"
        assert all(after - before >= 0.3 for before, after in pairwise(sorted(starts)))

    @pytest.mark.parametrize("run", ["async", "sync", "process", "process without resources"])
    async def test_counts_bodies_that_wait_for_their_resources_or_process(
        self, client, start_worker, tmp_path, run
    ):
        """Finding 26: they were built after the check, so that bodies started 0.1 s apart, and the
        start of a child process takes longer than the margin.
        """
        times = tmp_path / "times"

        def call(path: str, number: int, slow: float = process_tasks.SLOW) -> None:
            process_tasks.note_time.function(path)

        async def call_async(path: str, number: int, slow: float = process_tasks.SLOW) -> None:
            call(path, number)

        tasks = {"async": task(call_async), "sync": task(call), "process": process_tasks.note_slow}
        is_slow, limits = run in tasks, [Spacing("300ms", key="api")]
        limited = tasks.get(run, process_tasks.note_time)
        provide = process_tasks.provide_slowly
        worker = await start_worker(
            limited, limits=limits, provide=provide, provides=["slow"], poll="1m"
        )
        calls = [(str(times), each) if is_slow else str(times) for each in range(4)]
        jobs = await client.enqueue_many(limited, calls)
        await client.jobs.results(jobs, timeout=30)

        starts = sorted(map(float, times.read_text().split()))
        assert len(starts) == 4
        assert all(after - before >= 0.3 for before, after in pairwise(starts))
        if "process" not in run:  # the first start of a child process takes long, too
            assert worker.worker.stats().started == 4, "none was requeued"

    async def test_starts_a_body_that_is_always_late(self, client, start_worker):
        """Finding 26: its own resources block the event loop for longer than its place is kept."""

        @task(limits=[Spacing("10ms")])
        async def call(slow: float = process_tasks.SLOW) -> str:
            return "called"

        def provide(ctx: BaseContext) -> dict[str, object]:
            time.sleep(0.2)
            return {"slow": 0.2}

        await start_worker(call, provide=provide, provides=["slow"], poll="1m")
        assert await (await client.enqueue(call)).result(15) == "called"

    async def test_starts_nevertheless_with_a_slow_store(
        self, client, start_worker, monkeypatch, caplog
    ):
        """Finding 26: a job under a limit is never stuck, however slow the store is (I7).

        Finding 28: the log line about it names the attempt.
        """
        monkeypatch.setattr("perdure.worker.runner.START_SECONDS_MAX", -1.0)
        monkeypatch.setattr("perdure.worker.attempt.START_SECONDS_MAX", -1.0)

        @task(limits=[Rate(1, per="1h")])
        async def call() -> str:
            return "called"

        await start_worker(call, process_tasks.add, limits=[Rate(1, per="1h", task="add")])

        jobs = [await client.enqueue(call), await client.enqueue(process_tasks.add, 1, 2)]
        assert [await job.result(15) for job in jobs] == ["called", 3]
        lines = [json.loads(JsonLines().format(each)) for each in caplog.records]
        warnings = [each for each in lines if each["message"] == "store too slow for a rate limit"]
        assert {each["attempt_id"] for each in warnings} == {f"{job.id}:1" for job in jobs}

    async def test_requeues_a_body_whose_place_is_taken(self, client, start_worker):
        """Finding 26: too late even to be counted again, it waits for its next turn, uncounted."""
        starts: list[float] = []

        @task(limits=[Rate(1, per="50ms")])
        def call(number: int) -> int:
            starts.append(time.monotonic())
            return number

        codec = _SlowAtFirst(0.5)
        await start_worker(call, codec=codec, poll="1m")
        jobs = await client.enqueue_many(call, range(3))

        assert await client.jobs.results(jobs, timeout=15) == [0, 1, 2]
        assert codec.decoded == 4
        assert all(after - before >= 0.05 for before, after in pairwise(sorted(starts)))
        assert [(await job.record()).attempt for job in jobs] == [1, 1, 1]


# Delays, moments, deadlines, and timeouts of every kind of body.


ON_TIME = timedelta(milliseconds=100)
SLACK = timedelta(milliseconds=250)
"""What a busy machine may add."""


class TestDelay:
    async def test_starts_a_job_on_time(self, client, start_worker):
        started: list[datetime] = []

        @task
        async def note() -> None:
            started.append(datetime.now(UTC))

        await start_worker(note, poll="1m")
        late_by = []
        for delay in (0.15, 0.3, 0.45):
            job = await client.enqueue(note.options(delay=delay))
            due_at = (await job.record()).ready_at
            await job.result(10)
            late_by.append(started[-1] - due_at)

        assert min(late_by) >= timedelta(0)
        assert sorted(late_by)[1] < ON_TIME
        assert max(late_by) < ON_TIME + SLACK


class TestDeadline:
    async def test_fails_a_job_whose_next_try_is_too_late(self, world):
        _, stumble = flaky(ValueError("again"), retries=Retry(1, first="1h", max="1h"))
        job = await world.enqueue(stumble.options(deadline="300ms"), poll="200ms")
        await fails(job, "job.deadline_expired", JobFailed)

        assert [each.failure.type for each in await job.attempts()] == [
            "ValueError",
            "perdure.errors.DeadlineExceeded",
        ]

    @pytest.mark.parametrize("found_type", ["async", "sync"])
    async def test_stops_a_job_while_it_runs(self, client, start_worker, found_type):
        gate, work_async = gated(name="work", retries=Retry(5, first=0))

        @task(name="work", retries=Retry(5, first=0))
        def work_sync() -> None:
            gate.pass_in_thread()

        work = work_async if found_type == "async" else work_sync
        worker = await start_worker(work)
        job = await client.enqueue(work.options(deadline="300ms"))
        await fails(job, "attempt.deadline_exceeded", JobFailed)
        gate.open()

        assert await job.status() is Status.FAILED
        assert len(worker.all(AttemptStarted)) == 1

    async def test_is_not_extended_by_retries(self, world):
        _, stumble = flaky(*[ValueError("again")] * 99, retries=Retry(1000, first="20ms", factor=1))
        job = await world.enqueue(stumble.options(deadline="400ms"), hold_off=0, poll="100ms")
        with pytest.raises(JobFailed) as caught:
            await job.result(10)
        assert caught.value.failure is not None
        assert caught.value.failure.type == "perdure.errors.DeadlineExceeded"


class TestTimeout:
    async def test_counts_as_a_failed_try(self, world):
        _, slow = gated(timeout="50ms", retries=Retry(1, first=0))
        job = await world.enqueue(slow, hold_off=0)
        with pytest.raises(JobDead):
            await job.result(10)

        assert [each.failure.type for each in await job.attempts()] == [
            "perdure.errors.AttemptTimeout"
        ] * 2

    async def test_of_the_call_wins_over_that_of_the_task(self, world):
        _, slow = gated(timeout="1h")
        job = await world.enqueue(slow.options(timeout="50ms"))
        await fails(job, "attempt.timeout", JobFailed)

    async def test_holds_against_a_stubborn_body(self, client, start_worker, monkeypatch):
        monkeypatch.setattr(attempt, "CANCEL_GRACE_SECONDS", 0.1)
        gate = Gate()

        @task(timeout="50ms")
        async def stubborn() -> str:
            while not gate.is_open:
                try:
                    await gate.pass_through()
                except asyncio.CancelledError:
                    continue
            return "too late"

        worker = await start_worker(stubborn, echo, concurrency=1)
        job = await client.enqueue(stubborn)
        await worker.emitted(JobFailedEvent, job.id)
        assert await (await client.enqueue(echo, "the slot is free")).result(10)
        gate.open()
        await fails(job, "attempt.timeout", JobFailed)

    async def test_cancels_an_async_body_whose_answer_to_it_does_not_count(self, world):
        ends: list[str] = []

        @task(timeout="50ms")
        async def stubborn() -> str:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                ends.append("cancelled")
            return "as if nothing had happened"

        await fails(await world.enqueue(stubborn), "attempt.timeout", JobFailed)
        assert ends == ["cancelled"]

    async def test_gives_a_sync_body_up_and_ignores_its_late_result(self, client, start_worker):
        gate = Gate()
        flags: list[bool] = []

        @task(timeout="100ms")
        def slow(ctx: Context = CONTEXT) -> str:
            gate.pass_in_thread()
            flags.append(ctx.aborted)
            gate.leave()
            return "late"

        worker = await start_worker(slow, echo, concurrency=1)
        job = await client.enqueue(slow)
        await fails(job, "attempt.timeout", JobFailed)
        assert await (await client.enqueue(echo, "the slot is free")).result(10)
        gate.open()
        await gate.left()
        assert await (await client.enqueue(echo, "the slot is free")).result(10)

        assert flags == [True]
        assert await job.status() is Status.FAILED
        assert (worker.worker.stats().completed, worker.worker.stats().failed) == (2, 1)

    async def test_really_kills_a_body_in_a_process(self, client, start_worker):
        worker = await start_worker(process_tasks.hang_past_timeout)
        job = await client.enqueue(process_tasks.hang_past_timeout.options(timeout="1s"))
        pid = int((await worker.emitted(AttemptProgressed, job.id)).progress.message)
        assert is_alive(pid)
        await fails(job, "attempt.timeout", JobFailed)

        async def is_gone() -> bool:
            return not is_alive(pid)

        await until(is_gone)

    async def test_shorter_than_the_first_step_leaks_nothing(self, client, start_worker):
        @task(timeout="1ms")
        async def block() -> None:
            time.sleep(0.01)  # the timer of the other one is overdue before its first step
            await asyncio.sleep(30)

        worker = await start_worker(block, concurrency=5)
        jobs = await client.enqueue_many(block, [() for _ in range(5)])
        for job in jobs:
            await fails(job, "attempt.timeout", JobFailed)

        assert worker.worker.stats().running == 0


class TestProcess:
    async def test_runs_sync_and_async_bodies_and_is_used_again(self, client, start_worker):
        tasks = (process_tasks.add, process_tasks.own_pid, process_tasks.log_handlers)
        await start_worker(*tasks, concurrency=1)
        assert await (await client.enqueue(process_tasks.add, 2, second=3)).result(15) == 5
        first = await (await client.enqueue(process_tasks.own_pid)).result(15)
        second = await (await client.enqueue(process_tasks.own_pid)).result(15)
        assert first == second != os.getpid()
        # Only the command line sets up logs.
        assert await (await client.enqueue(process_tasks.log_handlers)).result(15) == 0

    async def test_that_crashes_costs_one_attempt(self, world):
        job = await world.enqueue(process_tasks.die, hold_off=0)
        assert await job.result(15) == "survived"
        [failed] = await job.attempts()
        assert failed.failure.type == "perdure.errors.ProcessCrashed"
        assert "-9" in failed.failure.message

    async def test_reports_failures_like_any_body(self, client, start_worker):
        worker = await start_worker(process_tasks.fail, process_tasks.unstorable, concurrency=1)
        with failing(None, JobFailed, type="KeyError") as caught:
            await (await client.enqueue(process_tasks.fail, "chain")).result(15)
        assert [cause.message for cause in caught.value.failure.causes] == ["the disk"]
        assert "process_tasks.py" in caught.value.failure.traceback
        for found_type in ("exit", "odd"):
            with pytest.raises(JobFailed):
                await (await client.enqueue(process_tasks.fail, found_type)).result(15)
        with failing("payload.not_serializable", JobFailed):
            await (await client.enqueue(process_tasks.unstorable)).result(15)
        later = await client.enqueue(process_tasks.fail, "later")
        await until(later.status, Status.SCHEDULED)
        assert worker.worker.stats().running == 0

    async def test_left_behind_reporters_do_not_reach_the_next_job(self, client, start_worker):
        await start_worker(
            process_tasks.leave_a_reporter_behind, process_tasks.report_once, concurrency=1
        )
        first = await (await client.enqueue(process_tasks.leave_a_reporter_behind)).result(15)
        job = await client.enqueue(process_tasks.report_once)
        second = await job.result(15)
        assert first == second
        assert (await job.progress()).message == "from the present"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
