"""Schedules: one start for each tick, and none overdue (I2, I7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from perdure.model.schedule import Schedule, TickResult
from perdure.testing.check.finding import Finding


class ScheduleView:
    def __init__(self, schedule: Schedule, now: datetime, grace: timedelta | None) -> None:
        self.schedule = schedule
        self.now = now
        self.grace = grace
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
    for at, count in Counter(record.at for record in started).items():
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


def in_time(view: ScheduleView) -> Iterator[Finding]:
    due_at = view.schedule.state.due_at
    if view.grace is None or due_at is None or view.now - due_at <= view.grace:
        return
    text = f"due {view.now - due_at} ago, and nobody saw to it"
    yield view.finding("I7", "in_time", text)


RULES = (one_start_a_tick, counts_agree, started_is_there, in_time)
