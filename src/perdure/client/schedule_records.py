"""What a client answers about schedules: plain values."""

from __future__ import annotations

from datetime import datetime, timedelta

from perdure.model.ids import JobId, RunId
from perdure.model.schedule import CatchUp, FlowCall, Overlap, Schedule, Started, TickRecord
from perdure.model.value import Value


class ScheduleRecord(Value):
    """A schedule as the record shows it."""

    name: str
    namespace: str
    flow: str | None
    """What it starts: a flow in this version, or a task."""
    version: str | None
    task: str | None
    cron: str | None
    every: timedelta | None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    overlap: Overlap
    catch_up: CatchUp
    next_at: datetime | None
    """None while it is paused, and once its last tick has been."""
    last_at: datetime | None
    """The last tick that started something, triggered ones included, and what that was."""
    last_run: RunId | None
    last_job: JobId | None
    queued: tuple[datetime, ...]
    """Ticks that wait for the one before them to end."""
    started: int
    skipped: int
    missed: int
    failed: int
    paused_at: datetime | None
    paused_by: str | None
    created_at: datetime
    changed_at: datetime
    history: tuple[TickRecord, ...]
    """What became of the last ticks, newest last."""

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


def schedule_record(schedule: Schedule) -> ScheduleRecord:
    definition, state = schedule.definition, schedule.state
    timetable, call = definition.timetable, definition.call
    every_ms = timetable.every_ms
    last = state.triggered or Started(at=state.last_at, run=state.last_run, job=state.last_job)
    return ScheduleRecord(
        name=schedule.name,
        namespace=schedule.namespace,
        flow=call.flow if isinstance(call, FlowCall) else None,
        version=call.version if isinstance(call, FlowCall) else None,
        task=None if isinstance(call, FlowCall) else call.job.lane.task,
        cron=timetable.cron or None,
        every=timedelta(milliseconds=every_ms) if every_ms else None,
        timezone=timetable.timezone,
        start_at=timetable.start_at,
        end_at=timetable.end_at,
        overlap=definition.overlap,
        catch_up=definition.catch_up,
        next_at=state.next_at,
        last_at=last.at,
        last_run=last.run,
        last_job=last.job,
        queued=state.queued,
        started=state.started,
        skipped=state.skipped,
        missed=state.missed,
        failed=state.failed,
        paused_at=state.paused_at,
        paused_by=state.paused_by,
        created_at=state.created_at,
        changed_at=state.changed_at,
        history=state.history,
    )
