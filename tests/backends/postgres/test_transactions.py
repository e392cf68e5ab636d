"""Enqueueing in the caller's own transaction: commit enqueues, rollback does not. Every driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
from msgspec.structs import replace
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from perdure import Flow
from perdure.errors import FingerprintTaken, InvalidInput, RunExists
from perdure.model.graph import Graph
from perdure.model.hint import Hint, HintType
from perdure.model.job import Inserted, JobFilter, NewJob, Status
from perdure.model.run import NewRun, RunFilter, Submitted
from perdure.store.contract import EventsAfter
from perdure.store.postgres.store import PostgresStore
from perdure.testing.contract.builders import (
    MINUTE,
    PARTITION,
    insert,
    new_child,
    new_job,
    new_run,
    node_job,
    read_job,
    signal,
    timer,
)
from tests.support.refusal import refused


@dataclass
class Insert:
    """Writes within the transaction; to call it inserts jobs."""

    jobs: Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]
    submit: Callable[[NewRun, Sequence[Graph]], Awaitable[Submitted]]

    async def __call__(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await self.jobs(jobs)


Driver = Callable[[PostgresStore, str], AbstractAsyncContextManager[tuple[Insert, "End"]]]


class End:
    """How the caller ends the transaction."""

    def __init__(
        self, commit: Callable[[], Awaitable[None]], rollback: Callable[[], Awaitable[None]]
    ) -> None:
        self.commit = commit
        self.rollback = rollback


@asynccontextmanager
async def on_asyncpg(store: PostgresStore, url: str) -> AsyncIterator[tuple[Insert, End]]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield awaiting(store, connection), End(transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def on_asyncpg_pool(store: PostgresStore, url: str) -> AsyncIterator[tuple[Insert, End]]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield awaiting(store, connection), End(transaction.commit, transaction.rollback)


@asynccontextmanager
async def on_psycopg_async(store: PostgresStore, url: str) -> AsyncIterator[tuple[Insert, End]]:
    # Rows of another shape, as an application may have them.
    connection = await psycopg.AsyncConnection.connect(url, row_factory=dict_row)
    yield awaiting(store, connection), End(connection.commit, connection.rollback)
    await connection.close()


@asynccontextmanager
async def on_psycopg(store: PostgresStore, url: str) -> AsyncIterator[tuple[Insert, End]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield blocking(store, connection), ends(connection)


@asynccontextmanager
async def on_sqlalchemy(store: PostgresStore, url: str) -> AsyncIterator[tuple[Insert, End]]:
    engine = create_engine(dialect(url, "psycopg"))
    with engine.connect() as connection:
        yield blocking(store, connection), ends(connection)
    engine.dispose()


@asynccontextmanager
async def on_sqlalchemy_session(
    store: PostgresStore, url: str
) -> AsyncIterator[tuple[Insert, End]]:
    engine = create_engine(dialect(url, "psycopg"))
    with Session(engine) as session:
        yield blocking(store, session), ends(session)
    engine.dispose()


@asynccontextmanager
async def on_sqlalchemy_asyncpg(
    store: PostgresStore, url: str
) -> AsyncIterator[tuple[Insert, End]]:
    engine = create_async_engine(dialect(url, "asyncpg"))
    async with engine.connect() as connection:
        yield awaiting(store, connection), End(connection.commit, connection.rollback)
    await engine.dispose()


@asynccontextmanager
async def on_sqlalchemy_async_session(
    store: PostgresStore, url: str
) -> AsyncIterator[tuple[Insert, End]]:
    engine = create_async_engine(dialect(url, "psycopg"))
    async with AsyncSession(engine) as session:
        yield awaiting(store, session), End(session.commit, session.rollback)
    await engine.dispose()


DRIVERS: list[Driver] = [
    on_asyncpg,
    on_asyncpg_pool,
    on_psycopg_async,
    on_psycopg,
    on_sqlalchemy,
    on_sqlalchemy_session,
    on_sqlalchemy_asyncpg,
    on_sqlalchemy_async_session,
]


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.__name__.removeprefix("on_"))
async def caller(
    request: pytest.FixtureRequest, store: PostgresStore, postgres_server_url: str
) -> AsyncIterator[tuple[Insert, End]]:
    """A caller in the middle of a transaction of its own."""
    async with request.param(store, postgres_server_url) as caller:
        yield caller


class TestInsertInTransaction:
    async def test_enqueues_nothing_on_rollback(self, store, caller):
        insert_with, end = caller
        await insert_with([new_job(), new_job(fingerprint="once")])
        await end.rollback()
        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_keeps_everything_that_jobs_differ_in(self, store, caller):
        insert_with, end = caller
        run_at = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
        plain = new_job()
        full = new_job(
            group="run-1",
            fingerprint="once",
            run_at=run_at,
            deadline_at=run_at + MINUTE,
            max_attempts=4,
            policy=b"{}",
            input_hash=2**62 + 1,
            priority=1,
        )
        delayed = new_job(delay=MINUTE, deadline=timedelta(hours=1))

        await insert_with([plain, full, delayed])
        await end.commit()

        assert (await read_job(store, plain.id)).status is Status.WAITING
        job = await read_job(store, full.id)
        assert (job.status, job.group, job.ready_at) == (Status.SCHEDULED, "run-1", run_at)
        assert (job.deadline_at, job.max_attempts) == (run_at + MINUTE, 4)
        later = await read_job(store, delayed.id)
        assert later.ready_at == later.created_at + MINUTE
        assert later.deadline_at == later.created_at + timedelta(hours=1)

    async def test_writes_nothing_when_a_fingerprint_is_taken(self, store, caller):
        insert_with, end = caller
        live = await insert(store, fingerprint="once")

        with pytest.raises(FingerprintTaken, match=live):
            await insert_with([new_job(), new_job(fingerprint="once", on_conflict="raise")])
        kept = await insert_with([new_job()])  # the transaction goes on
        await end.commit()

        assert {job.id for job in await store.queries.list_jobs(JobFilter(), 9)} == {
            live,
            kept[0].id,
        }

    async def test_refuses_a_deadline_that_has_passed(self, store, caller):
        insert_with, end = caller
        with refused("job.deadline_passed", InvalidInput):
            await insert_with([new_job(deadline_at=datetime(2020, 1, 1, tzinfo=UTC))])
        await end.commit()
        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_wakes_listeners_on_commit(self, store, caller):
        insert_with, end = caller
        heard: asyncio.Queue[Hint] = asyncio.Queue()
        store.subscribe(heard.put_nowait)
        for _ in HintType:
            await asyncio.wait_for(heard.get(), 10)

        await insert_with([new_job()])
        await end.commit()

        ready = Hint(type=HintType.READY, names=frozenset({PARTITION.text}))
        assert await asyncio.wait_for(heard.get(), 10) == ready


FLOW_GRAPH = Flow("orders").delay("1h").build().graph


def full_run() -> NewRun:
    """One with all that a run may begin with."""
    return new_run(
        jobs=(node_job(),),
        waits=(timer(delay=MINUTE), signal()),
        children=(new_child(),),
        cooldown=MINUTE,
    )


class TestSubmitInTransaction:
    async def test_starts_the_run_on_commit_and_not_before(self, store, caller):
        write, end = caller
        run = full_run()

        submitted = await write.submit(run, [FLOW_GRAPH])
        before = await store.queries.count_runs(RunFilter())
        await end.commit()

        assert (submitted.is_new, submitted.run.id, before) == (True, run.id, 0)
        [found] = await store.queries.get_runs([(run.namespace, run.id)])
        assert found == submitted.run
        [loaded] = await store.runs.load(
            [EventsAfter(namespace=run.namespace, id=run.id, number=0)]
        )
        assert loaded is not None
        assert [each.data for each in loaded.events] == [each.data for each in run.events]
        assert await store.queries.count_jobs(JobFilter()) == 1
        assert await store.queries.count_runs(RunFilter()) == 2

    async def test_tells_of_a_run_that_has_the_id(self, store, caller):
        write, end = caller
        run = new_run()
        await store.runs.submit(run)

        with pytest.raises(RunExists):
            await write.submit(run, [FLOW_GRAPH])
        found = await write.submit(replace(run, on_existing="use_existing"), [FLOW_GRAPH])
        await end.commit()

        assert (found.is_new, found.run.id) == (False, run.id)

    async def test_wakes_listeners_on_commit(self, store, caller):
        write, end = caller
        heard: asyncio.Queue[Hint] = asyncio.Queue()
        store.subscribe(heard.put_nowait, [HintType.READY])
        await asyncio.wait_for(heard.get(), 10)

        await write.submit(full_run(), [FLOW_GRAPH])
        await end.commit()

        hint = await asyncio.wait_for(heard.get(), 10)
        assert hint.type is HintType.READY


class TestRefusals:
    async def test_name_what_is_no_connection(self, store):
        with pytest.raises(InvalidInput, match="a builtins"):
            await store.insert_in_transaction("connection", [new_job()])
        with pytest.raises(InvalidInput, match="a builtins"):
            store.insert_in_blocking_transaction(object(), [new_job()])

    async def test_tell_the_colours_apart(self, store, postgres_server_url):
        with (
            psycopg.connect(postgres_server_url) as blocking_connection,
            pytest.raises(InvalidInput, match="AsyncConnection"),
        ):
            await store.insert_in_transaction(blocking_connection, [new_job()])
        connection = await asyncpg.connect(postgres_server_url)
        with pytest.raises(InvalidInput, match="psycopg's Connection"):
            store.insert_in_blocking_transaction(connection, [new_job()])
        await connection.close()

    async def test_ask_for_a_transaction_on_asyncpg(self, store, admin):
        with refused("store.no_transaction", InvalidInput):
            await store.insert_in_transaction(admin, [new_job()])

    async def test_ask_for_a_transaction_on_psycopg_in_autocommit(self, store, postgres_server_url):
        with psycopg.connect(postgres_server_url, autocommit=True) as connection:
            with refused("store.no_transaction", InvalidInput):
                store.insert_in_blocking_transaction(connection, [new_job()])
            with connection.transaction():
                store.insert_in_blocking_transaction(connection, [new_job()])
        assert await store.queries.count_jobs(JobFilter()) == 1

    @pytest.mark.parametrize("where", ["engine", "connection"])
    async def test_ask_for_a_transaction_on_sqlalchemy_in_autocommit(
        self, store, postgres_server_url, where
    ):
        options = {"isolation_level": "AUTOCOMMIT"} if where == "engine" else {}
        engine = create_engine(dialect(postgres_server_url, "psycopg"), **options)
        with engine.connect() as connection:
            if where == "connection":
                connection.execution_options(isolation_level="AUTOCOMMIT")
            with refused("store.no_transaction", InvalidInput):
                store.insert_in_blocking_transaction(connection, [new_job()])
        engine.dispose()

    async def test_name_a_connection_to_another_type_of_database(self, store):
        engine = create_engine("sqlite://")
        with engine.connect() as connection, pytest.raises(InvalidInput, match="PostgreSQL"):
            store.insert_in_blocking_transaction(connection, [new_job()])
        engine.dispose()

    async def test_name_a_database_without_our_tables(self, caller_without_tables):
        insert_with, end = caller_without_tables
        with refused("store.other_database", InvalidInput):
            await insert_with([new_job()])
        await end.rollback()


@pytest.fixture(params=[on_asyncpg, on_psycopg, on_sqlalchemy_asyncpg])
async def caller_without_tables(
    request: pytest.FixtureRequest, bare_postgres_url: str, postgres_server_url: str
) -> AsyncIterator[tuple[Insert, End]]:
    async with request.param(PostgresStore(bare_postgres_url), postgres_server_url) as caller:
        yield caller


def awaiting(store: PostgresStore, connection: Any) -> Insert:
    async def insert_with(jobs: Sequence[NewJob]) -> list[Inserted]:
        return await store.insert_in_transaction(connection, jobs)

    async def submit_with(run: NewRun, definitions: Sequence[Graph]) -> Submitted:
        return await store.submit_in_transaction(connection, run, definitions)

    return Insert(insert_with, submit_with)


def blocking(store: PostgresStore, connection: Any) -> Insert:
    async def insert_with(jobs: Sequence[NewJob]) -> list[Inserted]:
        return await asyncio.to_thread(store.insert_in_blocking_transaction, connection, jobs)

    async def submit_with(run: NewRun, definitions: Sequence[Graph]) -> Submitted:
        submit = store.submit_in_blocking_transaction
        return await asyncio.to_thread(submit, connection, run, definitions)

    return Insert(insert_with, submit_with)


def ends(connection: Any) -> End:
    async def commit() -> None:
        connection.commit()

    async def rollback() -> None:
        connection.rollback()

    return End(commit, rollback)


def dialect(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")
