"""One poll tells what is due: promotions, waits, schedules, maintenance.

After an outage of the store, expired leases are left alone for a while (takeover grace), because
their workers may be alive and could not renew them.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from perdure import clock
from perdure.model.worker import PollResult
from perdure.store.contract import SURVEY_LANES_MAX, Store
from perdure.worker.claims import KnownLanes
from perdure.worker.janitor import Housekeeper, promote_jobs
from perdure.worker.leases import RENEWALS_PER_LEASE
from perdure.worker.pauses import set_within
from perdure.worker.settings import WorkerSettings

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


OUTAGE_SECONDS = 1.0
"""An answer, or a wake-up, that is later than this tells of an outage."""
RECONNECT_SECONDS = 5.0
"""How long after an outage the last worker may take to try again."""


class Patience:
    """Whether it is too early to take jobs over."""

    def __init__(self, lease: timedelta, now: Callable[[], float] = clock.monotonic) -> None:
        self._seconds = lease.total_seconds() / RENEWALS_PER_LEASE + RECONNECT_SECONDS
        self._now = now
        self._until = float("-inf")

    def note_delay(self, seconds: float) -> None:
        """Something took so much longer than it should have.

        Patience does not begin anew before as much time passed without it: a body that keeps
        blocking the event loop looks like one outage after the other, and the jobs of dead
        workers must not wait for its end.
        """
        if seconds > OUTAGE_SECONDS and self._now() >= self._until + self._seconds:
            self._until = self._now() + self._seconds

    @property
    def is_needed(self) -> bool:
        return self._now() < self._until


SOONEST_SECONDS = 0.02
"""Hints in a row cause one look in this time, not one each."""
DUTY_SECONDS = 1.0
"""When something is overdue that another worker sees to, look again no sooner than this."""


class Scout:
    """Surveys until stopped, and calls ``found`` after each look that saw a lane."""

    def __init__(
        self,
        store: Store,
        lanes: KnownLanes,
        settings: WorkerSettings,
        housekeeper: Housekeeper,
        duties: Sequence[Duty],
        found: Callable[[], None],
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._settings = settings
        self._housekeeper = housekeeper
        self._duties = duties
        self._found = found
        self._patience = Patience(settings.lease)
        self._hinted = asyncio.Event()
        self._is_stopping = False
        self._tending: asyncio.Task[None] | None = None
        self._page = ""

    def look(self) -> None:
        self._hinted.set()

    def stop(self) -> None:
        """Look no more; a look under way is still finished."""
        self._is_stopping = True
        self._hinted.set()

    async def run(self) -> None:
        try:
            await self._survey_until_stopped()
        finally:
            if self._tending is not None:
                self._tending.cancel()
                await asyncio.wait([self._tending])
            for duty in self._duties:
                await duty.stop()

    async def _survey_until_stopped(self) -> None:
        while not self._is_stopping:
            looked_at = clock.monotonic()
            try:
                wait = await self._look()
            except Exception:
                _log.exception("looking for work failed; trying again")
                wait = self._settings.poll.total_seconds()
            slept_at = clock.monotonic()
            await set_within(self._hinted, wait)
            self._patience.note_delay(clock.monotonic() - slept_at - wait)
            spent = clock.monotonic() - looked_at
            if spent < SOONEST_SECONDS and not self._is_stopping:
                await asyncio.sleep(SOONEST_SECONDS - spent)

    async def _look(self) -> float:
        self._hinted.clear()
        if not self._page:
            self._lanes.begin_survey()
        asked_at = clock.monotonic()
        survey = await self._store.maintenance.poll(self._settings.namespace, self._page)
        self._patience.note_delay(clock.monotonic() - asked_at)
        if _is_due(survey.next_due_at, survey.now) and await promote_jobs(
            self._store, self._settings.namespace
        ):
            self._hinted.set()  # what was promoted shows in the next survey
        for duty in self._duties:
            if _is_due(duty.due_at(survey), survey.now):
                duty.tend(self.look)
        self._lanes.paused = frozenset(survey.paused)
        self._lanes.note(survey.lanes)
        self._page = survey.lanes[-1] if len(survey.lanes) >= SURVEY_LANES_MAX else ""
        if not self._page:
            self._lanes.end_survey()
        if len(self._lanes):
            self._found()
        if self._tending is None or self._tending.done():
            # Aside, because it may take long and scheduled jobs must not wait for it.
            if self._patience.is_needed:
                survey = replace(survey, next_lease_end_at=None)
            self._tending = asyncio.create_task(self._tend(survey))
        return 0.0 if self._page else self._next_look(survey)

    async def _tend(self, survey: PollResult) -> None:
        if not await self._housekeeper.tend(survey):
            self.look()  # it goes on then

    def _next_look(self, survey: PollResult) -> float:
        wait = self._settings.poll.total_seconds()
        if survey.next_due_at is not None:
            wait = min(wait, max(0.0, _until(survey.next_due_at, survey.now)))
        for duty in self._duties:
            if (due_at := duty.due_at(survey)) is not None:
                wait = min(wait, max(duty.pause_seconds, _until(due_at, survey.now)))
        for due_at in (survey.next_lease_end_at, survey.next_deadline_at):
            if due_at is not None:
                wait = min(wait, max(DUTY_SECONDS, _until(due_at, survey.now)))
        return wait


def _is_due(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now


def _until(moment: datetime, now: datetime) -> float:
    return (moment - now).total_seconds()
