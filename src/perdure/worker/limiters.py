"""Places under limits of the user's own: asked for before a claim, renewed, and released.

A limiter may be slow or broken, so asking runs beside the claims: partitions under other limits go
on. All calls come from the worker's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from perdure import clock
from perdure.model.job import Claim, ClaimedJob
from perdure.model.limit import Limiter

if TYPE_CHECKING:
    from perdure.worker.claims import Claims

ANSWER_SECONDS_MAX = 5.0
"""How long a limiter may take to answer."""
RETRY_SECONDS = 1.0
"""When to ask again after an error, or if the limiter does not say when."""
RENEWALS_PER_LEASE = 3
_log = logging.getLogger("perdure.worker")

Named = tuple[str, Limiter]
"""A limiter and the key to ask it for."""
Places = tuple[str, ...]
"""What one job holds: a place under each limit."""


class Reservation:
    """The places under the limits that the jobs of some partitions share."""

    def __init__(self, limits: tuple[Named, ...]) -> None:
        self.limits = limits
        self.free: list[Places] = []
        """Granted, and not yet held by a job."""
        self.is_asking = False
        self.opens_later = False
        """Whether the limiter said when it has room."""
        self.ask_at = 0.0


class Limiters:
    """The places that this worker has under limits of the user's own."""

    def __init__(self, ttl: timedelta, claims: Claims) -> None:
        self._ttl = ttl
        self._claims = claims
        # Submitters choose computed keys: keep no reservation that nothing uses.
        self._reservations = WeakValueDictionary[tuple[tuple[str, int], ...], Reservation]()
        self._granted: set[Reservation] = set()
        """Those with free places."""
        self._held: dict[Claim, tuple[Reservation, Places]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._is_closed = False

    def reservation_under(self, limits: Sequence[Named]) -> Reservation:
        """What partitions under the same limits share."""
        key = tuple((key, id(limiter)) for key, limiter in limits)
        return self._reservations.setdefault(key, Reservation(tuple(limits)))

    def has_places(self, reservation: Reservation, wanted: int) -> bool:
        """Whether there are free places. If not, ask for as many as ``wanted``."""
        if reservation.free:
            return True
        if (
            not reservation.is_asking
            and clock.monotonic() >= reservation.ask_at
            and not self._is_closed
        ):
            reservation.is_asking = True
            self._call(self._ask(reservation, wanted))
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew_forever())
        if reservation.is_asking or reservation.opens_later:
            self._claims.opens_later = True
        return False

    def hold(self, reservation: Reservation, jobs: Sequence[ClaimedJob]) -> None:
        """Assign free places to jobs that were just claimed."""
        for job in jobs:
            self._held[job.claim] = (reservation, reservation.free.pop())

    def release_free(self, reservation: Reservation) -> None:
        self._granted.discard(reservation)
        places, reservation.free = reservation.free, []
        self._release(reservation, places)

    def release_all_free(self) -> None:
        """Release what was granted and cannot be used now."""
        for reservation in list(self._granted):
            self.release_free(reservation)

    def ended(self, claim: Claim) -> None:
        """The attempt of a claim ended: release its places, and claim again."""
        if self._held and (held := self._held.pop(claim, None)) is not None:
            reservation, places = held
            self._release(reservation, [places], self._look_again(reservation))

    async def close(self) -> None:
        """Release everything. Call it when no attempt runs any more."""
        self._is_closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        self.release_all_free()
        for claim in list(self._held):
            self.ended(claim)
        while self._calls:  # those that ask release what they get
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def _ask(self, reservation: Reservation, wanted: int) -> None:
        """Ask each limiter for as many places as the one before has granted."""
        granted: list[list[str]] = []
        count, again_at, seconds = wanted, None, RETRY_SECONDS
        try:
            for key, limiter in reservation.limits:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    places, again_at = await limiter.acquire(key, count, self._ttl)
                granted.append(list(places))
                count = min(count, len(granted[-1]))
                if count == 0:
                    break
            if again_at is not None:
                seconds = max(0.0, (again_at - clock.system_clock()).total_seconds())
        except Exception:
            keys = ", ".join(key for key, _ in reservation.limits)
            _log.exception("limiter failed; asking again", extra={"fields": {"limits": keys}})
            count, again_at = 0, None
        reservation.is_asking = False
        if self._is_closed:
            count = 0
        for (key, limiter), each in zip(reservation.limits, granted, strict=False):
            if each[count:]:
                self._call(self._answer(partial(limiter.release, key, each[count:])))
        if count:
            reservation.free += zip(*(each[:count] for each in granted), strict=True)
            self._granted.add(reservation)
        reservation.opens_later = again_at is not None and count == 0
        if count < wanted and not self._is_closed:
            reservation.ask_at = clock.monotonic() + seconds
            self._claims.look_in(seconds)
        self._claims.look()

    def _look_again(self, reservation: Reservation) -> Callable[[], None]:
        def look() -> None:
            reservation.ask_at = 0.0
            self._claims.look()

        return look

    def _release(
        self,
        reservation: Reservation,
        released: Sequence[Places],
        then: Callable[[], None] | None = None,
    ) -> None:
        if not released:
            return
        for (key, limiter), places in zip(
            reservation.limits, zip(*released, strict=True), strict=True
        ):
            self._call(self._answer(partial(limiter.release, key, places), then))

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._ttl.total_seconds() / RENEWALS_PER_LEASE)
            for key, limiter, places in self._all_places():
                self._call(self._answer(partial(limiter.renew, key, places, self._ttl)))

    def _all_places(self) -> list[tuple[str, Limiter, list[str]]]:
        found: dict[tuple[str, int], tuple[str, Limiter, list[str]]] = {}
        having = [
            (reservation, place) for reservation in self._granted for place in reservation.free
        ]
        for reservation, held in [*having, *self._held.values()]:
            for (key, limiter), place in zip(reservation.limits, held, strict=True):
                found.setdefault((key, id(limiter)), (key, limiter, []))[2].append(place)
        return list(found.values())

    async def _answer(
        self, call: Callable[[], Awaitable[None]], then: Callable[[], None] | None = None
    ) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await call()
        except Exception:
            _log.exception("limiter failed; its places free by themselves")
        if then is not None:
            then()

    def _call(self, call: Awaitable[None]) -> None:
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
