"""Which failures are tried again, how often, how soon, by whom, and what is recorded of them."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Concurrency,
    Flow,
    JobDead,
    JobFailed,
    Rate,
    Retry,
    RetryLater,
    Status,
    Worker,
    task,
)
from perdure.worker.events import AttemptRetried
from tests.support.refusal import failing
from tests.support.tasks import echo, flaky

AT_ONCE = Retry(3, first=0, jitter=False)


class Unusual(BaseException):
    """What no handler of ordinary exceptions catches."""


class TestPolicy:
    async def test_of_the_task_dead_letters_when_it_is_used_up(self, world):
        tries, work = flaky(
            *[ValueError(f"try {number}") for number in range(1, 9)], retries=AT_ONCE
        )
        job = await world.enqueue(work, hold_off=0)
        with failing(None, JobDead, type="ValueError") as caught:
            await job.result(10)

        assert (tries.calls, caught.value.failure.message) == (4, "try 4")
        assert (await job.record()).status is Status.DEAD

    async def test_of_the_call_wins_over_that_of_the_task(self, world):
        tries, work = flaky(*[ValueError("again")] * 9, retries=AT_ONCE)
        job = await world.enqueue(work.options(retries=Retry(1, first=0, jitter=False)), hold_off=0)
        with pytest.raises(JobDead):
            await job.result(10)
        assert tries.calls == 2


class TestRetryLater:
    async def test_until_a_moment_runs_again_then(self, world):
        wanted = datetime.now(UTC) + timedelta(milliseconds=300)
        starts: list[datetime] = []

        @task
        async def work() -> str:
            starts.append(datetime.now(UTC))
            if len(starts) == 1:
                raise RetryLater("busy", until=wanted)
            return "done"

        job = await world.enqueue(work)

        assert await job.result(10) == "done"
        assert timedelta(0) <= starts[1] - wanted < timedelta(milliseconds=300)

    async def test_after_a_time_counts_as_a_snooze(self, world):
        _, work = flaky(*[RetryLater("busy", after=0)] * 4)
        job = await world.enqueue(work)
        assert await job.result(10) == "done"
        record = await job.record()
        assert (record.attempt, record.failures, record.snoozes) == (5, 0, 4)
        assert [entry.failure.message for entry in await job.attempts()] == ["busy"] * 4

    @pytest.mark.parametrize(
        "settings, options, executions",
        [
            ({"retries": 3}, {}, 4),
            ({}, {"retries": 3}, 4),
            ({"retries": 9}, {"max_attempts": 3}, 3),
            ({"max_snoozes": 2}, {}, 3),
            ({}, {}, 11),
        ],
    )
    async def test_stays_within_what_bounds_the_attempts(
        self, world, settings, options, executions
    ):
        executed = []

        @task(**settings)
        async def work() -> None:
            executed.append(1)
            raise RetryLater("busy", after=0)

        job = await world.enqueue(work.options(**options))
        with pytest.raises(JobFailed):
            await job.result(20)
        assert len(executed) == executions
        assert (await job.record()).status is Status.DEAD

    async def test_without_a_time_waits_for_its_limit(self, world):
        starts: list[float] = []

        @task(limits=[Rate(1, per="700ms")], retries=Retry(2, first="1ms"))
        async def work() -> str:
            starts.append(time.monotonic())
            if len(starts) == 1:
                raise RetryLater("busy")
            return "done"

        job = await world.enqueue(work)
        assert await job.result(20) == "done"
        assert starts[1] - starts[0] >= 0.7

    async def test_pushes_a_limit_for_every_job_under_it(self, client, start_worker):
        starts: list[tuple[int, float]] = []

        @task(limits=[Concurrency(1, key="api")])
        async def call(number: int) -> int:
            starts.append((number, time.monotonic()))
            if len(starts) == 1:
                raise RetryLater("429", after="500ms", limit="api")
            return number

        workers = [await start_worker(call, echo) for _ in range(2)]
        first = await client.enqueue(call, 1)
        await asyncio.wait(
            [asyncio.create_task(worker.emitted(AttemptRetried)) for worker in workers],
            return_when=asyncio.FIRST_COMPLETED,
        )
        second = await client.enqueue(call, 2)
        assert await (await client.enqueue(echo, "not held up")).result(10)
        await client.jobs.results([first, second], timeout=10)

        pushed_at = starts[0][1]
        assert all(at - pushed_at >= 0.5 for _, at in starts[1:])

    @pytest.mark.parametrize("how", ["made so", "changed later"])
    async def test_for_a_time_out_of_reach_fails_its_job_alone(self, store_url, start_worker, how):
        @task
        async def work() -> None:
            if how == "made so":
                raise RetryLater("much later", after="9999999d")
            error = RetryLater("much later")
            error.after = timedelta.max
            raise error

        async with (
            AsyncClient(store_url, namespace="a") as client,
            AsyncClient(store_url, namespace="b") as neighbour,
        ):
            await start_worker(work, namespace="a")
            job = await client.enqueue(work)
            with pytest.raises(JobFailed):
                await job.result(10)
            await start_worker(echo, namespace="b")

            assert await (await neighbour.enqueue(echo, 1)).result(10) == 1
            assert await (await neighbour.enqueue(echo.options(delay="50ms"), 2)).result(10) == 2
            assert [record.id for record in await client.jobs.list()] == [job.id]


class TestHistory:
    async def test_keeps_every_failed_attempt(self, client, start_worker):
        _, work = flaky(ValueError("first"), KeyError("second"), retries=AT_ONCE)
        worker = await start_worker(work, hold_off=0)
        job = await client.enqueue(work)
        assert await job.result(10) == "done"
        record = await job.record()
        assert (record.attempt, record.failures) == (3, 2)
        first, second = await job.attempts()

        assert (first.attempt, second.attempt) == (1, 2)
        assert (first.failure.type, first.failure.message) == ("ValueError", "first")
        assert (second.failure.type, second.failure.message) == ("KeyError", "'second'")
        assert first.worker == second.worker == worker.id
        assert first.at <= second.at
        assert "raise self.left.pop(0)" in first.failure.traceback

    @pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, Unusual])
    async def test_takes_any_exception_for_a_failure(self, client, start_worker, error):
        @task
        async def work() -> None:
            raise error

        worker = await start_worker(work, concurrency=1)
        for _ in range(2):
            with pytest.raises(JobFailed) as caught:
                await (await client.enqueue(work)).result(10)
            assert caught.value.failure is not None
            assert caught.value.failure.type.endswith(error.__name__)
        assert worker.worker.stats().running == 0


class TestRetries:
    async def test_see_which_attempt_they_are(self, world):
        seen: list[tuple[int, str]] = []

        @task(retries=AT_ONCE)
        async def work(ctx: AsyncContext = CONTEXT) -> None:
            seen.append((ctx.attempt, ctx.idempotency_key))
            if ctx.attempt < 3:
                raise ValueError("again")

        job = await world.enqueue(work, hold_off=0)
        await job.result(10)

        assert seen == [(1, job.id), (2, job.id), (3, job.id)]


class TestSoftAffinity:
    """A retry prefers another worker that can take it; a lone worker does not wait for one."""

    @pytest.mark.parametrize("others", ["none", "without its code", "of other queues", "silent"])
    async def test_is_not_held_off_without_another_worker_for_it(
        self, client, start_worker, store, others
    ):
        @task(retries=AT_ONCE)
        async def work(ctx: AsyncContext = CONTEXT) -> str:
            if ctx.attempt == 1:
                raise ValueError("again")
            return ctx.worker

        settings = {"hold_off": "1h", "poll": "1m"}
        flow = Flow("works").then(work).build()
        if others == "silent":
            info = Worker("memory://", tasks=[work], flows=[flow], id="gone", lease=1e-6)._info()
            await store.maintenance.register_worker(info)
        own = await start_worker(work, flows=[flow], **settings)
        if others == "without its code":
            await start_worker(echo, **settings)
        elif others == "of other queues":
            await start_worker(work, flows=[flow], queues=["other"], **settings)

        assert await (await client.enqueue(work)).result(10) == own.id
        assert await (await client.submit(flow)).result(10) == own.id

    async def test_is_left_to_another_live_worker(self, client, start_worker):
        workers: list[str] = []

        @task(retries=AT_ONCE)
        async def work(ctx: AsyncContext = CONTEXT) -> None:
            workers.append(ctx.worker)
            if ctx.attempt == 1:
                raise ValueError("again")

        for _ in range(2):
            await start_worker(work, hold_off="1h")
        for _ in range(5):
            workers.clear()
            await (await client.enqueue(work)).result(10)
            first, second = workers
            assert first != second


class Evasive(Exception):
    """Has every attribute one asks for, and gives none."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name} for you")


class Closed(Exception):
    """Cannot even be asked for what every exception has."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(f"no {name} for you")


class Mute(Exception):
    """Ends any process that reads it."""

    def __str__(self) -> str:
        raise SystemExit("not a word")

    __repr__ = __str__


class Unfinished(RetryLater):
    """Forgot to call what sets its attributes."""

    def __init__(self) -> None:
        pass


ODD: dict[str, type[Exception]] = {
    each.__name__: each for each in (Evasive, Closed, Mute, Unfinished)
}


@task(name="work")
async def work_async(odd: str) -> None:
    raise ODD[odd]


@task(name="work")
def work_sync(odd: str) -> None:
    raise ODD[odd]


@task(name="work", isolation="process")
def work_in_process(odd: str) -> None:
    raise ODD[odd]


@task
async def cancel_oneself(value: int) -> int:
    """Returns, but has asked for its own end before."""
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    return value


@task
async def cancel_oneself_later(value: int) -> int:
    """Leaves a timer behind that cancels whatever its task does by then."""
    current = asyncio.current_task()
    assert current is not None
    asyncio.get_running_loop().call_soon(current.cancel)
    return value


class TestOddErrors:
    """Exceptions whose own code fails: the attempt ends all the same, and its slot is free."""

    @pytest.mark.parametrize(
        "work", [work_async, work_sync, work_in_process], ids=lambda it: it.__name__
    )
    async def test_an_error_that_cannot_be_read_ends_its_attempt(self, client, start_worker, work):
        worker = await start_worker(work, concurrency=1)
        for odd in ODD:
            with pytest.raises(JobFailed) as caught:
                await (await client.enqueue(work, odd)).result(15)
            assert caught.value.failure is not None
            assert caught.value.failure.type == f"{__name__}.{odd}"
        assert worker.worker.stats().running == 0

    async def test_follow_the_policy_if_an_error_has_a_type(self, world):
        tries: list[str] = []

        @task(retries=Retry(1, first=0))
        async def work(odd: str) -> str:
            tries.append(odd)
            if len(tries) == 1:
                raise ODD[odd]
            return "done"

        assert await (await world.enqueue(work, "Mute")).result(10) == "done"

    @pytest.mark.parametrize(
        "work", [cancel_oneself, cancel_oneself_later], ids=lambda it: it.__name__
    )
    async def test_a_body_that_cancels_its_task_too_late_counts(self, client, start_worker, work):
        flow = Flow("twice").then(work, name="a").then(work, name="b").build()
        await start_worker(work, flows=[flow])
        assert await (await client.enqueue(work, 1)).result(10) == 1
        assert await (await client.submit(flow, 2)).result(10) == 2
