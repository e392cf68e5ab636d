"""Timelines: what each node did when, as the log alone tells it; as text and as SVG."""

from __future__ import annotations

from datetime import timedelta
from xml.etree import ElementTree

import pytest

from perdure.engine.fold import fold
from perdure.errors import EventLogCorrupt
from perdure.model.event import Event, decode_event
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveType, RunState, RunStatus
from perdure.model.times import brief
from perdure.operations.insight.timeline import timeline_of
from perdure.render.diagram import NodeMark
from perdure.render.timeline import Bar, BarEnd, Doing, Timeline, TimelineRow, slots_of, ticks
from perdure.render.timeline_svg import timeline_svg
from perdure.render.timeline_text import ASCII, UNICODE, Glyphs, timeline_lines
from tests.render.logs import SECOND, START, row, seconds, stored, timeline
from tests.rules.graphs import approval, chain, child, delay, graph, loop, mapped, signal, task
from tests.rules.played import RUN, Played
from tests.rules.recording import LOGS, read

BESIDE = ("poll", "cancel", "remind", "notify")


def stretches(of: Timeline, node: str) -> list[tuple[Doing, float | None, float | None, BarEnd]]:
    """The bars of a node: what, from when, until when, and how it ended."""
    return [
        (bar.doing, seconds(bar.started_at), seconds(bar.ended_at), bar.ending)
        for bar in row(of, node).bars
    ]


class TestBars:
    def test_of_a_chain_follow_each_other(self):
        run = Played(chain(task("a"), task("b")))
        run.finish("a")
        run.finish("b")
        shown = timeline(run)
        assert stretches(shown, "a") == [(Doing.WORK, 0, 1, BarEnd.COMPLETED)]
        assert stretches(shown, "b") == [(Doing.WORK, 1, 2, BarEnd.COMPLETED)]
        assert [each.node for each in shown.rows] == ["a", "b"]

    def test_a_failed_attempt_ends_one_and_starts_another(self):
        run = Played(chain(task("a")))
        run.attempt_failed("a", 1)
        run.finish("a")

        first, second = row(timeline(run), "a").bars

        assert (first.ending, first.attempt) == (BarEnd.RETRIED, 1)
        assert first.error.startswith("OSError: ")
        assert (second.ending, second.attempt) == (BarEnd.COMPLETED, 2)
        assert first.ended_at == second.started_at

    def test_what_failed_and_what_it_took_down(self):
        run = Played(graph(task("a"), task("b")))
        run.fail("a", "no money")
        shown = timeline(run)
        [failed] = row(shown, "a").bars
        assert (failed.ending, failed.error) == (BarEnd.FAILED, "OSError: no money")
        assert stretches(shown, "b")[0][3] is BarEnd.CANCELLED
        assert row(shown, "b").mark is NodeMark.CANCELLED

    @pytest.mark.parametrize("node", [signal("n"), delay("n"), approval("n")])
    def test_waiting_is_no_work(self, node):
        run = Played(chain(node))  # type: ignore[arg-type]  # any kind of node
        assert stretches(timeline(run), "n") == [(Doing.WAIT, 0, None, BarEnd.OPEN)]

    def test_a_child_is_waited_for(self):
        run = Played(chain(child("c"), task("a")))
        run.child_completed("c")
        assert stretches(timeline(run), "c") == [(Doing.CHILD, 0, 1, BarEnd.COMPLETED)]

    def test_a_body_that_pauses_waits_and_works_again(self):
        run = Played(chain(task("a")))
        run.pause_body("a")
        run.report("a", "completed", result=1)
        run.finish("a")

        assert stretches(timeline(run), "a") == [
            (Doing.WORK, 0, 1, BarEnd.PAUSED),
            (Doing.WAIT, 1, 2, BarEnd.COMPLETED),
            (Doing.WORK, 2, 3, BarEnd.COMPLETED),
        ]

    def test_of_a_loop_are_its_iterations_and_checks(self):
        run = Played(chain(loop("l")))
        run.finish("l#1", 1)
        run.finish("check:l#1", False)
        run.finish("l#2", 2)
        run.finish("check:l#2", True)
        keys = [bar.key for bar in row(timeline(run), "l").bars]
        assert keys == ["l#1", "check:l#1", "l#2", "check:l#2"]

    def test_nothing_runs_while_the_run_is_paused(self):
        run = Played(graph(task("a"), signal("s")))
        run.pause()
        paused = timeline(run)
        run.unpause()
        run.finish("a")

        assert row(paused, "a").mark is NodeMark.PAUSED
        shown = timeline(run)
        assert stretches(shown, "a") == [
            (Doing.WORK, 0, 1, BarEnd.PAUSED),
            (Doing.WORK, 2, 3, BarEnd.COMPLETED),
        ]
        assert stretches(shown, "s") == [(Doing.WAIT, 0, None, BarEnd.OPEN)]

    def test_what_is_undone_is_in_the_row_of_its_node(self):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.cancel(compensates=True)
        run.finish("undo:a")
        shown = timeline(run)
        assert [each[0] for each in stretches(shown, "a")] == [Doing.WORK, Doing.UNDO]
        assert stretches(shown, "a")[1][3] is BarEnd.COMPLETED

    def test_a_run_that_is_retried_continues_in_the_same_rows(self):
        run = Played(chain(task("a"), task("b")))
        run.finish("a")
        run.fail("b")
        run.retry()
        run.finish("b")
        endings = [each[3] for each in stretches(timeline(run), "b")]
        assert endings == [BarEnd.FAILED, BarEnd.COMPLETED]


class TestRows:
    def test_of_a_map_has_all_its_items(self):
        run = Played(chain(mapped("m"), task("a")), [1, 2, 3])
        run.finish("m[2]", 1)
        under_way = row(timeline(run), "m")
        run.finish("m[0]", 1)
        run.finish("m[1]", 1)
        done = row(timeline(run), "m")

        assert (under_way.items, under_way.items_completed) == (3, 1)
        assert {bar.key for bar in under_way.bars} == {"m[0]", "m[1]", "m[2]"}
        assert (done.items, done.items_completed) == (3, 3)
        assert all(bar.ending is BarEnd.COMPLETED for bar in done.bars)

    def test_of_what_was_passed_by_has_no_bar(self):
        run = Played(graph(task("a"), task("b"), task("c"), edges="a b", on_failure="finish"))
        run.fail("a")
        assert row(timeline(run), "b").bars == ()
        assert row(timeline(run), "b").mark is NodeMark.BLOCKED

    def test_of_what_was_not_reached_is_not_there(self):
        run = Played(chain(task("a"), task("b")))
        assert [each.node for each in timeline(run).rows] == ["a"]


class TestTheWhole:
    def test_live_bars_end_now(self):
        run = Played(chain(task("a")))
        shown = timeline(run, after=60 * SECOND)
        assert (shown.started_at, shown.until) == (START, START + 60 * SECOND)

    def test_of_a_run_that_ended_nothing_is_later_than_its_end(self):
        run = Played(chain(task("a")))
        run.finish("a")
        shown = timeline(run, after=60 * SECOND)
        assert shown.until == stored(run.log.events)[-1].at

    def test_a_clock_that_was_set_back_does_no_harm(self):
        run = Played(chain(task("a")))
        events = stored(run.log.events)
        shown = timeline_of(RUN, events, START - 60 * SECOND)
        assert shown.until == START

    def test_a_log_with_a_gap_is_refused(self):
        run = Played(chain(task("a"), task("b")))
        run.finish("a")
        run.finish("b")
        with pytest.raises(EventLogCorrupt):
            timeline_of(RUN, stored(run.log.events)[1:], START)


def expected(state: RunState) -> set[str]:
    if state.is_ended:
        return set()
    return {
        text
        for text, found_type in state.live.items()
        if Key.parse(text).part not in BESIDE
        and not (state.is_paused and found_type is LiveType.JOB)
    }


def is_in_order(bar: Bar) -> bool:
    return bar.ended_at is None or bar.started_at <= bar.ended_at


class TestTimeline:
    """Timelines: what each node did when, as the log alone tells it. Events come a second apart."""

    @pytest.mark.parametrize("path", sorted(LOGS.glob("*.json")), ids=lambda path: path.stem)
    def test_after_every_event_just_what_is_live_has_an_open_bar(self, path):
        """Of every kind of run that was ever recorded."""
        events: list[Event] = []
        state = RunState()
        for number, data in enumerate(read(path).events, start=1):
            events.append(decode_event(RunId("run"), number, bytes(data)))
            state = fold(state, events[-1])
            shown = timeline_of(RunId("run"), stored(events), START)
            open_bars = [bar for each in shown.rows for bar in each.bars if bar.ended_at is None]

            assert {bar.key for bar in open_bars} == expected(state)
            assert all(is_in_order(bar) for each in shown.rows for bar in each.bars)


# Timelines as text, as wide as is asked for, and as SVG.


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
            "█ queued or running   ░ wait   ↻ retried   ▁-█ items at once",
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
    def test_what_ends_where_a_slot_starts_is_not_in_it(self):
        row = TimelineRow(node="a", mark=NodeMark.COMPLETED, bars=(bar(0, 5),))
        assert [slot.doing for slot in slots_of(_with(row), row, 4)] == [
            Doing.WORK, Doing.WORK, None, None,
        ]  # fmt: skip

    def test_work_takes_precedence_over_waiting(self):
        row = TimelineRow(
            node="a", mark=NodeMark.LIVE, bars=(bar(0, 6, Doing.WAIT), bar(4, None), bar(9, 10))
        )
        assert [slot.doing for slot in slots_of(_with(row), row, 2)] == [Doing.WORK, Doing.WORK]

    def test_the_fullest_slot_of_a_map_is_the_measure(self):
        row = TimelineRow(node="a", mark=NodeMark.LIVE, bars=(bar(0, 5), bar(0, 10)), items=2)
        assert [slot.share for slot in slots_of(_with(row), row, 2)] == [1.0, 0.5]


class TestSvg:
    def test_is_complete_and_describes_itself(self):
        root = ElementTree.fromstring(timeline_svg(sample()))
        assert root.get("role") == "img"
        description = root.findtext(f"{SVG}desc", "")
        assert description.startswith("The run is waiting; started 2030-01-01 12:00:00+00:00, 10s")
        assert description.endswith("5 nodes were reached, 1 attempts were retried.")

    def test_has_a_bar_for_each_stretch_with_what_it_was(self):
        root = ElementTree.fromstring(timeline_svg(sample()))

        stretches = [each.findtext(f"{SVG}title") for each in root.iter(f"{SVG}rect")]
        assert [text for text in stretches if text] == [
            "a: queued or running, completed",
            "charge: queued or running, retried, OSError: no\nroute <b>",
            "a: queued or running, attempt 2, completed",
            "a: wait, ongoing",
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
            run=RunId("r"), flow="f@1", status=RunStatus.SKIPPED, started_at=START, until=START
        )
        assert ElementTree.fromstring(timeline_svg(empty)).get("role") == "img"
        assert shown(empty, 40) == ["  0s", ""]


class TestTimescale:
    @pytest.mark.parametrize(
        "seconds, stretches",
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
    def test_spans_in_few_characters(self, seconds, stretches):
        assert brief(timedelta(seconds=seconds)) == stretches

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
