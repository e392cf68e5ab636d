"""Rows of schedules: which of them can be read here, and which only a newer version can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from perdure.errors import ScheduleUnreadable
from perdure.model.schedule import Schedule, UnreadableSchedule, decode_schedule

ScheduleRow = Sequence[Any]
"""Namespace, name, revision, definition, state, and when it is due."""


async def first_readable(
    first: Callable[[int], Awaitable[Sequence[ScheduleRow]]], limit: int
) -> list[Schedule]:
    """The first so many that can be read; ``first`` gives the first so many rows of any kind."""
    asked = limit
    while True:
        rows = await first(asked)
        found = [each for row in rows if isinstance(each := read_schedule(row), Schedule)]
        if len(found) >= limit or len(rows) < asked:
            return found[:limit]
        asked += len(rows) - len(found)


def read_schedule(row: ScheduleRow) -> Schedule | UnreadableSchedule:
    """The schedule, or that only a newer version can read it."""
    namespace, name, revision, definition, state, due_at = row
    try:
        return decode_schedule(namespace, name, revision, definition, state)
    except ScheduleUnreadable as error:
        return UnreadableSchedule(
            namespace=namespace, name=name, revision=revision, due_at=due_at, reason=error.reason
        )
