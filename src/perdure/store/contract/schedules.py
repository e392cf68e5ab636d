"""Schedules: what is started by time alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from perdure.model.schedule import Schedule, ScheduleAnswer, ScheduleCommit, UnreadableSchedule


class ScheduleStore(Protocol):
    """Schedules: what is started by time alone, once for each of its times."""

    @abstractmethod
    async def commit(self, commit: ScheduleCommit) -> ScheduleAnswer:
        """Write a schedule as a whole, and start what comes with it, all or none.

        - CONFLICT, and nothing written, when its revision is not the expected one, or when it is
          there or gone and was not expected to be.
        - However many commit on one revision at once, one of them is done.
        - A run is added as ``runs.submit`` adds it, a job as ``jobs.insert`` does.
        - TAKEN, and nothing written, when the id of the run is taken.
        - If the flow is cooling down, ``if_skipped`` is written instead, with the skipped run.
        - A commit repeated after a lost answer is done, and counts once.
        - Tells workers to look (a DUE hint) if the schedule has a time to look at it.
        """

    @abstractmethod
    async def delete(self, namespace: str, name: str) -> bool:
        """Remove a schedule, if there is one. What it started goes on."""

    @abstractmethod
    async def list(
        self, namespace: str | None, name: str | None = None
    ) -> Sequence[Schedule | UnreadableSchedule]:
        """All schedules, or those of one name; by namespace and name.

        - One that a newer version wrote in a way that this one does not know says so.
        """
