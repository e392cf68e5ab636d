"""The examples of runs that wait: for people, for work that is done elsewhere, for their time."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from examples.review_gate.agents import flow as review_gate
from perdure import Client, RunFailed, run_flow
from tests.examples.programs import killed, next_line, run_example, started_example

CHANGE = {"title": "Add facts", "files": ["facts.py", "test_facts.py"]}


class TestReviewGate:
    def test_goes_round_until_the_maintainer_is_content(self, tmp_path):
        done = run_example("review_gate", "--play", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == (
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

    def test_killed_while_it_waits_it_goes_on_from_the_answer(self, tmp_path):
        with started_example("review_gate", "ants", cwd=tmp_path) as program:
            command = next_line(program, "  in another shell: ")
        assert "perdure decide 'ants/rounds#2:gate' --role maintainers" in command
        with Client(f"sqlite:///{tmp_path}/review_gate.db") as client:
            decided = client.approvals.decide(
                "ants/rounds#2:gate", "approve", data={"risk": "high"}, roles=["maintainers"]
            )
        assert decided.status == "decided"

        again = run_example("review_gate", "ants", cwd=tmp_path)

        assert again.returncode == 0, again.stderr
        assert again.stdout.startswith("published 'Add three facts about ants'")
        assert "risk high" in again.stdout

    def test_started_again_it_says_what_is_still_open(self, tmp_path):
        with started_example("review_gate", "ants", cwd=tmp_path) as program:
            next_line(program, "  in another shell: ")

        with started_example("review_gate", "ants", cwd=tmp_path) as program:
            told = next_line(program)

        assert told == "still open: Publish Add three facts about ants?"

    def test_gives_up_after_four_rounds(self):
        result = run_flow(
            review_gate,
            {"topic": "bees"},
            answers={"gate": [{"decision": "reject", "note": f"no {n}"} for n in range(4)]},
            reports={"code": [CHANGE] * 4},
        )

        assert result == "Nothing was published about bees. The last word: no 3"

    def test_a_change_of_another_shape_is_not_taken(self, capsys):
        with pytest.raises(RunFailed, match="files"):
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
                "trip:approval", "approve", data={"cost_centre": "research"}, by="finance"
            )

        again = run_example("expenses.py", cwd=tmp_path)

        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines()[-1] == (
            "paid 900 to Ada for research, said manager and finance"
        )

    def test_the_cfo_may_decide_alone_after_two_days(self, tmp_path):
        with (
            Client(f"sqlite:///{tmp_path}/expenses.db") as client,
            started_example("expenses.py", "--day", "1.5", cwd=tmp_path) as program,
        ):
            assert next_line(program, "reminder: ").endswith("a trip")
            next_line(program, "escalation: ")
            client.approvals.decide("trip:approval", "approve", by="cfo")
            assert next_line(program, "paid ") == "paid 1800 to Ada for sales, said cfo"

    def test_nobody_in_time_is_a_no(self, tmp_path):
        done = run_example("expenses.py", "--day", "0.05", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "nothing for Ada: time is over"


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
