"""How SQLite runs our statements: none on a hot path may grow with the number of jobs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.model.ids import RunId
from perdure.model.job import JobFilter, Status
from perdure.model.run import RunFilter, RunStatus, WaitFilter, WaitType
from perdure.store.sqlite.queries import listing_of_jobs, listing_of_runs, listing_of_waits
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.transaction import statements_of, with_rows
from tests.backends.sqlite.files import connected

PREFIX = "perdure_"

# Statements that look at all jobs of a kind, or at all rows of a small table, and why they may.
SCANS_ON_PURPOSE = {
    "audit_limits": "looks at all limits, for the verifier",
    "audit_places": "looks at the runs that hold a place or wait for one, for the verifier",
    "hidden_jobs": "looks through all jobs, for the verifier",
    "orphans": "looks through all tables, for the verifier",
    "schedule_times": "lists a small table",
    "shared_fingerprints": "looks at the jobs that are not over, for the verifier",
    "count_ended_jobs": "counts for an operator what pruning would remove",
    "count_flows": "counts all runs, for an operator",
    "count_waiting": "counts what it is asked to count, in the index alone",
    "queue_stats": "counts all jobs, in the indexes alone; bounded on PostgreSQL only",
    "claimed_by_worker": "looks at the jobs that are held, when a worker starts",
    "claimed_jobs": "looks at the jobs that are held",
    "indexes_present": "lists a small table",
    "list_schedules": "lists a small table",
    "live_flows": "counts the runs that are not over, in the index alone",
    "old_definitions": "looks at what the definitions of a namespace refer to",
    "paused_queues": "lists a small table",
    "orphaned_runs": "looks at the runs that are not over, for an operator",
    "work_counts": "adds up small tables",
    "workers": "lists a small table",
    "bound_live_events": "looks at a minute of live events, when the clock was set back",
    "remove_live_events": "looks at the first thousand live events, while a client subscribes",
}
# Filled in by the reader, and tested below.
LISTS = {"list_jobs", "count_listed"}
LISTS_OF_RUNS = {"list_runs", "count_runs"}
LISTS_OF_WAITS = {"list_waits"}

SCAN_OF_TABLE = re.compile(
    r"SCAN (?!wanted|counted|json_each|partitions|places|awaited|live$|ended$|family|below|CONSTANT"
    r"|\d+ CONSTANT|\()"
)


@pytest.fixture
def connection(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    with connected(path) as connection:
        yield connection


def test_no_statement_scans_a_table(connection):
    scanning = {
        name
        for name, text in statements_of(PREFIX).items()
        if name not in LISTS | LISTS_OF_RUNS | LISTS_OF_WAITS
        and any(map(SCAN_OF_TABLE.match, plan(connection, text)))
    }
    assert scanning == set(SCANS_ON_PURPOSE)  # equality: stale excuses fail too


@pytest.mark.parametrize(
    "name, table, index, condition",
    [
        ("due_jobs", "job", "jobs_scheduled", "namespace=? AND ready_at<?"),
        ("expired_leases", "job", "jobs_claimed", "namespace=? AND lease_until<?"),
        ("past_deadlines", "job", "jobs_deadline", "namespace=? AND deadline_at<?"),
        (
            "outdated_jobs",
            "perdure_jobs",
            "jobs_finished",
            "status=? AND namespace=? AND finished_at<?",
        ),
        (
            "outdated_disabled_jobs",
            "perdure_jobs",
            "jobs_disabled",
            "namespace=? AND disabled_at<?",
        ),
        ("late_sticky_jobs", "job", "jobs_sticky", "namespace=? AND sticky_until<?"),
        ("due_waits", "wait", "waits_due", "namespace=? AND due_at<?"),
        ("jobs_of_run", "job", "jobs_run", "run_id=? AND namespace=?"),
        ("run_jobs", "job", "jobs_run", "run_id=? AND namespace=?"),
    ],
)
def test_what_is_due_or_of_a_run_is_found_in_order(connection, name, table, index, condition):
    assert plan(connection, statements_of(PREFIX)[name]) == [
        f"SEARCH {table} USING INDEX perdure_{index} ({condition})"
    ]


def test_jobs_that_wait_for_a_worker_are_found_without_reading_those_of_live_workers(connection):
    steps = plan(connection, statements_of(PREFIX)["orphaned_sticky_jobs"])
    index = "USING INDEX perdure_jobs_sticky_worker"

    assert [step for step in steps if "jobs" in step or "job " in step] == [
        f"SEARCH perdure_jobs {index} (namespace=?)",
        f"SEARCH perdure_jobs {index} (namespace=? AND sticky_worker>?)",
        f"SEARCH job {index} (namespace=? AND sticky_worker=?)",
    ]


def test_a_poll_reads_the_first_entry_of_each_index(connection):
    steps = plan(connection, statements_of(PREFIX)["poll"])
    found = [re.findall(r"perdure_jobs_\w+.*", step) for step in steps if "perdure_jobs_" in step]

    assert found == [
        ["perdure_jobs_waiting (namespace=? AND partition_key>?)"],
        ["perdure_jobs_waiting (namespace=? AND partition_key>?)"],
        ["perdure_jobs_scheduled (namespace=?)"],
        ["perdure_jobs_claimed (namespace=? AND lease_until>?)"],
        ["perdure_jobs_deadline (namespace=? AND deadline_at>?)"],
        ["perdure_jobs_sticky (namespace=? AND sticky_until>?)"],
    ]
    assert [step for step in steps if "perdure_waits" in step] == [
        "SEARCH perdure_waits USING INDEX perdure_waits_due (namespace=? AND due_at>?)"
    ]
    assert not any(map(SCAN_OF_TABLE.match, steps))


@pytest.mark.parametrize("name", ["claim_jobs", "front_of_partitions"])
def test_a_claim_reads_the_front_of_its_partitions(connection, name):
    steps = plan(connection, statements_of(PREFIX)[name])
    assert (
        "SEARCH perdure_jobs USING INDEX perdure_jobs_waiting (namespace=? AND partition_key=?)"
        in steps
    )
    assert [step for step in steps if "ORDER BY" in step] == ["USE TEMP B-TREE FOR ORDER BY"]


def test_counting_looks_at_indexes_alone(connection):
    for name in ("count_waiting", "count_finished"):
        [step] = plan(connection, statements_of(PREFIX)[name])
        assert "COVERING INDEX" in step, name


def test_the_depth_looks_at_the_rows_only_of_what_is_held_or_parked(connection):
    steps = plan(connection, statements_of(PREFIX)["queue_stats"])
    looking = [step for step in steps if "perdure_jobs" in step and "COVERING" not in step]
    assert [re.findall(r"perdure_jobs_\w+", step) for step in looking] == [
        ["perdure_jobs_claimed"],
        ["perdure_jobs_status"],
    ]


@pytest.mark.parametrize("name", sorted(LISTS))
def test_jobs_of_a_status_are_found_in_order(connection, name):
    text = listing_of_jobs(PREFIX, name, JobFilter(status=Status.WAITING))
    assert plan(connection, text) == [
        "SEARCH job USING INDEX perdure_jobs_status (status=? AND id<?)"
    ]


@pytest.mark.parametrize(
    "filter, index",
    [
        (JobFilter(), "sqlite_autoindex_perdure_jobs_1"),
        (JobFilter(group="a"), "perdure_jobs_group"),
    ],
)
def test_the_newest_jobs_and_those_of_a_group_are_found_by_an_index(connection, filter, index):
    [step, *_] = plan(connection, listing_of_jobs(PREFIX, "list_jobs", filter))
    assert step.startswith(f"SEARCH job USING INDEX {index}")


def test_a_step_of_a_run_looks_up_single_rows(connection):
    steps = plan(connection, statements_of(PREFIX)["run_and_job"])

    assert [step.removesuffix(" LEFT-JOIN") for step in steps] == [
        "SEARCH run USING INDEX perdure_runs_id (id=? AND namespace=?)",
        "SEARCH job USING INDEX sqlite_autoindex_perdure_jobs_1 (id=?)",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH event USING PRIMARY KEY (run_serial=?)",
    ]
    for name in ("continue_job", "remove_node_job"):
        assert plan(connection, statements_of(PREFIX)[name]) == [
            "SEARCH perdure_jobs USING INTEGER PRIMARY KEY (rowid=?)"
        ]


@pytest.mark.parametrize("name, index", [("queued_for_place", "queued"), ("places_held", "places")])
def test_places_are_found_in_order_by_their_key(connection, name, index):
    [step] = plan(connection, statements_of(PREFIX)[name])
    assert re.fullmatch(
        rf"SEARCH perdure_runs USING (COVERING )?INDEX perdure_runs_{index} "
        r"\(namespace=\? AND place_key=\?( AND rank>\?)?\)",
        step,
    )


def test_events_are_read_in_their_order(connection):
    assert plan(connection, statements_of(PREFIX)["events_after"]) == [
        "SEARCH perdure_events USING PRIMARY KEY (run_serial=? AND number>?)"
    ]


def test_outdated_runs_are_found_in_order(connection):
    steps = plan(connection, statements_of(PREFIX)["outdated_runs"])
    assert steps[0] == (
        "SEARCH run USING INDEX perdure_runs_ended (status=? AND namespace=? AND finished_at<?)"
    )
    assert not any("ORDER BY" in step for step in steps)


@pytest.mark.parametrize(
    "filter, found_by",
    [
        (RunFilter(), "created ("),
        (RunFilter(namespace="a", flow="f"), "created ("),
        (RunFilter(status=RunStatus.FAILED), "status (status=? AND "),
        (RunFilter(namespace="a", parent=RunId("p")), "parent (parent_run=? AND namespace=? AND "),
        (
            RunFilter(namespace="a", flow="f", version="v", is_ended=False),
            "live (namespace=? AND flow=? AND version=? AND ",
        ),
    ],
)
def test_runs_are_listed_in_order_by_an_index(connection, filter, found_by):
    steps = plan(connection, listing_of_runs(PREFIX, "list_runs", filter))
    assert steps[0].endswith(f" perdure_runs_{found_by}(created_at,id)<(?,?))")
    assert not any("ORDER BY" in step for step in steps)


def test_runs_of_one_id_are_found_by_it(connection):
    for filter in (RunFilter(id=RunId("a")), RunFilter(id=RunId("a"), status=RunStatus.FAILED)):
        for name in sorted(LISTS_OF_RUNS):
            steps = plan(connection, listing_of_runs(PREFIX, name, filter))
            assert steps[0] == "SEARCH run USING INDEX perdure_runs_id (id=?)"


def test_live_runs_are_listed_without_looking_at_ended_ones(connection):
    for filter in (RunFilter(is_ended=False), RunFilter(namespace="a", is_ended=False)):
        assert (
            "perdure_runs_live" in plan(connection, listing_of_runs(PREFIX, "list_runs", filter))[0]
        )


PAGE = (datetime(2030, 1, 1, tzinfo=UTC), RunId("a"), "check")
COVERING = "COVERING INDEX perdure_waits"
ROW_OF_LISTED = "SEARCH wait USING PRIMARY KEY (run_id=? AND namespace=? AND key=?)"


@pytest.mark.parametrize(
    "filter, found_by",
    [
        (WaitFilter(type=WaitType.APPROVAL), "asking (type=?"),
        (WaitFilter(type=WaitType.EXTERNAL), "asking (type=?"),
        (WaitFilter(type=WaitType.APPROVAL, deciders=("ann", "bob")), "asking (type=?"),
        (WaitFilter(type=WaitType.APPROVAL, deciders=("ann",), after=PAGE), "asking (type=?"),
        (WaitFilter(type=WaitType.SIGNAL, name="paid"), "signals (name=?"),
        (WaitFilter(type=WaitType.SIGNAL, name="paid", after=PAGE), "signals (name=?"),
    ],
)
def test_waits_are_listed_in_order_by_an_index_alone(connection, filter, found_by):
    """But for the rows of the page, whose order is then made sure of."""
    steps = plan(connection, listing_of_waits(PREFIX, replace(filter, namespace="a")))
    page = " AND (opened_at,run_id,key)>(?,?,?)" if filter.after else ""
    search = f"SEARCH wait USING COVERING INDEX perdure_waits_{found_by} AND namespace=?{page})"
    assert search in steps
    assert ROW_OF_LISTED in steps
    assert not any("ORDER BY" in step for step in steps[: steps.index("SCAN listed")])


@pytest.mark.parametrize(
    "filter, found_by",
    [
        (WaitFilter(type=WaitType.APPROVAL), f"{COVERING}_asking (type=?)"),
        (WaitFilter(type=WaitType.SIGNAL, name="paid"), f"{COVERING}_signals (name=?)"),
        (WaitFilter(namespace="a", run=RunId("r")), "PRIMARY KEY (run_id=? AND namespace=?)"),
        (WaitFilter(run=RunId("r"), type=WaitType.SIGNAL), "PRIMARY KEY (run_id=?)"),
    ],
)
def test_waits_of_a_run_or_of_all_namespaces_are_found_by_an_index(connection, filter, found_by):
    steps = plan(connection, listing_of_waits(PREFIX, filter))
    assert f"SEARCH wait USING {found_by}" in steps


def test_waits_are_written_by_their_key(connection):
    for name in ("close_waits", "run_waits", "child_ended"):
        [first, *_] = plan(connection, statements_of(PREFIX)[name])
        assert "USING PRIMARY KEY (run_id=? AND namespace=?" in first, name


def plan(connection: sqlite3.Connection, text: str) -> list[str]:
    if "{rows}" in text:
        text = with_rows(text, columns_of(text), 2)
    if "?" in text:
        parameters: Any = (0,) * text.count("?")
    else:
        parameters = dict.fromkeys(re.findall(r":(\w+)", text), 0)
    return [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]


def columns_of(text: str) -> int:
    if inserted := re.search(r"INSERT INTO \w+ \((.*?)\)", text, re.DOTALL):
        return inserted[1].count(",") + 1
    return len(re.findall(r"\bcolumn\d+\b", text))
