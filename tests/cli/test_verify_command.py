"""``perdure verify``: what it finds, what it prints, and that it only reads."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from perdure import Client, Flow
from tests.cli.commands import Answer, Commands
from tests.cli.test_errors import assert_told
from tests.upgrade.conftest import restore

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

    def test_takes_the_store_of_the_environment(self, waiting):
        assert Commands(waiting)("verify").exit_code == 0

    def test_how_late_things_may_be_can_be_set(self, waiting):
        assert verify(waiting, "--grace", "1h").exit_code == 0
        assert_told(verify(waiting, "--grace", "-5s"), 2, "--grace")


class TestOnlyReads:
    def test_refuses_what_is_no_store(self):
        assert_told(verify("nowhere://x"), 2, "'nowhere' is not a store")

    def test_refuses_a_file_that_is_not_there(self, tmp_path):
        assert_told(verify(f"sqlite:///{tmp_path}/mistyped.db"), 3, "there is no file")

        assert list(tmp_path.iterdir()) == []

    def test_refuses_a_file_without_its_tables(self, waiting):
        assert_told(verify(f"{waiting}?prefix=mistyped_"), 3, "has no tables of Perdure")

        connection = sqlite3.connect(waiting.removeprefix("sqlite:///"))
        found = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'mistyped%'")
        assert found.fetchall() == []
        connection.close()

    def test_refuses_what_is_no_database(self, tmp_path):
        path = tmp_path / "letter.db"
        path.write_text("Dear Ann, " * 100)

        assert_told(verify(f"sqlite:///{path}"), 3, "not a database")

        assert path.read_text() == "Dear Ann, " * 100

    def test_refuses_a_store_in_memory(self):
        assert_told(verify("memory://mine"), 2, "in the memory of one process")

    def test_refuses_a_schema_without_tables(self, bare_postgres_url):
        assert_told(verify(bare_postgres_url), 3, "has no tables of Perdure")

    def test_refuses_a_server_that_is_not_there(self):
        shown = verify("postgresql://ann:secret@localhost:1/work")

        assert shown.exit_code == 3
        assert "secret" not in shown.error

    @pytest.mark.parametrize("live_type", ["sqlite", "postgres"])
    def test_leaves_an_older_store_as_it_is(self, live_type, bare_sqlite_url, bare_postgres_url):
        url = bare_sqlite_url if live_type == "sqlite" else bare_postgres_url
        asyncio.run(restore(url, 2))

        assert_told(verify(url), 3, "are at version 2")
        assert_told(verify(url), 3, "are at version 2")  # still
