"""Schedules: what is started at which times, and what became of the ticks so far.

A tick is one time of a timetable. It starts one run of a flow or one job of a task, or it is
recorded why it did not.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from perdure.errors import ScheduleUnreadable
from perdure.model.ids import JobId, RunId
from perdure.model.job import Inserted, NewJob
from perdure.model.run import NewRun, Submitted
from perdure.model.value import Value

Overlap = Literal["skip", "queue", "cancel"]
"""What becomes of a tick while what the schedule started last has not ended."""
CatchUp = Literal["one", "all", "none"]
"""What becomes of ticks whose time passed while no worker was there."""

HISTORY_MAX = 20
"""Ticks of which a schedule remembers what became of each."""


class Timetable(Value, omit_defaults=True, forbid_unknown_fields=True):
    """The times of a schedule: by ``cron`` in a time zone, or every so many milliseconds."""

    cron: str = ""
    every_ms: int = 0
    timezone: str = "UTC"
    start_at: datetime | None = None
    """No tick before this; ``every`` counts from here."""
    end_at: datetime | None = None
    """No tick after this."""


class FlowCall(Value, tag="flow", forbid_unknown_fields=True):
    """A run to begin, of a definition that is stored."""

    flow: str
    version: str
    input: bytes
    """As the codec encodes it."""
    aging_ms: int


class TaskCall(Value, tag="task", forbid_unknown_fields=True):
    """A job to insert, complete but for its id."""

    job: NewJob


class ScheduleDefinition(Value, omit_defaults=True, forbid_unknown_fields=True):
    """What its maker asked for. What only a newer version knows is not read, so never dropped."""

    timetable: Timetable
    call: FlowCall | TaskCall
    overlap: Overlap = "skip"
    catch_up: CatchUp = "one"


class TickResult(StrEnum):
    STARTED = "started"
    SKIPPED = "skipped"
    """Something was still running, or the flow was cooling down."""
    MISSED = "missed"
    """Nobody was there when it was due, and it was not to be caught up with."""
    FAILED = "failed"
    """What it should have started could not be."""


class TickRecord(Value, omit_defaults=True):
    """What became of one tick."""

    at: datetime
    """The time of the timetable, or when somebody triggered it."""
    result: TickResult
    run: RunId | None = None
    """That it started, or that a cooldown skipped."""
    job: JobId | None = None
    reason: str = ""


class Started(Value, omit_defaults=True, forbid_unknown_fields=True):
    """A run or a job that a schedule started."""

    at: datetime | None = None
    """The time of the tick, or when somebody triggered it."""
    run: RunId | None = None
    job: JobId | None = None


class ScheduleState(Value, omit_defaults=True, forbid_unknown_fields=True):
    """How far a schedule is."""

    created_at: datetime
    changed_at: datetime
    """When its maker last changed it."""
    anchor: datetime
    """Where ``every`` counts from."""
    next_at: datetime | None = None
    """The next tick of the timetable; None while it is paused, and once it is over."""
    due_at: datetime | None = None
    """When a worker has to look: for the next tick, for one that waits, for what to cancel."""
    queued: tuple[datetime, ...] = ()
    """Ticks whose time has come, and which are still to be started, oldest first."""
    looks: int = 0
    """How often in a row it was found that what they wait for goes on."""
    paused_at: datetime | None = None
    paused_by: str | None = None
    last_at: datetime | None = None
    """The last tick of the timetable that started something. ``overlap`` goes by what that was."""
    last_run: RunId | None = None
    last_job: JobId | None = None
    triggered: Started | None = None
    """What somebody asked for since then, beside the timetable."""
    replaced: Started | None = None
    """What the last tick took the place of, and which is still to be cancelled."""
    started: int = 0
    skipped: int = 0
    missed: int = 0
    failed: int = 0
    history: tuple[TickRecord, ...] = ()
    """The last ticks, newest last."""


class Schedule(Value):
    namespace: str
    name: str
    revision: int
    """Random, another one with each write: who writes says which one it decided upon."""
    definition: ScheduleDefinition
    state: ScheduleState


class UnreadableSchedule(Value):
    """One that a newer version wrote, in a way that this one does not know."""

    namespace: str
    name: str
    revision: int
    due_at: datetime | None
    """When it is time to look at it, for workers that can read it."""
    reason: str


class ScheduleCommit(Value):
    """One atomic write of a schedule, with what it starts."""

    schedule: Schedule
    """As it is from now on, with a revision of its own."""
    expected: int | None
    """The revision that was decided upon; None: there must be no schedule of this name."""
    run: NewRun | None = None
    job: NewJob | None = None
    if_skipped: Schedule | None = None
    """As it is instead, if the run is skipped because its flow is cooling down."""


class ScheduleCommitState(StrEnum):
    DONE = "done"
    CONFLICT = "conflict"
    """The schedule has changed, or is there, or is gone: read it, and decide again."""
    TAKEN = "taken"
    """The id of the run is taken by another one."""


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
    """Raises ``ScheduleUnreadable`` rather than guess at what a newer version meant."""
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
