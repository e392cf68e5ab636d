"""How things look: what fits, what is shortened, what is left out."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from perdure.cli.views.console import (
    Column,
    column_widths,
    fit_columns,
    moment,
    print_table,
    shortened,
)
from perdure.cli.views.jobs import percent
from perdure.cli.views.queues import queue_columns
from perdure.model.job import Progress, Status

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)

ID = Column(title="ID", cells=["0123456789"])
NAME = Column(title="NAME", cells=["a-rather-long-name"], rank=1, room_min=6)
EXTRA = Column(title="EXTRA", cells=["extra"], rank=2)
EMPTY = Column(title="EMPTY", cells=[""])


def titles(columns: list[Column]) -> list[str]:
    return [column.title for column in columns]


class TestFitting:
    def test_keeps_everything_where_there_is_room(self):
        assert titles(fit_columns([ID, NAME, EXTRA], 80)) == ["ID", "NAME", "EXTRA"]

    def test_shortens_before_leaving_out(self):
        assert titles(fit_columns([ID, NAME, EXTRA], 25)) == ["ID", "NAME", "EXTRA"]

    def test_leaves_out_the_least_important_first(self):
        assert titles(fit_columns([ID, NAME, EXTRA], 24)) == ["ID", "NAME"]
        assert titles(fit_columns([ID, NAME, EXTRA], 17)) == ["ID"]

    def test_never_leaves_out_what_identifies(self):
        assert titles(fit_columns([ID, NAME, EXTRA], 1)) == ["ID"]

    def test_leaves_out_what_says_nothing(self):
        assert titles(fit_columns([ID, EMPTY], 80)) == ["ID"]


class TestWidths:
    def test_are_those_of_the_cells_where_there_is_room(self):
        assert column_widths([ID, NAME, EXTRA], 80) == [10, 18, 5]

    def test_take_from_the_widest_first(self):
        short = Column(title="N", cells=["123"], room_min=1)

        assert column_widths([ID, NAME, short], 29) == [10, 12, 3]

    def test_take_no_more_than_may_be_taken(self):
        assert column_widths([ID, NAME], 10) == [10, 6]


class TestTable:
    def test_leaves_short_columns_whole_beside_long_ones(self):
        console = Console(file=io.StringIO(), width=40)
        age = Column(title="AGE", cells=["10m"], rank=2)
        why = Column(title="WHY", cells=["because " * 20], rank=3, room_min=12)
        print_table(console, [ID, age, why])

        assert isinstance(console.file, io.StringIO)
        assert "0123456789  10m  because because" in console.file.getvalue()
        assert console.file.getvalue().rstrip().endswith("…")

    @pytest.mark.parametrize("width", [18, 25, 30, 80])
    def test_fits_the_width(self, width):
        console = Console(file=io.StringIO(), width=width)
        print_table(console, [ID, NAME, EXTRA])

        assert isinstance(console.file, io.StringIO)
        lines = console.file.getvalue().splitlines()
        assert len(lines) == 2
        assert all(len(line) <= width for line in lines)
        assert lines[1].startswith("0123456789")


class TestDepthColumns:
    QUEUES = {  # noqa: RUF012
        "default": {Status.WAITING: 12, Status.FAILED: 3},
        "mail": {Status.WAITING: 1, Status.COMPLETED: 10_000},
    }

    def test_crosses_queues_and_statuses_with_sums(self):
        columns = queue_columns(self.QUEUES, {"mail"}, 80)

        assert [(column.title, list(column.cells)) for column in columns] == [
            ("QUEUE", ["default", "mail (paused)", "total"]),
            ("WAITING", ["12", "1", "13"]),
            ("COMPLETED", ["", "10000", "10000"]),
            ("FAILED", ["3", "", "3"]),
        ]

    def test_lists_them_where_it_is_narrow(self):
        columns = queue_columns(self.QUEUES, set(), 30)

        assert [list(column.cells) for column in columns] == [
            ["default", "default", "mail", "mail"],
            ["failed", "waiting", "completed", "waiting"],
            ["3", "12", "10000", "1"],
        ]


class TestWords:
    def test_moment_says_how_far_away_it_is(self):
        assert moment(NOW - timedelta(minutes=5), NOW).endswith("(5m ago)")
        assert moment(NOW + timedelta(minutes=5), NOW).endswith("(in 5m)")
        assert moment(NOW + timedelta(days=3, seconds=-1), NOW).endswith("(in 3d)")
        assert moment(None, NOW) == ""

    def test_percent_is_silent_before_the_first_report(self):
        assert percent(Progress(percent=0)) == ""
        assert percent(Progress(percent=49.6)) == "50%"

    def test_shortened_is_one_line_of_that_length(self):
        assert shortened("two\n  lines", 80) == "two lines"
        assert shortened("0123456789", 10) == "0123456789"
        assert shortened("0123456789", 9) == "01234567…"
