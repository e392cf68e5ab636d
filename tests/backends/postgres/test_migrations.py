"""Tables are created and upgraded once, by the first process, and never over another program's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from perdure.errors import SchemaMismatch, StoreUnreachable
from perdure.model.job import JobFilter
from perdure.store.postgres.address import parse_address
from perdure.store.postgres.connection import connect
from perdure.store.postgres.migrations import migrate
from perdure.store.postgres.session import PACKAGE, place_in_sql
from perdure.store.postgres.store import PostgresStore
from perdure.store.sql.migrations import load_migrations
from perdure.testing.contract.builders import insert

PROCESSES = 4
OPEN_AND_COUNT = """
import asyncio, sys
from perdure.model.ids import JobId
from perdure.model.job import JobFilter, Status
from perdure.store.postgres.store import PostgresStore

async def main():
    store = PostgresStore(sys.argv[1])
    await store.open()
    assert await store.queries.count_jobs(JobFilter()) == 0
    await store.close()

asyncio.run(main())
"""

LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)
WAITS_OF_THE_SECOND_VERSION = """
INSERT INTO {schema}.runs (
    namespace, id, flow, version, status, number, created_at, updated_at, summary
)
VALUES ('team-a', 'order-42', 'orders', 'v1', 'waiting', 1, now(), now(), '');
INSERT INTO {schema}.events (run_serial, number, at, data) VALUES (1, 1, now(), '{{}}');
INSERT INTO {schema}.waits (namespace, run_id, key, kind, name, opened_at, due_at, is_held)
VALUES
    ('team-a', 'order-42', 'ask', 'signal', 'paid', '2001-02-03Z', '2001-02-03Z', true),
    ('team-a', 'order-42', 'delay', 'timer', '', '2001-02-03Z', '2001-02-03Z', false),
    ('team-a', 'order-42', 'ship', 'child', 'order-42/ship', '2001-02-03Z', NULL, false);
"""


@pytest.fixture
def postgres_url(bare_postgres_url: str) -> str:
    """A place without tables: to create them is what is tested here."""
    return bare_postgres_url


async def fails_to_open(url: str) -> str:
    with pytest.raises(SchemaMismatch) as mismatch:
        await PostgresStore(url).open()
    return str(mismatch.value)


class TestOpen:
    async def test_creates_the_tables_in_an_empty_database(self, postgres_url):
        store = PostgresStore(postgres_url)
        await store.open()
        await insert(store)
        await store.close()

    async def test_uses_a_schema_that_is_there_already(self, postgres_url, schema, admin):
        await admin.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.users (id integer)")
        store = PostgresStore(postgres_url)
        await store.open()
        await insert(store)
        await store.close()

    async def test_works_for_several_tasks_at_the_same_moment(self, postgres_url):
        stores = [PostgresStore(postgres_url) for _ in range(8)]
        await asyncio.gather(*(store.open() for store in stores))
        assert [await store.queries.count_jobs(JobFilter()) for store in stores] == [0] * 8
        await asyncio.gather(*(store.close() for store in stores))

    async def test_works_for_several_processes_at_the_same_moment(self, postgres_url):
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", OPEN_AND_COUNT, postgres_url, stderr=asyncio.subprocess.PIPE
            )
            for _ in range(PROCESSES)
        ]

        errors = [stderr.decode() for _, stderr in await communicate_all(processes)]

        assert errors == [""] * PROCESSES

    async def test_asks_one_query_and_takes_no_lock_when_up_to_date(self, store, postgres_url):
        asked: list[str] = []
        connection = await connect(parse_address(postgres_url))
        connection.add_query_logger(lambda record: asked.append(record.query))
        await migrate(connection, parse_address(postgres_url))
        await connection.close()  # the logger is called a little later
        assert len(asked) == 1
        assert "migrations" in asked[0]

    async def test_refuses_tables_of_a_newer_version(self, store, postgres_url, schema, admin):
        await admin.execute(f"INSERT INTO {schema}.migrations VALUES (7000, 'from the future')")
        message = await fails_to_open(postgres_url)
        assert "version 7000" in message
        assert f"up to {load_migrations(PACKAGE, {})[-1].version}." in message

    @pytest.mark.parametrize(
        "tables",
        [
            "CREATE TABLE {schema}.jobs (id integer)",
            "CREATE TABLE {schema}.migrations (id integer)",
            "CREATE TABLE {schema}.migrations (version integer, name text);"
            "INSERT INTO {schema}.migrations VALUES (1, 'create_users')",
        ],
        ids=["jobs", "migrations", "a like migrations table"],
    )
    async def test_refuses_tables_of_others(self, postgres_url, schema, admin, tables):
        await admin.execute(f"CREATE SCHEMA {schema};" + tables.format(schema=schema))
        message = await fails_to_open(postgres_url)
        assert schema in message
        assert "?schema=" in message

    async def test_leaves_nothing_behind_when_it_fails(self, postgres_url, schema, admin):
        # Not seen as one of our tables, but in the way of one.
        await admin.execute(
            f"CREATE SCHEMA {schema}; CREATE VIEW {schema}.maintenance_leases AS SELECT 1"
        )
        with pytest.raises(StoreUnreachable):
            await PostgresStore(postgres_url).open()
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = $1"
        assert await admin.fetchval(tables, schema) == 0

    async def test_keeps_two_schemas_of_one_database_apart(
        self, store, postgres_url, schema, admin
    ):
        other_schema = f"{schema}_b"
        other = PostgresStore(postgres_url.replace(schema, other_schema))
        await other.open()
        id = await insert(store)
        assert await other.queries.get_job(None, id) is None
        await other.close()
        await admin.execute(f"DROP SCHEMA {other_schema} CASCADE")

    async def test_takes_a_schema_name_that_sql_would_fold_or_reserve(
        self, postgres_server_url, admin
    ):
        store = PostgresStore(f"{postgres_server_url}?schema=User")
        await store.open()
        await insert(store)
        await store.close()
        await admin.execute('DROP SCHEMA "User" CASCADE')


class TestUpgradeOfWaits:
    """A database as the first two versions left it, with waits of every kind of that time."""

    @pytest.fixture
    async def upgraded(
        self, postgres_url: str, schema: str, admin: Any
    ) -> AsyncIterator[PostgresStore]:
        await admin.execute(f"CREATE SCHEMA {schema}")
        for step in load_migrations(PACKAGE, place_in_sql(schema))[:2]:
            await admin.execute(step.text)
            await admin.execute(
                f"INSERT INTO {schema}.migrations VALUES ($1, $2)", step.version, step.name
            )
        await admin.execute(WAITS_OF_THE_SECOND_VERSION.format(schema=schema))
        store = PostgresStore(postgres_url)
        await store.open()
        yield store
        await store.close()

    async def test_still_refuses_what_is_no_type(self, upgraded, schema, admin):
        with pytest.raises(asyncpg.CheckViolationError):
            await admin.execute(f"UPDATE {schema}.waits SET type = 'hope'")


async def communicate_all(processes: list[Any]) -> list[Any]:
    return await asyncio.gather(*(process.communicate() for process in processes))


# A database that was made before there were schedules: its runs stay and continue.


BEFORE_SCHEDULES = 2
RUNS = """
INSERT INTO {schema}.runs (
    number, token, created_at, updated_at, finished_at, namespace, id, flow, version, status,
    parent_run, parent_key, summary
) VALUES
    (1, 9, now(), now(), now(), 'team-a', 'order-41', 'orders', 'v1', 'completed', NULL, NULL,
     '{{"by":"ann"}}'),
    (1, NULL, now(), now(), NULL, 'team-a', 'order-42', 'orders', 'v1', 'running', NULL, NULL,
     '{{}}');
INSERT INTO {schema}.events (run_serial, number, at, data, value)
SELECT serial, 1, now(), '{{"type":"submitted"}}', '"input"'
FROM {schema}.runs;
INSERT INTO {schema}.jobs (
    id, namespace, queue, task, lane, status, priority, rank, input, input_hash, created_at,
    ready_at, run_id, node_key
) VALUES (
    'job-1', 'team-a', 'packing', 'pack_item', '["packing","pack_item",[],[],"orders@v1"]',
    'waiting', 3, 1, '[1]', 1, now(), now(), 'order-42', 'pack'
);
"""


@pytest.fixture
async def upgraded(postgres_url: str, schema: str, admin: Any) -> AsyncIterator[PostgresStore]:
    """A store on a database as the second migration left it, with runs."""
    await admin.execute(f"CREATE SCHEMA {schema}")
    for step in load_migrations(PACKAGE, place_in_sql(schema))[:BEFORE_SCHEDULES]:
        await admin.execute(step.text)
        await admin.execute(
            f"INSERT INTO {schema}.migrations VALUES ($1, $2)", step.version, step.name
        )
    await admin.execute(RUNS.format(schema=schema))
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.close()


class TestADatabaseWithRuns:
    async def test_has_the_constraints_of_a_new_one(self, upgraded, schema, admin):
        checks = await admin.fetch(
            "SELECT conname FROM pg_constraint WHERE connamespace = $1::regnamespace "
            "AND conrelid = $2::regclass AND contype = 'c' ORDER BY conname",
            schema,
            f"{schema}.runs",
        )

        assert [row[0] for row in checks] == [
            "runs_ended_has_time",
            "runs_parent_has_key",
            "runs_place_has_limit",
            "runs_status_is_known",
        ]
