"""The scout: one look at the store tells the whole worker what waits and what is due.

It looks when hinted, when the next scheduled job is due, and every poll interval in case hints
were lost. So an idle worker costs one statement a poll, and starts a delayed job on time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from perdure import clock
from perdure.model.worker import PollResult
from perdure.store.contract import SURVEY_LANES_MAX, Store
from perdure.worker.housekeeping.duty import Duty
from perdure.worker.housekeeping.keeper import Housekeeper
from perdure.worker.housekeeping.promote import promote_jobs
from perdure.worker.lanes import KnownLanes
from perdure.worker.patience import Patience
from perdure.worker.pauses import set_within
from perdure.worker.settings import WorkerSettings

SOONEST_SECONDS = 0.02
"""Hints in a row cause one look in this time, not one each."""
DUTY_SECONDS = 1.0
"""When something is overdue that another worker sees to, look again no sooner than this."""
_log = logging.getLogger("perdure.worker")


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
