"""Schedules: jobs and runs that start by time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from perdure.model.schedule import Schedule, ScheduleAnswer, ScheduleCommit, UnreadableSchedule


class ScheduleStore(Protocol):
    """Schedules, each of whose ticks starts its job or run exactly once."""

    @abstractmethod
    async def commit(self, commit: ScheduleCommit) -> ScheduleAnswer:
        """Write a schedule, and the job or run that it starts, all or none.

        - CONFLICT, and nothing written, when the schedule's revision, existence or absence is not
          the expected one.
        - Of concurrent commits on one revision, exactly one succeeds.
        - A run is added as ``runs.submit`` adds it, a job as ``jobs.insert`` does.
        - TAKEN, and nothing written, if the id of the run exists already.
        - If the flow is cooling down, ``if_skipped`` is written instead, with the skipped run.
        - A commit retried after a lost response counts once.
        - Publishes a DUE hint if the schedule has a next time.
        """

    @abstractmethod
    async def delete(self, namespace: str, name: str) -> bool:
        """Delete a schedule, if it exists. Jobs and runs that it started continue."""

    @abstractmethod
    async def list(
        self, namespace: str | None, name: str | None = None
    ) -> Sequence[Schedule | UnreadableSchedule]:
        """All schedules, or those of one name; by namespace and name.

        - Schedules that only a newer version can read are returned as ``UnreadableSchedule``.
        """
