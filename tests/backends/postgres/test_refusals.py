"""What the server refuses: tried again if it was busy, told as ours, and no job's fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from perdure import AsyncClient, Status, StoreError, Worker, task
from perdure.model.outcome import Completed
from perdure.store.postgres.store import PostgresStore
from perdure.worker.events import AttemptLost
from tests.backends.postgres.waiting import row_held, until_nobody_waits, until_somebody_waits
from tests.conformance.builders import hold, insert, settle, status_of
from tests.postgres_schemas import with_query
from tests.worker.harness import Gate, Running

REFUSE = """
CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'not so' USING ERRCODE = 'check_violation'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON {schema}.jobs FOR EACH ROW
WHEN (NEW.status = '{status}') EXECUTE FUNCTION {schema}.refuse()
"""


@pytest.fixture
def hasty_url(postgres_url: str) -> str:
    """Where no statement may take long, as an administrator can set it for a role."""
    return with_query(postgres_url, options="-c statement_timeout=300ms")


@pytest.fixture
async def hasty(hasty_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(hasty_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def watcher(postgres_server_url: str) -> AsyncIterator[Any]:
    """A connection that looks on: within its own transaction the holder sees only its start."""
    connection = await asyncpg.connect(postgres_server_url)
    yield connection
    await connection.close()


class TestAStatementThatTimesOut:
    async def test_is_tried_again(self, hasty, admin, watcher, schema):
        held = await hold(hasty)

        async with row_held(admin, schema, held.id):
            settling = asyncio.create_task(settle(hasty, held, Completed(output=b"1")))
            await until_somebody_waits(watcher, schema)
            await until_nobody_waits(watcher, schema)

        assert await settling is Status.COMPLETED

    async def test_is_told_as_an_error_of_the_store_in_the_end(self, hasty, admin, schema):
        held = await hold(hasty)

        async with row_held(admin, schema, held.id):
            with pytest.raises(StoreError, match="nothing was written") as refused:
                await settle(hasty, held, Completed(output=b"1"))

        assert isinstance(refused.value.__cause__, asyncpg.QueryCanceledError)
        assert await status_of(hasty, held.id) is Status.ACTIVE


async def test_any_other_refusal_is_told_as_an_error_of_the_store(store, admin, schema):
    await admin.execute(f"ALTER TABLE {schema}.jobs RENAME TO elsewhere")

    with pytest.raises(StoreError) as refused:
        await insert(store)

    assert isinstance(refused.value.__cause__, asyncpg.UndefinedTableError)


class TestAWorker:
    @pytest.mark.parametrize("end", ["returns", "is given back"])
    async def test_fails_no_job_because_the_store_was_busy(
        self, hasty_url, admin, watcher, schema, end
    ):
        gate = Gate()

        @task
        async def work() -> str:
            await gate.pass_through()
            return "done"

        async with AsyncClient(hasty_url) as client:
            running = await Running(Worker(hasty_url, tasks=[work])).start()
            job = await client.enqueue(work)
            await gate.reached()
            async with row_held(admin, schema, job.id):
                if end == "returns":
                    gate.open()
                else:
                    running.worker.shutdown(0)
                await until_somebody_waits(watcher, schema)
                await until_nobody_waits(watcher, schema)
            await running.stop(grace=10)

            expected = Status.COMPLETED if end == "returns" else Status.WAITING
            assert await job.status() is expected
            assert await job.attempts() == []

    async def test_leaves_a_job_that_cannot_be_given_back_to_its_lease(
        self, store, postgres_url, admin, schema
    ):
        gate = Gate()

        @task
        async def work() -> None:
            await gate.pass_through()

        await admin.execute(REFUSE.format(schema=schema, status="waiting"))
        async with AsyncClient(postgres_url) as client:
            running = await Running(Worker(postgres_url, tasks=[work])).start()
            job = await client.enqueue(work)
            await gate.reached()
            await running.stop()

            assert running.all(AttemptLost, job.id)
            assert await job.status() is Status.ACTIVE

    async def test_fails_a_job_whose_result_is_refused_for_good(
        self, store, postgres_url, admin, schema
    ):
        @task
        async def work() -> int:
            return 1

        await admin.execute(REFUSE.format(schema=schema, status="completed"))
        async with AsyncClient(postgres_url) as client:
            running = await Running(Worker(postgres_url, tasks=[work])).start()
            job = await client.enqueue(work)
            with pytest.raises(Exception, match="not so"):
                await job.result(10)
            await running.stop()

            assert await job.status() is Status.FAILED
