"""Rows of schedules: which of them can be read here, and which only a newer version can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from perdure.errors import ScheduleUnreadable
from perdure.model.schedule import Schedule, UnreadableSchedule, decode_schedule

ScheduleRow = Sequence[Any]
"""Namespace, name, revision, definition, state, and when it is due."""


def readable(rows: Iterable[ScheduleRow]) -> list[Schedule]:
    return [found for row in rows if isinstance(found := _read(row), Schedule)]


def unreadable(rows: Iterable[ScheduleRow]) -> list[UnreadableSchedule]:
    return [found for row in rows if isinstance(found := _read(row), UnreadableSchedule)]


async def first_readable(
    first: Callable[[int], Awaitable[Sequence[ScheduleRow]]], limit: int
) -> list[Schedule]:
    """The first so many that can be read; ``first`` gives the first so many rows of any kind."""
    asked = limit
    while True:
        rows = await first(asked)
        found = readable(rows)
        if len(found) >= limit or len(rows) < asked:
            return found[:limit]
        asked += len(rows) - len(found)


def _read(row: ScheduleRow) -> Schedule | UnreadableSchedule:
    namespace, name, revision, definition, state, due_at = row
    try:
        return decode_schedule(namespace, name, revision, definition, state)
    except ScheduleUnreadable as error:
        return UnreadableSchedule(
            namespace=namespace, name=name, revision=revision, due_at=due_at, reason=error.reason
        )
