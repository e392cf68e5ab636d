"""The tables: how they come to be, and what is left alone."""

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

OLD_JOB = """
INSERT INTO perdure_jobs (
    id, namespace, queue, task, lane, status, priority, rank, created_at, ready_at, input_hash,
    input
) VALUES (
    'old', 'default', 'mail', 'send', '["mail","send",[],[]]', 'waiting', 3, 0, 0, 0, 1, x'5b315d'
)
"""

OLD_WAITS = """
INSERT INTO perdure_runs (
    id, namespace, flow, version, status, created_at, updated_at, summary
) VALUES ('order-42', 'team-a', 'orders', 'v1', 'waiting', 1, 1, x'');
INSERT INTO perdure_events (run_serial, number, at, data) VALUES (1, 1, 1, x'7b7d');
INSERT INTO perdure_waits (
    namespace, run_id, key, kind, name, opened_at, due_at, is_held
) VALUES
    ('team-a', 'order-42', 'ask', 'signal', 'paid', 1, 2, 1),
    ('team-a', 'order-42', 'delay', 'timer', '', 1, 3, 0),
    ('team-a', 'order-42', 'ship', 'child', 'order-42/ship', 1, NULL, 0);
"""


async def open_and_close(url: str) -> None:
    store = SqliteStore(url)
    await store.open()
    await store.close()


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
    @pytest.fixture
    def jobs_only(self, path: Path) -> Path:
        """A file as the first migration left it, with a job that waits."""
        [first, *_] = load_migrations(PACKAGE, {"prefix": "perdure_"})
        run_script(path, first.text)
        run_script(path, "INSERT INTO perdure_migrations VALUES (1, 'jobs', 0)")
        run_script(path, OLD_JOB)
        return path

    async def test_gets_the_same_tables_as_a_new_one(self, jobs_only, tmp_path):
        await open_and_close(f"sqlite:///{jobs_only}")
        await open_and_close(f"sqlite:///{tmp_path}/fresh.db")
        assert schema_of(jobs_only) == schema_of(tmp_path / "fresh.db")

    async def test_is_refused_if_another_program_has_such_a_table(self, jobs_only):
        run_script(jobs_only, "CREATE TABLE perdure_runs (x)")
        before = schema_of(jobs_only)
        with refused("store.foreign_tables", SchemaMismatch):
            await open_and_close(f"sqlite:///{jobs_only}")
        assert schema_of(jobs_only) == before


class TestAFileWithWaitsOfAnEarlierVersion:
    @pytest.fixture
    def two_steps(self, path: Path) -> Path:
        """A file as the first two migrations left it, with waits of every kind of that time."""
        for step in load_migrations(PACKAGE, {"prefix": "perdure_"})[:2]:
            run_script(path, step.text)
            run_script(
                path, f"INSERT INTO perdure_migrations VALUES ({step.version}, '{step.name}', 0)"
            )
        run_script(path, OLD_WAITS)
        return path

    async def test_is_upgraded_although_a_view_of_the_user_reads_it(self, two_steps):
        run_script(two_steps, "CREATE VIEW mine AS SELECT run_id, kind FROM perdure_waits")
        await open_and_close(f"sqlite:///{two_steps}")
        run_script(two_steps, "SELECT type FROM perdure_waits")

    async def test_gets_the_same_tables_as_a_new_one(self, two_steps, tmp_path):
        await open_and_close(f"sqlite:///{two_steps}")
        await open_and_close(f"sqlite:///{tmp_path}/fresh.db")
        assert schema_of(two_steps) == schema_of(tmp_path / "fresh.db")

    async def test_is_refused_if_another_program_has_such_a_table(self, two_steps):
        run_script(two_steps, "CREATE TABLE perdure_waits_anew (x)")
        before = schema_of(two_steps)
        with refused("store.foreign_tables", SchemaMismatch):
            await open_and_close(f"sqlite:///{two_steps}")
        assert schema_of(two_steps) == before


class TestPrefix:
    async def test_lets_several_share_one_file_without_seeing_each_other(self, url):
        one, other = SqliteStore(f"{url}?prefix=one_"), SqliteStore(f"{url}?prefix=other_")
        await one.open()
        await other.open()

        await insert(one)

        assert await one.queries.count_jobs(JobFilter()) == 1
        assert await other.queries.count_jobs(JobFilter()) == 0
        await one.close()
        await other.close()


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
        "change",
        [
            "status = 'running'",
            "status = 'active'",
            "status = 'completed'",
            "lease_until = 1",
            "finished_at = 1",
            "limit_keys = '[]'",
            "hidden = 1",
            "attempt = -1",
        ],
    )
    async def test_hold_in_the_table(self, store, path, change):
        await insert(store)
        with connected(path) as connection, pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            connection.execute(f"UPDATE perdure_jobs SET {change}")

    @pytest.mark.parametrize(
        "change",
        [
            "status = 'stopped'",
            "status = 'completed'",
            "finished_at = 1",
            "parent_run = 'a run without a key'",
        ],
    )
    async def test_hold_for_runs(self, store, path, change):
        await submit(store)
        with connected(path) as connection, pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            connection.execute(f"UPDATE perdure_runs SET {change}")

    async def test_hold_for_waits(self, store, path):
        await submit(store, waits=(approval(),))
        with connected(path) as connection, pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            connection.execute("UPDATE perdure_waits SET type = 'hope'")


# A file that was made before there were schedules: its runs stay, and go on.


BEFORE_SCHEDULES = 2
RUNS = """
INSERT INTO perdure_runs (
    serial, id, namespace, flow, version, status, parent_run, parent_key, created_at, finished_at,
    token, updated_at, summary
) VALUES
    (7, 'order-41', 'team-a', 'orders', 'v1', 'completed', NULL, NULL, 1000, 2000, 9, 3000,
     CAST('{"by":"ann"}' AS BLOB)),
    (9, 'order-42', 'team-a', 'orders', 'v1', 'running', NULL, NULL, 4000, NULL, NULL, 4000,
     CAST('{}' AS BLOB)),
    (12, 'order-42/ship', 'team-a', 'shipping', 'v7', 'cancelled', 'order-42', 'ship', 5000, 6000,
     NULL, 5000, CAST('{}' AS BLOB));
INSERT INTO perdure_events (run_serial, number, at, token, data, value) VALUES
    (7, 1, 1000, NULL, CAST('{"type":"first"}' AS BLOB), NULL),
    (9, 1, 4000, NULL, CAST('{"type":"submitted"}' AS BLOB), CAST('"input"' AS BLOB));
INSERT INTO perdure_jobs (
    id, namespace, queue, task, lane, status, priority, rank, created_at, ready_at, input_hash,
    input, run_id, node_key
) VALUES (
    'job-1', 'team-a', 'packing', 'pack_item', '["packing","pack_item",[],[],"orders@v1"]',
    'waiting', 3, 0, 0, 0, 1, x'5b315d', 'order-42', 'pack'
);
"""


@pytest.fixture
def earlier(path: Path) -> Path:
    """A file as the second migration left it, with runs."""
    for step in load_migrations(PACKAGE, {"prefix": "perdure_"})[:BEFORE_SCHEDULES]:
        run_script(path, step.text)
        run_script(
            path, f"INSERT INTO perdure_migrations VALUES ({step.version}, '{step.name}', 0)"
        )
    run_script(path, RUNS)
    return path


class TestAFileWithRuns:
    async def test_gets_the_same_tables_as_a_new_one(self, earlier, store, tmp_path):
        fresh = SqliteStore(f"sqlite:///{tmp_path}/fresh.db")
        await fresh.open()
        await fresh.close()
        assert schema_of(earlier) == schema_of(tmp_path / "fresh.db")
