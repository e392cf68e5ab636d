"""A database that was made before there were schedules: its runs stay, and go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.model.ids import RunId
from perdure.model.run import CommitState, RunStatus
from perdure.store.postgres.session import PACKAGE, place_in_sql
from perdure.store.postgres.store import PostgresStore
from perdure.store.sql.migrations import load_migrations
from tests.conformance.run_builders import claim_node, commit, ends, load, read_run
from tests.conformance.schedule_builders import cooling_run, read, save

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
def postgres_url(bare_postgres_url: str) -> str:
    """A place without tables: to create them is what is tested here."""
    return bare_postgres_url


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
    async def test_lets_a_run_go_on_with_its_log(self, upgraded):
        held = await claim_node(upgraded)
        done = await commit(upgraded, settlements=(ends(held),), status=RunStatus.COMPLETED)

        assert done.state is CommitState.DONE
        loaded = await load(upgraded)
        assert [event.number for event in loaded.events] == [1, 2]
        assert loaded.events[0].value == b'"input"'
        assert (await read_run(upgraded, RunId("order-41"))).summary == b'{"by":"ann"}'

    async def test_takes_schedules_and_flows_that_cool_down(self, upgraded):
        made = await save(upgraded)
        first, second = [await upgraded.runs.submit(cooling_run()) for _ in range(2)]

        assert await read(upgraded) == made
        assert first.run.status is RunStatus.RUNNING
        assert second.run.status is RunStatus.SKIPPED

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
            "runs_status_is_known",
        ]
