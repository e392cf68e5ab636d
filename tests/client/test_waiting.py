"""Waiting for a result: never misses one, never busy-polls, and thousands wait as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from perdure import AsyncClient, JobFailed, JobNotFound, ResultTimeout, StoreError
from perdure.client import handles
from perdure.model.hint import Hint, HintType
from perdure.operations import waiting
from perdure.store.contract import Store
from tests.client.counted_store import CountedStore
from tests.client.played_worker import PlayedWorker
from tests.client.tasks import add, echo
from tests.support.refusal import refused


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
    """No poll stands behind the hints: what is not told is not seen."""
    monkeypatch.setattr(waiting, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(waiting, "CLOSE_POLL_SECONDS", 3600.0)


@pytest.mark.usefixtures("patient")
class TestNeverMissesAResult:
    async def test_that_was_there_before_the_wait(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.complete(await worker.claim(), 2)

        assert await handle.result(timeout=10) == 2

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
class TestNeverTellsThePast:
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

    async def test_reads_on_a_hint_without_names(self, store):
        hinted = HintedStore(store)
        async with AsyncClient(hinted.as_store()) as client:
            handle = await client.enqueue(add, 1)
            result = asyncio.create_task(handle.result(timeout=10))
            await settled()
            worker = PlayedWorker(store)
            await worker.complete(await worker.claim(), 2)

            hinted.tell()

            assert await result == 2

    async def test_reads_nothing_while_nobody_waits(
        self,
        counted,
        counting_client,
        worker,
        monkeypatch,
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
        self,
        counted,
        counting_client,
        monkeypatch,
    ):
        monkeypatch.setattr(handles, "LAST_LOOK_SECONDS", 0.01)
        handle = await counting_client.enqueue(add, 1)
        counted.hangs.add("queries.job_states")

        with pytest.raises(ResultTimeout, match=r"unknown \(store not responding\)"):
            await handle.result(timeout=0.01)


class TestClosing:
    async def test_tells_those_who_still_wait(self, store):
        client = await AsyncClient(store).open()
        handle = await client.enqueue(add, 1)
        result = asyncio.create_task(handle.result())
        await settled()

        await client.close()

        with pytest.raises(StoreError, match="was closed"):
            await result


class TestFailingReads:
    async def test_reach_those_who_wait(self, counted, counting_client):
        async def break_down() -> None:
            raise StoreError("the disk is gone")

        handle = await counting_client.enqueue(add, 1)
        counted.after["queries.job_states"] = break_down

        with pytest.raises(StoreError, match="the disk is gone"):
            await handle.result(timeout=10)


class TestUnknownJob:
    async def test_is_not_waited_for(self, client):
        with pytest.raises(JobNotFound):
            await client.jobs.handle("nobody").result(timeout=10)


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
