"""Who keeps house: the worker that holds the lease row of the duty."""

from __future__ import annotations

import logging
from datetime import timedelta

from perdure import clock
from perdure.model.ids import WorkerId
from perdure.model.worker import Survey
from perdure.store.contract import Store
from perdure.worker.housekeeping.expire import expire_jobs
from perdure.worker.housekeeping.prune import prune
from perdure.worker.housekeeping.rescue import rescue_jobs
from perdure.worker.settings import WorkerSettings

DUTY = "housekeeping"
LEAD_LEASE_MAX = timedelta(seconds=10)
PRUNE_SECONDS = 60.0
_log = logging.getLogger("perdure.worker")


class Housekeeper:
    """Does what a survey shows to be due, if no other worker is at it."""

    def __init__(self, store: Store, settings: WorkerSettings, worker: WorkerId) -> None:
        self._store = store
        self._settings = settings
        self._worker = worker
        self._prune_at = clock.monotonic()

    async def tend(self, survey: Survey) -> None:
        """Take over, expire and prune as needed. A failure is logged and tried again next time."""
        lease_over = survey.next_lease_end_at is not None and survey.next_lease_end_at <= survey.now
        deadline_over = (
            survey.next_deadline_at is not None and survey.next_deadline_at <= survey.now
        )
        prune_due = self._prune_at <= clock.monotonic()
        if not (lease_over or deadline_over or prune_due):
            return
        try:
            # No longer than a job's: the dead are found out about as soon when one kept house.
            lease = min(LEAD_LEASE_MAX, self._settings.lease)
            if not await self._store.lead(DUTY, self._worker, lease):
                return
            if lease_over:
                await rescue_jobs(self._store, self._settings.deaths_max)
            if deadline_over:
                await expire_jobs(self._store)
            if prune_due:
                await prune(self._store, self._settings)
            # Done: should this worker die, nobody has to wait for the lease to run out.
            await self._store.lead(DUTY, self._worker, timedelta(0))
        except Exception:
            _log.exception("housekeeping failed; it is tried again")
        finally:
            if prune_due:
                self._prune_at = clock.monotonic() + PRUNE_SECONDS
