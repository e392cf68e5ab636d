"""Enqueueing in the caller's own transaction: commit enqueues, rollback does not. Every driver."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
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
from perdure.store.contract import EventsAfter, Store
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore
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
from tests.backends.sqlite.files import connected
from tests.support.refusal import refused
from tests.support.stores import opened, postgres_at

FLOW_GRAPH = Flow("orders").delay("1h").build().graph


@dataclass
class Caller:
    """In the middle of a transaction of its own."""

    store: Store
    insert: Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]
    submit: Callable[[NewRun, Sequence[Graph]], Awaitable[Submitted]]
    commit: Callable[[], Awaitable[None]]
    rollback: Callable[[], Awaitable[None]]


def awaiting(store: Any, connection: Any, transaction: Any = None) -> Caller:
    async def insert_with(jobs: Sequence[NewJob]) -> list[Inserted]:
        inserted: list[Inserted] = await store.insert_in_transaction(connection, jobs)
        return inserted

    async def submit_with(run: NewRun, definitions: Sequence[Graph]) -> Submitted:
        submitted: Submitted = await store.submit_in_transaction(connection, run, definitions)
        return submitted

    end = connection if transaction is None else transaction
    return Caller(store, insert_with, submit_with, end.commit, end.rollback)


def blocking(store: Any, connection: Any) -> Caller:
    async def insert_with(jobs: Sequence[NewJob]) -> list[Inserted]:
        return await in_thread(store.insert_in_blocking_transaction, connection, jobs)

    async def submit_with(run: NewRun, definitions: Sequence[Graph]) -> Submitted:
        submit = store.submit_in_blocking_transaction
        return await in_thread(submit, connection, run, definitions)

    async def commit() -> None:
        connection.commit()

    async def rollback() -> None:
        connection.rollback()

    # A connection of sqlite3 belongs to its thread.
    is_bound = isinstance(store, SqliteStore)

    async def in_thread(call: Any, *arguments: Any) -> Any:
        return call(*arguments) if is_bound else await asyncio.to_thread(call, *arguments)

    return Caller(store, insert_with, submit_with, commit, rollback)


Driver = Callable[[Any, str], AbstractAsyncContextManager[Caller]]


@asynccontextmanager
async def on_asyncpg(store: PostgresStore, url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield awaiting(store, connection, transaction)
    await connection.close()


@asynccontextmanager
async def on_asyncpg_pool(store: PostgresStore, url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield awaiting(store, connection, transaction)


@asynccontextmanager
async def on_psycopg_async(store: PostgresStore, url: str) -> AsyncIterator[Caller]:
    # Rows of another shape, as an application may have them.
    connection = await psycopg.AsyncConnection.connect(url, row_factory=dict_row)
    yield awaiting(store, connection)
    await connection.close()


@asynccontextmanager
async def on_psycopg(store: PostgresStore, url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield blocking(store, connection)


@asynccontextmanager
async def on_sqlite3(store: SqliteStore, url: str) -> AsyncIterator[Caller]:
    with connected(path_of(url)) as connection:
        connection.row_factory = lambda cursor, row: {"row": row}
        yield blocking(store, connection)


@asynccontextmanager
async def on_sqlite3_from_a_loop(store: SqliteStore, url: str) -> AsyncIterator[Caller]:
    with connected(path_of(url)) as connection:
        ends = blocking(store, connection)
        calls = awaiting(store, connection, ends)
        yield calls


def on_sqlalchemy(driver: str, of: Any = None) -> Driver:
    @asynccontextmanager
    async def on(store: Any, url: str) -> AsyncIterator[Caller]:
        engine = create_engine(dialect(url, driver))
        with of(engine) if of else engine.connect() as connection:
            yield blocking(store, connection)
        engine.dispose()

    return on


def on_sqlalchemy_async(driver: str, of: Any = None) -> Driver:
    @asynccontextmanager
    async def on(store: Any, url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(dialect(url, driver))
        async with of(engine) if of else engine.connect() as connection:
            yield awaiting(store, connection)
        await engine.dispose()

    return on


POSTGRES: dict[str, Driver] = {
    "asyncpg": on_asyncpg,
    "asyncpg pool": on_asyncpg_pool,
    "psycopg async": on_psycopg_async,
    "psycopg": on_psycopg,
    "sqlalchemy": on_sqlalchemy("psycopg"),
    "sqlalchemy session": on_sqlalchemy("psycopg", Session),
    "sqlalchemy asyncpg": on_sqlalchemy_async("asyncpg"),
    "sqlalchemy async session": on_sqlalchemy_async("psycopg", AsyncSession),
}
SQLITE: dict[str, Driver] = {
    "sqlite3": on_sqlite3,
    "sqlite3 from a loop": on_sqlite3_from_a_loop,
    "sqlite sqlalchemy": on_sqlalchemy("pysqlite"),
    "sqlite sqlalchemy session": on_sqlalchemy("pysqlite", Session),
    "sqlite sqlalchemy async": on_sqlalchemy_async("aiosqlite"),
    "sqlite sqlalchemy async session": on_sqlalchemy_async("aiosqlite", AsyncSession),
}


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def dialect(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


@asynccontextmanager
async def calling(request: pytest.FixtureRequest, name: str) -> AsyncIterator[Caller]:
    value = request.getfixturevalue
    if name in SQLITE:
        url = value("sqlite_url")
        async with opened(SqliteStore(url)) as store, SQLITE[name](store, url) as caller:
            yield caller
    else:
        url = value("postgres_server_url")
        async with (
            postgres_at(value("postgres_url")) as shared,
            POSTGRES[name](shared, url) as caller,
        ):
            yield caller


@pytest.fixture(params=SQLITE | POSTGRES)
async def caller(request):
    async with calling(request, request.param) as caller:
        yield caller


@pytest.fixture(params=POSTGRES)
async def caller_of_postgres(request):
    async with calling(request, request.param) as caller:
        yield caller


class TestInsertInTransaction:
    async def test_enqueues_nothing_on_rollback(self, caller):
        await caller.insert([new_job(), new_job(fingerprint="once")])
        await caller.rollback()
        assert await caller.store.queries.count_jobs(JobFilter()) == 0

    async def test_keeps_everything_that_jobs_differ_in(self, caller):
        store, run_at = caller.store, datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
        plain = new_job(input=b"x" * 10_000)
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

        await caller.insert([plain, full, delayed])
        before = await store.queries.count_jobs(JobFilter())
        await caller.commit()

        assert before == 0
        job = await read_job(store, plain.id)
        assert (job.status, job.input) == (Status.WAITING, plain.input)
        job = await read_job(store, full.id)
        assert (job.status, job.group, job.ready_at) == (Status.SCHEDULED, "run-1", run_at)
        assert (job.deadline_at, job.max_attempts) == (run_at + MINUTE, 4)
        later = await read_job(store, delayed.id)
        assert later.ready_at == later.created_at + MINUTE
        assert later.deadline_at == later.created_at + timedelta(hours=1)

    async def test_writes_nothing_when_a_fingerprint_is_taken(self, caller):
        live = await insert(caller.store, fingerprint="once")

        with refused("job.fingerprint_taken", FingerprintTaken, job_id=live):
            await caller.insert([new_job(), new_job(fingerprint="once", on_conflict="raise")])
        kept = await caller.insert([new_job()])  # the transaction continues
        await caller.commit()

        jobs = await caller.store.queries.list_jobs(JobFilter(), 9)
        assert {job.id for job in jobs} == {live, kept[0].id}

    async def test_answers_whether_a_job_is_new(self, caller):
        first, second = new_job(fingerprint="x"), new_job(fingerprint="x")
        answers = await caller.insert([first, second])
        assert answers == [Inserted(id=first.id, is_new=True), Inserted(id=first.id, is_new=False)]
        await caller.rollback()

    async def test_refuses_a_deadline_that_has_passed(self, caller):
        with refused("job.deadline_passed", InvalidInput):
            await caller.insert([new_job(deadline_at=datetime(2020, 1, 1, tzinfo=UTC))])
        await caller.commit()
        assert await caller.store.queries.count_jobs(JobFilter()) == 0

    async def test_wakes_listeners_on_commit(self, caller_of_postgres):
        caller = caller_of_postgres
        heard: asyncio.Queue[Hint] = asyncio.Queue()
        caller.store.subscribe(heard.put_nowait)
        for _ in HintType:
            await asyncio.wait_for(heard.get(), 10)

        await caller.insert([new_job()])
        await caller.commit()

        ready = Hint(type=HintType.READY, names=frozenset({PARTITION.text}))
        assert await asyncio.wait_for(heard.get(), 10) == ready


def full_run() -> NewRun:
    """One with all that a run may begin with."""
    return new_run(
        jobs=(node_job(),),
        waits=(timer(delay=MINUTE), signal()),
        children=(new_child(),),
        cooldown=MINUTE,
    )


class TestSubmitInTransaction:
    async def test_starts_the_run_on_commit_and_not_before(self, caller):
        store, run = caller.store, full_run()

        submitted = await caller.submit(run, [FLOW_GRAPH])
        before = await store.queries.count_runs(RunFilter())
        await caller.commit()

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

    async def test_reports_a_run_that_has_the_id(self, caller):
        run = new_run()
        await caller.store.runs.submit(run)

        with pytest.raises(RunExists):
            await caller.submit(run, [FLOW_GRAPH])
        found = await caller.submit(replace(run, on_existing="use_existing"), [FLOW_GRAPH])
        await caller.commit()

        assert (found.is_new, found.run.id) == (False, run.id)

    async def test_wakes_listeners_on_commit(self, caller_of_postgres):
        caller = caller_of_postgres
        heard: asyncio.Queue[Hint] = asyncio.Queue()
        caller.store.subscribe(heard.put_nowait, [HintType.READY])
        await asyncio.wait_for(heard.get(), 10)

        await caller.submit(full_run(), [FLOW_GRAPH])
        await caller.commit()

        assert (await asyncio.wait_for(heard.get(), 10)).type is HintType.READY


@pytest.fixture
async def postgres(postgres_url):
    async with postgres_at(postgres_url) as store:
        yield store


class TestRefusalsOfPostgres:
    @pytest.mark.parametrize("connection", ["connection", object()])
    async def test_of_what_is_no_connection(self, postgres, connection):
        with refused("store.unusable_connection", InvalidInput):
            await postgres.insert_in_transaction(connection, [new_job()])
        with refused("store.unusable_connection", InvalidInput):
            postgres.insert_in_blocking_transaction(connection, [new_job()])

    async def test_of_the_other_colour(self, postgres, postgres_server_url):
        with (
            psycopg.connect(postgres_server_url) as blocking_connection,
            refused("store.unusable_connection", InvalidInput),
        ):
            await postgres.insert_in_transaction(blocking_connection, [new_job()])
        connection = await asyncpg.connect(postgres_server_url)
        with refused("store.unusable_connection", InvalidInput):
            postgres.insert_in_blocking_transaction(connection, [new_job()])
        with refused("store.no_transaction", InvalidInput):  # asyncpg begins none by itself
            await postgres.insert_in_transaction(connection, [new_job()])
        await connection.close()

    async def test_of_psycopg_in_autocommit(self, postgres, postgres_server_url):
        with psycopg.connect(postgres_server_url, autocommit=True) as connection:
            with refused("store.no_transaction", InvalidInput):
                postgres.insert_in_blocking_transaction(connection, [new_job()])
            with connection.transaction():
                postgres.insert_in_blocking_transaction(connection, [new_job()])
        assert await postgres.queries.count_jobs(JobFilter()) == 1

    @pytest.mark.parametrize("where", ["engine", "connection"])
    async def test_of_sqlalchemy_in_autocommit(self, postgres, postgres_server_url, where):
        options = {"isolation_level": "AUTOCOMMIT"} if where == "engine" else {}
        engine = create_engine(dialect(postgres_server_url, "psycopg"), **options)
        with engine.connect() as connection:
            if where == "connection":
                connection.execution_options(isolation_level="AUTOCOMMIT")
            with refused("store.no_transaction", InvalidInput):
                postgres.insert_in_blocking_transaction(connection, [new_job()])
        engine.dispose()

    async def test_of_another_type_of_database(self, postgres):
        engine = create_engine("sqlite://")
        with engine.connect() as connection, refused("store.unusable_connection", InvalidInput):
            postgres.insert_in_blocking_transaction(connection, [new_job()])
        engine.dispose()

    @pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "sqlalchemy asyncpg"])
    async def test_of_a_database_without_our_tables(
        self, driver, bare_postgres_url, postgres_server_url
    ):
        store = PostgresStore(bare_postgres_url)
        async with POSTGRES[driver](store, postgres_server_url) as caller:
            with refused("store.other_database", InvalidInput):
                await caller.insert([new_job()])
            await caller.rollback()


@pytest.fixture
async def sqlite(sqlite_url):
    async with opened(SqliteStore(sqlite_url)) as store:
        yield store


class TestSqlite:
    async def test_starts_the_transaction_where_the_module_would(self, sqlite, sqlite_url):
        with connected(path_of(sqlite_url)) as connection:
            before = connection.in_transaction
            sqlite.insert_in_blocking_transaction(connection, [new_job()])
            assert (before, connection.in_transaction) == (False, True)
            connection.rollback()

    async def test_looks_at_fingerprints_under_the_write_lock(self, sqlite, sqlite_url):
        path = path_of(sqlite_url)
        with connected(path) as connection, connected(path, timeout=0) as other:
            sqlite.insert_in_blocking_transaction(connection, [new_job(fingerprint="x")])
            with pytest.raises(sqlite3.OperationalError) as caught:
                sqlite.insert_in_blocking_transaction(other, [new_job(fingerprint="x")])
            connection.rollback()
        assert caught.value.sqlite_errorname == "SQLITE_BUSY"

    async def test_refuses_one_that_commits_each_statement_by_itself(self, sqlite, sqlite_url):
        with connected(path_of(sqlite_url), isolation_level=None) as connection:
            with refused("store.no_transaction", InvalidInput):
                sqlite.insert_in_blocking_transaction(connection, [new_job()])
            connection.execute("BEGIN")
            sqlite.insert_in_blocking_transaction(connection, [new_job()])
            connection.execute("COMMIT")
        assert await sqlite.queries.count_jobs(JobFilter()) == 1

    async def test_refuses_sqlalchemy_in_autocommit(self, sqlite, sqlite_url):
        engine = create_engine(sqlite_url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection, refused("store.no_transaction", InvalidInput):
            sqlite.insert_in_blocking_transaction(connection, [new_job()])
        engine.dispose()

    async def test_refuses_an_async_connection_where_calls_block(self, sqlite, sqlite_url):
        engine = create_async_engine(dialect(sqlite_url, "aiosqlite"))
        async with engine.connect() as connection:
            with refused("store.unusable_connection", InvalidInput):
                sqlite.insert_in_blocking_transaction(connection, [new_job()])
        await engine.dispose()

    async def test_refuses_another_database(self, sqlite, tmp_path):
        engine = create_engine("sqlite://")
        files = connected(tmp_path / "other.db"), connected(Path(":memory:"))
        for other in (*files, engine.connect()):
            with other as connection, refused("store.other_database", InvalidInput):
                sqlite.insert_in_blocking_transaction(connection, [new_job()])
        engine.dispose()

    async def test_refuses_one_that_is_closed(self, sqlite, sqlite_url):
        with connected(path_of(sqlite_url)) as connection:
            pass
        with refused("store.unusable_connection", InvalidInput):
            sqlite.insert_in_blocking_transaction(connection, [new_job()])
