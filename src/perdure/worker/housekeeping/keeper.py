"""Who keeps house: the worker that holds the lease row of the duty."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from perdure import clock
from perdure.model.ids import WorkerId
from perdure.model.worker import PollResult
from perdure.store.contract import Store
from perdure.worker.housekeeping.expire import expire_jobs
from perdure.worker.housekeeping.prune import prune
from perdure.worker.housekeeping.rescue import rescue_jobs
from perdure.worker.report import Report
from perdure.worker.settings import WorkerSettings

LEAD_LEASE_MAX = timedelta(seconds=10)
PRUNE_SECONDS = 60.0
PRUNE_BATCHES = 10
"""So many in a row, and then a look whether something is more urgent."""
PRUNE_PAUSE_SECONDS = 0.01
_log = logging.getLogger("perdure.worker")


def duty_in(namespace: str) -> str:
    """The duty of keeping house: each namespace has its own, and is kept by its own workers."""
    return f"housekeeping:{namespace}"


class Housekeeper:
    """Does what a survey shows to be due, if no other worker is at it."""

    def __init__(
        self, store: Store, settings: WorkerSettings, worker: WorkerId, report: Report
    ) -> None:
        self._store = store
        self._settings = settings
        self._worker = worker
        self._report = report
        self._prune_at = clock.monotonic()

    async def tend(self, survey: PollResult) -> bool:
        """Take over, expire and prune as needed. A failure is logged and tried again next time.

        False when there is more to prune: then do so again soon, after another survey.
        """
        is_pruned = True
        prune_due = self._prune_at <= clock.monotonic()
        try:
            lease_over = _is_over(survey.next_lease_end_at, survey.now)
            deadline_over = _is_over(survey.next_deadline_at, survey.now)
            if not (lease_over or deadline_over or prune_due) or not await self._lead():
                return True
            if lease_over:
                await rescue_jobs(self._store, self._settings, self._report)
            if deadline_over:
                await expire_jobs(self._store, self._settings.namespace, self._report)
            if prune_due:
                is_pruned = await self._prune()
            # Done: should this worker die, nobody has to wait for the lease to run out.
            await self._lead(timedelta(0))
        except Exception:
            _log.exception("housekeeping failed; it is tried again")
        finally:
            if prune_due and is_pruned:
                self._prune_at = clock.monotonic() + PRUNE_SECONDS
        return is_pruned

    async def _prune(self) -> bool:
        for _ in range(PRUNE_BATCHES):
            if await prune(self._store, self._settings):
                return True
            # Let the workers' own statements in between: nobody waits for this one.
            await asyncio.sleep(PRUNE_PAUSE_SECONDS)
            if not await self._lead():
                return True
        return False

    async def _lead(self, lease: timedelta = LEAD_LEASE_MAX) -> bool:
        # No longer than a job's: the dead are found out about as soon when one kept house.
        span = min(lease, self._settings.lease)
        return await self._store.maintenance.acquire_lease(
            duty_in(self._settings.namespace), self._worker, span
        )


def _is_over(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now
