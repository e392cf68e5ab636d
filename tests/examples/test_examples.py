"""The examples, run as the programs they are."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from examples.review_gate.agents import flow as review_gate
from perdure import Client, RunFailed, RunHandle, run_flow
from perdure.testing import Kit
from tests.support.refusal import failing


class Site(http.server.ThreadingHTTPServer):
    """A small web site with a page of links, one of them broken and one busy at first."""

    LINKS = ("/good", "/busy", "/good#part", "/gone", "mailto:ann@example.org")

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SiteHandler)
        self.requests: Counter[str] = Counter()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class SiteHandler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.requests[self.path] += 1
        if self.path == "/":
            self.answer(200, "".join(f'<a href="{link}">x</a>' for link in Site.LINKS))
        elif self.path == "/busy" and self.server.requests["/busy"] == 1:
            self.answer(429, "", {"Retry-After": "0"})
        else:
            self.answer(404 if self.path == "/gone" else 200, "")

    def answer(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site
        site.shutdown()
        thread.join()


class TestLinkChecker:
    def test_reports_what_is_broken_and_asks_again_where_requested(self, site, tmp_path):
        done = run_example("link_checker.py", f"{site.url}/", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert done.stdout.splitlines() == [
            f"broken: {site.url}/gone (404)",
            "3 links checked, 1 broken",
        ]
        assert site.requests == {"/": 1, "/good": 1, "/busy": 2, "/gone": 1}

    def test_asks_only_for_what_it_does_not_know_yet(self, site, tmp_path):
        first = run_example("link_checker.py", f"{site.url}/", cwd=tmp_path)
        again = run_example("link_checker.py", f"{site.url}/", cwd=tmp_path)
        assert again.stdout == first.stdout
        assert site.requests == {"/": 2, "/good": 1, "/busy": 2, "/gone": 1}


class TestOutbox:
    def test_an_order_and_its_letter_are_written_both_or_neither(self, tmp_path):
        done = ran("outbox.py", cwd=tmp_path)
        taken, confirmed = done.splitlines()[:4], done.splitlines()[4:]
        assert taken == [
            "took order 1: lamp",
            "took order 2: chair",
            "refused: no chair is left",
            "took order 3: lamp",
        ]
        assert [line.split(", key")[0] for line in confirmed] == [
            "order 1 (lamp) confirmed",
            "order 2 (chair) confirmed",
            "order 3 (lamp) confirmed",
        ]
        with Client(f"sqlite:///{tmp_path}/shop.db") as client:
            assert client.jobs.count(group="orders") == 3


# The examples of flows, run as the programs they are.


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
        done = ran("orders.py", cwd=tmp_path)
        assert done.splitlines()[-1] == "3 boxes arrived after 3 stops"
        with Client(f"sqlite:///{tmp_path}/orders.db") as client:
            events = Counter(events_of(client.runs.handle("order-42")))
            assert client.runs.get("order-42/shipping").status == "completed"
        once = ["node_retried score_fraud", "signal_received", "node_completed charge"]
        assert [events[each] for each in once] == [1, 1, 1]

    def test_a_small_order_needs_no_approval(self, tmp_path):
        done = ran("orders.py", "--total", "20", cwd=tmp_path)
        assert "signal_received" not in done

    def test_started_again_it_does_not_do_anything_twice(self, tmp_path):
        first = run_example("orders.py", cwd=tmp_path)
        again = ran("orders.py", cwd=tmp_path)
        assert again == first.stdout

    def test_the_charge_is_refunded_when_the_manager_says_no(self, tmp_path):
        done = run_example("orders.py", "--refuse", cwd=tmp_path)
        assert done.returncode == 1
        assert "the manager said no" in done.stderr
        lines = [line.split()[1:] for line in done.stdout.splitlines()]
        assert lines[-2:] == [["node_undone", "charge"], ["run_failed", "heed"]]


class TestResearchAgents:
    def test_agents_that_break_off_ask_nothing_twice(self, tmp_path):
        done = ran("research_agents.py", cwd=tmp_path)
        *asked, report = done.splitlines()
        assert report == (
            "history; evidence; doubts; open questions (8 sources), 3 attempts were repeated"
        )
        assert len(asked) == len(set(asked)) == 1 + 4 * 3

    def test_a_question_that_was_answered_is_not_asked_again(self, tmp_path):
        run_example("research_agents.py", cwd=tmp_path)
        again = ran("research_agents.py", cwd=tmp_path)
        assert len(again.splitlines()) == 1


class TestNightlyImport:
    def test_publishes_all_files_at_once(self, inbox, tmp_path):
        done = ran("nightly_import.py", "inbox", "--night", "monday", cwd=tmp_path)
        assert done == "10 rows of 5 files\n"
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


# The examples of queues, maps and steps, run as the programs they are.


class TestEmbeddingQueue:
    def test_embeds_every_book_under_the_rate(self, tmp_path):
        done = ran("embedding_queue.py", "--books", "12", cwd=tmp_path)
        first, *_, last_bar, account, nearest = done.splitlines()
        assert first == "12 books, 12 to embed"
        assert re.match(r"█{12}\s+12 of 12", last_bar)
        # One of them was refused and asked again, and twelve a second is a start every 83 ms.
        asked = re.fullmatch(r"13 requests in ([\d.]+) s, \d+ a second", account)
        assert asked is not None, account
        assert float(asked[1]) >= 0.7
        assert nearest.startswith("nearest to 'honey queen': Book ")

    def test_embeds_only_what_it_has_not(self, tmp_path):
        run_example("embedding_queue.py", "--books", "3", cwd=tmp_path)
        again = ran("embedding_queue.py", "--books", "5", cwd=tmp_path)
        assert again.splitlines()[0] == "5 books, 2 to embed"


class TestThousandItems:
    def test_counts_all_pages_with_the_ones_that_broke_off(self, tmp_path):
        done = ran("thousand_items.py", cwd=tmp_path)
        lines = done.splitlines()
        assert sum("is tried again" in line for line in lines) == 20
        assert [line.split()[0] for line in lines if " items after " in line] == [
            str(count) for count in range(100, 1_001, 100)
        ]
        with Client(f"sqlite:///{tmp_path}/census.db") as client:
            assert sum(client.runs.handle("census-1000").result().values()) == 100 * 1_000

    def test_killed_in_the_middle_it_counts_no_page_twice(self, tmp_path):
        with started_example("thousand_items.py", cwd=tmp_path) as program:
            next_line(program, "  300 items")
            killed(program)

        ran("thousand_items.py", cwd=tmp_path)
        with Client(f"sqlite:///{tmp_path}/census.db") as client:
            events = client.runs.handle("census-1000").events()
        items = [event.key for event in events if event.type == "item_completed"]
        assert len(items) == len(set(items)) == 1_000


class TestDurableScript:
    def test_killed_after_three_steps_it_does_the_other_two(self, tmp_path):
        first = run_example("durable_script.py", "--die-after", "3", cwd=tmp_path)
        again = run_example("durable_script.py", cwd=tmp_path)

        assert first.returncode == -signal.SIGKILL
        assert [line.partition(": ")[2] for line in first.stdout.splitlines()] == [
            "fetched the rates of 2026-10",
            "wrote the invoice for Ada",
            "wrote the invoice for Bob",
        ]
        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines() == [
            "did step 1 of this process: wrote the invoice for Cid",
            "did step 2 of this process: sent 3 invoices",
            "2026-10 is closed: receipt 951.00",
        ]

    def test_a_month_that_is_closed_is_not_closed_again(self, capsys):
        from examples.durable_script import closing

        with Kit() as kit:
            run = kit.submit(closing, "2026-11", id="2026-11")
            again = kit.submit(closing, "2026-11", id="2026-11", on_conflict="use_existing")
            assert run.result() == again.result() == "2026-11 is closed: receipt 951.00"
        assert capsys.readouterr().out.count("did step") == 5


class TestOwnWorker:
    def test_resizes_everything_once_and_refuses_the_late_answer(self, tmp_path):
        done = ran("own_worker.py", cwd=tmp_path)
        *lines, sleeper, last = done.splitlines()
        resized = [line.partition(": ")[2] for line in lines if line.endswith("1013 bytes")]
        assert sorted(resized) == [f"picture {n}.png: 1013 bytes" for n in range(8)]
        assert [line.partition(": ")[2] for line in lines if "broken" in line] == [
            "broken.png: not a picture, so it is dead"
        ]
        assert sleeper == (
            "sleeper: woke up; picture 0.png is no longer its own, and its answer was refused"
        )
        assert last == "8 of 9 resized, 8104 bytes in all"


class TestOutboxWithSqlalchemy:
    def test_an_order_and_its_letter_are_written_both_or_neither(self, tmp_path):
        done = ran("outbox_sqlalchemy.py", cwd=tmp_path)
        assert done.splitlines() == [
            "took order 1: Emma",
            "took order 2: Emma",
            "took order 3: Dracula",
            "refused: no 'Emma' is left",
            "letter: order 1, 'Emma', is on its way",
            "letter: order 2, 'Emma', is on its way",
            "letter: order 3, 'Dracula', is on its way",
        ]
        with Client(f"sqlite:///{tmp_path}/bookshop.db") as client:
            assert client.jobs.count(group="orders") == 3


def test_the_index_names_every_example():
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(([\w.]+|review_gate/__main__\.py)\)", index))
    programs = {path.name for path in EXAMPLES.glob("*.py")} | {"review_gate/__main__.py"}
    assert named == programs


# The examples of runs that wait: for people, for work that is done elsewhere, for their time.


CHANGE = {"title": "Add facts", "files": ["facts.py", "test_facts.py"]}


class TestReviewGate:
    def test_goes_round_until_the_maintainer_is_content(self, tmp_path):
        done = ran("review_gate", "--play", cwd=tmp_path)
        assert done.splitlines()[-1] == (
            "published 'Add facts' (facts.py and test_facts.py), risk medium, approved by ada"
        )
        with Client(f"sqlite:///{tmp_path}/review_gate.db") as client:
            rounds = client.runs.handle("bees").children()
            asked = [client.approvals.get(f"bees/rounds#{n}:gate").decision for n in (2, 3)]
            lineage = client.runs.lineage("bees/rounds#3")
        assert [child.status for child in rounds] == ["completed"] * 3
        assert asked == ["reject", "approve"]
        [code] = [node for node in lineage.nodes if node.id == "code"]
        assert {use.text: use.value for use in code.uses}["input.feedback"] == "too long"

    def test_killed_while_it_waits_it_continues_from_the_answer(self, tmp_path):
        with started_example("review_gate", "ants", cwd=tmp_path) as program:
            command = next_line(program, "  in another shell: ")
        assert "perdure decide 'ants/rounds#2:gate' --role maintainers" in command
        with Client(f"sqlite:///{tmp_path}/review_gate.db") as client:
            decided = client.approvals.decide(
                "ants/rounds#2:gate", "approve", data={"risk": "high"}, roles=["maintainers"]
            )
        assert decided.status == "decided"

        again = ran("review_gate", "ants", cwd=tmp_path)
        assert again.startswith("published 'Add three facts about ants'")
        assert "risk high" in again

    def test_started_again_it_says_what_is_still_open(self, tmp_path):
        with started_example("review_gate", "ants", cwd=tmp_path) as program:
            next_line(program, "  in another shell: ")
        with started_example("review_gate", "ants", cwd=tmp_path) as program:
            printed = next_line(program)
        assert printed == "still open: Publish Add three facts about ants?"

    def test_gives_up_after_four_rounds(self):
        result = run_flow(
            review_gate,
            {"topic": "bees"},
            answers={"gate": [{"decision": "reject", "note": f"no {n}"} for n in range(4)]},
            reports={"code": [CHANGE] * 4},
        )
        assert result == "Nothing was published about bees. The last word: no 3"

    def test_a_change_of_another_shape_is_not_taken(self, capsys):
        with failing("node.check_failed", RunFailed):
            run_flow(review_gate, {"topic": "bees"}, reports={"code": {"title": "Add facts"}})
        assert capsys.readouterr().out == ""


class TestExpenses:
    def test_both_must_approve_while_nothing_runs(self, tmp_path):
        with started_example("expenses.py", cwd=tmp_path) as program:
            assert next_line(program) == "opened: Ada spent 1800 on a trip"
            assert next_line(program) == (
                "  perdure decide trip:approval --by manager --store sqlite:///expenses.db"
            )
        with Client(f"sqlite:///{tmp_path}/expenses.db") as client:
            first = client.approvals.decide(
                "trip:approval", "approve", data={"amount": 900}, by="manager"
            )
            assert (first.status, first.deciders) == ("open", ("manager", "finance"))
            client.approvals.decide(
                "trip:approval",
                "approve",
                data={"cost_centre": "research"},
                by="finance",
                revision=first.revision,
            )

        again = ran("expenses.py", cwd=tmp_path)
        assert again.splitlines()[-1] == ("paid 900 to Ada for research, said manager and finance")

    def test_the_cfo_may_decide_alone_after_two_days(self, tmp_path):
        with (
            Client(f"sqlite:///{tmp_path}/expenses.db") as client,
            started_example("expenses.py", "--day", "1.5", cwd=tmp_path) as program,
        ):
            assert next_line(program, "reminder: ").endswith("a trip")
            next_line(program, "escalation: ")
            client.approvals.decide("trip:approval", "approve", by="cfo")
            assert next_line(program, "paid ") == "paid 1800 to Ada for sales, said cfo"

    def test_no_decision_in_time_is_a_no(self, tmp_path):
        done = ran("expenses.py", "--day", "0.05", cwd=tmp_path)
        assert done.splitlines()[-1] == "nothing for Ada: time is over"


class TestNightlyReport:
    def test_killed_for_a_while_it_misses_nothing(self, tmp_path):
        nights: list[str] = []
        for _ in range(2):
            with started_example("nightly_report.py", "--every", "1s", cwd=tmp_path) as program:
                lines = [next_line(program, "20") for _ in range(2)]
                lines += killed(program)
            nights += [line.split(": ")[0] for line in lines]

        # A body may be executed twice if it was killed before its outcome was written.
        times = [datetime.fromisoformat(night) for night in dict.fromkeys(nights)]
        steps = {after - before for before, after in pairwise(times)}
        assert steps == {timedelta(seconds=1)}
        with Client(f"sqlite:///{tmp_path}/reports.db") as client:
            record = client.schedules.get("nightly")
        assert (record.overlap, record.catch_up) == ("queue", "all")
        assert record.started >= len(times)
        assert (record.missed, record.skipped, record.failed) == (0, 0, 0)


# Runs an example as a reader would.


ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WAIT_SECONDS = 50


class TestOwnLimiter:
    @pytest.mark.timeout(120)
    def test_never_runs_more_than_two_at_once_and_frees_the_places_of_a_killed_worker(
        self, tmp_path
    ):
        with started_example("own_limiter.py", "work.db", cwd=tmp_path) as first:
            next_line(first, "rendering")
            first.kill()
            killed_at = time.time()
        with (
            started_example("own_limiter.py", "work.db", cwd=tmp_path),
            started_example("own_limiter.py", "work.db", cwd=tmp_path),
            Client(f"sqlite:///{tmp_path}/work.db") as client,
        ):
            ends = ("completed", "failed", "dead")
            while sum(client.jobs.count(status=end) for end in ends) < 18:
                time.sleep(0.1)
            assert client.jobs.count(status="completed") == 18
        with closing(sqlite3.connect(tmp_path / "work.db-places")) as record:
            rows = record.execute("SELECT frame, started, ended FROM rendered").fetchall()

        assert any(ended is None for _, _, ended in rows)
        spans = [(started, killed_at if end is None else end) for _, started, end in rows]
        assert max(sum(start <= at < end for start, end in spans) for at, _ in spans) <= 2
        # It held both places, and at least two thirds of their ttl were left.
        assert not [start for start, _ in spans if killed_at < start < killed_at + 1.5]


def ran(name: str, *arguments: str, cwd: Path) -> str:
    """What an example prints that ends well."""
    done = run_example(name, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_example(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(name, arguments),
        cwd=cwd,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


@contextmanager
def started_example(name: str, *arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """An example at work, which is killed at the end without a chance to tidy up."""
    with subprocess.Popen(
        _command(name, arguments),
        cwd=cwd,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def next_line(program: subprocess.Popen[str], start: str = "") -> str:
    """The next line that it prints, or the next that begins so."""
    assert program.stdout is not None
    read: list[str] = []
    for line in program.stdout:
        if line.startswith(start):
            return line.rstrip("\n")
        read.append(line)
    raise AssertionError(f"it ended without a line {start!r}: {''.join(read)}")


def killed(program: subprocess.Popen[str]) -> list[str]:
    """What it had printed besides, when it was killed."""
    program.kill()
    assert program.stdout is not None
    return program.stdout.read().splitlines()


def _command(name: str, arguments: tuple[str, ...]) -> list[str]:
    """A script, or a package of several files."""
    if name.endswith(".py"):
        return [sys.executable, str(EXAMPLES / name), *arguments]
    return [sys.executable, "-m", f"examples.{name}", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
