"""Which failures are tried again, how often, how soon, by whom, and what is recorded of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Concurrency,
    Flow,
    JobDead,
    JobFailed,
    Retry,
    RetryLater,
    Status,
    task,
)
from perdure.engine.failures import CAUSES_MAX, MESSAGE_MAX, TRACEBACK_MAX
from perdure.worker.events import AttemptRetried, AttemptStarted
from tests.support.tasks import echo, flaky

AT_ONCE = Retry(3, first=0, jitter=False)


class Unusual(BaseException):
    """What no handler of ordinary exceptions catches."""


class TestPolicy:
    async def test_of_the_task_retries_until_it_succeeds(self, world):
        _, work = flaky(ValueError("first"), OSError("second"), retries=AT_ONCE)
        job = await world.enqueue(work, hold_off=0)
        assert await job.result(10) == "done"
        record = await job.record()
        assert (record.attempt, record.failures) == (3, 2)

    async def test_of_the_task_dead_letters_when_it_is_used_up(self, world):
        tries, work = flaky(
            *[ValueError(f"try {number}") for number in range(1, 9)], retries=AT_ONCE
        )
        job = await world.enqueue(work, hold_off=0)
        with pytest.raises(JobDead, match="try 4") as caught:
            await job.result(10)

        assert tries.calls == 4
        assert caught.value.failure is not None
        assert caught.value.failure.type == "ValueError"
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

    async def test_after_a_time_uses_up_no_retries(self, world):
        _, work = flaky(*[RetryLater("busy", after=0)] * 4)
        job = await world.enqueue(work)
        assert await job.result(10) == "done"
        record = await job.record()
        assert (record.attempt, record.failures) == (5, 0)
        assert [entry.failure.message for entry in await job.attempts()] == ["busy"] * 4

    async def test_pushes_a_limit_for_every_job_under_it(self, client, start_worker):
        starts: list[tuple[int, float]] = []

        @task(limits=[Concurrency(1, key="api")])
        async def call(number: int) -> int:
            starts.append((number, time.monotonic()))
            if len(starts) == 1:
                raise RetryLater("429", after="500ms", limit="api")
            return number

        @task
        async def other() -> str:
            return "not held up"

        workers = [await start_worker(call, other) for _ in range(2)]
        first = await client.enqueue(call, 1)
        await asyncio.wait(
            [asyncio.create_task(worker.told(AttemptRetried)) for worker in workers],
            return_when=asyncio.FIRST_COMPLETED,
        )
        second = await client.enqueue(call, 2)
        assert await (await client.enqueue(other)).result(10) == "not held up"
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
        await job.result(10)
        first, second = await job.attempts()

        assert (first.attempt, second.attempt) == (1, 2)
        assert (first.failure.type, first.failure.message) == ("ValueError", "first")
        assert (second.failure.type, second.failure.message) == ("KeyError", "'second'")
        assert first.worker == second.worker == worker.id
        assert first.at <= second.at
        assert "raise self.left.pop(0)" in first.failure.traceback

    @pytest.mark.parametrize("found_type", ["async", "sync"])
    async def test_keeps_the_chain_of_causes(self, world, found_type):
        def fail() -> None:
            try:
                try:
                    raise OSError("the disk")
                except OSError as error:
                    raise KeyError("the page") from error
            except KeyError:
                raise RuntimeError("the book")  # noqa: B904 (a context without a cause)

        @task(name="read")
        async def read_async() -> None:
            fail()

        @task(name="read")
        def read_sync() -> None:
            fail()

        read: Any = read_async if found_type == "async" else read_sync
        job = await world.enqueue(read)
        with pytest.raises(JobFailed) as caught:
            await job.result(10)
        failure = caught.value.failure

        assert failure is not None
        causes = [(cause.type, cause.message) for cause in failure.causes]
        assert causes == [("KeyError", "'the page'"), ("OSError", "the disk")]
        assert "perdure/worker" not in failure.traceback
        assert failure.traceback in "".join(caught.value.__notes__)

    @pytest.mark.parametrize("case", ["long", "deep", "unreadable", "unstorable", "recursive"])
    async def test_is_bounded_whatever_is_raised(self, world, case):
        @task
        async def work() -> None:
            ODD_ERRORS[case]()

        job = await world.enqueue(work)
        with pytest.raises(JobFailed) as caught:
            await job.result(10)
        failure = caught.value.failure

        assert failure is not None
        assert len(failure.message) <= MESSAGE_MAX
        assert len(failure.traceback) <= TRACEBACK_MAX
        assert len(failure.causes) <= CAUSES_MAX

    @pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, Unusual])
    async def test_takes_any_exception_for_a_failure(self, client, start_worker, error):
        @task
        async def work() -> None:
            raise error

        worker = await start_worker(work, concurrency=1)
        for _ in range(2):
            with pytest.raises(JobFailed, match=error.__name__):
                await (await client.enqueue(work)).result(10)
        assert worker.worker.stats().running == 0


def _long() -> None:
    raise ValueError("x" * 1_000_000)


def _deep() -> None:
    error: Exception = ValueError("the first")
    for number in range(50):
        following = ValueError(f"link {number}")
        following.__cause__ = error
        error = following
    raise error


def _unreadable() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    raise Unreadable


def _unstorable() -> None:
    raise ValueError("zero \x00 and half a pair \ud800")


def _recursive() -> None:
    _recursive()


ODD_ERRORS: dict[str, Callable[[], None]] = {
    "long": _long,
    "deep": _deep,
    "unreadable": _unreadable,
    "unstorable": _unstorable,
    "recursive": _recursive,
}


class TestRetries:
    """Which failures are tried again, how often, how soon, and what is kept of them."""

    async def test_of_a_job_started_anew_count_from_zero(self, client, start_worker):
        _, work = flaky(*[ValueError("again")] * 4, retries=Retry(1, first=0))
        worker = await start_worker(work, hold_off=0)
        job = await client.enqueue(work)
        for _ in range(2):
            with pytest.raises(JobDead):
                await job.result(10)
            await job.retry()

        assert await job.result(10) == "done"
        assert len(worker.all(AttemptStarted)) == 5
        assert len(await job.attempts()) == 4

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
    """A retry prefers another worker; a lone worker still makes progress."""

    async def test_gives_a_retry_to_another_worker(self, client, start_worker):
        ran_on: list[str] = []

        @task(retries=AT_ONCE)
        async def work(ctx: AsyncContext = CONTEXT) -> str:
            ran_on.append(ctx.worker)
            if len(ran_on) == 1:
                raise ValueError("not here")
            return ctx.worker

        for name in ("one", "two"):
            await start_worker(work, id=name, hold_off="1h")
        job = await client.enqueue(work)
        finished_on = await job.result(10)

        assert len(ran_on) == 2
        assert ran_on[0] != finished_on

    async def test_holds_a_lone_worker_off_for_a_while_only(self, world):
        starts: list[float] = []

        @task(retries=AT_ONCE)
        async def work() -> str:
            starts.append(time.monotonic())
            if len(starts) == 1:
                raise ValueError("again")
            return "done"

        job = await world.enqueue(work, hold_off="300ms", poll="1m")

        assert await job.result(10) == "done"
        assert 0.3 <= starts[1] - starts[0] < 1.5

    async def test_of_one_job_holds_up_no_other(self, client, start_worker):
        @task(retries=AT_ONCE)
        async def work(name: str) -> str:
            if name == "bad":
                raise ValueError("again")
            return name

        worker = await start_worker(work, hold_off="1h", concurrency=1)
        bad = await client.enqueue(work, "bad")
        await worker.told(AttemptRetried, bad.id)
        good = await client.enqueue(work, "good")

        assert await good.result(10) == "good"
        assert (await bad.record()).attempt == 1


class Evasive(Exception):
    """Has every attribute one asks for, and gives none."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name} for you")


class Closed(Exception):
    """Cannot even be asked for what every exception has."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(f"no {name} for you")


class Mute(Exception):
    """Ends whoever tries to read it."""

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
