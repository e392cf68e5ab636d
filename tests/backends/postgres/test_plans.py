"""How PostgreSQL runs our statements: none on a hot path may grow with the number of jobs or runs.

The plans are those of the store's own connections: made once, for any arguments. They must hold
whatever the statistics say, so they are looked at with none, with outdated and with fresh ones.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from perdure.model.ids import RunId
from perdure.model.job import JobFilter, Status
from perdure.model.run import RunFilter, RunStatus, WaitFilter, WaitType
from perdure.store.lifecycle import Transition
from perdure.store.postgres.address import parse_address
from perdure.store.postgres.admin import change_statement
from perdure.store.postgres.connection import connect
from perdure.store.postgres.queries import filtered_jobs, filtered_runs, filtered_waits
from perdure.store.postgres.session import statements_in
from perdure.store.postgres.store import PostgresStore
from tests.postgres_schemas import drop_schema, with_query

ROWS = 20_000
TABLES = ("jobs", "runs", "events", "waits", "snapshots", "steps")

# Statements that read all rows of a table, or of a partial index, and why they may.
READ_ALL_ON_PURPOSE = {
    "audit_limits": "looks at all limits, for the verifier",
    "audit_places": "looks at the runs that hold a place or wait for one, for the verifier",
    "hidden_jobs": "looks through all jobs, for the verifier",
    "orphans": "looks through all tables, for the verifier",
    "schedule_times": "lists a small table",
    "shared_fingerprints": "looks at the jobs that are not over, for the verifier",
    "applied": "a small table",
    "bound_live_events": "looks at a minute of live events, when the clock was set back",
    "count_ended_jobs": "counts for an operator what pruning would remove",
    "count_flows": "counts all runs, for an operator",
    "list_schedules": "a small table",
    "live_flows": "counts all runs that are not over",
    "requeue_unknown": "goes through the jobs that are held, when a worker starts",
    "paused_queues": "a small table",
    "newest_at": "looks at all jobs and runs, for an operator",
    "orphaned_runs": "looks at the runs that are not over, for an operator",
    "save_subscriber": "takes the number of the last live event from the end of its index",
    "work_counts": "adds up small tables",
    "workers": "a small table, and the jobs that are held",
}
CHANGES = [
    Transition.ABORT,
    Transition.DISABLE,
    Transition.ENABLE,
    Transition.RETRY,
    Transition.RESUME,
]
PAGE = (datetime(2030, 1, 1, tzinfo=UTC), RunId("a"), "check")
COMMANDS = {"create_schema", "mark_start", "undo_to_start", "forget_start", "lock_tables"}
FILLED_IN = {
    "change_jobs",
    "list_jobs",
    "list_jobs_by_status",
    "count_jobs",
    "list_runs",
    "list_runs_of_id",
    "count_runs",
    "list_waits",
}


@pytest.fixture(scope="module")
def filled_schemas(postgres_server_url: str) -> Iterator[dict[str, str]]:
    """By what the planner knows of them; filled when the first test asks."""
    schemas: dict[str, str] = {}
    yield schemas
    for schema in schemas.values():
        drop_schema(postgres_server_url, schema)


@pytest.fixture(params=["none", "outdated", "fresh"])
def filled_url(request, postgres_server_url, filled_schemas):
    """A store with many jobs, and with the planner knowing nothing, too little or all of it."""
    known: str = request.param
    if known not in filled_schemas:
        schema = filled_schemas[known] = f"t_{secrets.token_hex(8)}"
        asyncio.run(open_and_close(with_query(postgres_server_url, schema=schema)))
        _fill(postgres_server_url, schema, known)
    return with_query(postgres_server_url, schema=filled_schemas[known])


def _fill(url: str, schema: str, known: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"ALTER TABLE {schema}.{table} SET (autovacuum_enabled = off)")
            if known == "outdated":
                connection.execute(f"ANALYZE {schema}.{table}")
        fill = Path(__file__).with_name("filled.sql").read_text("utf-8")
        connection.execute(fill.format(schema=schema, jobs=2 * ROWS, runs=ROWS).encode())
        if known == "fresh":
            for table in TABLES:
                connection.execute(f"ANALYZE {schema}.{table}")


@pytest.fixture
async def planner(filled_url: str) -> AsyncIterator[Planner]:
    connection = await connect(parse_address(filled_url))
    yield Planner(connection, parse_address(filled_url).schema)
    await connection.close()


class Planner:
    """Tells how a statement is carried out."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self.schema = schema
        self.statements = statements_in(schema)

    async def nodes(self, statement: str) -> list[dict[str, Any]]:
        """The parts of the plan, which is the same for all arguments."""
        count = max((int(number) for number in re.findall(r"\$(\d+)", statement)), default=0)
        arguments = f"({', '.join(['NULL'] * count)})" if count else ""
        await self._connection.execute(f"PREPARE looked_at AS {statement}")
        plan = await self._connection.fetchval(
            f"EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE looked_at{arguments}"
        )
        await self._connection.execute("DEALLOCATE looked_at")
        return list(flatten(json.loads(plan)[0]["Plan"]))

    async def rows_read(self, statement: str, *arguments: Any) -> int:
        """How many of our rows it reads, in tables and indexes."""
        await self._connection.execute("SET plan_cache_mode = force_generic_plan")
        plan = await self._connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, VERBOSE, FORMAT JSON) {statement}", *arguments
        )
        scans = [each for each in flatten(json.loads(plan)[0]["Plan"]) if self._reads(each)]
        removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
        return sum(
            (each["Actual Rows"] + sum(each.get(name, 0) for name in removed))
            * each["Actual Loops"]
            for each in scans
        )

    def _reads(self, node: dict[str, Any]) -> bool:
        return "Scan" in node["Node Type"] and node.get("Schema") == self.schema

    async def reads_all(self, statement: str) -> list[str]:
        """What of our tables is read from one end to the other.

        PostgreSQL's own catalogues are left out: how it reads those depends on what else
        the server holds.
        """
        return [
            f"{node['Node Type']} of {node['Relation Name']} {node.get('Index Name', '')}"
            for node in await self.nodes(statement)
            if self._reads(node) and not node.keys() & {"Index Cond", "TID Cond", "Ends Early"}
        ]


class TestStatements:
    async def test_read_nothing_from_end_to_end(self, planner):
        reading = {
            name
            for name, statement in planner.statements.items()
            if name not in COMMANDS | FILLED_IN and await planner.reads_all(statement)
        }
        assert reading == set(READ_ALL_ON_PURPOSE)  # equality: stale excuses fail too

    @pytest.mark.parametrize(
        "name", ["claim_from_one_partition", "claim_from_partitions", "limit_candidates"]
    )
    async def test_claim_from_the_front_of_the_partitions(self, planner, name):
        nodes = await planner.nodes(planner.statements[name])

        fronts = [node for node in nodes if node.get("Index Name") == "jobs_waiting"]
        assert fronts
        assert all(
            re.search(r"namespace = .*partition_key = ", node["Index Cond"]) for node in fronts
        )
        # The index is in the order of the queue: nothing is sorted but what was picked.
        sorts = [node for node in nodes if node["Node Type"] == "Sort"]
        assert all(child["Node Type"] != "Index Scan" for node in sorts for child in node["Plans"])

    async def test_read_the_front_of_the_runs_that_wait_for_a_place(self, planner):
        nodes = await planner.nodes(planner.statements["next_runs"])

        fronts = [node for node in nodes if node.get("Index Name") == "runs_queued"]
        assert len(fronts) == 2  # the first, and as many as it has room for
        assert all(re.search(r"namespace = .*place_key = ", node["Index Cond"]) for node in fronts)
        sorts = [node for node in nodes if node["Node Type"] == "Sort"]
        assert all(child["Node Type"] != "Index Scan" for node in sorts for child in node["Plans"])

    @pytest.mark.parametrize(
        "name", ["settle_completed", "settle_jobs", "renew_leases", "check_claims", "save_progress"]
    )
    async def test_look_held_jobs_up_by_id(self, planner, name):
        nodes = await planner.nodes(planner.statements[name])
        looked_up = [node for node in nodes if node.get("Relation Name") == "jobs"]
        assert {node.get("Index Name") for node in looked_up} <= {"jobs_pkey", None}
        assert any("id = " in node.get("Index Cond", "") for node in looked_up)

    @pytest.mark.parametrize(
        "name,index",
        [
            ("poll", "jobs_waiting"),
            ("poll", "jobs_scheduled"),
            ("poll", "jobs_claimed"),
            ("poll", "jobs_deadline"),
            ("poll", "jobs_sticky"),
            ("release_sticky", "jobs_sticky"),
            ("release_sticky", "jobs_sticky_worker"),
            ("stick_jobs", "jobs_pkey"),
            ("remember_workers", "runs_id"),
            ("promote_due", "jobs_scheduled"),
            ("expired_leases", "jobs_claimed"),
            ("expire_deadlines", "jobs_deadline"),
            ("prune_jobs", "jobs_completed"),
            ("prune_jobs", "jobs_ended"),
            ("prune_jobs", "jobs_disabled"),
            ("find_result", "jobs_results"),
            ("find_rivals", "jobs_fingerprint"),
            ("limit_usage", "jobs_limited"),
            ("poll", "waits_due"),
            ("commit_runs", "runs_id"),
            ("commit_runs", "runs_pkey"),
            ("commit_runs", "jobs_pkey"),
            ("commit_runs", "jobs_waiting"),
            ("commit_runs", "waits_pkey"),
            ("cancel_all_jobs", "jobs_of_runs"),
            ("cancel_jobs", "jobs_of_runs"),
            ("park_jobs", "jobs_of_runs"),
            ("unpark_jobs", "jobs_of_runs"),
            ("change_partitions", "jobs_of_runs"),
            ("run_jobs", "jobs_of_runs"),
            ("remove_runs", "jobs_of_runs"),
            ("remove_runs", "steps_of_runs"),
            ("prune_jobs", "steps_of_jobs"),
            ("lock_families", "runs_children"),
            ("pick_old_runs", "runs_children"),
            ("next_runs", "runs_places"),
            ("place_holders", "runs_places"),
            ("wait_for_place", "waits_pkey"),
            ("place_found", "waits_pkey"),
            ("load_runs", "events_pkey"),
            ("load_runs", "snapshots_pkey"),
            ("latest_events", "events_pkey"),
            ("live_flows", "runs_live"),
            ("run_stats", "runs_live"),
            ("run_stats", "runs_ended"),
            ("run_stats", "jobs_of_runs"),
            ("run_stats", "waits_asking"),
            ("queue_stats", "jobs_waiting"),
            ("queue_stats", "jobs_claimed"),
            ("queue_stats", "jobs_completed"),
            ("queue_stats", "jobs_ended"),
            ("queue_stats", "jobs_idle"),
            ("ended_jobs", "jobs_completed"),
            ("ended_jobs", "jobs_ended"),
            ("ended_runs", "runs_ended"),
            ("ended_runs", "runs_ended_children"),
        ],
    )
    async def test_use_the_index_made_for_them(self, planner, name, index):
        nodes = await planner.nodes(planner.statements[name])
        assert index in {node.get("Index Name") for node in nodes}

    @pytest.mark.parametrize("namespace", ["default", None])
    async def test_count_a_queue_only_up_to_the_most(self, planner, namespace):
        """Finding 21: the depth of queues read the whole table."""
        most = 50
        counted = 5  # the statuses that the one queue has more jobs in
        read = await planner.rows_read(planner.statements["queue_stats"], namespace, most)
        assert most * counted <= read <= 3 * most * counted < ROWS

    @pytest.mark.parametrize("operation", CHANGES)
    @pytest.mark.parametrize("scope,index", [("ids", "jobs_pkey"), ("group", "jobs_group")])
    async def test_change_jobs_by_the_index_of_their_scope(self, planner, operation, scope, index):
        statement = change_statement(planner.statements["change_jobs"], operation, scope)
        nodes = await planner.nodes(statement)
        looked_up = {node.get("Index Name") for node in nodes if "jobs" in node.values()}
        assert index in looked_up <= {index, "jobs_pkey", None}

    @pytest.mark.parametrize(
        "name,index,time",
        [
            ("promote_due", "jobs_scheduled", "ready_at"),
            ("expired_leases", "jobs_claimed", "lease_until"),
            ("expire_deadlines", "jobs_deadline", "deadline_at"),
            ("prune_jobs", "jobs_completed", "finished_at"),
            ("prune_jobs", "jobs_ended", "finished_at"),
            ("prune_jobs", "jobs_disabled", "disabled_at"),
            ("due_waits", "waits_due", "due_at"),
            ("pick_old_runs", "runs_ended", "finished_at"),
        ],
    )
    async def test_find_what_is_due_in_a_namespace_without_looking_at_the_rest(
        self, planner, name, index, time
    ):
        nodes = await planner.nodes(planner.statements[name])
        [read] = [node for node in nodes if node.get("Index Name") == index]
        assert re.search(rf"namespace = .*{time} <= ", read["Index Cond"])
        sorts = [node for node in nodes if node["Node Type"] == "Sort"]
        assert not any(read in node["Plans"] for node in sorts)


class TestLists:
    @pytest.mark.parametrize("status", [Status.FAILED, Status.DEAD, Status.CANCELLED])
    async def test_of_what_ended_badly_are_in_order_in_an_index(self, planner, status):
        statement, _ = filtered_jobs(
            planner.statements["list_jobs"], JobFilter(status=status), after=1
        )
        nodes = await planner.nodes(statement)
        assert "jobs_noted" in {node.get("Index Name") for node in nodes}
        assert "Sort" not in {node["Node Type"] for node in nodes}

    @pytest.mark.parametrize(
        "status,index",
        [
            (Status.WAITING, "jobs_waiting"),
            (Status.SCHEDULED, "jobs_scheduled"),
            (Status.ACTIVE, "jobs_claimed"),
        ],
    )
    async def test_of_other_statuses_sort_few_or_go_back_from_the_newest(
        self, planner, status, index
    ):
        wanted = JobFilter(namespace="default", status=status)
        statement, _ = filtered_jobs(planner.statements["list_jobs_by_status"], wanted, after=1)

        nodes = await planner.nodes(statement)

        reads = [node for node in nodes if node.get("Relation Name") == "jobs"]
        found, looked_up, gone_back = sorted(
            reads, key=lambda node: (node["Scan Direction"] == "Backward", "jobs_pkey" in str(node))
        )
        assert found["Index Name"] == index
        assert "id = ANY" in looked_up["Index Cond"]
        assert gone_back["Index Name"] == "jobs_pkey"

    async def test_of_a_group_are_in_order_in_an_index(self, planner):
        wanted = JobFilter(namespace="default", group="run-1")
        statement, _ = filtered_jobs(planner.statements["list_jobs"], wanted, after=1)
        nodes = await planner.nodes(statement)
        assert "jobs_group" in {node.get("Index Name") for node in nodes}


class TestCommits:
    """One statement for many steps: what it costs for each must not grow with the batch."""

    async def test_look_everything_up_by_key(self, planner):
        nodes = await planner.nodes(planner.statements["commit_runs"])

        reads = [node for node in nodes if "Scan" in node["Node Type"] and "Schema" in node]
        tables = [node for node in reads if node["Schema"] == planner.schema]
        assert tables
        keys = {"jobs": "id = ", "runs": r"id = |serial = ", "waits": "key = "}
        for node in tables:
            wanted = keys.get(node["Relation Name"], "= ")
            assert "Ends Early" in node or re.search(wanted, node["Index Cond"])

    async def test_compare_no_list_with_another(self, planner):
        nodes = await planner.nodes(planner.statements["commit_runs"])

        crossed = [
            {child["Node Type"], other["Node Type"]}
            for node in nodes
            if node["Node Type"] == "Nested Loop"
            for child, other in [node["Plans"][:2]]
        ]
        assert crossed
        assert {"Function Scan"} not in [node_types - {"Materialize"} for node_types in crossed]


class TestListsOfRuns:
    @pytest.mark.parametrize(
        "wanted,index",
        [
            (RunFilter(), "runs_newest"),
            (RunFilter(namespace="default"), "runs_newest"),
            (RunFilter(status=RunStatus.FAILED), "runs_status"),
            (RunFilter(namespace="default", parent=RunId("run-1")), "runs_children"),
            (
                RunFilter(namespace="default", flow="orders", version="v1", is_ended=False),
                "runs_live",
            ),
            (RunFilter(before=(datetime(2030, 1, 1, tzinfo=UTC), RunId("a"))), "runs_newest"),
        ],
    )
    async def test_are_in_order_in_an_index(self, planner, wanted, index):
        statement, _ = filtered_runs(planner.statements["list_runs"], wanted, after=1)
        nodes = await planner.nodes(statement)
        assert index in {node.get("Index Name") for node in nodes}
        assert "Sort" not in {node["Node Type"] for node in nodes}

    async def test_of_one_id_are_found_by_it(self, planner):
        wanted = RunFilter(id=RunId("run-1"))
        statement, _ = filtered_runs(planner.statements["list_runs_of_id"], wanted, after=1)
        nodes = await planner.nodes(statement)
        assert {node.get("Index Name") for node in nodes} - {None} == {"runs_id"}


class TestListsOfWaits:
    @pytest.mark.parametrize(
        "wanted,index,found_by",
        [
            (WaitFilter(type=WaitType.APPROVAL), "waits_asking", "type = .*namespace = "),
            (WaitFilter(type=WaitType.EXTERNAL), "waits_asking", "type = .*namespace = "),
            (
                WaitFilter(type=WaitType.APPROVAL, deciders=("ann", "bob")),
                "waits_asking",
                "type = .*namespace = ",
            ),
            (
                WaitFilter(type=WaitType.APPROVAL, deciders=("ann",), after=PAGE),
                "waits_asking",
                "type = .*namespace = .*opened_at, .*run_id, .*key",
            ),
            (
                WaitFilter(type=WaitType.SIGNAL, name="paid"),
                "waits_signals",
                "name = .*namespace = ",
            ),
            (
                WaitFilter(type=WaitType.SIGNAL, name="paid", after=PAGE),
                "waits_signals",
                "name = .*namespace = .*opened_at, .*run_id, .*key",
            ),
        ],
    )
    async def test_are_in_order_in_an_index(self, planner, wanted, index, found_by):
        wanted = replace(wanted, namespace="default")
        statement, _ = filtered_waits(planner.statements["list_waits"], wanted, after=1)
        nodes = await planner.nodes(statement)
        [read] = [node for node in nodes if "Relation Name" in node]
        assert read["Index Name"] == index
        assert re.search(found_by, read["Index Cond"])
        assert "Sort" not in {node["Node Type"] for node in nodes}

    @pytest.mark.parametrize(
        "wanted,index",
        [
            (WaitFilter(type=WaitType.APPROVAL, deciders=("ann",)), "waits_asking"),
            (WaitFilter(type=WaitType.SIGNAL, name="paid"), "waits_signals"),
        ],
    )
    async def test_of_all_namespaces_look_only_at_what_they_are_about(self, planner, wanted, index):
        statement, _ = filtered_waits(planner.statements["list_waits"], wanted, after=1)
        nodes = await planner.nodes(statement)
        [read] = [node for node in nodes if "Relation Name" in node]
        assert (read["Index Name"], "Index Cond" in read) == (index, True)

    @pytest.mark.parametrize(
        "wanted",
        [
            WaitFilter(run=RunId("run-1")),
            WaitFilter(namespace="default", run=RunId("run-1")),
            WaitFilter(namespace="default", run=RunId("run-1"), type=WaitType.APPROVAL),
            WaitFilter(namespace="default", run=RunId("run-1"), type=WaitType.SIGNAL, name="paid"),
        ],
    )
    async def test_of_a_run_are_found_by_it(self, planner, wanted):
        statement, _ = filtered_waits(planner.statements["list_waits"], wanted, after=1)
        nodes = await planner.nodes(statement)
        [read] = [node for node in nodes if node.get("Relation Name") == "waits"]
        assert "run_id = " in read["Index Cond"]
        assert read["Index Name"] == "waits_pkey"


async def open_and_close(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


def flatten(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        if node["Node Type"] == "Limit" and "Filter" not in child:
            child["Ends Early"] = True  # takes the first entries of an index and stops
        yield from flatten(child)
