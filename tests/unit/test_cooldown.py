"""Flows that cool down: which runs come too soon, and what is kept of those."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from perdure.engine.fold import fold
from perdure.model.event import (
    Effects,
    NewEvent,
    RunSkipped,
    RunSubmitted,
    decode_event,
    encode_event,
)
from perdure.model.graph import Definition, Graph
from perdure.model.ids import RunId
from perdure.model.run import NewRun, NewWait, RunState, RunStatus, WaitType
from perdure.store.admission import LastRun, cooled, with_cooldown

HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def run(cooldown: timedelta | None = HOUR) -> NewRun:
    submitted = RunSubmitted(
        flow="orders", version="v1", aging_ms=5, effects=Effects(waiting=("rest",)), replaced=True
    )
    return NewRun(
        id=RunId("order-2"),
        namespace="default",
        flow="orders",
        version="v1",
        status=RunStatus.WAITING,
        events=(NewEvent(data=encode_event(submitted), value=b"7"),),
        waits=(NewWait(key="rest", type=WaitType.TIMER, delay=HOUR),),
        cooldown=cooldown,
    )


def begun(ago: timedelta) -> LastRun:
    return LastRun(id=RunId("order-1"), at=NOON - ago)


def completed(ago: timedelta) -> LastRun:
    return LastRun(id=RunId("order-0"), at=NOON - ago, is_completed=True)


class TestCooled:
    @pytest.mark.parametrize(
        "last", [[], [begun(HOUR)], [completed(HOUR)], [begun(9 * HOUR), completed(HOUR)]]
    )
    def test_a_run_that_comes_late_enough_is_left_as_it_is(self, last):
        assert cooled(run(), NOON, last) == run()

    def test_a_run_without_a_cooldown_is_left_as_it_is(self):
        assert cooled(run(None), NOON, [begun(timedelta(0))]) == run(None)

    @pytest.mark.parametrize(
        "last, told",
        [
            ([begun(HOUR / 2)], "run 'order-1' began"),
            ([begun(9 * HOUR), completed(HOUR / 2)], "run 'order-0' was completed"),
            ([begun(HOUR / 2), completed(HOUR * 2)], "run 'order-1' began"),
            ([begun(0.9 * HOUR), completed(HOUR / 2)], "run 'order-0' was completed"),
        ],
    )
    def test_one_that_comes_too_soon_is_skipped(self, last, told):
        skipped = cooled(run(), NOON, last)

        assert skipped.status is RunStatus.SKIPPED
        assert (skipped.jobs, skipped.waits, skipped.children) == ((), (), ())
        assert told.encode() in skipped.summary
        assert b"until 2026-11-16T12:30:00Z" in skipped.summary

    def test_its_log_keeps_the_input_and_folds_to_its_end(self):
        skipped = cooled(run(), NOON, [begun(HOUR / 2)])
        events = [
            decode_event(skipped.id, number, each.data)
            for number, each in enumerate(skipped.events, 1)
        ]
        state = RunState()
        for event in events:
            state = fold(state, event)

        assert [each.value for each in skipped.events] == [b"7", None]
        assert events[0] == RunSubmitted(flow="orders", version="v1", aging_ms=5, replaced=True)
        assert isinstance(events[1], RunSkipped)
        assert (events[1].last, events[1].until) == ("order-1", NOON + HOUR / 2)
        assert (state.status, state.is_ended, state.number) == (RunStatus.SKIPPED, True, 2)
        assert (state.flow, state.version, len(state.live)) == ("orders", "v1", 0)


class TestWithCooldown:
    def test_has_that_of_the_flow(self):
        warm = Graph(Definition(name="orders", nodes=()))
        cool = Graph(Definition(name="orders", nodes=(), cooldown_ms=1500))

        assert with_cooldown(run(None), warm).cooldown is None
        assert with_cooldown(run(None), cool).cooldown == timedelta(seconds=1.5)
        assert b"cooldown" not in warm.data
