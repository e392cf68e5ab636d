"""Tables are created and upgraded once, by the first process, and never over another program's."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
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
from tests.support.refusal import refused
from tests.support.stores import postgres_at

OLD_RUNS = Path(__file__).with_name("rows_of_schema_2.sql").read_text("utf-8")
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


@pytest.fixture
def postgres_url(bare_postgres_url: str) -> str:
    """A place without tables: to create them is what is tested here."""
    return bare_postgres_url


class TestOpen:
    async def test_creates_the_tables_in_an_empty_database(self, postgres_url):
        async with postgres_at(postgres_url) as store:
            await insert(store)

    async def test_uses_a_schema_that_is_there_already(self, postgres_url, schema, admin):
        await admin.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.users (id integer)")
        async with postgres_at(postgres_url) as store:
            await insert(store)

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
        with refused("store.newer_schema", SchemaMismatch):
            await PostgresStore(postgres_url).open()

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
        with refused("store.foreign_tables", SchemaMismatch):
            await PostgresStore(postgres_url).open()

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
        async with postgres_at(postgres_url.replace(schema, other_schema)) as other:
            id = await insert(store)
            assert await other.queries.get_job(None, id) is None
        await admin.execute(f"DROP SCHEMA {other_schema} CASCADE")

    async def test_takes_a_schema_name_that_sql_would_fold_or_reserve(
        self, postgres_server_url, admin
    ):
        async with postgres_at(f"{postgres_server_url}?schema=User") as store:
            await insert(store)
        await admin.execute('DROP SCHEMA "User" CASCADE')


class TestUpgrade:
    """A database as the first two versions left it, with runs and waits of that time."""

    @pytest.fixture
    async def upgraded(self, postgres_url, schema, admin):
        await admin.execute(f"CREATE SCHEMA {schema}")
        for step in load_migrations(PACKAGE, place_in_sql(schema))[:2]:
            await admin.execute(step.text)
            await admin.execute(
                f"INSERT INTO {schema}.migrations VALUES ($1, $2)", step.version, step.name
            )
        await admin.execute(OLD_RUNS.format(schema=schema))
        async with postgres_at(postgres_url) as store:
            yield store

    async def test_still_refuses_what_is_no_type(self, upgraded, schema, admin):
        with pytest.raises(asyncpg.CheckViolationError):
            await admin.execute(f"UPDATE {schema}.waits SET type = 'hope'")

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


async def communicate_all(processes: list[Any]) -> list[Any]:
    return await asyncio.gather(*(process.communicate() for process in processes))
