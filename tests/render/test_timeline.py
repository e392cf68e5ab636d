"""Timelines: what each node did when, as the log alone tells it. Events come a second apart."""

from __future__ import annotations

import pytest

from perdure.engine.fold import fold
from perdure.errors import EventLogCorrupt
from perdure.model.event import Event, decode_event
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveType, RunState
from perdure.operations.insight.timeline import timeline_of
from perdure.render.diagram import NodeMark
from perdure.render.timeline import Bar, BarEnd, Doing, Timeline
from tests.render.logs import SECOND, START, row, seconds, stored, timeline
from tests.rules.graphs import approval, chain, child, delay, graph, loop, mapped, signal, task
from tests.rules.played import RUN, Played
from tests.rules.recording import LOGS, read

BESIDE = ("poll", "remind", "notify")


def told(of: Timeline, node: str) -> list[tuple[Doing, float | None, float | None, BarEnd]]:
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

        assert told(shown, "a") == [(Doing.WORK, 0, 1, BarEnd.COMPLETED)]
        assert told(shown, "b") == [(Doing.WORK, 1, 2, BarEnd.COMPLETED)]
        assert [each.node for each in shown.rows] == ["a", "b"]

    def test_a_failed_attempt_ends_one_and_begins_another(self):
        run = Played(chain(task("a")))
        run.attempt_failed("a", 1)
        run.finish("a")

        first, second = row(timeline(run), "a").bars

        assert (first.ending, first.attempt) == (BarEnd.RETRIED, 1)
        assert first.error.startswith("OSError: ")
        assert (second.ending, second.attempt) == (BarEnd.COMPLETED, 2)
        assert first.ended_at == second.started_at

    def test_what_failed_and_what_went_down_with_it(self):
        run = Played(graph(task("a"), task("b")))
        run.fail("a", "no money")

        shown = timeline(run)

        [failed] = row(shown, "a").bars
        assert (failed.ending, failed.error) == (BarEnd.FAILED, "OSError: no money")
        assert told(shown, "b")[0][3] is BarEnd.CANCELLED
        assert row(shown, "b").mark is NodeMark.CANCELLED

    @pytest.mark.parametrize("node", [signal("n"), delay("n"), approval("n")])
    def test_waiting_is_no_work(self, node):
        run = Played(chain(node))  # type: ignore[arg-type]  # any kind of node

        assert told(timeline(run), "n") == [(Doing.WAIT, 0, None, BarEnd.OPEN)]

    def test_a_child_is_waited_for(self):
        run = Played(chain(child("c"), task("a")))
        run.child_completed("c")

        assert told(timeline(run), "c") == [(Doing.CHILD, 0, 1, BarEnd.COMPLETED)]

    def test_a_body_that_pauses_waits_and_works_again(self):
        run = Played(chain(task("a")))
        run.pause_body("a")
        run.report("a", "completed", result=1)
        run.finish("a")

        assert told(timeline(run), "a") == [
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
        assert told(shown, "a") == [
            (Doing.WORK, 0, 1, BarEnd.PAUSED),
            (Doing.WORK, 2, 3, BarEnd.COMPLETED),
        ]
        assert told(shown, "s") == [(Doing.WAIT, 0, None, BarEnd.OPEN)]

    def test_what_is_undone_is_in_the_row_of_its_node(self):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.cancel(compensates=True)
        run.finish("undo:a")

        shown = timeline(run)

        assert [each[0] for each in told(shown, "a")] == [Doing.WORK, Doing.UNDO]
        assert told(shown, "a")[1][3] is BarEnd.COMPLETED

    def test_a_run_that_is_retried_goes_on_in_the_same_rows(self):
        run = Played(chain(task("a"), task("b")))
        run.finish("a")
        run.fail("b")
        run.retry()
        run.finish("b")

        endings = [each[3] for each in told(timeline(run), "b")]

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
    def test_what_goes_on_goes_on_until_now(self):
        run = Played(chain(task("a")))

        shown = timeline(run, after=60 * SECOND)

        assert (shown.started_at, shown.until) == (START, START + 60 * SECOND)

    def test_of_a_run_that_ended_nothing_is_later_than_its_end(self):
        run = Played(chain(task("a")))
        run.finish("a")

        shown = timeline(run, after=60 * SECOND)

        assert shown.until == stored(run.log.events)[-1].at

    def test_a_clock_that_went_back_does_no_harm(self):
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


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.json")), ids=lambda path: path.stem)
def test_after_every_event_just_what_is_live_has_an_open_bar(path):
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
