"""``perdure doctor`` and ``verify``: what is wrong with a store; looking changes nothing."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from rich.console import Console

from perdure import Client, Flow, Worker
from perdure.cli.command import CommandOutput
from perdure.cli.renderer import CliRenderer
from perdure.cli.views.diagnostics import print_health
from perdure.diagnostics import Action, Severity
from perdure.operations.insight.health import QUEUE_UNSERVED, STORE, Health
from perdure.store.postgres.address import parse_address
from tests.cli import sample_tasks as sample
from tests.cli.harness import Answer, Commands
from tests.upgrade.conftest import restore


class TestStats:
    def test_are_a_table_by_task_with_the_counters_in_use(self, perdure, client, url):
        client.enqueue_many(sample.add, [(1, 2), (3, 4)])
        client.enqueue(sample.greet, "ann")
        Worker(url, tasks=[sample.add, sample.greet]).run_until_idle()

        heads, *rows, total, workers = perdure("store", "stats").rows
        assert heads == ["TASK", "QUEUE", "STARTED", "COMPLETED", "AVERAGE"]
        assert [row[:4] for row in rows] == [
            ["add", "default", "2", "2"],
            ["greet", "mail", "1", "1"],
        ]
        assert total[:3] == ["total", "3", "3"]
        assert workers == ["0", "live", "workers,", "0", "of", "0", "slots", "in", "use"]
        assert perdure("store", "stats", "--json").json["completed"] == 3

    def test_of_a_store_without_any_say_so(self, perdure, client):
        assert perdure("store", "stats").out.startswith("no attempts yet\n0 live workers")


class TestExitCode:
    def test_is_0_with_nothing_but_warnings(self, perdure, client):
        client.queues.pause("mail", by="ann")
        shown = perdure("doctor")
        assert shown.exit_code == 0
        assert ["2", "warnings"] in shown.rows
        assert "perdure queues resume mail" in shown.out

    def test_is_1_with_an_error(self, perdure, client):
        client.enqueue(sample.add, 1, 2)
        shown = perdure("doctor")
        assert shown.exit_code == 1
        assert ["1", "error"] in shown.rows

    def test_looks_at_all_namespaces_by_default(self, perdure, url):
        with Client(url, namespace="team-a") as client:
            client.enqueue(sample.add, 1, 2)
        assert perdure("doctor").exit_code == 1
        assert perdure("doctor", "--namespace", "default").exit_code == 0


HEALTH = Health(
    url="sqlite:///work.db",
    findings=(
        STORE.finding("store", severity=Severity.OK, latency=timedelta(microseconds=300)),
        QUEUE_UNSERVED.finding(
            "jobs",
            Action("worker.run", {"queues": ("slow",)}, ("module",)),
            queue="slow",
            task="pack",
            flow="orders@v1",
        ),
    ),
)


def printed(width: int) -> list[str]:
    file = io.StringIO()
    out = CommandOutput(renderer=CliRenderer(), is_across=False, as_json=False)
    out.console = Console(file=file, width=width)
    print_health(HEALTH, out)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("group", ["queues", "schedules"])
def test_pausing_or_resuming_twice_is_refused_and_says_who_paused_it(perdure, client, group):
    """Finding 38: the second pause was acknowledged, and its author dropped."""
    client.schedules.save("mail", sample.add, every="1h", args=[1, 2])
    assert perdure(group, "pause", "mail", "--by", "ann").exit_code == 0
    again = (group, "pause", "mail", "--by", "bob")
    error = perdure.refused(f"{group[:-1]}.already_paused", *again, exit_code=1, paused_by="ann")
    assert [each["rendered"] for each in error["actions"]] == [f"perdure {group} resume mail"]
    assert perdure(group, "resume", "mail").exit_code == 0
    perdure.refused(f"{group[:-1]}.not_paused", group, "resume", "mail", exit_code=1)


class TestPicture:
    def test_in_a_wide_terminal(self):
        assert printed(72) == [
            "sqlite:///work.db",
            "ok      store     the store responds in 0.3ms",
            "error   jobs      jobs are waiting in queue 'slow', which no live worker",
            "                  that has task 'pack' of orders@v1 serves",
            "                  perdure worker MODULE --queues slow",
            "1 error",
        ]

    def test_in_a_narrow_one(self):
        assert printed(40) == [
            "sqlite:///work.db",
            "ok      store",
            "  the store responds in 0.3ms",
            "error   jobs",
            "  jobs are waiting in queue 'slow',",
            "  which no live worker that has task",
            "  'pack' of orders@v1 serves",
            "    perdure worker MODULE --queues slow",
            "1 error",
        ]


class TestDoctor:
    """``perdure doctor``: what is wrong, what would help, and an exit code by it."""

    def test_advises_commands_that_find_the_same_store(self, url, client):
        client.queues.pause("mail")
        client.queues.pause("big mail")
        with Client(url, namespace="team-a") as other:
            other.queues.pause("mail")

        shown = Commands(None)("doctor", "--store", url).out
        assert f"perdure queues resume mail --store {url}" in shown
        assert f"perdure queues resume 'big mail' --store {url}" in shown
        assert f"perdure queues resume mail --namespace team-a --store {url}" in shown

    def test_gives_json(self, perdure, client, url):
        client.enqueue(sample.add, 1, 2)

        shown = perdure("doctor", "--json")
        assert shown.exit_code == 1
        assert (shown.json["url"], shown.json["is_well"]) == (url, False)
        [error] = [each for each in shown.json["findings"] if each["severity"] == "error"]
        assert error == {
            "code": "health.no_worker",
            "args": {},
            "actions": [
                {
                    "operation": "worker.run",
                    "args": {},
                    "asks": ["module"],
                    "rendered": "perdure worker MODULE",
                }
            ],
            "severity": "error",
            "about": "workers",
            "message": "jobs are waiting, but no worker is live",
            "remedy": "Start a worker",
        }


# ``perdure verify``: what it finds, what it prints, and that it only reads.


asking = Flow("asking").wait_for_signal("go").build()


def verify(*arguments: str) -> Answer:
    return Commands(None)("verify", *arguments)


@pytest.fixture
def waiting(sqlite_url: str) -> str:
    """A store with one run in each of two namespaces, which wait."""
    for namespace in ("default", "team-a"):
        with Client(sqlite_url, namespace=namespace) as client:
            client.submit(asking, 1, id="r")
    return sqlite_url


def break_it(url: str) -> None:
    """Lose the wait of one of the runs."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with connection:
        connection.execute("DELETE FROM perdure_waits WHERE namespace = 'default'")
    connection.close()


class TestFindings:
    def test_nothing_found_is_0(self, waiting):
        shown = verify(waiting)
        assert shown.exit_code == 0, shown
        assert shown.out.startswith("no findings in 2 runs")

    def test_a_finding_is_1(self, waiting):
        break_it(waiting)
        shown = verify(waiting)
        assert shown.exit_code == 1
        assert "I7 verify.live_waits.missing: run 'r', key 'go': waits" in shown.out
        assert "1 finding in 2 runs" in shown.out

    def test_looks_at_one_namespace_if_asked_to(self, waiting):
        break_it(waiting)
        assert verify(waiting, "--namespace", "default").exit_code == 1
        shown = verify(waiting, "--namespace", "team-a")
        assert (shown.exit_code, shown.out.startswith("no findings in 1 run,")) == (0, True)

    def test_gives_json(self, waiting):
        break_it(waiting)

        shown = verify(waiting, "--json")

        assert shown.exit_code == 1
        [finding] = shown.json["findings"]
        assert finding["code"] == "verify.live_waits.missing"
        assert finding["args"] == {
            "invariant": "I7",
            "namespace": "default",
            "run": "r",
            "key": "go",
            "type": "wait",
        }
        assert finding["message"].startswith("waits according to the log")
        assert shown.json["counts"]["runs"] == 2

    def test_how_late_things_may_be_can_be_set(self, waiting):
        assert verify(waiting, "--grace", "1h").exit_code == 0
        assert verify(waiting, "--grace", "-5s").exit_code == 2


LOOKS = [
    ["runs", "list"],
    ["queues", "list"],
    ["verify"],
    ["explain", "order-5"],
    ["store", "export", "{folder}/out.jsonl"],
]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A database of somebody else's."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
        connection.commit()
    return path


def tables_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_file_without_tables_gets_none(look, foreign, is_empty):
    if is_empty:
        foreign.write_bytes(b"")
    before = foreign.read_bytes()
    words = [word.format(folder=foreign.parent) for word in look]
    Commands(f"sqlite:///{foreign}").refused("store.without_tables", *words, exit_code=3)
    assert foreign.read_bytes() == before


async def _schemas(url: str) -> int:
    address = parse_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_namespace WHERE nspname = $1", address.schema
        )
        return count
    finally:
        await connection.close()


class TestDoctorWithoutStore:
    def test_reports_missing_tables_and_makes_none(self, foreign):
        shown = Commands(f"sqlite:///{foreign}")("doctor", "--json")
        assert shown.exit_code == 3
        assert [each["code"] for each in shown.json["findings"]] == ["store.without_tables"]
        assert tables_in(foreign) == ["mine"]

    def test_reports_a_server_that_is_not_there_as_json(self):
        shown = Commands("postgresql://ann:hunter2@127.0.0.1:1/none")("doctor", "--json")
        assert (shown.exit_code, shown.json["is_well"]) == (3, False)
        [finding] = shown.json["findings"]
        assert (finding["severity"], finding["about"]) == ("error", "store")
        assert finding["code"] == "store.unreachable"
        assert "hunter2" not in shown.out + shown.error


class TestLooking:
    """Looking at a store creates and upgrades nothing."""

    def test_a_schema_of_postgresql_is_not_created(self, bare_postgres_url):
        asked = Commands(bare_postgres_url)
        for look in (["runs", "list"], ["verify"]):
            asked.refused("store.without_tables", *look, exit_code=3)
        assert asyncio.run(_schemas(bare_postgres_url)) == 0

    @pytest.mark.parametrize("found_type", ["sqlite", "postgres"])
    def test_older_tables_are_left_as_they_are(
        self, found_type, bare_sqlite_url, bare_postgres_url
    ):
        url = bare_sqlite_url if found_type == "sqlite" else bare_postgres_url
        asyncio.run(restore(url, 2))
        for look in (["runs", "list"], ["verify"], ["runs", "list"]):
            Commands(url).refused("store.older_schema", *look, exit_code=3, found=2)
