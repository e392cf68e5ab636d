"""The store as a whole: opening, closing, handles, time, and the caller's own transaction."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.clock import ManualClock, system_clock
from perdure.errors import InvalidInput
from perdure.model.job import JobFilter
from perdure.model.run import RunFilter
from perdure.store.contract import Store
from perdure.store.opening import store_at
from tests.conformance.builders import MINUTE, insert, new_job, read
from tests.conformance.run_builders import new_run
from tests.conformance.threads import THREADS, at_once


class TestUrl:
    async def test_says_where_the_store_is(self, store: Store, store_url: str) -> None:
        scheme, _, _ = store_url.partition("://")

        assert store.url.startswith(f"{scheme}://")

    async def test_is_the_same_for_a_twin(self, store: Store) -> None:
        assert store.clone().url == store.url


class TestOpen:
    async def test_creates_an_empty_store(self, store: Store) -> None:
        assert await store.queries.count_jobs(JobFilter()) == 0
        assert await store.admin.paused_queues(None) == []
        assert await store.queries.workers(None) == []

    async def test_finds_what_is_there(self, store: Store, store_url: str) -> None:
        id = await insert(store)

        again = store_at(store_url)
        await again.open()

        assert (await read(again, id)).id == id
        await again.close()

    async def test_works_for_several_at_the_same_moment_on_an_empty_store(
        self, store_url: str, clock: ManualClock
    ) -> None:
        unopened = store_at(store_url, clock=clock)

        async def enqueue(handle: Store, number: int) -> None:
            await insert(handle)

        await at_once(unopened, enqueue)

        await unopened.open()
        assert await unopened.queries.count_jobs(JobFilter()) == THREADS
        await unopened.close()


class TestClose:
    async def test_leaves_other_handles_open(self, store: Store) -> None:
        other = store.clone()
        await other.open()
        await other.close()

        await insert(store)

    async def test_may_be_called_twice_and_without_opening(self, store: Store) -> None:
        other = store.clone()
        await other.close()
        await other.open()
        await other.close()
        await other.close()


class TestClone:
    async def test_is_another_handle_on_the_same_place(self, store: Store, target: Store) -> None:
        id = await insert(store)

        assert await target.queries.get_job(None, id) == await store.queries.get_job(None, id)

    async def test_has_the_same_clock(
        self, store: Store, target: Store, clock: ManualClock
    ) -> None:
        clock.advance(MINUTE)

        assert await target.now() == await store.now() == clock()

    async def test_serves_another_thread(self, store: Store) -> None:
        async def enqueue(handle: Store, number: int) -> None:
            await insert(handle)

        await at_once(store, enqueue)

        assert await store.queries.count_jobs(JobFilter()) == THREADS


class TestNow:
    async def test_is_what_the_given_clock_says(self, store: Store, clock: ManualClock) -> None:
        clock.advance(timedelta(microseconds=123_457))

        assert await store.now() == clock()
        assert (await read(store, await insert(store))).created_at == clock()

    async def test_is_the_real_time_without_one(self, store_url: str) -> None:
        store = store_at(store_url)
        await store.open()

        now = await store.now()
        created_at = (await read(store, await insert(store))).created_at

        assert now.tzinfo is not None
        assert abs(now - system_clock()) < MINUTE
        assert timedelta(0) <= created_at - now < MINUTE
        await store.close()


class TestInsertInTransaction:
    async def test_refuses_a_connection_that_cannot_be_used(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="connection"):
            await store.insert_in_transaction(object(), [new_job()])

        assert await store.queries.count_jobs(JobFilter()) == 0


class TestInsertInBlockingTransaction:
    async def test_refuses_a_connection_that_cannot_be_used(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="connection"):
            store.insert_in_blocking_transaction(object(), [new_job()])

        assert await store.queries.count_jobs(JobFilter()) == 0


class TestSubmitInTransaction:
    async def test_refuses_a_connection_that_cannot_be_used(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="connection"):
            await store.submit_in_transaction(object(), new_run(), [])

        assert await store.queries.count_runs(RunFilter()) == 0


class TestSubmitInBlockingTransaction:
    async def test_refuses_a_connection_that_cannot_be_used(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="connection"):
            store.submit_in_blocking_transaction(object(), new_run(), [])

        assert await store.queries.count_runs(RunFilter()) == 0
