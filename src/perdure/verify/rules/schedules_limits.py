"""Schedules (I2, I7): one start for each tick, and none overdue. Limits (I11): they reopen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from perdure.diagnostics import Code, Finding, declare
from perdure.model.schedule import Schedule, TickResult
from perdure.rules.timetable import next_tick
from perdure.store.contract.audit import LimitColumns
from perdure.verify.finding import contradiction
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

    def finding(self, invariant: str, code: Code, **args: Any) -> Finding:
        namespace, name = self.schedule.namespace, self.schedule.name
        return contradiction(invariant, code, namespace=namespace, schedule=name, **args)


ONE_START_A_TICK_SEVERAL = declare(
    "verify.one_start_a_tick.several", "{count:start|starts} for the tick at {at}"
)
ONE_START_A_TICK_SHARED = declare(
    "verify.one_start_a_tick.shared", "{name!r} was started by {count:tick|ticks}"
)


def one_start_a_tick(view: ScheduleView) -> Iterator[Finding]:
    started = [
        record for record in view.schedule.state.history if record.result is TickResult.STARTED
    ]
    # Those that somebody triggered give a reason; two of them may fall on one moment.
    for at, count in Counter(record.at for record in started if not record.reason).items():
        if count > 1:
            yield view.finding("I2", ONE_START_A_TICK_SEVERAL, count=count, at=at)
    names = Counter(record.run or record.job for record in started)
    for name, count in names.items():
        if count > 1:
            yield view.finding("I2", ONE_START_A_TICK_SHARED, name=name, count=count)


COUNTS_AGREE = declare(
    "verify.counts_agree", "{results} recent ticks are {result}, but only {counted} in total"
)


def counts_agree(view: ScheduleView) -> Iterator[Finding]:
    state = view.schedule.state
    results = Counter(record.result for record in state.history)
    for result in TickResult:
        counted: int = getattr(state, result.value)
        if results[result] > counted:
            yield view.finding(
                "I2", COUNTS_AGREE, results=results[result], result=result, counted=counted
            )


STARTED_IS_THERE = declare(
    "verify.started_is_there", "a tick started {name!r}, which does not exist"
)


def started_is_there(view: ScheduleView) -> Iterator[Finding]:
    for name, is_there in view.is_there.items():
        if not is_there:
            yield view.finding("I1", STARTED_IS_THERE, name=name)


TICKS_IN_TIME = declare("verify.ticks_in_time", "was due {late} ago, and no worker processed it")


def ticks_in_time(view: ScheduleView) -> Iterator[Finding]:
    late = late_by(view.schedule.state.due_at, view.now, view.grace)
    if late is not None:
        yield view.finding("I7", TICKS_IN_TIME, late=late)


IS_LOOKED_FOR = declare(
    "verify.is_looked_for",
    "due at {due_at} according to its state, but workers look at it at {looked_for_at}",
)


def is_looked_for(view: ScheduleView) -> Iterator[Finding]:
    """Workers look at it when its state says."""
    due_at = view.schedule.state.due_at
    if view.looked_for_at != due_at:
        yield view.finding("I7", IS_LOOKED_FOR, due_at=due_at, looked_for_at=view.looked_for_at)


DUE_BY_ITS_TIMETABLE = declare(
    "verify.due_by_its_timetable", "its next tick is at {tick}, but it is due at {due_at}"
)


def due_by_its_timetable(view: ScheduleView) -> Iterator[Finding]:
    """One that is not paused is looked at by the time of its next tick."""
    state, timetable = view.schedule.state, view.schedule.definition.timetable
    if state.paused_at is not None:
        return
    tick = next_tick(timetable, state.anchor, max(view.now, state.changed_at))
    if tick is not None and (state.due_at is None or state.due_at > tick):
        yield view.finding("I7", DUE_BY_ITS_TIMETABLE, tick=tick, due_at=state.due_at)


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

    def finding(self, invariant: str, code: Code, **args: Any) -> Finding:
        limit = self.limit
        return contradiction(invariant, code, namespace=limit.namespace, limit=limit.key, **args)


OPENS_AGAIN = declare(
    "verify.opens_again",
    "limit {limit!r} closed until {closed_until}, more than {closed_max} from now",
)


def opens_again(view: LimitView) -> Iterator[Finding]:
    closed_until = view.limit.closed_until
    if closed_until is not None and closed_until - view.now > view.closed_max:
        yield view.finding(
            "I11", OPENS_AGAIN, closed_until=closed_until, closed_max=view.closed_max
        )


BEGAN_IN_THE_PAST = declare(
    "verify.began_in_the_past", "limit {limit!r} counts a start at {at}, in the future (now {now})"
)


def began_in_the_past(view: LimitView) -> Iterator[Finding]:
    """A start that is counted has happened; one of the future would keep others back until then."""
    limit = view.limit
    for at in {limit.last_start_at, limit.latest_start_at} - {None}:
        if at is not None and at - view.now > AHEAD_MAX:
            yield view.finding("I11", BEGAN_IN_THE_PAST, at=at, now=view.now)


LIMIT_RULES = (opens_again, began_in_the_past)
