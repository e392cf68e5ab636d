"""A file that was made before there were schedules: its runs stay, and go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.model.run import CommitState, RunFilter, RunStatus
from perdure.store.sql.migrations import load_migrations
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.transaction import PACKAGE
from tests.backends.sqlite.files import connected, run_script, schema_of
from tests.conformance.run_builders import NAMESPACE, claim_node, commit, ends, load, read_run
from tests.conformance.schedule_builders import cooling_run, read, save

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
    async def test_keeps_every_column_of_them(self, earlier, store):
        with connected(earlier) as connection:
            rows = connection.execute(
                "SELECT serial, id, status, parent_run, parent_key, created_at, finished_at, token,"
                " updated_at, summary, has_cooldown FROM perdure_runs ORDER BY serial"
            ).fetchall()

        assert rows == [
            (7, "order-41", "completed", None, None, 1000, 2000, 9, 3000, b'{"by":"ann"}', 0),
            (9, "order-42", "running", None, None, 4000, None, None, 4000, b"{}", 0),
            (
                12,
                "order-42/ship",
                "cancelled",
                "order-42",
                "ship",
                5000,
                6000,
                None,
                5000,
                b"{}",
                0,
            ),
        ]

    async def test_gets_the_same_tables_as_a_new_one(self, earlier, store, tmp_path):
        fresh = SqliteStore(f"sqlite:///{tmp_path}/fresh.db")
        await fresh.open()
        await fresh.close()

        assert schema_of(earlier) == schema_of(tmp_path / "fresh.db")

    async def test_lets_a_run_go_on_with_its_log(self, earlier, store):
        held = await claim_node(store)
        done = await commit(store, settlements=(ends(held),), status=RunStatus.COMPLETED)

        assert done.state is CommitState.DONE
        loaded = await load(store)
        assert [event.number for event in loaded.events] == [1, 2]
        assert loaded.events[0].value == b'"input"'

    async def test_takes_schedules_and_flows_that_cool_down(self, earlier, store):
        made = await save(store)
        first, second = [await store.runs.submit(cooling_run()) for _ in range(2)]

        assert await read(store) == made
        assert (await read_run(store, first.run.id)).status is RunStatus.RUNNING
        assert (await read_run(store, second.run.id)).status is RunStatus.SKIPPED
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 5
