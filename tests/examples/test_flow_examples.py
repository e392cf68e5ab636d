"""The examples of flows, run as the programs they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from perdure import Client, RunHandle
from tests.examples.programs import run_example


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """Five files of two rows each."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    for number in range(5):
        (folder / f"day{number}.csv").write_text(f"name,amount\nann,{number}\nbob,7\n")
    return folder


def events_of(run: RunHandle) -> list[str]:
    return [f"{event.type} {event.key or ''}".rstrip() for event in run.events()]


class TestOrders:
    def test_a_large_order_waits_for_the_manager_and_arrives(self, tmp_path):
        done = run_example("orders.py", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "3 boxes arrived after 3 stops"
        with Client(f"sqlite:///{tmp_path}/orders.db") as client:
            events = Counter(events_of(client.runs.handle("order-42")))
            assert client.runs.get("order-42/shipping").status == "completed"
        once = ["node_retried score_fraud", "signal_received", "node_completed charge"]
        assert [events[each] for each in once] == [1, 1, 1]

    def test_a_small_order_asks_nobody(self, tmp_path):
        done = run_example("orders.py", "--total", "20", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        assert "signal_received" not in done.stdout

    def test_started_again_it_does_not_do_anything_twice(self, tmp_path):
        first = run_example("orders.py", cwd=tmp_path)
        again = run_example("orders.py", cwd=tmp_path)

        assert again.returncode == 0, again.stderr
        assert again.stdout == first.stdout

    def test_what_was_charged_is_given_back_when_the_manager_says_no(self, tmp_path):
        done = run_example("orders.py", "--refuse", cwd=tmp_path)

        assert done.returncode == 1
        assert "the manager said no" in done.stderr
        lines = [line.split()[1:] for line in done.stdout.splitlines()]
        assert lines[-2:] == [["node_undone", "charge"], ["run_failed", "heed"]]


class TestResearchAgents:
    def test_agents_that_break_off_ask_nothing_twice(self, tmp_path):
        done = run_example("research_agents.py", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        *asked, report = done.stdout.splitlines()
        assert report == (
            "history; evidence; doubts; open questions (8 sources), 3 attempts were repeated"
        )
        assert len(asked) == len(set(asked)) == 1 + 4 * 3

    def test_a_question_that_was_answered_is_not_asked_again(self, tmp_path):
        run_example("research_agents.py", cwd=tmp_path)

        again = run_example("research_agents.py", cwd=tmp_path)

        assert again.returncode == 0, again.stderr
        assert len(again.stdout.splitlines()) == 1


class TestNightlyImport:
    def test_publishes_all_files_at_once(self, inbox, tmp_path):
        done = run_example("nightly_import.py", "inbox", "--night", "monday", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        assert done.stdout == "10 rows of 5 files\n"
        published = sorted((tmp_path / "warehouse" / "monday").iterdir())
        assert [path.name for path in published] == [f"day{n}.json" for n in range(5)]
        assert json.loads(published[3].read_text()) == {"ann": 3, "bob": 7}

    def test_leaves_nothing_behind_if_one_file_is_bad_and_can_be_run_again(self, inbox, tmp_path):
        bad = inbox / "day9.csv"
        bad.write_text("name,amount\nann,many\n")
        failed = run_example("nightly_import.py", "inbox", "--night", "monday", cwd=tmp_path)

        assert failed.returncode == 1
        assert "failed at node 'import_file'" in failed.stderr
        assert list((tmp_path / "staging").iterdir()) == []
        assert not (tmp_path / "warehouse").exists()

        bad.write_text("name,amount\nann,1\n")
        again = run_example("nightly_import.py", "inbox", "--night", "monday", cwd=tmp_path)
        assert again.stdout == "11 rows of 6 files\n"
