"""In your own transaction: commit enqueues and submits, rollback does not."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy

from perdure import (
    AsyncClient,
    Client,
    Flow,
    InvalidInput,
    JobNotFound,
    RunExists,
    RunNotFound,
    RunStatus,
    Status,
    task,
)
from perdure.store.opening import store_at
from tests.client.flows import add, named, ordering
from tests.support.refusal import refused


@task
def double(number: int) -> int:
    return 2 * number


doubling = Flow("doubling").then(double).build()

Connect = Callable[[], AbstractContextManager[Any]]


@pytest.fixture(params=["sqlite3", "psycopg", "sqlalchemy on sqlite", "sqlalchemy on postgres"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, Connect]]:
    """Where the store is, and how to connect to its database."""
    backend = "sqlite" if "sqlite" in request.param else "postgres"
    url: str = request.getfixturevalue(f"{backend}_url")
    server: str = request.getfixturevalue("postgres_server_url")
    path = url.removeprefix("sqlite:///")
    engine = sqlalchemy.create_engine(
        f"sqlite:///{path}"
        if backend == "sqlite"
        else server.replace("postgresql://", "postgresql+psycopg://")
    )
    connect: dict[str, Connect] = {
        "sqlite3": lambda: closing(sqlite3.connect(path)),
        "psycopg": lambda: psycopg.connect(server),
    }
    yield url, connect.get(request.param, engine.connect)
    engine.dispose()


@pytest.fixture
def blocking(place: tuple[str, Connect]) -> Iterator[tuple[Client, Connect]]:
    """A blocking client, and how to connect to its database."""
    url, connect = place
    with Client(url) as client:
        yield client, connect


async def prune_definitions(url: str) -> None:
    store = store_at(url)
    await store.open()
    await store.maintenance.prune_definitions("default", timedelta(0), 10)
    await store.close()


class TestABlockingClient:
    def test_enqueues_when_the_caller_commits(self, blocking):
        client, connect = blocking
        with connect() as connection:
            job = client.using(connection).enqueue(add.options(group="run-1"), 1)
            assert client.jobs.count() == 0
            connection.commit()
        assert job.status is Status.WAITING
        assert client.jobs.get(job.id).group == "run-1"

    def test_enqueues_nothing_when_the_caller_rolls_back(self, blocking):
        client, connect = blocking
        with connect() as connection:
            jobs = client.using(connection).enqueue_many(add, [1, 2])
            connection.rollback()
        assert client.jobs.count() == 0
        with pytest.raises(JobNotFound):
            jobs[0].result(timeout=10)

    def test_distinguishes_options_from_arguments_there_too(self, blocking):
        client, connect = blocking
        with connect() as connection:
            job = client.using(connection).enqueue(
                named.options(queue="other"), text="t", queue="mine"
            )
            with refused("task.unknown_argument", InvalidInput, name="c"):
                client.using(connection).enqueue(add, 1, c=1)  # type: ignore[call-arg]
            connection.commit()

        record = client.jobs.get(job.id)
        assert (record.queue, record.kwargs) == ("other", {"queue": "mine", "text": "t"})

    def test_starts_a_run_when_the_caller_commits(self, blocking):
        client, connect = blocking
        with connect() as connection:
            gone = client.using(connection).submit(ordering, 1)
            connection.rollback()
            run = client.using(connection).submit(ordering, 3, id="order-3")
            assert client.runs.count() == 0
            connection.commit()

        assert (run.id, run.status, run.is_new) == ("order-3", RunStatus.RUNNING, True)
        assert client.jobs.count() == 1
        with pytest.raises(RunNotFound):
            gone.status  # noqa: B018

    def test_saves_a_definition_again_that_was_pruned(self, place, blocking):
        """Finding 21: it was saved for a run that was rolled back."""
        client, connect = blocking
        with connect() as connection:
            client.using(connection).submit(ordering, 1)
            connection.rollback()
            asyncio.run(prune_definitions(place[0]))
            client.using(connection).submit(ordering, 2, id="run-2")
            connection.commit()

        with Client(place[0]) as stranger:
            stranger.runs.pause("run-2")

    def test_lets_others_submit_a_new_flow_meanwhile(self, postgres_url, postgres_server_url):
        with (
            Client(postgres_url) as client,
            psycopg.connect(postgres_server_url) as ours,
            psycopg.connect(postgres_server_url) as theirs,
        ):
            for each in (ours, theirs):
                each.execute("SET lock_timeout = '5s'")
            client.using(ours).submit(ordering, 1, id="a")
            client.using(theirs).submit(ordering, 2, id="b")
            ours.commit()
            theirs.rollback()

            assert [run.id for run in client.runs.list()] == ["a"]

    def test_reports_a_run_that_has_the_id(self, blocking):
        client, connect = blocking
        client.submit(ordering, 1, id="taken")
        with connect() as connection:
            within = client.using(connection)
            with pytest.raises(RunExists):
                within.submit(ordering, 2, id="taken")
            found = within.submit(ordering, 2, id="taken", on_conflict="use_existing")
            with refused("run.other_flow", InvalidInput):
                within.submit(doubling, 2, id="taken", on_conflict="use_existing")
            with refused("run.replaces_in_transaction", InvalidInput, where=("on_conflict",)):
                within.submit(ordering, 2, id="taken", on_conflict="replace")
            connection.commit()

        assert found.is_new is False
        assert client.runs.count() == 1

    def test_encodes_the_input_on_the_thread_of_the_caller(self, blocking):
        client, connect = blocking
        threads: list[threading.Thread] = []

        class Model:
            def model_dump(self, mode: str) -> int:
                threads.append(threading.current_thread())
                return 3

        untyped: Any = Model()
        with connect() as connection:
            client.using(connection).submit(ordering, untyped)
            connection.commit()

        assert set(threads) == {threading.current_thread()}

    def test_refuses_what_is_not_a_connection(self, store_url):
        with Client(store_url) as client:
            with refused("store.unusable_connection", InvalidInput):
                client.using("a connection").enqueue(add, 1)
            assert client.jobs.count() == 0


class TestAnAsyncClient:
    @pytest.fixture
    async def connection(self, postgres_server_url: str) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(postgres_server_url)
        yield connection
        await connection.close()

    async def test_starts_a_run_when_the_caller_commits(self, postgres_url, connection):
        async with AsyncClient(postgres_url) as client:
            transaction = connection.transaction()
            await transaction.start()
            await client.using(connection).submit(ordering, 1)
            await transaction.rollback()
            async with connection.transaction():
                run = await client.using(connection).submit(ordering, 3)
                assert await client.runs.count() == 0

            assert await run.status() is RunStatus.RUNNING
            assert await client.runs.count() == 1

    async def test_takes_part_in_a_transaction_of_sqlite3(self, sqlite_url):
        async with AsyncClient(sqlite_url) as client:
            with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
                await client.using(connection).enqueue(add, 1)
                connection.rollback()
                kept = await client.using(connection).enqueue(add, 2)
                connection.commit()
            assert [job.id for job in await client.jobs.list()] == [kept.id]
