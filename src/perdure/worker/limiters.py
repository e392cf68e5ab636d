"""Places under limits of the user's own: asked for before a claim, renewed, and released.

A limiter may be slow or broken, so it is asked while claims continue in partitions under other
limits. Each limiter is called in a thread with an event loop of its own: a body that blocks the
worker's loop keeps its place as long as its lease, and a limiter that blocks its thread delays no
renewals but its own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from perdure import clock
from perdure.model.job import Claim, ClaimedJob
from perdure.model.limit import Limiter
from perdure.worker.executors import call_on_loop
from perdure.worker.isolation import run_until_main_ends

if TYPE_CHECKING:
    from perdure.worker.claims import Claims

ANSWER_SECONDS_MAX = 5.0
"""How long a limiter may take to answer."""
JOIN_SECONDS_MAX = 1.0
"""How long a stop waits for the threads of limiters, which a limiter may block."""
RETRY_SECONDS = 1.0
"""When to ask again after an error, or if the limiter does not say when."""
RENEWALS_PER_LEASE = 3
_log = logging.getLogger("perdure.worker")

Named = tuple[str, Limiter]
"""A limiter and the key to ask it for."""
Places = tuple[str, ...]
"""What one job holds: a place under each limit."""


T = TypeVar("T")


class LimiterThread:
    """Calls one limiter on an event loop of its own, until it is stopped."""

    def __init__(self, renew_forever: Coroutine[Any, Any, None]) -> None:
        self._loop = asyncio.new_event_loop()
        self._renew_forever = renew_forever
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="perdure limiter", daemon=True)
        self._thread.start()

    async def result_of(self, call: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def stop(self) -> None:
        """Let the thread end. Cancels calls that did not answer."""
        call_on_loop(self._loop, self._stopping.set)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _main(self) -> None:
        run_until_main_ends(self._serve(), lambda: self._loop)

    async def _serve(self) -> None:
        renewing = asyncio.create_task(self._renew_forever)
        await self._stopping.wait()
        renewing.cancel()


async def bounded(call: Callable[[], Awaitable[T]]) -> T:
    """What a limiter answers. Raises ``TimeoutError`` if that takes too long."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        try:
            return await call()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            elif isinstance(error, Exception) and not isinstance(error, futures.CancelledError):
                raise
            # Others would end the thread, or be taken for a cancellation of the caller.
            raise RuntimeError(f"the limiter raised {type(error).__name__}") from error


@contextmanager
def failures_logged() -> Iterator[None]:
    try:
        yield
    except Exception:
        _log.exception("limiter failed; its places free by themselves")


async def renew(limiter: Limiter, key: str, places: Sequence[str], ttl: timedelta) -> None:
    with failures_logged():
        await bounded(partial(limiter.renew, key, places, ttl))


@dataclass(frozen=True, eq=False)
class Granted:
    """The answer of a limiter."""

    key: str
    limiter: Limiter
    places: Sequence[str]
    again_at: datetime | None


class Reservation:
    """The places under the limits that the jobs of some partitions share."""

    def __init__(self, limits: tuple[Named, ...]) -> None:
        self.limits = limits
        self.free: list[Places] = []
        """Granted, but not yet used by a job."""
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
        self._pending: set[Granted] = set()
        """Those that the worker's event loop, which a body may block, has not heard of yet."""
        self._calls: set[asyncio.Task[None]] = set()
        self._threads: dict[int, LimiterThread] = {}
        """By id of the limiter, which each of them keeps alive."""
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
        if self._is_closed:
            return  # its body may still run
        if self._held and (held := self._held.pop(claim, None)) is not None:
            reservation, places = held
            self._release(reservation, [places], self._look_again(reservation))

    async def close(self, *, ends_process: bool) -> None:
        """Release all places but those of bodies that still run.

        With ``ends_process``, these are renewed until then.
        """
        self._is_closed = True
        if not self._threads and not self._calls:
            return
        try:
            self.release_all_free()
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                while self._calls:  # pending requests release what they are granted
                    await asyncio.gather(*self._calls, return_exceptions=True)
        except TimeoutError:
            _log.error("limiter does not answer; its places free by themselves")
        finally:
            if not ends_process:
                await self._stop_threads()

    async def _stop_threads(self) -> None:
        """End the threads, without blocking the event loop."""
        threads = list(self._threads.values())
        until = clock.monotonic() + JOIN_SECONDS_MAX

        def join() -> None:
            for thread in threads:
                thread.join(max(0.0, until - clock.monotonic()))

        for thread in threads:
            thread.stop()
        await asyncio.get_running_loop().run_in_executor(None, join)

    def _thread_of(self, limiter: Limiter) -> LimiterThread:
        if (thread := self._threads.get(id(limiter))) is None:
            thread = self._threads[id(limiter)] = LimiterThread(self._renew_forever(limiter))
        return thread

    async def _ask(self, reservation: Reservation, wanted: int) -> None:
        """Ask each limiter for as many places as the one before has granted."""
        granted: list[Granted] = []
        count, again_at, seconds = wanted, None, RETRY_SECONDS
        try:
            for key, limiter in reservation.limits:
                answer = self._acquire(limiter, key, count)
                granted.append(await self._thread_of(limiter).result_of(answer))
                again_at = granted[-1].again_at
                count = min(count, len(granted[-1].places))
                if count == 0:
                    break
            if again_at is not None:
                seconds = max(0.0, (again_at - clock.system_clock()).total_seconds())
        except Exception:
            keys = ", ".join(key for key, _ in reservation.limits)
            _log.exception("limiter failed; asking again", extra={"fields": {"limits": keys}})
            count, again_at = 0, None
        finally:
            reservation.is_asking = False
        if self._is_closed:
            count = 0
        for each in granted:
            if each.places[count:]:
                self._call(self._end(each.limiter, each.key, each.places[count:]))
        if count:
            reservation.free += zip(*(each.places[:count] for each in granted), strict=True)
            self._granted.add(reservation)
        self._pending.difference_update(granted)
        reservation.opens_later = again_at is not None and count == 0
        if count < wanted and not self._is_closed:
            reservation.ask_at = clock.monotonic() + seconds
            self._claims.look_in(seconds)
        self._claims.look()

    async def _acquire(self, limiter: Limiter, key: str, count: int) -> Granted:
        """Runs in the thread of the limiter."""
        acquire = partial(limiter.acquire, key, count, self._ttl)
        places, again_at = await bounded(acquire)
        granted = Granted(key, limiter, list(places), again_at)
        self._pending.add(granted)
        return granted

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
            self._call(self._end(limiter, key, places, then))

    async def _renew_forever(self, limiter: Limiter) -> None:
        """Runs in the thread of the limiter."""
        async with asyncio.TaskGroup() as calls:
            while True:
                await asyncio.sleep(self._ttl.total_seconds() / RENEWALS_PER_LEASE)
                for key, places in self._places_under(limiter).items():
                    calls.create_task(renew(limiter, key, places, self._ttl))

    def _places_under(self, limiter: Limiter) -> dict[str, list[str]]:
        """By key. Called from a thread, so each collection is copied first.

        Pending ones are copied before free ones, which they become: some may be in both.
        """
        found: dict[str, list[str]] = {}
        pending = list(self._pending)
        having = [
            (reservation, place)
            for reservation in list(self._granted)
            for place in list(reservation.free)
        ]
        for reservation, held in [*having, *list(self._held.values())]:
            for (key, each), place in zip(reservation.limits, held, strict=True):
                if each is limiter:
                    found.setdefault(key, []).append(place)
        for granted in pending:
            if granted.limiter is limiter:
                found.setdefault(granted.key, []).extend(granted.places)
        return {key: list(dict.fromkeys(places)) for key, places in found.items()}

    async def _end(
        self,
        limiter: Limiter,
        key: str,
        places: Sequence[str],
        then: Callable[[], None] | None = None,
    ) -> None:
        with failures_logged():
            release = bounded(partial(limiter.release, key, places))
            await self._thread_of(limiter).result_of(release)
        if then is not None:
            then()

    def _call(self, call: Awaitable[None]) -> None:
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
