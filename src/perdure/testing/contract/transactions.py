"""Writing within the caller's transaction (capability ``caller_transaction``)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from typing import Any

import pytest

from perdure.errors import RunExists
from perdure.model.job import Inserted, JobFilter
from perdure.model.run import RunFilter
from perdure.store.contract import Store
from perdure.testing.contract.builders import new_job, new_run, node_job, read_job, read_run, submit

Transaction = Callable[[], AbstractAsyncContextManager[Any]]
BlockingTransaction = Callable[[], AbstractContextManager[Any]]


class RolledBack(Exception):
    """Ends a transaction without a commit."""


class TestInsertingInATransaction:
    async def test_writes_with_the_callers_commit(
        self, store: Store, transaction: Transaction
    ) -> None:
        job = new_job(input=b"x" * 10_000)

        async with transaction() as connection:
            inserted = await store.insert_in_transaction(connection, [job])
            before = await store.queries.count_jobs(JobFilter())

        assert inserted == [Inserted(id=job.id, is_new=True)]
        assert before == 0
        assert (await read_job(store, job.id)).input == job.input

    async def test_writes_nothing_with_the_callers_rollback(
        self, store: Store, transaction: Transaction
    ) -> None:
        with suppress(RolledBack):
            async with transaction() as connection:
                await store.insert_in_transaction(connection, [new_job(), new_job(fingerprint="x")])
                raise RolledBack

        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_does_the_same_with_blocking_calls(
        self, store: Store, blocking_transaction: BlockingTransaction
    ) -> None:
        kept, lost = new_job(fingerprint="x"), new_job(fingerprint="x")

        with suppress(RolledBack), blocking_transaction() as connection:
            store.insert_in_blocking_transaction(connection, [lost])
            raise RolledBack
        with blocking_transaction() as connection:
            store.insert_in_blocking_transaction(connection, [kept])

        assert [job.id for job in await store.queries.list_jobs(JobFilter(), 10)] == [kept.id]


class TestSubmittingInATransaction:
    async def test_writes_with_the_callers_commit(
        self, store: Store, transaction: Transaction
    ) -> None:
        async with transaction() as connection:
            submitted = await store.submit_in_transaction(
                connection, new_run(jobs=(node_job(),)), []
            )
            before = await store.queries.count_runs(RunFilter())

        assert (submitted.is_new, before) == (True, 0)
        assert await read_run(store) == submitted.run
        assert await store.queries.count_jobs(JobFilter()) == 1

    async def test_writes_nothing_with_the_callers_rollback(
        self, store: Store, transaction: Transaction
    ) -> None:
        with suppress(RolledBack):
            async with transaction() as connection:
                await store.submit_in_transaction(connection, new_run(jobs=(node_job(),)), [])
                raise RolledBack

        assert await store.queries.count_runs(RunFilter()) == 0
        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_leaves_the_callers_writes_where_the_run_exists(
        self, store: Store, transaction: Transaction
    ) -> None:
        await submit(store)
        job = new_job()

        async with transaction() as connection:
            await store.insert_in_transaction(connection, [job])
            with pytest.raises(RunExists):
                await store.submit_in_transaction(connection, new_run(), [])

        assert (await read_job(store, job.id)).id == job.id

    async def test_does_the_same_with_blocking_calls(
        self, store: Store, blocking_transaction: BlockingTransaction
    ) -> None:
        with suppress(RolledBack), blocking_transaction() as connection:
            store.submit_in_blocking_transaction(connection, new_run(), [])
            raise RolledBack
        with blocking_transaction() as connection:
            submitted = store.submit_in_blocking_transaction(connection, new_run(), [])

        assert submitted.is_new
        assert await read_run(store) == submitted.run
