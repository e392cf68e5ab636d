"""Schedules and the results of their ticks.

A tick is one time of a timetable. It starts one run or one job, or the reason why not is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from perdure.errors import ScheduleUnreadable
from perdure.model.ids import JobId, RunId
from perdure.model.job import Inserted, NewJob
from perdure.model.run import NewRun, Submitted
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.value import Value

Overlap = Literal["skip", "queue", "cancel"]
"""What to do with a tick while the previous run or job has not ended."""
CatchUp = Literal["one", "all", "none"]
"""What to do with ticks that were due while no worker was running."""

HISTORY_MAX = 20
"""Number of ticks in a schedule's history."""


class Timetable(Value, omit_defaults=True, forbid_unknown_fields=True):
    """The times of a schedule: ``cron`` in a time zone, or a fixed interval."""

    cron: str = ""
    every_ms: int = 0
    timezone: str = "UTC"
    start_at: datetime | None = None
    """No tick before this; ``every`` counts from here."""
    end_at: datetime | None = None
    """No tick after this."""


class FlowCall(Value, tag="flow", forbid_unknown_fields=True, omit_defaults=True):
    """A run to start, of a stored definition."""

    flow: str
    version: str
    input: bytes
    """Encoded by the codec."""
    aging_ms: int
    settings: RunSettings = NO_SETTINGS
    """As resolved when the schedule was saved."""


class TaskCall(Value, tag="task", forbid_unknown_fields=True):
    """A job to insert, complete except for its id."""

    job: NewJob


class ScheduleDefinition(Value, omit_defaults=True, forbid_unknown_fields=True):
    """The schedule as created. Fields of newer versions are rejected, so none is ever dropped."""

    timetable: Timetable
    call: FlowCall | TaskCall
    overlap: Overlap = "skip"
    catch_up: CatchUp = "one"


class TickResult(StrEnum):
    STARTED = "started"
    SKIPPED = "skipped"
    """The previous run or job had not ended, or the flow was cooling down."""
    MISSED = "missed"
    """No worker was running when it was due, and ``catch_up`` dropped it."""
    FAILED = "failed"
    """Its run or job could not be started."""


class TickRecord(Value, omit_defaults=True):
    """The result of one tick."""

    at: datetime
    """The time in the timetable, or the time of a manual trigger."""
    result: TickResult
    run: RunId | None = None
    """The run that was started, or skipped by a cooldown."""
    job: JobId | None = None
    reason: str = ""


class Started(Value, omit_defaults=True, forbid_unknown_fields=True):
    """A run or a job that a schedule started."""

    at: datetime | None = None
    """The time of the tick or of the manual trigger."""
    run: RunId | None = None
    job: JobId | None = None


class ScheduleState(Value, omit_defaults=True, forbid_unknown_fields=True):
    """The progress of a schedule."""

    created_at: datetime
    changed_at: datetime
    """When its definition last changed."""
    anchor: datetime
    """The start of the ``every`` interval."""
    next_at: datetime | None = None
    """The next tick of the timetable; None while paused and after the last one."""
    due_at: datetime | None = None
    """When a worker must process it: for the next tick, a queued tick or a pending cancellation."""
    queued: tuple[datetime, ...] = ()
    """Due ticks that are not started yet, oldest first."""
    looks: int = 0
    """How often in a row the work that they wait for was still unfinished."""
    paused_at: datetime | None = None
    paused_by: str | None = None
    last_at: datetime | None = None
    """The last tick that started a run or job, to which ``overlap`` applies."""
    last_run: RunId | None = None
    last_job: JobId | None = None
    triggered: Started | None = None
    """The last manual trigger since then."""
    replaced: Started | None = None
    """The run or job that the last tick replaced, while it still has to be cancelled."""
    started: int = 0
    skipped: int = 0
    missed: int = 0
    failed: int = 0
    history: tuple[TickRecord, ...] = ()
    """The latest ticks, newest last."""


class Schedule(Value):
    namespace: str
    name: str
    revision: int
    """Random and new with each write, for optimistic locking."""
    definition: ScheduleDefinition
    state: ScheduleState


class UnreadableSchedule(Value):
    """A schedule that a newer version wrote, and this version cannot decode."""

    namespace: str
    name: str
    revision: int
    due_at: datetime | None
    """When it is due, for workers that can decode it."""
    reason: str


class ScheduleCommit(Value):
    """One atomic write of a schedule, with the run or job that it starts."""

    schedule: Schedule
    """The new state, with a new revision."""
    expected: int | None
    """The revision that the decision is based on; None if the schedule must not exist."""
    run: NewRun | None = None
    job: NewJob | None = None
    if_skipped: Schedule | None = None
    """The new state if the run is skipped because its flow is cooling down."""


class ScheduleCommitState(StrEnum):
    DONE = "done"
    CONFLICT = "conflict"
    """The schedule was changed, created or deleted: read it and decide again."""
    TAKEN = "taken"
    """Another run has this id."""


class ScheduleAnswer(Value):
    state: ScheduleCommitState
    submitted: Submitted | None = None
    inserted: Inserted | None = None


def encode_definition(definition: ScheduleDefinition) -> bytes:
    return msgspec.json.encode(definition)


def encode_state(state: ScheduleState) -> bytes:
    return msgspec.json.encode(state)


def decode_schedule(
    namespace: str, name: str, revision: int, definition: bytes, state: bytes
) -> Schedule:
    """Decode a schedule; raises ``ScheduleUnreadable`` if a newer version wrote it."""
    try:
        return Schedule(
            namespace=namespace,
            name=name,
            revision=revision,
            definition=msgspec.json.decode(definition, type=ScheduleDefinition),
            state=msgspec.json.decode(state, type=ScheduleState),
        )
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ScheduleUnreadable(name=name, reason=str(error)) from error


def scheduled_flows(
    schedules: Iterable[Schedule | UnreadableSchedule],
) -> list[str] | None:
    """The flows that schedules start, as ``name@version``; None if one of them is unreadable."""
    found = []
    for each in schedules:
        if isinstance(each, UnreadableSchedule):
            return None
        if isinstance(call := each.definition.call, FlowCall):
            found.append(f"{call.flow}@{call.version}")
    return found
