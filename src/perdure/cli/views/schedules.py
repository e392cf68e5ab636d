"""Schedules in a list, and one in full, as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from perdure.cli.views.console import Column, moment, print_pairs, print_table, shortened
from perdure.cli.views.runs import VALUE_LENGTH_MAX
from perdure.model.schedule import TickRecord, UnreadableSchedule
from perdure.model.times import ago, ahead, duration_text, rough
from perdure.operations.records import ScheduleRecord

if TYPE_CHECKING:
    from perdure.cli.command import CommandOutput
    from perdure.operations.page import Page

PAUSED = "paused"
UNREADABLE = "unreadable"
"""Only a newer version can read it."""


def schedule_table(
    schedules: Page[ScheduleRecord | UnreadableSchedule], out: CommandOutput
) -> None:
    print_table(out.console, schedule_columns(schedules, out.now, is_across=out.is_across))


def schedule_columns(
    schedules: Sequence[ScheduleRecord | UnreadableSchedule], now: datetime, *, is_across: bool
) -> list[Column]:
    """Columns of schedules; ``is_across`` if they span several namespaces."""
    namespaces = [each.namespace if is_across else "" for each in schedules]
    status, starts, when, next_, last, started = (
        list(column) for column in zip(*(_cells(each, now) for each in schedules), strict=True)
    )
    return [
        Column(title="SCHEDULE", cells=[each.name for each in schedules], room_min=12),
        Column(title="NAMESPACE", cells=namespaces, rank=3, room_min=9),
        Column(title="STATUS", cells=status),
        Column(title="STARTS", cells=starts, rank=2, room_min=10),
        Column(title="WHEN", cells=when, rank=1, room_min=10),
        Column(title="NEXT", cells=next_),
        Column(title="LAST", cells=last, rank=4),
        Column(title="STARTED", cells=started, rank=5, is_number=True),
    ]


def _cells(schedule: ScheduleRecord | UnreadableSchedule, now: datetime) -> tuple[str, ...]:
    if isinstance(schedule, UnreadableSchedule):
        return UNREADABLE, "", "", _next(schedule.due_at, now), "", ""
    return (
        _status(schedule),
        _target(schedule),
        _when(schedule),
        _next(schedule.next_at, now),
        _last(schedule.last_at, now),
        str(schedule.started),
    )


def print_schedule(record: ScheduleRecord, out: CommandOutput) -> None:
    pairs = [*_definition(record, out.now), *_state(record, out.now)]
    print_pairs(out.console, [(name, value) for name, value in pairs if value])
    if record.history:
        out.console.print()
        print_table(out.console, tick_columns(record.history[::-1]))


def tick_columns(ticks: Sequence[TickRecord]) -> list[Column]:
    """The results of ticks, newest first."""
    started = [each.run or each.job or "" for each in ticks]
    reasons = [shortened(each.reason, VALUE_LENGTH_MAX) for each in ticks]
    return [
        Column(title="TICK", cells=[_local(each.at) for each in ticks]),
        Column(title="RESULT", cells=[each.result.value for each in ticks]),
        Column(title="STARTED", cells=started, rank=1, room_min=16),
        Column(title="WHY", cells=reasons, rank=2, room_min=16),
    ]


def _definition(record: ScheduleRecord, now: datetime) -> list[tuple[str, str]]:
    return [
        ("schedule", record.name),
        ("namespace", record.namespace),
        ("starts", _target(record)),
        ("when", f"{_when(record)} ({record.timezone})" if record.cron else _when(record)),
        ("from", moment(record.start_at, now)),
        ("until", moment(record.end_at, now)),
        ("overlap", record.overlap),
        ("catch up", record.catch_up),
    ]


def _state(record: ScheduleRecord, now: datetime) -> list[tuple[str, str]]:
    who = f", by {record.paused_by}" if record.paused_by else ""
    counts = {
        "started": record.started,
        "skipped": record.skipped,
        "missed": record.missed,
        "failed": record.failed,
    }
    return [
        ("status", _status(record)),
        ("paused", f"{moment(record.paused_at, now)}{who}" if record.is_paused else ""),
        ("next", _next_moment(record.next_at, now)),
        ("last", moment(record.last_at, now)),
        ("last run", record.last_run or ""),
        ("last job", record.last_job or ""),
        ("queued", str(len(record.queued)) if record.queued else ""),
        ("ticks", ", ".join(f"{count} {name}" for name, count in counts.items())),
    ]


def _status(record: ScheduleRecord) -> str:
    if record.is_paused:
        return PAUSED
    return "active" if record.next_at is not None or record.queued else "over"


def _target(record: ScheduleRecord) -> str:
    return f"task {record.task}" if record.flow is None else f"flow {record.flow}"


def _when(record: ScheduleRecord) -> str:
    if record.every is None:
        return record.cron or ""
    return f"every {duration_text(record.every)}"


def _next_moment(at: datetime | None, now: datetime) -> str:
    hint = ", due: waiting for a worker" if at and at <= now else ""
    return f"{moment(at, now)}{hint}"


def _next(at: datetime | None, now: datetime) -> str:
    """The next tick; a due one waits for a worker."""
    if at is None:
        return ""
    return f"in {ahead(at, now)}" if at > now else f"due for {rough(now - at)}"


def _last(at: datetime | None, now: datetime) -> str:
    return "" if at is None else f"{ago(at, now)} ago"


def _local(at: datetime) -> str:
    return at.astimezone().isoformat(sep=" ", timespec="seconds")
