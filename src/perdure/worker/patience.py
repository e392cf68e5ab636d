"""Patience after an outage: while a store was out of reach, nobody could renew a lease.

When it answers again, every lease may have run out, though all workers are alive and about to
renew. Whoever keeps house then would take their jobs from them. So a worker that waited long for
an answer, or was frozen itself, lets everybody renew before it takes anything over.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from perdure import clock
from perdure.worker.leases import RENEWALS_PER_LEASE

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
