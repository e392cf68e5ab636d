"""Watching the claims: aborted and lost jobs are told to stop within a second, on any machine.

A hint makes it at once; without one, jobs that run longer than a moment are looked up once a
second. Renewing leases gives the same answers more slowly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from perdure import clock
from perdure.model.job import Claim
from perdure.model.worker import Renewal
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt
from perdure.worker.pauses import set_within

INTERVAL_SECONDS = 1.0
YOUNG_SECONDS = 0.5
"""Most jobs are over before an unhinted look at them would pay."""
_log = logging.getLogger("perdure.worker")


class ClaimWatch:
    """Looks until stopped, and passes every answer on with the claims it is about."""

    def __init__(
        self,
        store: Store,
        held: Callable[[], Collection[Attempt]],
        tell: Callable[[Sequence[Claim], Renewal], None],
    ) -> None:
        self._store = store
        self._held = held
        self._tell = tell
        self._hinted = asyncio.Event()
        self._is_stopping = False

    def look(self) -> None:
        self._hinted.set()

    def stop(self) -> None:
        self._is_stopping = True
        self._hinted.set()

    async def run(self) -> None:
        while not self._is_stopping:
            await set_within(self._hinted, INTERVAL_SECONDS)
            try:
                await self._look()
            except Exception:
                _log.exception("checking claims failed; trying again")

    async def _look(self) -> None:
        is_hinted = self._hinted.is_set()
        self._hinted.clear()
        now = clock.monotonic()
        claims = [
            attempt.claim
            for attempt in self._held()
            if not attempt.is_over and (is_hinted or now - attempt.started_at > YOUNG_SECONDS)
        ]
        if claims:
            self._tell(claims, await self._store.jobs.check(claims))
