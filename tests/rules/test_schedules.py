"""When schedules tick, what they do then, and what becomes of ticks that start nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.engine.schedule import (
    CATCH_UP_MAX,
    GRACE,
    QUEUE_LOOK,
    QUEUE_LOOK_MAX,
    QUEUED_MAX,
    TickStep,
    cancelled,
    changed_state,
    ended,
    new_state,
    next_step,
    paused,
    resumed,
    tick_run_id,
    ticks_due,
    triggered,
)
from perdure.engine.timetable import COUNTED_MAX, check_timetable, due_ticks, next_tick, ticks_after
from perdure.errors import InvalidInput
from perdure.model.ids import RunId
from perdure.model.schedule import (
    HISTORY_MAX,
    FlowCall,
    Schedule,
    ScheduleDefinition,
    Started,
    TickRecord,
    TickResult,
    Timetable,
    decode_schedule,
    encode_definition,
    encode_state,
)
from tests.support.refusal import refused

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
HOURLY = Timetable(every_ms=3_600_000)
CALL = FlowCall(flow="orders", version="v1", input=b"1", aging_ms=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]  # day to second


def berlin(cron: str) -> Timetable:
    return Timetable(cron=cron, timezone="Europe/Berlin")


def schedule(timetable: Timetable = HOURLY, now: datetime = NOON, **rules: Any) -> Schedule:
    definition = ScheduleDefinition(timetable=timetable, call=CALL, **rules)
    return Schedule(
        namespace="default",
        name="nightly",
        revision=1,
        definition=definition,
        state=new_state(definition, now),
    )


def stepped(before: Schedule, now: datetime, is_busy: bool = False) -> TickStep:
    step = next_step(before, now, is_busy)
    assert step is not None, "nothing is due"
    return step


def started(step: TickStep) -> Schedule:
    """The schedule after its tick was started."""
    assert step.start is not None
    run = tick_run_id("nightly", step.start)
    return ended(step, TickRecord(at=step.start, result=TickResult.STARTED, run=run))


def first_start() -> Started:
    """What the first tick of an hourly schedule started."""
    at = NOON + HOUR
    return Started(at=at, run=tick_run_id("nightly", at))


def results(after: Schedule) -> list[tuple[int, TickResult]]:
    """Hour and result of each tick that is remembered."""
    return [(record.at.hour, record.result) for record in after.state.history]


class TestTimetables:
    def test_cron_goes_by_the_local_time_of_its_zone(self):
        timetable = berlin("0 3 * * *")
        assert next_tick(timetable, NOON, utc(2026, 7, 1)) == utc(2026, 7, 1, 1)
        assert next_tick(timetable, NOON, utc(2026, 12, 1)) == utc(2026, 12, 1, 2)

    def test_a_time_that_does_not_exist_comes_as_soon_as_there_is_one(self):
        days = islice(ticks_after(berlin("30 2 * * *"), NOON, utc(2026, 3, 28)), 3)
        assert list(days) == [utc(2026, 3, 28, 1, 30), utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]

    def test_a_time_that_is_there_twice_comes_once(self):
        days = islice(ticks_after(berlin("30 2 * * *"), NOON, utc(2026, 10, 24)), 3)
        assert list(days) == [
            utc(2026, 10, 24, 0, 30),
            utc(2026, 10, 25, 0, 30),
            utc(2026, 10, 26, 1, 30),
        ]

    def test_a_time_that_has_been_does_not_come_again_in_the_repeated_hour(self):
        second_ten_past_two = utc(2026, 10, 25, 1, 10)
        assert next_tick(berlin("30 2 * * *"), NOON, second_ten_past_two) == utc(
            2026, 10, 26, 1, 30
        )

    @pytest.mark.parametrize("day", [utc(2026, 3, 28, 22), utc(2026, 10, 24, 21)])
    def test_what_comes_every_quarter_does_so_when_clocks_are_changed(self, day):
        ticks = list(islice(ticks_after(berlin("*/15 * * * *"), NOON, day), 40))
        assert ticks == [day + number * 15 * MINUTE for number in range(1, 41)]

    @pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "0 */2 * * *", "15 2,3 * * 0"])
    @pytest.mark.parametrize("start", [utc(2026, 3, 28, 20), utc(2026, 10, 24, 20)])
    def test_going_from_tick_to_tick_is_the_same_as_going_through(self, cron, start):
        through = list(islice(ticks_after(berlin(cron), NOON, start), 50))
        one_by_one = [start]
        while len(one_by_one) <= 50:
            after = next_tick(berlin(cron), NOON, one_by_one[-1])
            assert after is not None
            one_by_one.append(after)
        assert one_by_one[1:] == through

    def test_every_counts_from_its_anchor_whatever_the_clocks_do(self):
        timetable = Timetable(every_ms=5_400_000, timezone="Europe/Berlin")
        anchor = utc(2026, 10, 24, 23, 10)
        assert list(islice(ticks_after(timetable, anchor, anchor), 2)) == [
            utc(2026, 10, 25, 0, 40),
            utc(2026, 10, 25, 2, 10),
        ]

    def test_no_tick_comes_before_the_start_or_after_the_end(self):
        hourly = Timetable(cron="0 * * * *", start_at=NOON, end_at=NOON + 2 * HOUR)
        assert list(ticks_after(hourly, NOON, NOON - 5 * HOUR)) == [
            NOON,
            NOON + HOUR,
            NOON + 2 * HOUR,
        ]

    def test_every_ticks_first_at_its_start(self):
        timetable = replace(HOURLY, start_at=NOON)
        assert next_tick(timetable, NOON, NOON - 5 * HOUR) == NOON

    @pytest.mark.parametrize(
        "timetable, code",
        [
            (Timetable(), "schedule.without_times"),
            (Timetable(cron="0 3 * * *", every_ms=60_000), "argument.exclusive"),
            (Timetable(cron="often"), "schedule.invalid_cron"),
            (Timetable(cron="0 3 * *"), "schedule.invalid_cron"),
            (Timetable(cron="0 0 3 * * *"), "schedule.invalid_cron"),
            (Timetable(cron="@daily"), "schedule.invalid_cron"),
            (Timetable(cron="99 3 * * *"), "schedule.invalid_cron"),
            (Timetable(cron="0 0 30 2 *"), "schedule.invalid_cron"),
            (Timetable(cron="0 3 * * *", timezone="Mars/Olympus"), "schedule.unknown_timezone"),
            (Timetable(cron="0 3 * * *", timezone="../etc"), "schedule.unknown_timezone"),
            (Timetable(every_ms=10), "argument.range"),
            (
                Timetable(every_ms=60_000, start_at=NOON, end_at=NOON - HOUR),
                "schedule.end_before_start",
            ),
        ],
    )
    def test_what_has_no_times_is_refused(self, timetable, code):
        with refused(code, InvalidInput):
            check_timetable(timetable)

    @given(every=st.integers(1, 10_000), since=st.integers(0, 10**7), last_max=st.integers(1, 50))
    def test_due_ticks_of_every_are_those_that_counting_finds(self, every, since, last_max):
        timetable = Timetable(every_ms=every * 1000)
        now = NOON + since * SECOND
        due = due_ticks(timetable, NOON, NOON, now, last_max)
        assert due.count == since // every + 1
        assert due.last[-1] <= now < due.last[-1] + every * SECOND
        assert len(due.last) == min(due.count, last_max)

    def test_a_long_time_of_many_ticks_is_not_gone_through_one_by_one(self):
        timetable = berlin("* * * * *")
        due = due_ticks(timetable, NOON, NOON, NOON + 365 * 24 * HOUR + SECOND, 3)
        assert due.count == COUNTED_MAX
        assert due.last[-1] == NOON + 365 * 24 * HOUR
        assert len(due.last) == 3

    def test_the_last_of_many_rare_ticks_is_found(self):
        timetable = Timetable(cron="* * * 1 *")
        due = due_ticks(timetable, NOON, utc(2026, 1, 1), utc(2026, 3, 20), 1)
        assert due.last == (utc(2026, 1, 31, 23, 59),)


class TestCatchingUp:
    def test_one_starts_the_latest_and_counts_the_others_as_missed(self):
        ticks = ticks_due(schedule(catch_up="one"), NOON + 5 * HOUR + 10 * MINUTE)
        assert ticks.start == (NOON + 5 * HOUR,)
        assert ticks.missed == tuple(NOON + hours * HOUR for hours in range(1, 5))
        assert ticks.missed_count == 4
        assert ticks.next_at == NOON + 6 * HOUR

    def test_all_starts_each_in_order(self):
        ticks = ticks_due(schedule(catch_up="all"), NOON + 3 * HOUR)
        assert ticks.start == tuple(NOON + hours * HOUR for hours in range(1, 4))
        assert ticks.missed_count == 0
        assert ticks.next_at == NOON + 4 * HOUR

    def test_all_takes_no_more_than_so_many_at_once_and_loses_none(self):
        first = ticks_due(schedule(catch_up="all"), NOON + 1000 * HOUR)
        assert len(first.start) == CATCH_UP_MAX
        assert first.next_at == NOON + (CATCH_UP_MAX + 1) * HOUR

    def test_none_starts_only_what_is_on_time(self):
        late = schedule(catch_up="none")
        assert ticks_due(late, NOON + 3 * HOUR + GRACE).start == (NOON + 3 * HOUR,)
        after_grace = ticks_due(late, NOON + 3 * HOUR + GRACE + SECOND)
        assert (after_grace.start, after_grace.missed_count) == ((), 3)

    def test_none_starts_no_tick_whose_successor_is_due(self):
        """Finding 16: an interval shorter than the tolerance bounds it."""
        often = schedule(Timetable(every_ms=1000), catch_up="none")
        ticks = ticks_due(often, NOON + 5 * SECOND)
        assert ticks.start == (NOON + 5 * SECOND,)
        assert ticks.missed_count == 4

    def test_nothing_is_due_before_its_time(self):
        early = schedule()
        assert next_step(early, NOON + HOUR - SECOND, False) is None
        assert ticks_due(early, NOON + HOUR - SECOND).start == ()

    def test_missed_ticks_are_remembered_and_counted(self):
        after = started(stepped(schedule(), NOON + 3 * HOUR))
        assert results(after) == [
            (13, TickResult.MISSED),
            (14, TickResult.MISSED),
            (15, TickResult.STARTED),
        ]
        assert (after.state.missed, after.state.started) == (2, 1)

    def test_more_missed_ticks_are_counted_than_remembered(self):
        after = started(stepped(schedule(), NOON + 500 * HOUR))
        assert after.state.missed == 499
        assert len(after.state.history) == HISTORY_MAX


@pytest.mark.parametrize("catch_up", ["one", "all", "none"])
class TestOverlap:
    def test_skip_records_the_tick_as_skipped(self, catch_up):
        first = started(stepped(schedule(catch_up=catch_up), NOON + HOUR))
        step = stepped(first, NOON + 2 * HOUR, is_busy=True)
        assert step.start is None
        assert step.schedule.state.skipped == 1
        last = step.schedule.state.history[-1]
        assert last.result is TickResult.SKIPPED
        assert "nightly@2026-11-16T13:00:00Z" in last.reason
        assert step.schedule.state.due_at == NOON + 3 * HOUR

    def test_queue_lets_the_tick_wait_and_looks_again(self, catch_up):
        first = started(stepped(schedule(catch_up=catch_up, overlap="queue"), NOON + HOUR))
        waiting = stepped(first, NOON + 2 * HOUR, is_busy=True)
        assert waiting.start is None
        assert waiting.schedule.state.queued == (NOON + 2 * HOUR,)
        assert waiting.schedule.state.due_at == NOON + 2 * HOUR + QUEUE_LOOK
        later = stepped(waiting.schedule, NOON + 2 * HOUR + QUEUE_LOOK)
        assert later.start == NOON + 2 * HOUR
        assert started(later).state.due_at == NOON + 3 * HOUR

    def test_cancel_starts_the_tick_and_ends_the_last_one(self, catch_up):
        first = started(stepped(schedule(catch_up=catch_up, overlap="cancel"), NOON + HOUR))
        step = stepped(first, NOON + 2 * HOUR, is_busy=True)
        assert step.start == NOON + 2 * HOUR
        assert step.replaces == first_start()
        after = started(step).state
        assert after.last_run == tick_run_id("nightly", NOON + 2 * HOUR)
        assert (after.replaced, after.due_at) == (first_start(), NOON + 2 * HOUR)

    @pytest.mark.parametrize("result", [TickResult.SKIPPED, TickResult.FAILED])
    def test_cancel_ends_nothing_where_the_tick_starts_nothing(self, catch_up, result):
        first = started(stepped(schedule(catch_up=catch_up, overlap="cancel"), NOON + HOUR))
        step = stepped(first, NOON + 2 * HOUR, is_busy=True)
        after = ended(step, TickRecord(at=NOON + 2 * HOUR, result=result)).state
        assert (after.replaced, after.last_run) == (None, first.state.last_run)
        assert after.due_at == NOON + 3 * HOUR

    @pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
    def test_a_tick_starts_if_nothing_is_running(self, catch_up, overlap):
        step = stepped(schedule(catch_up=catch_up, overlap=overlap), NOON + HOUR)
        assert (step.start, step.replaces) == (NOON + HOUR, None)


class TestOverlapWhileCatchingUp:
    def test_skip_starts_the_first_of_all_and_skips_the_others(self):
        first = stepped(schedule(catch_up="all"), NOON + 3 * HOUR)
        second = stepped(started(first), NOON + 3 * HOUR, is_busy=True)
        assert first.start == NOON + HOUR
        assert results(second.schedule)[1:] == [(14, TickResult.SKIPPED), (15, TickResult.SKIPPED)]
        assert second.schedule.state.due_at == NOON + 4 * HOUR

    def test_queue_starts_all_one_after_the_other(self):
        owed = schedule(catch_up="all", overlap="queue")
        now = NOON + 3 * HOUR
        starts = []
        for _ in range(3):
            step = stepped(owed, now)
            starts.append(step.start)
            blocked = stepped(started(step), now + HOUR, is_busy=True)
            owed = replace(blocked.schedule, state=replace(blocked.schedule.state, due_at=now))

        assert starts == [NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR]

    def test_cancel_starts_all_and_leaves_the_last(self):
        owed, now = schedule(catch_up="all", overlap="cancel"), NOON + 3 * HOUR
        first = stepped(owed, now)
        second = stepped(started(first), now, is_busy=True)
        third = stepped(cancelled(started(second), now), now, is_busy=True)

        steps = (first, second, third)
        replaced = [each.replaces and each.replaces.at for each in steps]
        assert replaced == [None, NOON + HOUR, NOON + 2 * HOUR]
        assert third.start == NOON + 3 * HOUR
        assert next_step(cancelled(started(third), now), now, True) is None

    def test_a_queue_has_room_for_so_many(self):
        first = started(stepped(schedule(catch_up="all", overlap="queue"), NOON + HOUR))
        now = NOON + (QUEUED_MAX + 3) * HOUR
        step = stepped(first, now, is_busy=True)
        step = stepped(step.schedule, now, is_busy=True)
        assert len(step.schedule.state.queued) == QUEUED_MAX
        assert step.schedule.state.skipped == 2
        assert str(QUEUED_MAX) in step.schedule.state.history[-1].reason

    def test_a_queue_is_looked_at_less_often_the_longer_it_waits(self):
        owed = started(stepped(schedule(overlap="queue"), NOON + HOUR))
        waits, now = [], NOON + 2 * HOUR
        for _ in range(2000):
            owed = stepped(owed, now, is_busy=True).schedule
            assert owed.state.due_at is not None
            waits.append(owed.state.due_at - now)
            now = owed.state.due_at
            if now > NOON + 2 * HOUR + 40 * SECOND:
                break

        assert waits[:3] == [QUEUE_LOOK, 2 * QUEUE_LOOK, 4 * QUEUE_LOOK]
        assert waits[-2:] == [QUEUE_LOOK_MAX, QUEUE_LOOK_MAX]
        assert started(stepped(owed, now)).state.looks == 0


class TestReplaced:
    """What a tick took the place of is cancelled, whatever happens to the schedule meanwhile."""

    def replacing(self) -> Schedule:
        first = started(stepped(schedule(overlap="cancel"), NOON + HOUR))
        return started(stepped(first, NOON + 2 * HOUR, is_busy=True))

    def test_stays_due_in_a_pause_and_nothing_else_does(self):
        owed = self.replacing()
        now = NOON + 2 * HOUR + SECOND
        still = replace(owed, state=paused(owed.state, now, None))
        assert (still.state.replaced, still.state.due_at) == (first_start(), now)
        done = cancelled(still, now).state
        assert (done.replaced, done.due_at) == (None, None)

    def test_stays_due_under_another_timetable(self):
        owed = self.replacing()
        other = replace(owed.definition, timetable=Timetable(every_ms=600_000))
        after = changed_state(owed, other, NOON + 2 * HOUR)
        assert (after.replaced, after.due_at) == (first_start(), NOON + 2 * HOUR)

    def test_leaves_the_next_tick_due(self):
        done = cancelled(self.replacing(), NOON + 2 * HOUR)
        assert (done.state.replaced, done.state.due_at) == (None, NOON + 3 * HOUR)

    def test_survives_being_written(self):
        owed = self.replacing()
        kept = encode_definition(owed.definition), encode_state(owed.state)
        assert decode_schedule(owed.namespace, owed.name, owed.revision, *kept) == owed


class TestTriggering:
    def test_leaves_what_overlap_goes_by(self):
        first = started(stepped(schedule(), NOON + HOUR))
        manual = TickRecord(
            at=NOON + 90 * MINUTE, result=TickResult.STARTED, run=RunId("nightly@manual-1")
        )
        after = triggered(first, manual).state
        assert after.last_run == first.state.last_run
        assert after.triggered == Started(at=manual.at, run=manual.run)
        assert (after.started, after.history[-1]) == (2, manual)

    def test_is_the_last_start_until_the_next_tick(self):
        manual = TickRecord(at=NOON, result=TickResult.STARTED, run=RunId("nightly@manual-1"))
        asked = triggered(schedule(), manual)
        assert started(stepped(asked, NOON + HOUR)).state.triggered is None


class TestChanges:
    def test_the_same_definition_changes_nothing(self):
        before = schedule()
        assert changed_state(before, before.definition, NOON + 30 * MINUTE) == before.state

    def test_another_input_keeps_the_times(self):
        before = started(stepped(schedule(), NOON + HOUR))
        other = replace(before.definition, call=replace(CALL, input=b"2"))
        after = changed_state(before, other, NOON + 90 * MINUTE)
        assert after == replace(before.state, changed_at=NOON + 90 * MINUTE)

    def test_another_timetable_counts_from_now_and_keeps_the_past(self):
        before = started(stepped(schedule(), NOON + HOUR))
        other = replace(before.definition, timetable=Timetable(every_ms=600_000))
        after = changed_state(before, other, NOON + 90 * MINUTE)
        assert after.next_at == after.due_at == NOON + 100 * MINUTE
        assert (after.last_at, after.started) == (NOON + HOUR, 1)
        assert after.history == before.state.history

    def test_nothing_is_due_in_a_pause_and_nothing_of_it_afterwards(self):
        before = schedule()
        still = paused(before.state, NOON, "ann")
        assert next_step(replace(before, state=still), NOON + 5 * HOUR, False) is None
        assert (still.paused_by, still.next_at, still.due_at) == ("ann", None, None)
        again = resumed(before.definition, still, NOON + 5 * HOUR + MINUTE)
        assert (again.next_at, again.paused_at, again.paused_by) == (NOON + 6 * HOUR, None, None)

    def test_saving_a_paused_one_as_paused_keeps_the_first_pause(self):
        still = paused(schedule().state, NOON, "ann")
        assert paused(still, NOON + HOUR, "bob") == still

    def test_what_was_queued_before_a_pause_starts_after_it(self):
        busy = started(stepped(schedule(overlap="queue"), NOON + HOUR))
        waiting = stepped(busy, NOON + 2 * HOUR, is_busy=True).schedule
        still = paused(waiting.state, NOON + 2 * HOUR, None)
        again = resumed(waiting.definition, still, NOON + 5 * HOUR)
        step = stepped(replace(waiting, state=again), NOON + 5 * HOUR)
        assert step.start == NOON + 2 * HOUR

    def test_a_paused_one_does_nothing_whatever_its_times(self):
        hourly = schedule()
        held = replace(hourly.state, paused_at=NOON)
        assert next_step(replace(hourly, state=held), NOON + 2 * HOUR, is_busy=False) is None

    def test_every_counts_from_a_whole_second(self):
        state = schedule(now=NOON + timedelta(microseconds=5)).state
        assert (state.anchor, state.next_at) == (NOON, NOON + HOUR)

    def test_a_schedule_past_its_end_is_never_due_again(self):
        last = schedule(replace(HOURLY, end_at=NOON + HOUR))
        after = started(stepped(last, NOON + HOUR))
        assert (after.state.next_at, after.state.due_at) == (None, None)

    def test_values_survive_being_written(self):
        after = started(stepped(schedule(overlap="queue", catch_up="all"), NOON + 3 * HOUR))
        kept = encode_definition(after.definition), encode_state(after.state)
        assert decode_schedule(after.namespace, after.name, after.revision, *kept) == after

    def test_ids_of_ticks_are_readable(self):
        assert tick_run_id("nightly", NOON) == RunId("nightly@2026-11-16T12:00:00Z")
