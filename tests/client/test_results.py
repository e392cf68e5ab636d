"""Waiting for a result: what comes back, never missed, never busy-polled; progress, live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    AsyncJobHandle,
    JobCancelled,
    JobDead,
    JobDisabled,
    JobFailed,
    JobUpdate,
    NoResult,
    Progress,
    ResultTimeout,
    RunStatus,
    Status,
    StoreError,
)
from perdure.client import handles
from perdure.engine.failures import describe
from perdure.model.hint import Hint, HintType
from perdure.model.outcome import Retried
from perdure.model.payload import from_json
from perdure.operations import waiting
from perdure.store.contract import Store
from tests.client.flows import Point, add, asking, echo, mirror, until_aborted
from tests.client.harness import MINUTE, CountedStore, PlayedWorker
from tests.support.refusal import failing, refused

pytestmark = pytest.mark.every_store  # processes, clocks and wake-ups differ by store

# What comes back to the waiter: a typed result, or a typed error with all that is known.


def chained() -> Exception:
    try:
        try:
            raise KeyError("deep")
        except KeyError as cause:
            raise ValueError("shallow") from cause
    except ValueError as error:
        return error


class TestResult:
    async def test_comes_back_as_it_went_in(self, client, worker):
        values = [0, False, "", [], {}, None, 1.5, "x", {"a": [None]}]
        handles = await client.enqueue_many(echo, values)
        for job in await worker.claim_all():
            [value], _ = from_json(job.input)
            await worker.complete(job, value)
        results = await client.jobs.results(handles, timeout=10)
        assert [(type(each), each) for each in results] == [(type(each), each) for each in values]

    async def test_has_the_type_that_the_task_declares(self, client, worker):
        handle = await client.enqueue(mirror, Point(1, 2))
        await worker.complete(await worker.claim(), {"x": 2, "y": 1})
        assert await handle.result(timeout=10) == Point(2, 1)
        assert await client.jobs.handle(handle.id, mirror).result(timeout=10) == Point(2, 1)

    async def test_is_plain_values_where_no_type_is_known_or_fits(self, client, worker):
        handle: AsyncJobHandle[Any] = await client.enqueue(mirror, Point(1, 2))
        await worker.complete(await worker.claim(), "not a point")
        assert await handle.result(timeout=10) == "not a point"
        assert await client.jobs.handle(handle.id).result(timeout=10) == "not a point"


class TestFailure:
    async def test_comes_back_with_type_message_traceback_and_causes(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.fail(await worker.claim(), chained())

        with failing(None, JobFailed, type="ValueError") as caught:
            await handle.result(timeout=10)

        failure = caught.value.failure
        assert failure.message == "shallow"
        assert [(cause.type, cause.message) for cause in failure.causes] == [("KeyError", "'deep'")]
        assert 'raise ValueError("shallow")' in caught.value.__notes__[0]
        assert caught.value.job_id == handle.id

    async def test_of_the_last_attempt_says_that_it_is_dead(self, client, worker):
        handle = await client.enqueue(add.options(max_attempts=2), 1)
        await worker.settle(await worker.claim(), Retried(failure=describe(OSError("first"))))
        await worker.dead_letter(await worker.claim(), OSError("second"))

        with refused("job.dead", JobDead, attempt=2, reason="OSError: second"):
            await handle.result(timeout=10)

        history = await handle.attempts()
        assert [(each.attempt, each.failure.message) for each in history] == [
            (1, "first"),
            (2, "second"),
        ]
        assert {each.worker for each in history} == {worker.id}

    async def test_of_a_cancelled_job_is_typed(self, client, worker):
        handle = await client.enqueue(add, 1)
        await handle.cancel()
        with refused("job.cancelled", JobCancelled):
            await handle.result(timeout=10)

    async def test_of_a_disabled_job_says_how_to_continue(self, client):
        handle = await client.enqueue(add, 1)
        await client.jobs.disable(handle.id)
        with refused("job.disabled", JobDisabled):
            await handle.result(timeout=10)


class TestResults:
    async def test_raise_the_first_error_or_hold_errors_when_asked_to(self, client, worker):
        handles = await client.enqueue_many(echo, [1, 2])
        good, bad = await worker.claim_all()
        await worker.complete(good, 1)
        await worker.fail(bad, ValueError("no"))
        with pytest.raises(JobFailed):
            await client.jobs.results(handles, timeout=10)
        first, second = await client.jobs.results(handles, timeout=10, return_errors=True)
        assert first == 1
        assert isinstance(second, JobFailed)


class TestResultOf:
    async def test_returns_a_completed_result_for_the_same_task_and_input(self, client, worker):
        await client.enqueue(mirror, Point(1, 2))
        await worker.complete(await worker.claim(), {"x": 2, "y": 1})
        assert await client.jobs.find_result(mirror, [Point(1, 2)]) == Point(2, 1)
        assert await client.jobs.find_result(mirror, [], {"point": Point(1, 2)}) == Point(2, 1)

    async def test_raises_when_there_is_none(self, client, worker):
        await client.enqueue(echo, 1)
        await worker.fail(await worker.claim(), ValueError())
        with refused("task.no_result", NoResult, task="echo"):
            await client.jobs.find_result(echo, [1])
        assert await client.jobs.find_result(echo, [1], default="nothing") == "nothing"
        assert await client.jobs.find_result(echo, [1], default=None) is None

    async def test_distinguishes_a_result_of_none_from_no_result(self, client, worker):
        await client.enqueue(echo, 1)
        await worker.complete(await worker.claim(), None)
        assert await client.jobs.find_result(echo, [1], default="nothing") is None


class TestRecord:
    async def test_shows_input_and_result(self, client, worker):
        handle = await client.enqueue(add, 1, b=2)
        with refused("job.not_completed", NoResult, job_id=handle.id, status="waiting"):
            _ = (await client.jobs.get(handle.id)).result
        await worker.complete(await worker.claim(), 3)
        record = await client.jobs.get(handle.id)
        assert (record.args, record.kwargs, record.result) == ([1, 2], {}, 3)
        assert (record.worker, record.attempt) == (worker.id, 1)

    async def test_shows_who_holds_it(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.claim()
        record = await handle.record()
        assert record.worker == worker.id
        assert record.lease_until is not None
        assert record.started_at is not None
        assert record.lease_until == record.started_at + MINUTE


# Waiting for a result: never misses one, never busy-polls, and thousands wait as one.


class DeafStore(CountedStore):
    """A store whose hints all get lost."""

    def subscribe(self, listener: Callable[[Hint], None]) -> Callable[[], None]:
        return lambda: None


class HintedStore(CountedStore):
    """A store whose hints are the test's own."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.listeners: list[Callable[[Hint], None]] = []

    def subscribe(self, listener: Callable[[Hint], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def tell(self, *names: str) -> None:
        for listener in self.listeners:
            listener(Hint(type=HintType.CHANGED, names=frozenset(names)))


@pytest.fixture
def counted(store: Store) -> CountedStore:
    return CountedStore(store)


@pytest.fixture
async def counting_client(counted: CountedStore) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(counted.as_store()) as client:
        yield client


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No poll stands behind the hints: a state without a hint is not seen."""
    monkeypatch.setattr(waiting, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(waiting, "CLOSE_POLL_SECONDS", 3600.0)


@pytest.mark.usefixtures("patient")
class TestNeverMissesAResult:
    async def test_that_comes_during_the_wait(self, client, worker):
        handle = await client.enqueue(add, 1)
        result = asyncio.create_task(handle.result(timeout=10))
        await asyncio.sleep(0)
        await worker.complete(await worker.claim(), 2)
        assert await result == 2

    async def test_that_comes_while_the_state_is_being_read(self, counted, counting_client, worker):
        handle = await counting_client.enqueue(add, 1)
        job = await worker.claim()
        counted.after["queries.job_states"] = lambda: worker.complete(job, 2)
        assert await handle.result(timeout=10) == 2

    async def test_that_another_handle_on_the_place_writes(self, store, client):
        handle = await client.enqueue(add, 1)
        result = asyncio.create_task(handle.result(timeout=10))
        elsewhere = store.clone()
        await elsewhere.open()

        worker = PlayedWorker(elsewhere)
        await worker.complete(await worker.claim(), 2)

        assert await result == 2
        await elsewhere.close()

    async def test_for_any_of_a_thousand_waiters(self, client, worker):
        handles = await client.enqueue_many(echo, range(1_000))
        results = asyncio.create_task(client.jobs.results(handles, timeout=30))
        for job, number in zip(await worker.claim_all(), range(1_000), strict=True):
            await worker.complete(job, number)
        assert await results == list(range(1_000))


@pytest.mark.usefixtures("patient")
class TestNeverReturnsAnOlderState:
    async def test_to_one_who_comes_during_a_read(self, counted, counting_client, worker):
        handle = await counting_client.enqueue(add, 1)
        await worker.fail(await worker.claim(), ValueError("the first time"))
        later: list[asyncio.Task[Any]] = []

        async def retry_and_wait_again() -> None:
            await handle.retry()
            later.append(asyncio.create_task(handle.result(timeout=10)))
            await settled()

        counted.after["queries.job_states"] = retry_and_wait_again
        with pytest.raises(JobFailed, match="the first time"):
            await handle.result(timeout=10)

        await worker.complete(await worker.claim(), 2)
        assert await later[0] == 2


class TestNeverBusyPolls:
    async def test_reads_once_for_all_that_wait(self, counted, counting_client, worker):
        handles = await counting_client.enqueue_many(echo, range(500))
        for job in await worker.claim_all():
            await worker.complete(job)
        await counting_client.jobs.results(handles, timeout=10)
        assert counted.calls["queries.job_states"] == 1

    @pytest.mark.usefixtures("patient")
    async def test_ignores_hints_about_other_jobs(self, store):
        hinted = HintedStore(store)
        async with AsyncClient(hinted.as_store()) as client:
            handle = await client.enqueue(add, 1)
            watching = await follow(handle.watch())

            for number in range(10):
                hinted.tell(f"other-{number}")
            await settled()

            assert hinted.calls["queries.job_states"] == 1
            await stop(watching)

    @pytest.mark.usefixtures("patient")
    async def test_reads_only_what_a_hint_names(self, store):
        hinted = HintedStore(store)
        async with AsyncClient(hinted.as_store()) as client:
            first, second = await client.enqueue_many(add, [1, 2])
            watching = [await follow(each.watch()) for each in (first, second)]

            hinted.tell(second.id, "other")
            await settled()

            assert hinted.arguments["queries.job_states"][-1] == ([second.id],)
            for each in watching:
                await stop(each)

    @pytest.mark.usefixtures("patient")
    async def test_reads_a_few_times_a_second_at_most_on_hints_without_names(
        self, store, monkeypatch
    ):
        monkeypatch.setattr(waiting, "SPACING_SECONDS", 3600.0)
        hinted = HintedStore(store)
        async with AsyncClient(hinted.as_store()) as client:
            handle = await client.enqueue(add, 1)
            watching = await follow(handle.watch())

            for _ in range(50):
                hinted.tell()
                await settled()

            assert hinted.calls["queries.job_states"] == 1
            await stop(watching)

    async def test_reads_nothing_without_waiters(
        self, counted, counting_client, worker, monkeypatch
    ):
        monkeypatch.setattr(waiting, "POLL_SECONDS", 0.001)
        handle = await counting_client.enqueue(add, 1)
        await worker.complete(await worker.claim(), 2)
        await handle.result(timeout=10)
        reads = counted.calls["queries.job_states"]

        await counting_client.enqueue(add, 2)
        await worker.complete(await worker.claim(), 3)
        await settled()

        assert counted.calls["queries.job_states"] == reads

    async def test_drops_its_subscription_after_the_last_waiter(self, store, worker, monkeypatch):
        monkeypatch.setattr(waiting, "LINGER_SECONDS", 0.0)
        hinted = HintedStore(store)
        async with AsyncClient(hinted.as_store()) as client:
            handle = await client.enqueue(add, 1)
            await worker.complete(await worker.claim(), 2)

            await handle.result(timeout=10)
            await settled()

            assert hinted.listeners == []


class TestWithoutHints:
    async def test_polls_behind_them(self, store, worker, monkeypatch):
        monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
        async with AsyncClient(DeafStore(store).as_store()) as client:
            handle = await client.enqueue(add, 1)
            result = asyncio.create_task(handle.result(timeout=10))
            await settled()
            await worker.complete(await worker.claim(), 2)
            assert await result == 2


class TestTimeout:
    async def test_says_what_the_job_is_doing(self, client):
        handle = await client.enqueue(add.options(delay="1h"), 1)
        with refused("job.result_timeout", ResultTimeout, timeout=0.01, status="scheduled"):
            await handle.result(timeout=0.01)

    async def test_is_a_timeout_error(self, client):
        handle = await client.enqueue(add, 1)
        with pytest.raises(TimeoutError):
            await handle.result(timeout="10ms")

    async def test_of_zero_still_returns_a_result_that_is_there(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.complete(await worker.claim(), 2)
        assert await handle.result(timeout=0) == 2

    async def test_is_kept_when_the_store_does_not_answer(
        self, counted, counting_client, monkeypatch
    ):
        monkeypatch.setattr(handles, "LAST_LOOK_SECONDS", 0.01)
        handle = await counting_client.enqueue(add, 1)
        counted.hangs.add("queries.job_states")
        with refused("job.result_timeout", ResultTimeout, status="unknown (store not responding)"):
            await handle.result(timeout=0.01)


class TestClosing:
    async def test_notifies_the_remaining_waiters(self, store):
        client = await AsyncClient(store).open()
        handle = await client.enqueue(add, 1)
        result = asyncio.create_task(handle.result())
        await settled()
        await client.close()
        with refused("store.error", StoreError):
            await result


class TestFailingReads:
    async def test_reach_those_who_wait(self, counted, counting_client):
        async def break_down() -> None:
            raise StoreError("the disk is gone")

        handle = await counting_client.enqueue(add, 1)
        counted.after["queries.job_states"] = break_down

        with refused("store.error", StoreError, message="the disk is gone"):
            await handle.result(timeout=10)


async def follow(updates: Any) -> asyncio.Task[None]:
    """Consume updates in the background, from the first one on."""
    await anext(updates)

    async def rest() -> None:
        async for _ in updates:
            pass

    following = asyncio.create_task(rest())
    await settled()
    return following


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def settled() -> None:
    """Let everything that is ready on this event loop run."""
    for _ in range(20):
        await asyncio.sleep(0)


# Progress and changes of state, seen live.


class TestWatch:
    async def test_yields_the_state_now_and_after_each_change(self, client, worker):
        handle = await client.enqueue(add, 1)
        updates = handle.watch()

        assert (await anext(updates)).status is Status.WAITING
        job = await worker.claim()
        await worker.report(job, 50, "half way")
        half = await first_that(updates, lambda update: update.progress.percent == 50)
        assert (half.status, half.attempt) == (Status.ACTIVE, 1)
        assert half.progress == Progress(percent=50, message="half way")
        await worker.complete(job, 2)
        last = await anext(updates)
        assert (last.status, last.progress.percent, last.is_final) == (Status.COMPLETED, 100, True)
        with pytest.raises(StopAsyncIteration):
            await anext(updates)

    async def test_reports_that_a_job_was_claimed(self, client, worker):
        handle = await client.enqueue(add, 1)
        updates = handle.watch()
        await anext(updates)
        await worker.claim()
        assert (await anext(updates)).status is Status.ACTIVE
        await updates.aclose()

    async def test_merges_changes_that_come_too_fast(self, client, worker):
        handle = await client.enqueue(add, 1)
        updates = handle.watch()
        await anext(updates)
        job = await worker.claim()

        for percent in range(0, 100, 10):
            await worker.report(job, percent)
        await worker.complete(job)

        seen = [update async for update in updates]
        assert seen[-1].status is Status.COMPLETED
        assert_each_differs(seen)

    async def test_serves_several_watchers_of_one_job(self, client, worker):
        handle = await client.enqueue(add, 1)
        watchers = [handle.watch(), client.jobs.handle(handle.id).watch()]
        for updates in watchers:
            await anext(updates)
        await worker.complete(await worker.claim())
        for updates in watchers:
            await first_that(updates, lambda update: update.is_final)


async def first_that(
    updates: AsyncIterator[JobUpdate], is_wanted: Callable[[JobUpdate], bool]
) -> JobUpdate:
    """Skip what comes before: that a job was claimed may be seen by itself, or not."""
    async for update in updates:
        if is_wanted(update):
            return update
    raise AssertionError("the updates ended without it")


def assert_each_differs(updates: list[JobUpdate]) -> None:
    assert all(before != after for before, after in pairwise(updates))


# A client and a worker in different processes: results, progress and aborts cross between them.


@pytest.mark.usefixtures("worker_process")
class TestAcrossProcesses:
    async def test_a_result_wakes_its_waiter(self, shared_url, monkeypatch):
        monkeypatch.setattr(waiting, "POLL_SECONDS", 3600.0)
        async with AsyncClient(shared_url) as client:
            for number in range(5):
                handle = await client.enqueue(add, number)
                assert await handle.result(timeout=30) == number + 1

    async def test_progress_is_seen_live_and_an_abort_reaches_the_body(self, shared_url):
        async with AsyncClient(shared_url) as client:
            handle = await client.enqueue(until_aborted)

            async for update in handle.watch():
                if update.status is Status.ACTIVE and update.progress.percent == 50:
                    assert update.progress.message == "half way"
                    assert update.progress.details == {"done": 1}
                    assert (await handle.cancel()).after is Status.ABORTING

            assert update.status is Status.CANCELLED
            with pytest.raises(JobCancelled):
                await handle.result(timeout=10)

    async def test_a_run_is_followed_live_and_a_signal_reaches_it(self, shared_url, monkeypatch):
        monkeypatch.setattr(waiting, "POLL_SECONDS", 3600.0)
        monkeypatch.setattr(waiting, "CLOSE_POLL_SECONDS", 3600.0)
        async with AsyncClient(shared_url) as client:
            run = await client.submit(asking, 3)

            async for event in run.watch():
                if event.status is RunStatus.WAITING and event.node == "keep":
                    await run.signal("answer", "yes")

            assert event.status is RunStatus.COMPLETED
            assert await run.result(timeout=30) == "yes"
