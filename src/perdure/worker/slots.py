"""Slots: how many bodies run at once, and how many claimed jobs wait a moment for their turn.

When jobs are over in no time, a worker that claims only for free slots spends its time waiting for
the store. So while jobs fly it claims one batch ahead. A job that waits here longer than a moment
goes back to the queue, where another worker may have a slot for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from perdure import clock
from perdure.model.outcome import GivenBack
from perdure.worker.attempt import Attempt

PACE_SECONDS = 0.05
"""Jobs fly when every slot ended more than one in this time, and there were some in all."""
FLYING_MIN = 20
AHEAD_SECONDS_MAX = 0.1
"""How long a job that was claimed ahead may wait for its slot."""


class Slots:
    """Starts attempts as slots are free, in the order in which they were taken."""

    def __init__(self, concurrency: int, start: Callable[[Attempt], None]) -> None:
        self.concurrency = concurrency
        self.running = 0
        self.is_empty = asyncio.Event()
        self.is_empty.set()
        self._start = start
        self._waiting: deque[Attempt] = deque()
        self._holders: set[int] = set()
        """The attempts that have a slot, by identity."""
        self._is_starting = False
        self._pace = _Pace()
        self._recall: asyncio.TimerHandle | None = None

    def room(self, *, may_claim_ahead: bool) -> int:
        """How many more jobs to claim now."""
        flying = self._pace.ended_lately() >= max(FLYING_MIN, 2 * self.concurrency)
        ahead = self.concurrency if flying and may_claim_ahead else 0
        return self.concurrency + ahead - self.running - len(self._waiting)

    @property
    def has_free(self) -> bool:
        """Whether there is a slot that nothing here waits for."""
        return self.running + len(self._waiting) < self.concurrency

    def take(self, attempt: Attempt) -> None:
        self.is_empty.clear()
        self._waiting.append(attempt)

    def fill(self) -> None:
        """Start what waits while there are free slots."""
        if self._is_starting:
            return  # an attempt that ended while it was started: the loop below goes on
        self._is_starting = True
        try:
            while self._waiting and self.running < self.concurrency:
                attempt = self._waiting.popleft()
                if not attempt.is_over:
                    self.running += 1
                    self._holders.add(id(attempt))
                    self._start(attempt)
        finally:
            self._is_starting = False
            self._note_emptiness()
        if self._waiting and self._recall is None:
            loop = asyncio.get_running_loop()
            self._recall = loop.call_later(AHEAD_SECONDS_MAX, self._give_back, self._waiting[-1])

    def ended(self, attempt: Attempt) -> None:
        """Take the slot back that the attempt may have."""
        if id(attempt) in self._holders:
            self._holders.remove(id(attempt))
            self.running -= 1
            self._pace.ended += 1
        if self._waiting:
            self.fill()
        else:
            self._note_emptiness()

    def can_go_on(self, attempt: Attempt) -> bool:
        """Whether the attempt has a slot for what follows it, and there are not too many."""
        return id(attempt) in self._holders and self.running <= self.concurrency

    def go_on(self, attempt: Attempt, following: Attempt) -> None:
        """Start what follows an attempt in the slot that the attempt had."""
        self._holders.remove(id(attempt))
        self._holders.add(id(following))
        self._pace.ended += 1
        self._start(following)

    def give_back_all(self) -> None:
        """Return everything that waits for a slot to the queue."""
        waiting, self._waiting = self._waiting, deque()
        for attempt in waiting:
            attempt.finish(GivenBack())

    def _give_back(self, last: Attempt) -> None:
        """The time of those up to ``last`` is over."""
        self._recall = None
        if last in self._waiting:
            self.give_back_all()
        elif self._waiting:
            self.fill()

    def _note_emptiness(self) -> None:
        if not self.running and not self._waiting:
            self.is_empty.set()


class _Pace:
    """How many attempts ended lately."""

    def __init__(self) -> None:
        self.ended = 0
        self._lately = 0.0
        self._seen = 0
        self._seen_at = clock.monotonic()

    def ended_lately(self) -> float:
        """In the last full stretch of ``PACE_SECONDS``, or as many as would fit one."""
        now = clock.monotonic()
        if (elapsed := now - self._seen_at) >= PACE_SECONDS:
            self._lately = (self.ended - self._seen) * PACE_SECONDS / elapsed
            self._seen, self._seen_at = self.ended, now
        return self._lately
