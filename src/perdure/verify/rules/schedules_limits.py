"""Schedules (I2, I7): one start per tick, and none overdue. Limits (I11): they
reopen. Places (I7, I11): they are neither exceeded nor left free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from perdure.diagnostics import Code, Finding, declare
from perdure.engine.timetable import next_tick
from perdure.model.schedule import Schedule, TickResult
from perdure.store.admission import starting
from perdure.store.contract.audit import AuditedLimit, AuditedPlace
from perdure.verify.finding import contradiction
from perdure.verify.load import late_by

AHEAD_MAX = timedelta(hours=1)
"""How far in the future a recorded time may be: clocks of processes differ."""


class ScheduleView:
    def __init__(self, schedule: Schedule, now: datetime, grace: timedelta | None) -> None:
        self.schedule = schedule
        self.now = now
        self.grace = grace
        self.looked_for_at = schedule.state.due_at
        """The due time that workers poll by."""
        self.is_there: Mapping[str, bool] = {}
        """Whether its runs and jobs exist; empty where they may have been pruned."""

    def finding(self, invariant: str, code: Code, **args: Any) -> Finding:
        namespace, name = self.schedule.namespace, self.schedule.name
        return contradiction(invariant, code, namespace=namespace, schedule=name, **args)


ONE_START_PER_TICK_SEVERAL = declare(
    "verify.one_start_per_tick.several", "{count:start|starts} for the tick at {at}"
)
ONE_START_PER_TICK_SHARED = declare(
    "verify.one_start_per_tick.shared", "{name!r} was started by {count:tick|ticks}"
)


def one_start_per_tick(view: ScheduleView) -> Iterator[Finding]:
    started = [
        record for record in view.schedule.state.history if record.result is TickResult.STARTED
    ]
    # Manually triggered starts have a reason, and two may coincide.
    for at, count in Counter(record.at for record in started if not record.reason).items():
        if count > 1:
            yield view.finding("I2", ONE_START_PER_TICK_SEVERAL, count=count, at=at)
    names = Counter(record.run or record.job for record in started)
    for name, count in names.items():
        if count > 1:
            yield view.finding("I2", ONE_START_PER_TICK_SHARED, name=name, count=count)


TICK_COUNTS = declare(
    "verify.tick_counts", "{results} recent ticks are {result}, but only {counted} in total"
)


def tick_counts(view: ScheduleView) -> Iterator[Finding]:
    state = view.schedule.state
    results = Counter(record.result for record in state.history)
    for result in TickResult:
        counted: int = getattr(state, result.value)
        if results[result] > counted:
            yield view.finding(
                "I2", TICK_COUNTS, results=results[result], result=result, counted=counted
            )


STARTED_WORK_EXISTS = declare(
    "verify.started_work_exists", "a tick started {name!r}, which does not exist"
)


def started_work_exists(view: ScheduleView) -> Iterator[Finding]:
    for name, is_there in view.is_there.items():
        if not is_there:
            yield view.finding("I1", STARTED_WORK_EXISTS, name=name)


SCHEDULE_OVERDUE = declare(
    "verify.schedule_overdue", "was due {late} ago, and no worker processed it"
)


def schedule_overdue(view: ScheduleView) -> Iterator[Finding]:
    late = late_by(view.schedule.state.due_at, view.now, view.grace)
    if late is not None:
        yield view.finding("I7", SCHEDULE_OVERDUE, late=late)


SCHEDULE_DUE_TIME = declare(
    "verify.schedule_due_time",
    "due at {due_at} according to its state, but workers look at it at {looked_for_at}",
)


def schedule_due_time(view: ScheduleView) -> Iterator[Finding]:
    """The stored due time is that of the schedule's state."""
    due_at = view.schedule.state.due_at
    if view.looked_for_at != due_at:
        yield view.finding("I7", SCHEDULE_DUE_TIME, due_at=due_at, looked_for_at=view.looked_for_at)


SCHEDULE_NEXT_TICK = declare(
    "verify.schedule_next_tick", "its next tick is at {tick}, but it is due at {due_at}"
)


def schedule_next_tick(view: ScheduleView) -> Iterator[Finding]:
    """An active schedule is due no later than its next tick."""
    state, timetable = view.schedule.state, view.schedule.definition.timetable
    if state.paused_at is not None:
        return
    # After the clock was set back, ticks that were processed already do not come again.
    processed = [each.at for each in state.history[-1:]]
    tick = next_tick(timetable, state.anchor, max(view.now, state.changed_at, *processed))
    if tick is not None and (state.due_at is None or state.due_at > tick):
        yield view.finding("I7", SCHEDULE_NEXT_TICK, tick=tick, due_at=state.due_at)


SCHEDULE_RULES = (
    one_start_per_tick,
    tick_counts,
    started_work_exists,
    schedule_overdue,
    schedule_due_time,
    schedule_next_tick,
)


class LimitView:
    def __init__(self, limit: AuditedLimit, now: datetime, closed_max: timedelta) -> None:
        self.limit = limit
        self.now = now
        self.closed_max = closed_max

    def finding(self, invariant: str, code: Code, **args: Any) -> Finding:
        limit = self.limit
        return contradiction(invariant, code, namespace=limit.namespace, limit=limit.key, **args)


LIMIT_REOPENS = declare(
    "verify.limit_reopens",
    "limit {limit!r} closed until {closed_until}, more than {closed_max} from now",
)


def limit_reopens(view: LimitView) -> Iterator[Finding]:
    closed_until = view.limit.closed_until
    if closed_until is not None and closed_until - view.now > view.closed_max:
        yield view.finding(
            "I11", LIMIT_REOPENS, closed_until=closed_until, closed_max=view.closed_max
        )


LIMIT_STARTS_IN_PAST = declare(
    "verify.limit_starts_in_past",
    "limit {limit!r} counts a start at {at}, in the future (now {now})",
)


def limit_starts_in_past(view: LimitView) -> Iterator[Finding]:
    """A counted start is in the past; a future one would block others until then."""
    limit = view.limit
    for at in {limit.last_start_at, limit.latest_start_at} - {None}:
        if at is not None and at - view.now > AHEAD_MAX:
            yield view.finding("I11", LIMIT_STARTS_IN_PAST, at=at, now=view.now)


class PlaceView:
    """The runs of one key of a flow with ``max_running``: in progress, or waiting."""

    def __init__(self, namespace: str, key: str, runs: Sequence[AuditedPlace]) -> None:
        self.namespace = namespace
        self.key = key
        self.held = [each for each in runs if each.started_at is not None]
        self.queue = sorted(
            (each for each in runs if each.started_at is None),
            key=lambda each: (each.rank or 0.0, each.run),
        )

    def finding(self, invariant: str, code: Code, **args: Any) -> Finding:
        return contradiction(invariant, code, namespace=self.namespace, limit=self.key, **args)


PLACES_KEPT = declare(
    "verify.places_kept",
    "run {run!r} started while {held} others had the places of {limit!r}, which has {most}",
)


def places_kept(view: PlaceView) -> Iterator[Finding]:
    """No run started beyond its own bound; a bound that was lowered since is no violation.

    The clock may have been set back, so times do not say which started first: there is an order
    in which all could start if they could in the order of their bounds.
    """
    held = sorted(view.held, key=lambda each: each.limit)
    for count, each in enumerate(held):
        if count >= each.limit:
            yield view.finding("I11", PLACES_KEPT, run=each.run, held=count, most=each.limit)


PLACE_FOUND = declare(
    "verify.place_found", "run {run!r} waits for a place of {limit!r}, although one is free"
)


def place_found(view: PlaceView) -> Iterator[Finding]:
    """A queued run is due once there is a place for it."""
    queue = [(each, each.limit) for each in view.queue]
    for each in starting(len(view.held), queue):
        if not each.is_due:
            yield view.finding("I7", PLACE_FOUND, run=each.run)


PLACE_RULES = (places_kept, place_found)
LIMIT_RULES = (limit_reopens, limit_starts_in_past)
