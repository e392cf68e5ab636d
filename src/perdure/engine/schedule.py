"""Schedules: what each tick does, catching up after an outage, and runs that overlap. Pure.

When ticks come due is computed in ``engine.timetable``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from perdure.engine.timetable import due_ticks, next_tick
from perdure.model.ids import RunId
from perdure.model.schedule import (
    HISTORY_MAX,
    Schedule,
    ScheduleDefinition,
    ScheduleState,
    Started,
    TickRecord,
    TickResult,
)
from perdure.model.value import Value

GRACE = timedelta(seconds=60)
"""With ``catch_up="none"``, a tick is missed once this has passed, or the next tick is due."""
CATCH_UP_MAX = 100
"""Missed ticks per step; the others follow in later steps."""
QUEUED_MAX = 100
"""Queued ticks per schedule; further ones are skipped."""
QUEUE_LOOK = timedelta(seconds=0.25)
"""First interval for checking whether the work before a queued tick has ended; doubles."""
QUEUE_LOOK_MAX = timedelta(seconds=5)
_DOUBLED_MAX = 10

_COUNTER = {
    TickResult.STARTED: "started",
    TickResult.SKIPPED: "skipped",
    TickResult.MISSED: "missed",
    TickResult.FAILED: "failed",
}


class Ticks(Value):
    """Due ticks: those to start, in order, and those missed."""

    start: tuple[datetime, ...]
    missed: tuple[datetime, ...]
    """The latest missed ticks."""
    missed_count: int
    next_at: datetime | None


class TickStep(Value):
    """The next write to a schedule, without the result of the tick to start."""

    schedule: Schedule
    decided_at: datetime
    start: datetime | None = None
    replaces: Started | None = None
    """Running work to cancel once the tick has started its replacement."""


def ticks_due(schedule: Schedule, now: datetime) -> Ticks:
    """The due ticks of the timetable, according to ``catch_up``."""
    state, definition = schedule.state, schedule.definition
    first = state.next_at
    if first is None or first > now:
        return Ticks(start=(), missed=(), missed_count=0, next_at=first)
    if definition.catch_up == "all":
        return _all(definition, state.anchor, first, now)
    due = due_ticks(definition.timetable, state.anchor, first, now, CATCH_UP_MAX)
    start = due.last[-1:]
    if definition.catch_up == "none" and start and start[0] < now - GRACE:
        start = ()
    return Ticks(
        start=start,
        missed=due.last[: len(due.last) - len(start)],
        missed_count=due.count - len(start),
        next_at=next_tick(definition.timetable, state.anchor, now),
    )


def next_step(schedule: Schedule, now: datetime, is_busy: bool) -> TickStep | None:
    """The next step of a schedule; None if nothing is due.

    ``is_busy``: the run or job that the last tick started is unfinished.
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
        records += _skipped(waiting, f"{_last_of(state)} was still running")
        waiting = ()
    elif waiting:
        start, *rest = waiting
        waiting = tuple(rest)
    after = recorded(state, records, missed=state.missed + more_missed)
    after = replace(after, queued=waiting, next_at=ticks.next_at)
    recheck_at = now if start is not None else now + _recheck_interval(state)
    after = replace(
        after,
        due_at=_earliest(after.next_at, recheck_at if waiting else None),
        looks=state.looks + 1 if waiting and start is None else 0,
    )
    return TickStep(
        schedule=replace(schedule, state=after),
        decided_at=now,
        start=start,
        replaces=_last_start(state) if is_busy and start is not None else None,
    )


def ended(step: TickStep, record: TickRecord) -> Schedule:
    """The schedule with the result of the tick that was started."""
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
    """The schedule after the work that its last tick replaced was cancelled."""
    state = replace(schedule.state, replaced=None)
    return replace(schedule, state=replace(state, due_at=_due_at(state, now)))


def triggered(schedule: Schedule, record: TickRecord) -> Schedule:
    """The schedule with a manual start, which ignores the timetable and overlap rules."""
    state = recorded(schedule.state, [record])
    if record.result is TickResult.STARTED:
        asked = Started(at=record.at, run=record.run, job=record.job)
        state = replace(state, triggered=asked)
    return replace(schedule, state=state)


def recorded(state: ScheduleState, records: Iterable[TickRecord], **changes: Any) -> ScheduleState:
    """The state with these ticks added to its history and counters."""
    history = list(state.history)
    counts = {name: getattr(state, name) for name in _COUNTER.values()} | changes
    for record in records:
        history.append(record)
        counts[_COUNTER[record.result]] += 1
    return replace(state, history=tuple(history[-HISTORY_MAX:]), **counts)


# Operations: save, pause, resume


def new_state(definition: ScheduleDefinition, now: datetime) -> ScheduleState:
    state = ScheduleState(created_at=now, changed_at=now, anchor=_anchor(definition, now))
    return _from_now_on(definition, state, now)


def changed_state(before: Schedule, definition: ScheduleDefinition, now: datetime) -> ScheduleState:
    """The state after a new definition was saved; an unchanged timetable keeps its next tick."""
    if before.definition == definition:
        return before.state
    state = replace(before.state, changed_at=now)
    if before.definition.timetable == definition.timetable:
        return state
    state = replace(state, anchor=_anchor(definition, now))
    return _from_now_on(definition, state, now)


def paused(state: ScheduleState, now: datetime, by: str | None) -> ScheduleState:
    """Pause the schedule; a second pause changes nothing."""
    if state.paused_at is not None:
        return state
    still = replace(state, paused_at=now, paused_by=by, next_at=None)
    return replace(still, due_at=_due_at(still, now))


def resumed(definition: ScheduleDefinition, state: ScheduleState, now: datetime) -> ScheduleState:
    """Resume with the next tick from now; ticks during the pause are not caught up."""
    return _from_now_on(definition, replace(state, paused_at=None, paused_by=None), now)


def tick_run_id(name: str, at: datetime) -> RunId:
    """``nightly@2026-11-16T03:00:00Z``"""
    return RunId(f"{name}@{at.astimezone(UTC).replace(tzinfo=None).isoformat()}Z")


def manual_run_id(name: str, unique: str) -> RunId:
    return RunId(f"{name}@manual-{unique}")


def _all(definition: ScheduleDefinition, anchor: datetime, first: datetime, now: datetime) -> Ticks:
    """The first due ticks; the others remain due for the next step."""
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
    """When to process the schedule next; pending cancellations run during a pause too."""
    if state.replaced is not None:
        return now
    if state.paused_at is not None:
        return None
    return _earliest(state.next_at, now if state.queued else None)


def _recheck_interval(state: ScheduleState) -> timedelta:
    """How long until the next check; grows with the time that the queued tick has waited."""
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
