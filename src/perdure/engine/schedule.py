"""Schedules: when they are due, and what a tick does about runs that overlap. Pure.

Cron goes by the local time of its zone, ``every`` by none. Where clocks are put forward, a fixed
time that does not exist comes as soon as there is a time again; where they are put back, a fixed
time that exists twice comes the first time. What repeats every few minutes repeats as always.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.ids import RunId
from perdure.model.schedule import (
    HISTORY_MAX,
    Schedule,
    ScheduleDefinition,
    ScheduleState,
    Started,
    TickRecord,
    TickResult,
    Timetable,
)
from perdure.model.times import LATEST, is_storable
from perdure.model.value import Value

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


EVERY_MIN = timedelta(seconds=1)
COUNTED_MAX = 1_000
"""Ticks of a cron text that are looked at one by one; of more than these, only the last matter."""
CRON_FIELDS = ("minute", "hour", "day", "month", "weekday")

WITHOUT_TIMES = declare(
    "schedule.without_times",
    "a schedule needs `cron` or `every`",
    'Pass one of them, such as "0 3 * * *" or "15m"',
)
END_BEFORE_START = declare(
    "schedule.end_before_start", "end_at ({end_at}) is before start_at ({start_at})"
)
UNKNOWN_TIMEZONE = declare(
    "schedule.unknown_timezone",
    "{name:parameter} {timezone!r} is not known",
    'Use a name such as "Europe/Berlin" or "UTC"',
)
INVALID_CRON = declare(
    "schedule.invalid_cron",
    "{name:parameter} must be a cron expression (got {cron!r}): {reason}",
    'It takes five fields: minute, hour, day, month, weekday, as in "0 3 * * *"',
)
NEVER_DUE = declare("schedule.never_due", "{name:parameter} {cron!r} never comes due")

_INSTANT = timedelta(microseconds=1)
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_WINDOW_FIRST, _WINDOW_GROWTH = timedelta(hours=1), 4
"""How far back to look for the last ticks, and how much further if there are none."""


class DueTicks(Value):
    """Ticks whose time has come: how many, and the last of them, oldest first."""

    count: int
    last: tuple[datetime, ...]


def check_timetable(timetable: Timetable) -> None:
    """Refuse what has no times, or never ticks."""
    check.at_most_one(cron=timetable.cron or None, every=timetable.every_ms or None)
    if not timetable.cron and not timetable.every_ms:
        raise InvalidInput(WITHOUT_TIMES.fault())
    zone_of(timetable.timezone)
    if timetable.every_ms:
        check.span(timedelta(milliseconds=timetable.every_ms), "every", least=EVERY_MIN)
    if timetable.cron:
        _check_cron(timetable)
    start_at, end_at = timetable.start_at, timetable.end_at
    if start_at is not None and end_at is not None and end_at < start_at:
        fault = END_BEFORE_START.fault(("end_at",), end_at=end_at, start_at=start_at)
        raise InvalidInput(fault)


def next_tick(timetable: Timetable, anchor: datetime, after: datetime) -> datetime | None:
    """The first tick after a moment; None if there is none."""
    return next(ticks_after(timetable, anchor, after), None)


def ticks_after(timetable: Timetable, anchor: datetime, after: datetime) -> Iterator[datetime]:
    """The ticks after a moment, within what ``start_at`` and ``end_at`` allow."""
    end_at = min(timetable.end_at or LATEST, LATEST)
    if timetable.start_at is not None:
        after = max(after, timetable.start_at - _INSTANT)
    times = _cron(timetable, after) if timetable.cron else _every(timetable, anchor, after)
    for at in times:
        if at > end_at:
            return
        yield at


def due_ticks(
    timetable: Timetable, anchor: datetime, first: datetime, now: datetime, last_max: int
) -> DueTicks:
    """The ticks from ``first`` up to now. After a long time of many they are not all counted."""
    if timetable.every_ms:
        return _due_of_every(timetable, first, now, last_max)
    last: deque[datetime] = deque(maxlen=last_max)
    count = 0
    for at in _up_to(timetable, anchor, first - _INSTANT, now):
        last.append(at)
        count += 1
        if count == COUNTED_MAX:
            return DueTicks(count=count, last=_latest(timetable, anchor, first, now, last_max))
    return DueTicks(count=count, last=tuple(last))


def zone_of(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError, AttributeError):
        raise InvalidInput(
            UNKNOWN_TIMEZONE.fault(("timezone",), name="timezone", timezone=name)
        ) from None


def _up_to(
    timetable: Timetable, anchor: datetime, after: datetime, now: datetime
) -> Iterator[datetime]:
    for at in ticks_after(timetable, anchor, after):
        if at > now:
            return
        yield at


def _latest(
    timetable: Timetable, anchor: datetime, first: datetime, now: datetime, last_max: int
) -> tuple[datetime, ...]:
    """Some of the last ticks up to now, found from their end."""
    window, earliest = _WINDOW_FIRST, first - _INSTANT
    while True:
        after = max(earliest, now - window)
        last = deque(_up_to(timetable, anchor, after, now), maxlen=last_max)
        if last or after == earliest:
            return tuple(last)
        window *= _WINDOW_GROWTH


def _due_of_every(timetable: Timetable, first: datetime, now: datetime, last_max: int) -> DueTicks:
    span = timedelta(milliseconds=timetable.every_ms)
    until = now if timetable.end_at is None else min(now, timetable.end_at)
    count = max(0, (until - first) // span + 1)
    last = range(max(0, count - last_max), count)
    return DueTicks(count=count, last=tuple(first + number * span for number in last))


def _every(timetable: Timetable, anchor: datetime, after: datetime) -> Iterator[datetime]:
    span = timedelta(milliseconds=timetable.every_ms)
    number = max(0, (after - anchor) // span + 1)
    while number * span <= LATEST - anchor:
        yield anchor + number * span
        number += 1


def _cron(timetable: Timetable, after: datetime) -> Iterator[datetime]:
    from cronsim import CronSim

    for local in CronSim(timetable.cron, after.astimezone(zone_of(timetable.timezone))):
        at = local.astimezone(UTC)
        if not is_storable(at):
            return
        # In an hour that is there twice, the local time may be one that has been.
        if at > after:
            yield at


def _check_cron(timetable: Timetable) -> None:
    from cronsim import CronSimError

    cron = timetable.cron
    count = len(cron.split())
    if count != len(CRON_FIELDS):  # the parser would take one more, for seconds
        reason = f"it has {count} field{'s' * (count != 1)}"
        raise InvalidInput(INVALID_CRON.fault(("cron",), name="cron", cron=cron, reason=reason))
    try:
        at = next(_cron(timetable, timetable.start_at or _ANY_TIME), None)
    except CronSimError as error:
        fault = INVALID_CRON.fault(("cron",), name="cron", cron=cron, reason=str(error))
        raise InvalidInput(fault) from None
    if at is None:
        raise InvalidInput(NEVER_DUE.fault(("cron",), name="cron", cron=cron))


GRACE = timedelta(seconds=60)
"""A tick that is noticed later than this was missed; ``catch_up="none"`` does not start it."""
CATCH_UP_MAX = 100
"""Ticks that are caught up with in one step; the others follow in the next ones."""
QUEUED_MAX = 100
"""Ticks that wait for the one before them; a further one is skipped."""
QUEUE_LOOK = timedelta(seconds=0.25)
"""When to look first whether what a queued tick waits for has ended; then twice as long after."""
QUEUE_LOOK_MAX = timedelta(seconds=5)
_DOUBLED_MAX = 10

_COUNTER = {
    TickResult.STARTED: "started",
    TickResult.SKIPPED: "skipped",
    TickResult.MISSED: "missed",
    TickResult.FAILED: "failed",
}


class Ticks(Value):
    """Ticks that are due: those to start, in order, and those that were missed."""

    start: tuple[datetime, ...]
    missed: tuple[datetime, ...]
    """The last of them."""
    missed_count: int
    next_at: datetime | None


class Step(Value):
    """What is to be written: the schedule with everything but the tick that is to be started."""

    schedule: Schedule
    decided_at: datetime
    start: datetime | None = None
    replaces: Started | None = None
    """What goes on, and is to be cancelled once the tick has started something in its place."""


def ticks_due(schedule: Schedule, now: datetime) -> Ticks:
    """The ticks of the timetable whose time has come, as ``catch_up`` would have them."""
    state, definition = schedule.state, schedule.definition
    first = state.next_at
    if first is None or first > now:
        return Ticks(start=(), missed=(), missed_count=0, next_at=first)
    if definition.catch_up == "all":
        return _all(definition, state.anchor, first, now)
    due = due_ticks(definition.timetable, state.anchor, first, now, CATCH_UP_MAX)
    if definition.catch_up == "one":
        start = due.last[-1:]
    else:
        start = tuple(at for at in due.last if at >= now - GRACE)
    return Ticks(
        start=start,
        missed=due.last[: len(due.last) - len(start)],
        missed_count=due.count - len(start),
        next_at=next_tick(definition.timetable, state.anchor, now),
    )


def next_step(schedule: Schedule, now: datetime, is_busy: bool) -> Step | None:
    """What to do with what is due; None if nothing is.

    ``is_busy``: what the last tick of the timetable started goes on.
    """
    state = schedule.state
    if state.paused_at is not None or state.due_at is None or state.due_at > now:
        return None
    ticks = ticks_due(schedule, now)
    waiting = (*state.queued, *ticks.start)
    records = [TickRecord(at=at, result=TickResult.MISSED) for at in ticks.missed]
    more_missed = ticks.missed_count - len(records)
    start: datetime | None = None
    if is_busy and schedule.definition.overlap == "queue":
        waiting, over = waiting[:QUEUED_MAX], waiting[QUEUED_MAX:]
        reason = f"{QUEUED_MAX} ticks are waiting already"
        records += _skipped(over, reason)
    elif is_busy and schedule.definition.overlap == "skip":
        records += _skipped(waiting, f"{_last_of(state)} was still going on")
        waiting = ()
    elif waiting:
        start, *rest = waiting
        waiting = tuple(rest)
    after = recorded(state, records, missed=state.missed + more_missed)
    after = replace(after, queued=waiting, next_at=ticks.next_at)
    look_at = now if start is not None else now + _patience(state)
    after = replace(
        after,
        due_at=_earliest(after.next_at, look_at if waiting else None),
        looks=state.looks + 1 if waiting and start is None else 0,
    )
    return Step(
        schedule=replace(schedule, state=after),
        decided_at=now,
        start=start,
        replaces=_last_start(state) if is_busy and start is not None else None,
    )


def ended(step: Step, record: TickRecord) -> Schedule:
    """The schedule with what became of the tick that was to be started."""
    before = step.schedule.state
    state = recorded(before, [record])
    if record.result is TickResult.STARTED:
        state = replace(
            state,
            last_at=record.at,
            last_run=record.run,
            last_job=record.job,
            triggered=None,
            replaced=step.replaces,
            due_at=before.due_at if step.replaces is None else step.decided_at,
        )
    return replace(step.schedule, state=state)


def cancelled(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule once that is cancelled which its last tick took the place of."""
    state = replace(schedule.state, replaced=None)
    return replace(schedule, state=replace(state, due_at=_due_at(state, now)))


def triggered(schedule: Schedule, record: TickRecord) -> Schedule:
    """The schedule with a start that somebody asked for, beside the timetable and its rules."""
    state = recorded(schedule.state, [record])
    if record.result is TickResult.STARTED:
        asked = Started(at=record.at, run=record.run, job=record.job)
        state = replace(state, triggered=asked)
    return replace(schedule, state=state)


def recorded(state: ScheduleState, records: Iterable[TickRecord], **changes: Any) -> ScheduleState:
    """A state with some ticks more in its history, counted."""
    history = list(state.history)
    counts = {name: getattr(state, name) for name in _COUNTER.values()} | changes
    for record in records:
        history.append(record)
        counts[_COUNTER[record.result]] += 1
    return replace(state, history=tuple(history[-HISTORY_MAX:]), **counts)


# What makers and operators do


def new_state(definition: ScheduleDefinition, now: datetime) -> ScheduleState:
    state = ScheduleState(created_at=now, changed_at=now, anchor=_anchor(definition, now))
    return _from_now_on(definition, state, now)


def changed_state(before: Schedule, definition: ScheduleDefinition, now: datetime) -> ScheduleState:
    """The state of a schedule that was defined anew; its times stay if its timetable does."""
    if before.definition == definition:
        return before.state
    state = replace(before.state, changed_at=now)
    if before.definition.timetable == definition.timetable:
        return state
    state = replace(state, anchor=_anchor(definition, now))
    return _from_now_on(definition, state, now)


def paused(state: ScheduleState, now: datetime, by: str | None) -> ScheduleState:
    """Pausing twice keeps the first."""
    if state.paused_at is not None:
        return state
    still = replace(state, paused_at=now, paused_by=by, next_at=None)
    return replace(still, due_at=_due_at(still, now))


def resumed(definition: ScheduleDefinition, state: ScheduleState, now: datetime) -> ScheduleState:
    """Go on with the next tick from now: those of the pause are not caught up with."""
    if state.paused_at is None:
        return state
    return _from_now_on(definition, replace(state, paused_at=None, paused_by=None), now)


def tick_run_id(name: str, at: datetime) -> RunId:
    """``nightly@2026-11-16T03:00:00Z``"""
    return RunId(f"{name}@{at.astimezone(UTC).replace(tzinfo=None).isoformat()}Z")


def manual_run_id(name: str, unique: str) -> RunId:
    return RunId(f"{name}@manual-{unique}")


def _all(definition: ScheduleDefinition, anchor: datetime, first: datetime, now: datetime) -> Ticks:
    """The first of those that are due; the others stay where they are in the timetable."""
    start: list[datetime] = []
    at: datetime | None = first
    while at is not None and at <= now and len(start) < CATCH_UP_MAX:
        start.append(at)
        at = next_tick(definition.timetable, anchor, at)
    return Ticks(start=tuple(start), missed=(), missed_count=0, next_at=at)


def _from_now_on(
    definition: ScheduleDefinition, state: ScheduleState, now: datetime
) -> ScheduleState:
    if state.paused_at is not None:
        return state
    state = replace(state, next_at=next_tick(definition.timetable, state.anchor, now))
    return replace(state, due_at=_due_at(state, now))


def _due_at(state: ScheduleState, now: datetime) -> datetime | None:
    """When to look next; what is to be cancelled is, in a pause too."""
    if state.replaced is not None:
        return now
    if state.paused_at is not None:
        return None
    return _earliest(state.next_at, now if state.queued else None)


def _patience(state: ScheduleState) -> timedelta:
    """The longer a queued tick has waited for, the less a little longer matters."""
    doublings = min(state.looks, _DOUBLED_MAX)
    return min(QUEUE_LOOK * (1 << doublings), QUEUE_LOOK_MAX)


def _last_start(state: ScheduleState) -> Started:
    return Started(at=state.last_at, run=state.last_run, job=state.last_job)


def _anchor(definition: ScheduleDefinition, now: datetime) -> datetime:
    return definition.timetable.start_at or now.replace(microsecond=0)


def _skipped(ticks: Iterable[datetime], reason: str) -> list[TickRecord]:
    return [TickRecord(at=at, result=TickResult.SKIPPED, reason=reason) for at in ticks]


def _last_of(state: ScheduleState) -> str:
    return f"job {state.last_job}" if state.last_run is None else f"run {state.last_run!r}"


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)
