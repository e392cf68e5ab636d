"""Schedules (I2, I7): one start for each tick, and none overdue. Limits (I11): they reopen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from perdure.model.schedule import Schedule, TickResult
from perdure.rules.timetable import next_tick
from perdure.store.contract.audit import LimitColumns
from perdure.verify.finding import Finding
from perdure.verify.load import late_by

AHEAD_MAX = timedelta(hours=1)
"""How far in the future something may have happened: clocks of processes differ."""


class ScheduleView:
    def __init__(self, schedule: Schedule, now: datetime, grace: timedelta | None) -> None:
        self.schedule = schedule
        self.now = now
        self.grace = grace
        self.looked_for_at = schedule.state.due_at
        """When workers look at it, as the store finds it for them."""
        self.is_there: Mapping[str, bool] = {}
        """Runs and jobs that it started; empty where they may have been pruned."""

    def finding(self, invariant: str, rule: str, text: str) -> Finding:
        return Finding(
            invariant=invariant,
            rule=rule,
            text=f"schedule: {text}",
            namespace=self.schedule.namespace,
            key=self.schedule.name,
        )


def one_start_a_tick(view: ScheduleView) -> Iterator[Finding]:
    started = [
        record for record in view.schedule.state.history if record.result is TickResult.STARTED
    ]
    # Those that somebody triggered give a reason; two of them may fall on one moment.
    for at, count in Counter(record.at for record in started if not record.reason).items():
        if count > 1:
            yield view.finding("I2", "one_start_a_tick", f"{count} starts for the tick of {at}")
    names = Counter(record.run or record.job for record in started)
    for name, count in names.items():
        if count > 1:
            yield view.finding("I2", "one_start_a_tick", f"{name!r} was started by {count} ticks")


def counts_agree(view: ScheduleView) -> Iterator[Finding]:
    state = view.schedule.state
    results = Counter(record.result for record in state.history)
    for result in TickResult:
        counted: int = getattr(state, result.value)
        if results[result] > counted:
            text = f"{results[result]} of the last ticks {result}, of {counted} in all"
            yield view.finding("I2", "counts_agree", text)


def started_is_there(view: ScheduleView) -> Iterator[Finding]:
    for name, is_there in view.is_there.items():
        if not is_there:
            text = f"a tick started {name!r}, which is not there"
            yield view.finding("I1", "started_is_there", text)


def ticks_in_time(view: ScheduleView) -> Iterator[Finding]:
    late = late_by(view.schedule.state.due_at, view.now, view.grace)
    if late is not None:
        yield view.finding("I7", "ticks_in_time", f"due {late} ago, and nobody saw to it")


def is_looked_for(view: ScheduleView) -> Iterator[Finding]:
    """Workers look at it when its state says."""
    due_at = view.schedule.state.due_at
    if view.looked_for_at != due_at:
        text = f"due at {due_at} by its state, and workers look for it at {view.looked_for_at}"
        yield view.finding("I7", "is_looked_for", text)


def due_by_its_timetable(view: ScheduleView) -> Iterator[Finding]:
    """One that is not paused is looked at by the time of its next tick."""
    state, timetable = view.schedule.state, view.schedule.definition.timetable
    if state.paused_at is not None:
        return
    tick = next_tick(timetable, state.anchor, max(view.now, state.changed_at))
    if tick is not None and (state.due_at is None or state.due_at > tick):
        text = f"the next tick of its timetable is at {tick}, and it is due at {state.due_at}"
        yield view.finding("I7", "due_by_its_timetable", text)


SCHEDULE_RULES = (
    one_start_a_tick,
    counts_agree,
    started_is_there,
    ticks_in_time,
    is_looked_for,
    due_by_its_timetable,
)


class LimitView:
    def __init__(self, limit: LimitColumns, now: datetime, closed_max: timedelta) -> None:
        self.limit = limit
        self.now = now
        self.closed_max = closed_max

    def finding(self, invariant: str, rule: str, text: str) -> Finding:
        limit = self.limit
        told = f"limit {limit.key!r}: {text}"
        return Finding(invariant=invariant, rule=rule, text=told, namespace=limit.namespace)


def opens_again(view: LimitView) -> Iterator[Finding]:
    closed_until = view.limit.closed_until
    if closed_until is not None and closed_until - view.now > view.closed_max:
        text = f"closed until {closed_until}, which is longer than {view.closed_max}"
        yield view.finding("I11", "opens_again", text)


def began_in_the_past(view: LimitView) -> Iterator[Finding]:
    """A start that is counted has happened; one of the future would keep others back until then."""
    limit = view.limit
    for at in {limit.last_start_at, limit.latest_start_at} - {None}:
        if at is not None and at - view.now > AHEAD_MAX:
            text = f"a start at {at} is counted, and it is {view.now}"
            yield view.finding("I11", "began_in_the_past", text)


LIMIT_RULES = (opens_again, began_in_the_past)
