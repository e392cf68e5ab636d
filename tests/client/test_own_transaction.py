"""In your own transaction: commit enqueues, rollback does not."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy

from perdure import AsyncClient, Client, InvalidInput, JobNotFound, Status
from tests.client.tasks import add, named
from tests.support.refusal import refused

Connect = Callable[[], AbstractContextManager[Any]]


@pytest.fixture(params=["sqlite3", "psycopg", "sqlalchemy on sqlite", "sqlalchemy on postgres"])
def blocking(request: pytest.FixtureRequest) -> Iterator[tuple[Client, Connect]]:
    """A blocking client, and how to connect to its database."""
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
    with Client(url) as client:
        yield client, connect.get(request.param, engine.connect)
    engine.dispose()


class TestABlockingClient:
    def test_enqueues_when_the_caller_commits(self, blocking: tuple[Client, Connect]) -> None:
        client, connect = blocking
        with connect() as connection:
            job = client.using(connection).enqueue(add.options(group="run-1"), 1)
            assert client.jobs.count() == 0
            connection.commit()

        assert job.status is Status.WAITING
        assert client.jobs.get(job.id).group == "run-1"

    def test_enqueues_nothing_when_the_caller_rolls_back(
        self, blocking: tuple[Client, Connect]
    ) -> None:
        client, connect = blocking
        with connect() as connection:
            jobs = client.using(connection).enqueue_many(add, [1, 2])
            connection.rollback()

        assert client.jobs.count() == 0
        with pytest.raises(JobNotFound):
            jobs[0].result(timeout=10)

    def test_tells_options_from_arguments_there_too(self, blocking: tuple[Client, Connect]) -> None:
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

    def test_refuses_what_is_not_a_connection(self, store_url: str) -> None:
        with Client(store_url) as client:
            with pytest.raises(InvalidInput, match="connection="):
                client.using("a connection").enqueue(add, 1)

            assert client.jobs.count() == 0


class TestAnAsyncClient:
    @pytest.fixture
    async def connection(self, postgres_server_url: str) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(postgres_server_url)
        yield connection
        await connection.close()

    async def test_enqueues_when_the_caller_commits(
        self, postgres_url: str, connection: asyncpg.Connection
    ) -> None:
        async with AsyncClient(postgres_url) as client:
            async with connection.transaction():
                handle = await client.using(connection).enqueue(add, 1)
                assert await client.jobs.count() == 0

            assert await handle.status() is Status.WAITING

    async def test_enqueues_nothing_when_the_caller_rolls_back(
        self, postgres_url: str, connection: asyncpg.Connection
    ) -> None:
        async with AsyncClient(postgres_url) as client:
            transaction = connection.transaction()
            await transaction.start()
            await client.using(connection).enqueue_many(add, [1, 2])
            await transaction.rollback()

            assert await client.jobs.count() == 0

    async def test_takes_part_in_a_transaction_of_sqlite3(self, sqlite_url: str) -> None:
        async with AsyncClient(sqlite_url) as client:
            with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
                await client.using(connection).enqueue(add, 1)
                connection.rollback()
                kept = await client.using(connection).enqueue(add, 2)
                connection.commit()

            assert [job.id for job in await client.jobs.list()] == [kept.id]
