"""Renew leases and check claims.

One statement renews the leases of all jobs, from a thread with its own event loop and its own
store connection, so neither a busy event loop nor a blocking task can make a live worker look
dead. It also renews the worker's own row, with what the worker has counted.

The leading worker takes over jobs whose leases expire: see ``worker.janitor``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from perdure import clock
from perdure.model.job import Claim
from perdure.model.worker import Renewal, TaskCounts, WorkerInfo
from perdure.store.contract import Store
from perdure.worker.executors import call_on_loop

if TYPE_CHECKING:
    from perdure.worker.runner import JobRunner

RENEWALS_PER_LEASE = 3
STOP_SECONDS = 2.0
RETRY_SECONDS = 1.0
ANSWER_SECONDS_MIN = 1.0
"""The least time that a store gets to respond, however short leases are."""
_log = logging.getLogger("perdure.worker")


class LeaseRenewer:
    """Renews until it is stopped. ``renewed`` and ``superseded`` are called from the thread."""

    def __init__(
        self,
        store: Store,
        info: Callable[[], WorkerInfo],
        counts: Callable[[], Sequence[TaskCounts]],
        claims: Callable[[], Sequence[Claim]],
        lease: timedelta,
        renewed: Callable[[Sequence[Claim], Renewal], None],
        superseded: Callable[[], None],
    ) -> None:
        self._store = store
        self._info = info
        self._counts = counts
        self._claims = claims
        self._lease = lease
        self._renewed = renewed
        self._superseded = superseded
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="perdure leases", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._renewing = self._loop.create_task(self._renew_until_stopped())
        self._thread.start()

    def wake(self) -> None:
        """Write the worker's row now, because it changed. From any thread."""
        if self._thread.is_alive():  # otherwise it is written at the start
            call_on_loop(self._loop, self._woken.set)

    async def stop(self) -> None:
        """End the thread, without blocking the caller's loop."""
        call_on_loop(self._loop, self._stopping.set)
        self.wake()
        join = asyncio.get_running_loop().run_in_executor
        await join(None, self._thread.join, STOP_SECONDS)
        if self._thread.is_alive():
            # An unresponsive store must not delay the stop.
            call_on_loop(self._loop, self._renewing.cancel)
            await join(None, self._thread.join)

    def _main(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._renewing)
        finally:
            self._loop.close()

    async def _renew_until_stopped(self) -> None:
        interval = self._lease.total_seconds() / RENEWALS_PER_LEASE
        limit = max(interval, ANSWER_SECONDS_MIN)
        is_open = False
        try:
            while not self._stopping.is_set():
                try:
                    if not is_open:
                        await self._store.open()
                        is_open = True
                    await self._renew_within(limit)
                except Exception:
                    # No error may end this thread: without it a live worker looks dead.
                    _log.exception("lease renewal failed; retrying")
                    await set_within(self._stopping, RETRY_SECONDS)
                else:
                    await set_within(self._woken, interval)
                    self._woken.clear()
        finally:
            if is_open:
                await self._store.close()

    async def _renew_within(self, seconds: float) -> None:
        """Retry within the time left, rather than wait on an unresponsive connection."""
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
            self._renewed(claims, renewal)
        if not await self._store.maintenance.register_worker(info, self._counts()):
            self._superseded()


INTERVAL_SECONDS = 1.0
YOUNG_SECONDS = 0.5
"""Most jobs end before a check without a hint would be worth its cost."""


class ClaimMonitor:
    """Checks the claims of running attempts until stopped, and stops those lost or aborted.

    Every second, or at once after a hint: a renewal would notice too, but up to a third of a lease
    later.
    """

    def __init__(self, store: Store, runner: JobRunner) -> None:
        self._store = store
        self._runner = runner
        self._hinted = asyncio.Event()
        self._is_stopping = False

    def wake(self) -> None:
        self._hinted.set()

    def stop(self) -> None:
        self._is_stopping = True
        self._hinted.set()

    async def run(self) -> None:
        while not self._is_stopping:
            await set_within(self._hinted, INTERVAL_SECONDS)
            try:
                await self._check()
            except Exception:
                _log.exception("claim check failed; retrying")

    async def _check(self) -> None:
        is_hinted = self._hinted.is_set()
        self._hinted.clear()
        now = clock.monotonic()
        claims = [
            attempt.claim
            for attempt in self._runner.claimed.values()
            if not attempt.is_over and (is_hinted or now - attempt.started_at > YOUNG_SECONDS)
        ]
        if claims:
            self._runner.renewed(claims, await self._store.jobs.check(claims))


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set; False on timeout."""
    try:
        # Not wait_for: on Python 3.11 it swallows a cancellation that comes with the event.
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    except TimeoutError:
        return False
