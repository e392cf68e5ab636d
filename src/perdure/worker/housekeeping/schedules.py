"""Let schedules tick that are due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from perdure import clock
from perdure.engine.ticking import Ticking
from perdure.model.schedule import Schedule
from perdure.model.worker import Survey
from perdure.store.contract import Store

SCHEDULES_MAX = 100
"""Schedules that one look brings."""
AT_ONCE = 8
"""Schedules that are seen to at the same time."""
STEPS_MAX = 100
"""Steps of one schedule in a row, before others have their turn."""
REST_SECONDS = 1.0
"""A schedule that could not be seen to is left alone for so long."""
_log = logging.getLogger("perdure.worker")


class ScheduleDuty:
    """Any worker may do it, several at once too: each tick is one write, whoever is first."""

    def __init__(self, store: Store, ticking: Ticking, namespace: str) -> None:
        self._store = store
        self._ticking = ticking
        self._namespace = namespace
        self._tending: asyncio.Task[None] | None = None
        self._resting: dict[str, float] = {}

    @property
    def pause_seconds(self) -> float:
        return REST_SECONDS if self._resting or self._tending is not None else 0.0

    def due_at(self, survey: Survey) -> datetime | None:
        return survey.next_tick_at

    def tend(self, then: Callable[[], None]) -> None:
        if self._tending is None:
            self._tending = asyncio.create_task(self._tend(then))

    async def stop(self) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait([self._tending])

    async def _tend(self, then: Callable[[], None]) -> None:
        try:
            now = await self._store.now()
            due = await self._store.due_schedules(self._namespace, SCHEDULES_MAX)
            awake = self._not_resting(due)
            for first in range(0, len(awake), AT_ONCE):
                chunk = awake[first : first + AT_ONCE]
                await asyncio.gather(*(self._see_to(each, now) for each in chunk))
        except Exception:
            _log.exception("schedules that are due were not all seen to; trying again")
            await asyncio.sleep(REST_SECONDS)
        finally:
            self._tending = None
            then()

    def _not_resting(self, schedules: list[Schedule]) -> list[Schedule]:
        now = clock.monotonic()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        return [each for each in schedules if each.name not in self._resting]

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
            self._resting[schedule.name] = clock.monotonic() + REST_SECONDS
