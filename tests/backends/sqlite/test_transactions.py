"""Enqueueing in the caller's own transaction: commit enqueues, rollback does not."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from perdure import Flow
from perdure.errors import InvalidInput
from perdure.model.job import Inserted, JobFilter
from perdure.model.run import RunFilter
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.contract.builders import (
    new_job,
    new_run,
    read_job,
)
from tests.backends.sqlite.files import connected
from tests.support.refusal import refused

FLOW_GRAPH = Flow("orders").delay("1h").build().graph


@pytest.fixture
def connection(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    with connected(path) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER)")
        yield connection


@pytest.fixture
def engine(store: SqliteStore, path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{path}")
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(store: SqliteStore, path: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    yield engine
    await engine.dispose()


class TestOnASqlite3Connection:
    async def test_commit_enqueues_together_with_the_callers_rows(self, store, connection):
        connection.execute("INSERT INTO orders VALUES (1)")
        job = new_job(input=b"x" * 10_000)

        [inserted] = store.insert_in_blocking_transaction(connection, [job])
        before = await store.queries.count_jobs(JobFilter())
        connection.commit()

        assert inserted == Inserted(id=job.id, is_new=True)
        assert before == 0
        assert (await read_job(store, job.id)).input == job.input
        assert connection.execute("SELECT number FROM orders").fetchall() == [(1,)]

    async def test_rollback_does_not(self, store, connection):
        store.insert_in_blocking_transaction(connection, [new_job(), new_job(fingerprint="x")])
        connection.rollback()
        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_begins_the_transaction_where_the_module_would(self, store, connection):
        before = connection.in_transaction
        store.insert_in_blocking_transaction(connection, [new_job()])
        assert (before, connection.in_transaction) == (False, True)
        connection.rollback()

    async def test_works_from_an_event_loop_as_well(self, store, connection):
        await store.insert_in_transaction(connection, [new_job()])
        connection.commit()
        assert await store.queries.count_jobs(JobFilter()) == 1

    async def test_does_not_mind_how_the_caller_likes_his_rows(self, store, connection):
        connection.row_factory = lambda cursor, row: {"row": row}
        first, second = new_job(fingerprint="x"), new_job(fingerprint="x")
        answers = store.insert_in_blocking_transaction(connection, [first, second])
        connection.commit()
        assert answers == [Inserted(id=first.id, is_new=True), Inserted(id=first.id, is_new=False)]

    async def test_refuses_one_that_commits_each_statement_by_itself(self, store, path):
        with connected(path, isolation_level=None) as connection:
            with refused("store.no_transaction", InvalidInput):
                store.insert_in_blocking_transaction(connection, [new_job()])
            connection.execute("BEGIN")
            store.insert_in_blocking_transaction(connection, [new_job()])
            connection.execute("COMMIT")
        assert await store.queries.count_jobs(JobFilter()) == 1

    async def test_refuses_one_to_another_file(self, store, tmp_path):
        with (
            connected(tmp_path / "other.db") as connection,
            refused("store.other_database", InvalidInput),
        ):
            store.insert_in_blocking_transaction(connection, [new_job()])

    async def test_refuses_one_in_memory(self, store):
        with (
            connected(Path(":memory:")) as connection,
            refused("store.other_database", InvalidInput),
        ):
            store.insert_in_blocking_transaction(connection, [new_job()])

    async def test_refuses_one_that_is_closed(self, store, path):
        with connected(path) as connection:
            pass
        with pytest.raises(InvalidInput, match="closed"):
            store.insert_in_blocking_transaction(connection, [new_job()])


class TestFingerprints:
    async def test_are_looked_at_under_the_write_lock(self, store, connection, path):
        store.insert_in_blocking_transaction(connection, [new_job(fingerprint="x")])
        with connected(path, timeout=0) as other, pytest.raises(sqlite3.OperationalError) as caught:
            store.insert_in_blocking_transaction(other, [new_job(fingerprint="x")])
        assert caught.value.sqlite_errorname == "SQLITE_BUSY"
        connection.rollback()


class TestThroughSqlalchemy:
    async def test_commit_enqueues_and_rollback_does_not_on_a_connection(self, store, engine):
        kept, lost = new_job(fingerprint="x"), new_job(fingerprint="x")
        with engine.connect() as connection:
            store.insert_in_blocking_transaction(connection, [lost])
            connection.rollback()
            store.insert_in_blocking_transaction(connection, [kept])
            connection.commit()
        assert [job.id for job in await store.queries.list_jobs(JobFilter(), 10)] == [kept.id]

    async def test_commit_enqueues_and_rollback_does_not_on_a_session(self, store, engine):
        kept, lost = new_job(), new_job()

        with Session(engine) as session:
            store.insert_in_blocking_transaction(session, [lost])
            session.rollback()
            session.execute(text("CREATE TABLE orders (number INTEGER)"))
            store.insert_in_blocking_transaction(session, [kept])
            session.commit()

        assert [job.id for job in await store.queries.list_jobs(JobFilter(), 10)] == [kept.id]

    async def test_works_on_an_async_connection(self, store, async_engine):
        kept, lost = new_job(fingerprint="x"), new_job(fingerprint="x")
        async with async_engine.connect() as connection:
            await store.insert_in_transaction(connection, [lost])
            await connection.rollback()
            await store.insert_in_transaction(connection, [kept])
            await connection.commit()
        assert [job.id for job in await store.queries.list_jobs(JobFilter(), 10)] == [kept.id]

    async def test_works_on_an_async_session(self, store, async_engine):
        kept, lost = new_job(), new_job()
        async with AsyncSession(async_engine) as session:
            await store.insert_in_transaction(session, [lost])
            await session.rollback()
            await store.insert_in_transaction(session, [kept])
            await session.commit()
        assert [job.id for job in await store.queries.list_jobs(JobFilter(), 10)] == [kept.id]

    async def test_refuses_an_async_connection_where_calls_block(self, store, async_engine):
        async with async_engine.connect() as connection:
            with pytest.raises(InvalidInput, match="asynchronous"):
                store.insert_in_blocking_transaction(connection, [new_job()])

    async def test_refuses_one_in_autocommit_mode(self, store, engine):
        with (
            engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
            refused("store.no_transaction", InvalidInput),
        ):
            store.insert_in_blocking_transaction(connection, [new_job()])
        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_refuses_another_database(self, store):
        engine = create_engine("sqlite://")
        with engine.connect() as connection, refused("store.other_database", InvalidInput):
            store.insert_in_blocking_transaction(connection, [new_job()])
        engine.dispose()


class TestSubmit:
    async def test_works_through_sqlalchemy_in_both_colours(self, store, engine, async_engine):
        with Session(engine) as session, session.begin():
            store.submit_in_blocking_transaction(session, new_run(), [FLOW_GRAPH])
        async with async_engine.begin() as connection:
            await store.submit_in_transaction(connection, new_run(id="other"), [FLOW_GRAPH])
        assert await store.queries.count_runs(RunFilter()) == 2
