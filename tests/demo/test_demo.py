"""``python -m perdure.demo`` from start to end, and what it makes of the record."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import RunStatus, run_flow
from perdure.demo.flow import catalogue
from perdure.demo.story import BookFolder, Expected, judge
from perdure.operations.records import EventRecord
from tests.cli.harness import Commands

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EXPECTED = Expected(items=["count_words[0]", "count_words[1]"], words=10)


@pytest.mark.timeout(150)
def test_ends_by_itself_with_a_good_result(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "perdure.demo", "--fast"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )
    said = done.stdout

    assert done.returncode == 0, said + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in said
    assert re.search(r"node_retried +fetch_prices +attempt=1 ConnectionError", said)
    assert re.search(r"killed worker-\d \(SIGKILL\) while it was running (.+, )?(count|draw)", said)
    assert re.search(r"other workers took over all \d jobs [\d.]+ s after the kill", said)
    assert "sign_off asks role:editor: Publish 6 books with " in said
    assert "decided: approve" in said
    assert "Nothing was lost, and nothing was counted twice" in said
    assert "14 results of nodes and items, each committed exactly once" in said
    _look_where_it_says(said)


def _look_where_it_says(said: str) -> None:
    """The commands at the end are to be copied, and the store is still there for them."""
    [store] = re.findall(r"^  export PERDURE_STORE=(\S+)$", said, re.MULTILINE)
    commands = re.findall(r"^  \S*perdure (.+)$", said, re.MULTILINE)

    assert len(commands) >= 4
    for command in commands:
        shown = Commands(store)(*command.split())
        assert shown.exit_code == 0, f"{command}: {shown}"
        assert "sign_off" in shown.out


class TestFlow:
    def test_counts_the_words_of_all_books(self, tmp_path):
        library = BookFolder(tmp_path, count=3, pages=2)

        result = run_flow(
            catalogue,
            {"folder": str(tmp_path), "pause": 0},
            answers={"sign_off": "approve"},
            skip_delays=True,
        )

        assert result["words"] == sum(library.words.values())
        assert result["is_published"]


def event(number: int, type: str, key: str, value: Any = None) -> EventRecord:
    status = RunStatus.COMPLETED if type == "run_completed" else RunStatus.RUNNING
    return EventRecord(
        number=number,
        at=NOW,
        type=type,
        status=status,
        details={},
        node=key.partition("[")[0],
        key=key,
        value=value,
    )


def log(*entries: tuple[str, str, Any]) -> list[EventRecord]:
    return [event(number, *each) for number, each in enumerate(entries, start=1)]


class TestJudge:
    FIRST = ("item_completed", "count_words[0]", {"attempt": 1})
    SECOND = ("item_completed", "count_words[1]", {"attempt": 2})
    END = ("run_completed", "", {"words": 10})

    def test_is_content_when_everything_was_committed_once(self):
        failed = ("node_retried", "fetch_prices", None)
        prices = ("node_completed", "fetch_prices", {"attempt": 2})
        verdict = judge(log(self.FIRST, failed, self.SECOND, prices, self.END), EXPECTED)
        assert verdict.is_good
        assert (verdict.commits, verdict.retried, verdict.repeated) == (3, 1, 1)

    @pytest.mark.parametrize(
        "events, problem",
        [
            (log(FIRST, END), "count_words[1] was lost"),
            (log(FIRST, SECOND, SECOND, END), "count_words[1] was committed 2 times"),
            (log(FIRST, SECOND, END)[1:], "the log has gaps"),
            (log(FIRST, SECOND), "the run did not complete"),
            ([], "the run did not complete"),
            (
                log(FIRST, SECOND, ("run_completed", "", {"words": 9})),
                "counted 9 words, but the books have 10",
            ),
        ],
    )
    def test_names_what_is_wrong(self, events, problem):
        assert problem in judge(events, EXPECTED).problems
