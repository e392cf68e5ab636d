"""The tables: how they are created and upgraded, and what is left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from perdure.errors import SchemaMismatch
from perdure.model.job import JobFilter
from perdure.store.sql.migrations import load_migrations
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.transaction import PACKAGE
from perdure.testing.contract.builders import approval, insert, submit
from tests.backends.sqlite.files import connected, run_script, schema_of
from tests.support.refusal import refused
from tests.support.stores import opened


async def open_and_close(url: str) -> None:
    async with opened(SqliteStore(url)):
        pass


class TestOpeningAnEmptyFile:
    async def test_creates_the_tables_once(self, url, path):
        await open_and_close(url)
        fresh = schema_of(path)

        await open_and_close(url)

        assert schema_of(path) == fresh
        with connected(path) as connection:
            versions = connection.execute("SELECT version, name FROM perdure_migrations")
            known = load_migrations(PACKAGE, {"prefix": "perdure_"})
            assert versions.fetchall() == [(step.version, step.name) for step in known]

    async def test_writes_ahead_so_that_readers_never_wait(self, url, path):
        await open_and_close(url)
        with connected(path) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]

    async def test_leaves_the_tables_of_an_application_alone(self, url, path):
        run_script(path, "CREATE TABLE jobs (x); INSERT INTO jobs VALUES (1);")
        await open_and_close(url)
        with connected(path) as connection:
            assert connection.execute("SELECT x FROM jobs").fetchall() == [(1,)]

    async def test_needs_no_lock_when_they_are_there(self, url, path):
        await open_and_close(url)
        with connected(path, isolation_level=None) as writer:
            writer.execute("BEGIN IMMEDIATE")
            await open_and_close(url)


class TestAFileOfAnEarlierVersion:
    @pytest.fixture(params=[1, 2])
    def earlier(self, request, path):
        """A file as the first migrations left it, with rows of that time."""
        rows = Path(__file__).with_name(f"rows_of_schema_{request.param}.sql").read_text("utf-8")
        for step in load_migrations(PACKAGE, {"prefix": "perdure_"})[: request.param]:
            run_script(path, step.text)
            run_script(
                path, f"INSERT INTO perdure_migrations VALUES ({step.version}, '{step.name}', 0)"
            )
        run_script(path, rows)
        return path

    async def test_gets_the_same_tables_as_a_new_one(self, earlier, tmp_path):
        await open_and_close(f"sqlite:///{earlier}")
        await open_and_close(f"sqlite:///{tmp_path}/fresh.db")
        assert schema_of(earlier) == schema_of(tmp_path / "fresh.db")

    @pytest.mark.parametrize("table", ["perdure_schedules", "perdure_waits_anew"])
    async def test_is_refused_if_another_program_has_such_a_table(self, earlier, table):
        run_script(earlier, f"CREATE TABLE {table} (x)")
        before = schema_of(earlier)
        with refused("store.foreign_tables", SchemaMismatch):
            await open_and_close(f"sqlite:///{earlier}")
        assert schema_of(earlier) == before

    @pytest.mark.parametrize("earlier", [2], indirect=True)
    async def test_is_upgraded_although_a_view_of_the_user_reads_it(self, earlier):
        run_script(earlier, "CREATE VIEW mine AS SELECT run_id, kind FROM perdure_waits")
        await open_and_close(f"sqlite:///{earlier}")
        run_script(earlier, "SELECT type FROM perdure_waits")


class TestPrefix:
    async def test_lets_several_share_one_file_without_seeing_each_other(self, url):
        stores = (opened(SqliteStore(f"{url}?prefix={prefix}_")) for prefix in ("one", "other"))
        async with next(stores) as one, next(stores) as other:
            await insert(one)
            assert await one.queries.count_jobs(JobFilter()) == 1
            assert await other.queries.count_jobs(JobFilter()) == 0


class TestSchemaMismatch:
    async def test_for_tables_that_are_not_ours(self, url, path):
        run_script(path, "CREATE TABLE perdure_jobs (id TEXT)")
        before = schema_of(path)
        with refused("store.foreign_tables", SchemaMismatch):
            await open_and_close(url)
        assert schema_of(path) == before

    async def test_for_a_foreign_table_of_migrations(self, url, path):
        run_script(path, "CREATE TABLE perdure_migrations (id TEXT)")
        with refused("store.foreign_tables", SchemaMismatch):
            await open_and_close(url)

    async def test_for_tables_of_a_newer_version(self, url, path):
        await open_and_close(url)
        run_script(path, "INSERT INTO perdure_migrations VALUES (7000, 'later', 0)")
        with refused("store.newer_schema", SchemaMismatch):
            await open_and_close(url)

    async def test_for_a_file_that_is_not_a_database(self, url, path):
        path.write_bytes(b"nothing of the kind" * 100)
        with refused("store.not_a_database", SchemaMismatch):
            await open_and_close(url)
        assert path.read_bytes().startswith(b"nothing")

    async def test_lets_the_store_be_opened_once_it_is_repaired(self, url, path):
        run_script(path, "CREATE TABLE perdure_jobs (id TEXT)")
        store = SqliteStore(url)
        with pytest.raises(SchemaMismatch):
            await store.open()

        run_script(path, "DROP TABLE perdure_jobs")
        await store.open()

        await insert(store)
        await store.close()


class TestInvariants:
    """The table is the last assertion: what no operation writes, no other hand can either."""

    @pytest.mark.parametrize(
        "table, change",
        [
            ("jobs", "status = 'running'"),
            ("jobs", "status = 'active'"),
            ("jobs", "status = 'completed'"),
            ("jobs", "lease_until = 1"),
            ("jobs", "finished_at = 1"),
            ("jobs", "limit_keys = '[]'"),
            ("jobs", "hidden = 1"),
            ("jobs", "attempt = -1"),
            ("runs", "status = 'stopped'"),
            ("runs", "status = 'completed'"),
            ("runs", "finished_at = 1"),
            ("runs", "parent_run = 'a run without a key'"),
            ("waits", "type = 'hope'"),
        ],
    )
    async def test_hold_in_the_tables(self, store, path, table, change):
        await insert(store)
        await submit(store, waits=(approval(),))
        with connected(path) as connection, pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            connection.execute(f"UPDATE perdure_{table} SET {change}")
