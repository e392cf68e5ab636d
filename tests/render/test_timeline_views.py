"""Timelines as text, as wide as is asked for, and as SVG."""

from __future__ import annotations

from datetime import timedelta
from xml.etree import ElementTree

import pytest

from perdure.model.ids import RunId
from perdure.model.run import RunStatus
from perdure.model.times import brief
from perdure.render.diagram import NodeMark
from perdure.render.timeline import Bar, BarEnd, Doing, Timeline, TimelineRow, slots_of, ticks
from perdure.render.timeline_svg import timeline_svg
from perdure.render.timeline_text import (
    ASCII,
    UNICODE,
    Glyphs,
    timeline_lines,
)
from tests.render.logs import SECOND, START

SVG = "{http://www.w3.org/2000/svg}"


def bar(begun: float, ended: float | None, doing: Doing = Doing.WORK, **fields: object) -> Bar:
    ending = BarEnd.OPEN if ended is None else BarEnd.COMPLETED
    known: dict[str, object] = {"key": "a", "ending": ending}
    return Bar(
        doing=doing,
        started_at=START + begun * SECOND,
        ended_at=None if ended is None else START + ended * SECOND,
        **(known | fields),  # type: ignore[arg-type]  # as the test gives them
    )


def sample() -> Timeline:
    failed = bar(2, 4, key="charge", ending=BarEnd.RETRIED, error="OSError: no\nroute <b>")
    items = tuple(bar(2, 3 + number % 4, key=f"pack[{number}]") for number in range(40))
    rows = (
        TimelineRow(node="fetch", mark=NodeMark.COMPLETED, bars=(bar(0, 2),)),
        TimelineRow(node="charge", mark=NodeMark.COMPLETED, bars=(failed, bar(4, 7, attempt=2))),
        TimelineRow(node="pack", mark=NodeMark.LIVE, bars=items, items=100, items_completed=40),
        TimelineRow(
            node="a-review-by-the-board", mark=NodeMark.WAITING, bars=(bar(7, None, Doing.WAIT),)
        ),
        TimelineRow(node="refund", mark=NodeMark.SKIPPED),
    )
    return Timeline(
        run=RunId("order-7"),
        flow="orders@1",
        status=RunStatus.WAITING,
        started_at=START,
        until=START + 10 * SECOND,
        rows=rows,
    )


def shown(timeline: Timeline, width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    lines = timeline_lines(timeline, width, glyphs)
    return ["".join(piece.text for piece in line).rstrip() for line in lines]


class TestText:
    def test_a_row_for_each_node_as_wide_as_asked_for(self):
        assert shown(sample(), 60) == [
            "                      0s            5s",
            "✓ fetch               ██████                              2s",
            "✓ charge                   █████↻████████                 5s",
            "▶ pack                     ████▇▇▅▅▅▃▃▃            40/100 4s",
            "… a-review-by…-board                    ░░░░░░░░░         3s",
            "– refund                                             skipped",
            "",
            "█ queued or at work   ░ wait   ↻ retried   ▁-█ items at once",
            "↻ charge, attempt 1, at 4s: OSError: no route <b>",
        ]

    @pytest.mark.parametrize("width", [30, 40, 80, 133])
    def test_rows_are_never_wider(self, width):
        lines = shown(sample(), width)

        assert all(len(line) <= width for line in lines[:-1])  # the last is what went wrong

    def test_without_unicode(self):
        lines = shown(sample(), 60, ASCII)

        assert all(line.isascii() for line in lines)
        assert lines[2].split() == ["+", "charge", "#####r########", "5s"]

    def test_signs_differ_from_each_other(self):
        for glyphs in (UNICODE, ASCII):
            assert len(set(glyphs.signs.values())) == len(NodeMark)
            used = [*glyphs.doings.values(), *glyphs.endings.values()]
            assert len(set(used)) == len(used)

    def test_many_errors_are_cut_short(self):
        bars = tuple(bar(0, 1, ending=BarEnd.FAILED, error="OSError: no") for _ in range(12))
        row = TimelineRow(node="a", mark=NodeMark.FAILED, bars=bars)
        lines = shown(_with(row), 60)

        assert lines[-1] == "and 2 more errors"

    def test_a_run_that_took_no_time(self):
        row = TimelineRow(node="a", mark=NodeMark.COMPLETED, bars=(bar(0, 0),))
        timeline = _with(row, until=0)

        assert shown(timeline, 40)[1].split() == ["✓", "a", "█", "0s"]


class TestSlots:
    def test_what_ends_where_a_slot_begins_is_not_in_it(self):
        row = TimelineRow(node="a", mark=NodeMark.COMPLETED, bars=(bar(0, 5),))

        assert [slot.doing for slot in slots_of(_with(row), row, 4)] == [
            Doing.WORK, Doing.WORK, None, None,
        ]  # fmt: skip

    def test_work_tells_more_than_waiting(self):
        row = TimelineRow(
            node="a", mark=NodeMark.LIVE, bars=(bar(0, 6, Doing.WAIT), bar(4, None), bar(9, 10))
        )

        assert [slot.doing for slot in slots_of(_with(row), row, 2)] == [Doing.WORK, Doing.WORK]

    def test_the_fullest_slot_of_a_map_is_the_measure(self):
        row = TimelineRow(node="a", mark=NodeMark.LIVE, bars=(bar(0, 5), bar(0, 10)), items=2)

        assert [slot.share for slot in slots_of(_with(row), row, 2)] == [1.0, 0.5]


class TestSvg:
    def test_is_whole_and_tells_of_itself(self):
        root = ElementTree.fromstring(timeline_svg(sample()))

        assert root.get("role") == "img"
        description = root.findtext(f"{SVG}desc", "")
        assert description.startswith("The run is waiting; begun 2030-01-01 12:00:00+00:00, 10s")
        assert description.endswith("5 nodes were reached, 1 attempts were retried.")

    def test_has_a_bar_for_each_stretch_with_what_it_was(self):
        root = ElementTree.fromstring(timeline_svg(sample()))

        told = [each.findtext(f"{SVG}title") for each in root.iter(f"{SVG}rect")]
        assert [text for text in told if text] == [
            "a: queued or at work, completed",
            "charge: queued or at work, retried, OSError: no\nroute <b>",
            "a: queued or at work, attempt 2, completed",
            "a: wait, goes on",
        ]
        path = [each.findtext(f"{SVG}title") for each in root.iter(f"{SVG}path")]
        assert "pack: 40 of 100 items" in path

    def test_bars_are_as_long_as_what_they_stand_for(self):
        root = ElementTree.fromstring(timeline_svg(sample()))

        bars = [each for each in root.iter(f"{SVG}rect") if each.findtext(f"{SVG}title")]
        assert [float(each.get("width", 0)) for each in bars] == [128, 128, 192, 192]

    def test_has_its_hatching_in_itself(self):
        drawn = timeline_svg(sample())
        root = ElementTree.fromstring(drawn)

        [pattern] = root.iter(f"{SVG}pattern")
        assert f"url(#{pattern.get('id')})" in drawn

    def test_of_a_run_without_rows(self):
        empty = Timeline(
            run=RunId("r"),
            flow="f@1",
            status=RunStatus.SKIPPED,
            started_at=START,
            until=START,
        )

        assert ElementTree.fromstring(timeline_svg(empty)).get("role") == "img"
        assert shown(empty, 40) == ["  0s", ""]


class TestTimescale:
    @pytest.mark.parametrize(
        "seconds, told",
        [
            (0, "0s"),
            (0.0123, "12ms"),
            (0.9996, "1s"),
            (2.54, "2.5s"),
            (59.96, "1m"),
            (90, "1m30s"),
            (3599.9, "1h"),
            (3900, "1h05m"),
            (86_399, "1d"),
            (200_000, "2d8h"),
        ],
    )
    def test_spans_in_few_characters(self, seconds, told):
        assert brief(timedelta(seconds=seconds)) == told

    @pytest.mark.parametrize("seconds", [0.0004, 0.3, 7, 61, 4000, 90_000, 4e6, 4e8])
    def test_ticks_are_few_and_reach_far(self, seconds):
        span = timedelta(seconds=seconds)
        found = ticks(span, 8)

        assert len(found) <= 8
        assert found[0] == timedelta(0)
        assert found[-1] <= span
        assert seconds < 0.001 or len(found) >= 2


def _with(row: TimelineRow, until: float = 10) -> Timeline:
    return Timeline(
        run=RunId("r"),
        flow="f@1",
        status=RunStatus.RUNNING,
        started_at=START,
        until=START + until * SECOND,
        rows=(row,),
    )
