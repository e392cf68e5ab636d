"""Renew leases and check held claims.

Leases of all jobs are renewed in one statement, from a thread with its own event loop and its own
handle on the store, so neither a busy event loop nor a blocking task can make a live worker look
dead. It also keeps the worker's own row alive.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta

from perdure import clock
from perdure.model.job import Claim
from perdure.model.worker import Renewal, WorkerInfo
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt
from perdure.worker.executors import tell
from perdure.worker.pauses import set_within

RENEWALS_PER_LEASE = 3
STOP_SECONDS = 2.0
RETRY_SECONDS = 1.0
ANSWER_SECONDS_MIN = 1.0
"""What a store is given to answer in at least, however short leases are."""
_log = logging.getLogger("perdure.worker")


class LeaseKeeper:
    """Renews until it is stopped. ``tell`` is called from the thread."""

    def __init__(
        self,
        store: Store,
        info: Callable[[], WorkerInfo],
        claims: Callable[[], Sequence[Claim]],
        lease: timedelta,
        tell: Callable[[Sequence[Claim], Renewal], None],
    ) -> None:
        self._store = store
        self._info = info
        self._claims = claims
        self._lease = lease
        self._tell = tell
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="perdure leases", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._keeping = self._loop.create_task(self._keep())
        self._thread.start()

    async def stop(self) -> None:
        """End the thread, without blocking the caller's loop."""
        tell(self._loop, self._stopping.set)
        join = asyncio.get_running_loop().run_in_executor
        await join(None, self._thread.join, STOP_SECONDS)
        if self._thread.is_alive():
            # A store that does not answer must not hold up the stop.
            tell(self._loop, self._keeping.cancel)
            await join(None, self._thread.join)

    def _main(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._keeping)
        finally:
            self._loop.close()

    async def _keep(self) -> None:
        interval = self._lease.total_seconds() / RENEWALS_PER_LEASE
        patience = max(interval, ANSWER_SECONDS_MIN)
        is_open = False
        try:
            while not self._stopping.is_set():
                try:
                    if not is_open:
                        await self._store.open()
                        is_open = True
                    await self._renew_within(patience)
                except Exception:
                    # Nothing may end this thread: without it a live worker looks dead.
                    _log.exception("leases were not renewed; trying again")
                    await set_within(self._stopping, RETRY_SECONDS)
                else:
                    await set_within(self._stopping, interval)
        finally:
            if is_open:
                await self._store.close()

    async def _renew_within(self, seconds: float) -> None:
        """Try again while there is time, rather than wait on a connection that stays silent."""
        while not self._stopping.is_set():
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    await self._renew()
                return
            except TimeoutError:
                if not limit.expired():
                    raise

    async def _renew(self) -> None:
        claims = self._claims()
        info = self._info()
        if claims:
            renewal = await self._store.jobs.renew(info.id, claims, self._lease)
            self._tell(claims, renewal)
        await self._store.maintenance.register_worker(info)


INTERVAL_SECONDS = 1.0
YOUNG_SECONDS = 0.5
"""Most jobs are over before an unhinted look at them would pay."""


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
