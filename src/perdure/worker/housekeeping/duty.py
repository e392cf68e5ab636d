"""What any worker may do beside its jobs, several at once too, when a survey shows it to be due."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from datetime import datetime

from perdure import clock
from perdure.model.worker import PollResult

REST_SECONDS = 1.0
"""What could not be seen to is left alone for so long."""
_log = logging.getLogger("perdure.worker")


class Duty(ABC):
    """Is tended aside, once at a time; what makes trouble rests for a while."""

    about: str
    """What it is about, as the log names it."""

    def __init__(self) -> None:
        self._tending: asyncio.Task[None] | None = None
        self._resting: dict[Hashable, float] = {}

    @property
    def pause_seconds(self) -> float:
        """How long there is no use in looking for more that is due."""
        return REST_SECONDS if self._resting or self._tending is not None else 0.0

    @abstractmethod
    def due_at(self, survey: PollResult) -> datetime | None:
        """When there is something to do, as the survey tells it."""

    @abstractmethod
    async def see_to_all(self) -> bool:
        """See to everything that is due; whether there was anything that does not rest."""

    def tend(self, then: Callable[[], None]) -> None:
        """See to what is due, if that is not under way already, and call ``then`` to look on."""
        if self._tending is None:
            self._tending = asyncio.create_task(self._tend(then))

    async def stop(self) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait([self._tending])

    async def _tend(self, then: Callable[[], None]) -> None:
        now = clock.monotonic()
        self._resting = {what: until for what, until in self._resting.items() if until > now}
        is_news = True
        try:
            is_news = await self.see_to_all() or not self._resting
        except Exception:
            _log.exception("%s that are due were not all seen to; trying again", self.about)
            await asyncio.sleep(REST_SECONDS)
        finally:
            self._tending = None
            if is_news:  # else what is due rests, and to look at once would go round and round
                then()

    def is_resting(self, what: Hashable) -> bool:
        return what in self._resting

    @property
    def resting_count(self) -> int:
        return len(self._resting)

    def rest(self, what: Hashable) -> None:
        self._resting[what] = clock.monotonic() + REST_SECONDS
