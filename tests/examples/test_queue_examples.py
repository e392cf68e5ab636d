"""The examples of queues, maps and steps, run as the programs they are."""

from __future__ import annotations

import re
import signal

from perdure import Client
from perdure.testing import Kit
from tests.examples.programs import EXAMPLES, killed, next_line, run_example, started_example


class TestEmbeddingQueue:
    def test_embeds_every_book_under_the_rate(self, tmp_path):
        done = run_example("embedding_queue.py", "--books", "12", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        first, *_, last_bar, account, nearest = done.stdout.splitlines()
        assert first == "12 books, 12 to embed"
        assert re.match(r"█{12}\s+12 of 12", last_bar)
        # One of them was refused and asked again, and twelve a second is a start every 83 ms.
        asked = re.fullmatch(r"13 requests in ([\d.]+) s, \d+ a second", account)
        assert asked is not None, account
        assert float(asked[1]) >= 0.7
        assert nearest.startswith("nearest to 'honey queen': Book ")

    def test_embeds_only_what_it_has_not(self, tmp_path):
        run_example("embedding_queue.py", "--books", "3", cwd=tmp_path)

        again = run_example("embedding_queue.py", "--books", "5", cwd=tmp_path)

        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines()[0] == "5 books, 2 to embed"


class TestThousandItems:
    def test_counts_all_pages_with_the_ones_that_broke_off(self, tmp_path):
        done = run_example("thousand_items.py", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
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

        again = run_example("thousand_items.py", cwd=tmp_path)

        assert again.returncode == 0, again.stderr
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
        done = run_example("own_worker.py", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        *lines, sleeper, last = done.stdout.splitlines()
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
        done = run_example("outbox_sqlalchemy.py", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
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
