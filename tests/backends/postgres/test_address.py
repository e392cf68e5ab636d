"""The URL of a store: what it may say, and what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from perdure import AsyncClient, Status, StoreError, Worker
from perdure.errors import InvalidStoreUrl
from perdure.model.outcome import Completed
from perdure.store.postgres.address import parse_address, place_of
from perdure.store.postgres.store import PostgresStore
from perdure.testing.contract.builders import claim_new, insert, settle, status_of
from perdure.worker.events import AttemptLost
from tests.backends.postgres.line import row_held, until_blocked, until_unblocked
from tests.postgres_schemas import with_query
from tests.support.stores import postgres_at
from tests.support.tasks import gated, nothing
from tests.worker.harness import Running


class TestParseAddress:
    def test_takes_our_options_out_and_passes_the_others_on(self):
        address = parse_address(
            "postgresql://ann@db:6543/work?schema=jobs&pool=9&listen=off&sslmode=require"
        )
        assert address.dsn == "postgresql://ann@db:6543/work?sslmode=require"
        assert (address.schema, address.pool_max, address.is_listening) == ("jobs", 9, False)

    def test_has_defaults_for_our_options(self):
        address = parse_address("postgres://db/work")
        assert (address.schema, address.pool_max, address.is_listening) == ("perdure", 5, True)

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://ann:s3cret@db/work",
            "postgresql://db/work?user=ann&password=s3cret",
            "postgresql://ann:s%203cret@db/work?schema=a&sslpassword=s3cret",
        ],
    )
    def test_shows_no_password(self, url):
        address = parse_address(url)
        assert "3cret" not in address.url
        assert "3cret" in address.dsn

    @pytest.mark.parametrize(
        "options",
        [
            "shema=typo",
            "schema=",
            "schema=no-plain-name",
            "schema=" + "x" * 60,
            "pool=0",
            "pool=many",
            "pool=-1",
            "statement_cache=1e9",
            "listen=maybe",
            "connect_timeout=0",
            "answer_timeout=0",
            "answer_timeout=never",
        ],
    )
    def test_refuses_options_that_cannot_be_used(self, options):
        with pytest.raises(InvalidStoreUrl) as refusal:
            parse_address(f"postgresql://db/work?{options}")
        assert options.partition("=")[0] in refusal.value.reason

    @pytest.mark.parametrize("url", ["postgresql://db:port/work", "postgresql://[::1/work"])
    def test_refuses_a_host_that_cannot_be_read(self, url):
        with pytest.raises(InvalidStoreUrl):
            parse_address(url)

    def test_shows_no_password_in_a_refusal(self):
        with pytest.raises(InvalidStoreUrl) as refusal:
            parse_address("postgresql://ann:s3cret@db/work?shema=typo")
        assert "s3cret" not in str(refusal.value)

    def test_shows_no_password_that_looks_like_a_port(self):
        assert parse_address("postgresql://ann:123/s3cret@db/work").url == (
            "postgresql://ann:***@db/work"
        )

    def test_takes_several_hosts(self):
        address = parse_address("postgresql://one:1,two:2/work?target_session_attrs=primary")
        assert address.dsn.startswith("postgresql://one:1,two:2/work")


class TestPlaceOf:
    def test_is_the_same_for_all_who_connect_to_the_same_tables(self):
        first = parse_address("postgres://ann:a@db/work?pool=3")
        second = parse_address("postgresql://ben:b@db/work?schema=perdure&listen=off")
        assert place_of(first) == place_of(second)

    def test_differs_between_schemas_databases_and_servers(self):
        urls = [
            "postgresql://db/work",
            "postgresql://db/work?schema=other",
            "postgresql://db/other",
            "postgresql://other/work",
            "postgresql:///work?host=/run/other",
        ]

        assert len({place_of(parse_address(url)) for url in urls}) == len(urls)


# What the server refuses: retried if it was busy, reported as our error, and no job's fault.


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
    async with postgres_at(hasty_url) as store:
        yield store


@pytest.fixture
async def watcher(postgres_server_url: str) -> AsyncIterator[Any]:
    """A connection that looks on: within its own transaction the holder sees only its start."""
    connection = await asyncpg.connect(postgres_server_url)
    yield connection
    await connection.close()


class TestAStatementThatTimesOut:
    async def test_is_tried_again(self, hasty, admin, watcher, schema):
        held = await claim_new(hasty)
        async with row_held(admin, schema, held.id):
            settling = asyncio.create_task(settle(hasty, held, Completed(output=b"1")))
            await until_blocked(watcher, schema)
            await until_unblocked(watcher, schema)
        assert await settling is Status.COMPLETED

    async def test_is_reported_as_an_error_of_the_store_in_the_end(self, hasty, admin, schema):
        held = await claim_new(hasty)
        async with row_held(admin, schema, held.id):
            with pytest.raises(StoreError) as refused:
                await settle(hasty, held, Completed(output=b"1"))
        assert isinstance(refused.value.__cause__, asyncpg.QueryCanceledError)
        assert await status_of(hasty, held.id) is Status.ACTIVE


async def test_any_other_refusal_is_reported_as_an_error_of_the_store(store, admin, schema):
    await admin.execute(f"ALTER TABLE {schema}.jobs RENAME TO elsewhere")
    with pytest.raises(StoreError) as refused:
        await insert(store)
    assert isinstance(refused.value.__cause__, asyncpg.UndefinedTableError)


class TestAWorker:
    @pytest.mark.parametrize("end", ["returns", "is given back"])
    async def test_fails_no_job_because_the_store_was_busy(
        self, hasty_url, admin, watcher, schema, end
    ):
        gate, work = gated()
        async with AsyncClient(hasty_url) as client:
            running = await Running(Worker(hasty_url, tasks=[work])).start()
            job = await client.enqueue(work)
            await gate.reached()
            async with row_held(admin, schema, job.id):
                if end == "returns":
                    gate.open()
                else:
                    running.worker.shutdown(0)
                await until_blocked(watcher, schema)
                await until_unblocked(watcher, schema)
            await running.stop(grace=10)

            expected = Status.COMPLETED if end == "returns" else Status.WAITING
            assert await job.status() is expected
            assert await job.attempts() == []

    async def test_leaves_a_job_that_cannot_be_requeued_to_its_lease(
        self, store, postgres_url, admin, schema
    ):
        gate, work = gated()
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
        await admin.execute(REFUSE.format(schema=schema, status="completed"))
        async with AsyncClient(postgres_url) as client:
            running = await Running(Worker(postgres_url, tasks=[nothing])).start()
            job = await client.enqueue(nothing)
            with pytest.raises(Exception, match="not so"):
                await job.result(10)
            await running.stop()

            assert await job.status() is Status.FAILED
