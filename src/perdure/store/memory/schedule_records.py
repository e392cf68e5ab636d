"""The schedules that one place in memory keeps, and which are due."""

from __future__ import annotations

from perdure.model.schedule import Schedule
from perdure.store.memory.index import Groups, Index

SchedulePlace = tuple[str, str]
"""Where a schedule is: its namespace and its name."""


class ScheduleRecords:
    def __init__(self) -> None:
        self.by_place: dict[SchedulePlace, Schedule] = {}
        self.due: Index[Schedule, SchedulePlace] = Index(
            _due_in, lambda each: each.state.due_at, lambda each: (each.namespace, each.name)
        )

    def put(self, place: SchedulePlace, schedule: Schedule | None) -> None:
        """Write a schedule as a whole; None removes it."""
        before = self.by_place.pop(place, None)
        if schedule is not None:
            self.by_place[place] = schedule
        self.due.move(before, schedule)


def _due_in(schedule: Schedule) -> Groups:
    return () if schedule.state.due_at is None else (schedule.namespace,)
