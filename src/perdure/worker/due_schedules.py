"""Let schedules tick that are due."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from perdure.engine.ticks import Ticking
from perdure.model.schedule import Schedule, UnreadableSchedule
from perdure.model.worker import PollResult
from perdure.store.contract import Store
from perdure.worker.poller import Duty

SCHEDULES_MAX = 100
"""Schedules that one look brings."""
AT_ONCE = 8
"""Schedules that are seen to at the same time."""
STEPS_MAX = 100
"""Steps of one schedule in a row, before others have their turn."""
_log = logging.getLogger("perdure.worker")


class ScheduleDuty(Duty):
    """Each tick is one write, whoever is first."""

    about = "schedules"

    def __init__(self, store: Store, ticking: Ticking, namespace: str) -> None:
        super().__init__()
        self._store = store
        self._ticking = ticking
        self._namespace = namespace
        self._told: set[str] = set()
        """Those of which the log has told that they cannot be read."""

    def due_at(self, survey: PollResult) -> datetime | None:
        return survey.next_tick_at

    async def see_to_all(self) -> bool:
        now = await self._store.now()
        due = await self._store.maintenance.due_schedules(self._namespace, SCHEDULES_MAX)
        awake = [each for each in due if not self.is_resting(each.name)]
        for first in range(0, len(awake), AT_ONCE):
            chunk = awake[first : first + AT_ONCE]
            await asyncio.gather(*(self._see_to(each, now) for each in chunk))
        if not due:
            await self._leave_unreadable(now)
        return bool(awake)

    async def _leave_unreadable(self, now: datetime) -> None:
        """Nothing that is due can be read here: leave it to workers of a newer version."""
        found = await self._store.schedules.list(self._namespace)
        unreadable = [each for each in found if isinstance(each, UnreadableSchedule)]
        for each in unreadable:
            if each.due_at is not None and each.due_at <= now:
                self.rest(each.name)
            if each.name not in self._told:
                _log.error("schedule %r cannot be read here: %s", each.name, each.reason)
        self._told = {each.name for each in unreadable}

    async def _see_to(self, schedule: Schedule, now: datetime) -> None:
        """Take one schedule on as far as it is due; its trouble is no other's."""
        left: Schedule | None = schedule
        try:
            for _ in range(STEPS_MAX):
                if left is None:
                    return
                left = await self._ticking.advance(left, now)
        except Exception:
            _log.exception("schedule %r was not seen to; trying again", schedule.name)
            self.rest(schedule.name)
