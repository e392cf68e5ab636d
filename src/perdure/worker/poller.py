"""Poll the store for due work: partitions with jobs, promotions, waits, schedules, maintenance.

After an outage of the store, expired leases are left alone for a while (takeover grace), because
their workers may be alive and could not renew them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from perdure import clock
from perdure.model.worker import PollResult, WorkerSettings
from perdure.store.contract import POLL_PARTITIONS_MAX, Store
from perdure.worker.claims import KnownPartitions
from perdure.worker.due_work import DueWork
from perdure.worker.janitor import Janitor, is_due, promote_jobs, release_jobs
from perdure.worker.lease_renewal import RENEWALS_PER_LEASE, set_within
from perdure.worker.live import LiveEvents

SPACING_SECONDS = 0.02
"""Hints in a row cause one poll in this time, not one each."""
MAINTENANCE_SECONDS = 1.0
"""When something is overdue that another worker may do, poll again no sooner than this."""
OUTAGE_SECONDS = 1.0
"""An answer, or a wake-up, that is later than this is a sign of an outage."""
RECONNECT_SECONDS = 5.0
"""How long after an outage it may take until the last worker has retried."""
_log = logging.getLogger("perdure.worker")


class Poller:
    """Polls until stopped, and calls ``found`` after each poll that saw work for this worker."""

    def __init__(
        self,
        store: Store,
        partitions: KnownPartitions,
        settings: WorkerSettings,
        janitor: Janitor,
        due_work: Sequence[DueWork],
        live: LiveEvents,
        found: Callable[[], None],
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._settings = settings
        self._janitor = janitor
        self._due_work = due_work
        self._live = live
        self._found = found
        self._grace = TakeoverGrace(settings.lease)
        self._hinted = asyncio.Event()
        self._is_stopping = False
        self._maintenance: asyncio.Task[None] | None = None
        self._release_at = clock.monotonic()
        """When to check whether the workers that jobs wait for are gone."""
        self._page = ""
        """Where the next poll continues, if the last one did not see all partitions."""

    def wake(self) -> None:
        self._hinted.set()

    @property
    def is_at_work(self) -> bool:
        """Whether it has not polled yet, or due work or maintenance is under way."""
        if self._maintenance is None or not self._maintenance.done():
            return True
        return any(work.is_at_work for work in self._due_work)

    def has_due(self, poll: PollResult) -> bool:
        """Whether something is due that this worker may do and is not backing off from."""
        is_ready = is_due(poll.next_due_at, poll.now) or is_due(poll.next_sticky_at, poll.now)
        return is_ready or any(
            is_due(work.due_at(poll), poll.now) and not work.backing_off_count
            for work in self._due_work
        )

    def stop(self) -> None:
        """Poll no more; a poll under way is still finished."""
        self._is_stopping = True
        self._hinted.set()

    async def run(self) -> None:
        try:
            while not self._is_stopping:
                started_at = clock.monotonic()
                try:
                    wait = await self._poll()
                except Exception:
                    _log.exception("poll failed; retrying")
                    wait = self._settings.poll.total_seconds()
                slept_at = clock.monotonic()
                await set_within(self._hinted, wait)
                self._grace.note_delay(clock.monotonic() - slept_at - wait)
                spent = clock.monotonic() - started_at
                if spent < SPACING_SECONDS and not self._is_stopping:
                    await asyncio.sleep(SPACING_SECONDS - spent)
        finally:
            if self._maintenance is not None:
                self._maintenance.cancel()
                await asyncio.wait([self._maintenance])
            for work in self._due_work:
                await work.stop()

    async def _poll(self) -> float:
        """Poll once and start due work; returns the seconds until the next poll."""
        self._hinted.clear()
        if not self._page:
            self._partitions.start_poll()
        asked_at = clock.monotonic()
        poll = await self._store.maintenance.poll(self._settings.namespace, self._page)
        self._grace.note_delay(clock.monotonic() - asked_at)
        if is_due(poll.next_due_at, poll.now) and await promote_jobs(
            self._store, self._settings.namespace
        ):
            self._hinted.set()  # the next poll shows what was promoted
        if poll.next_sticky_at is not None:
            await self._release(poll.next_sticky_at, poll.now)
        for work in self._due_work:
            if is_due(work.due_at(poll), poll.now):
                work.process(self.wake)
        self._live.note(poll)
        self._partitions.paused = frozenset(poll.paused)
        self._partitions.note(poll.partitions)
        self._page = poll.partitions[-1] if len(poll.partitions) >= POLL_PARTITIONS_MAX else ""
        if not self._page:
            self._partitions.end_poll()
        if self._partitions:
            self._found()
        takeover_at, wait = poll.next_lease_end_at, self._settings.poll.total_seconds()
        if takeover_at is not None and (grace := self._grace.seconds_left) > 0:
            poll = replace(poll, next_lease_end_at=None)
            wait = min(wait, max(MAINTENANCE_SECONDS, grace))
        if self._maintenance is None or self._maintenance.done():
            # In the background: it may take long, and scheduled jobs must not wait for it.
            self._maintenance = asyncio.create_task(self._maintain(poll))
        return 0.0 if self._page else self._until_next(poll, wait)

    async def _release(self, due_at: datetime, now: datetime) -> None:
        if due_at > now and self._release_at > clock.monotonic():
            return
        self._release_at = clock.monotonic() + MAINTENANCE_SECONDS
        if await release_jobs(self._store, self._settings.namespace):
            self._hinted.set()

    async def _maintain(self, poll: PollResult) -> None:
        if not await self._janitor.process(poll):
            self.wake()  # more to prune

    def _until_next(self, poll: PollResult, wait: float) -> float:
        """The seconds until something is due, and ``wait`` at most."""
        moments: list[tuple[datetime | None, float]] = [
            (poll.next_due_at, 0.0),
            (poll.next_sticky_at, 0.0),
            *((work.due_at(poll), work.pause_seconds) for work in self._due_work),
            (poll.next_lease_end_at, MAINTENANCE_SECONDS),
            (poll.next_deadline_at, MAINTENANCE_SECONDS),
        ]
        if poll.next_sticky_at is not None:
            wait = min(wait, MAINTENANCE_SECONDS)  # no hint tells that a worker was killed
        for due_at, least in moments:
            if due_at is not None:
                wait = min(wait, max(least, (due_at - poll.now).total_seconds()))
        return wait


class TakeoverGrace:
    """Whether it is too soon after an outage to take jobs over."""

    def __init__(self, lease: timedelta, now: Callable[[], float] = clock.monotonic) -> None:
        self._seconds = lease.total_seconds() / RENEWALS_PER_LEASE + RECONNECT_SECONDS
        self._now = now
        self._until = float("-inf")

    def note_delay(self, seconds: float) -> None:
        """An answer or a wake-up was this late: possibly an outage.

        A new grace period starts only after as much time without one: a body that keeps blocking
        the event loop looks like one outage after the other, and must not delay takeovers
        indefinitely.
        """
        if seconds > OUTAGE_SECONDS and self._now() >= self._until + self._seconds:
            self._until = self._now() + self._seconds

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._until - self._now())
