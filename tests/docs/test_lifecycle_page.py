"""The page that draws the life of a job says what the transition table says."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.rules.lifecycle import TRANSITIONS, Operation

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "lifecycle.md"
ROW = re.compile(r"^\| ([a-z ]+) \| (\w+) \| ([\w, ]+) \| .+ \|$", re.MULTILINE)
EDGE = re.compile(r"^    (\w+) --> (\w+): ([a-z ]+)$", re.MULTILINE)


def wanted() -> set[tuple[str, str, str]]:
    return {
        (operation.value, before.value, after.value)
        for operation, moves in TRANSITIONS.items()
        for before, afters in moves.items()
        for after in afters
    }


def test_the_table_on_the_page_is_the_transition_table() -> None:
    rows = ROW.findall(PAGE.read_text())

    shown = {(op, before, after) for op, before, to in rows for after in to.split(", ")}
    assert shown - {("operation", "from", "to")} == wanted()


def test_the_picture_shows_every_transition_but_replace() -> None:
    edges = EDGE.findall(PAGE.read_text())

    shown = {(operation, before, after) for before, after, operation in edges}
    assert shown == {row for row in wanted() if row[0] != Operation.REPLACE.value}
