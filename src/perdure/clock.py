"""The only module that reads the time or generates ids, so that tests can control both."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_RANDOM_BITS = 80
_RANDOM_ROOM = 1 << (_RANDOM_BITS - 1)


def system_clock() -> datetime:
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds for measuring how long something took; never compared across processes."""
    return time.monotonic()


class ManualClock:
    """A clock that only moves when advanced."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self._now

    def advance(self, by: timedelta) -> None:
        self._now += by


class _Ids:
    """128-bit ids of 26 characters that sort by creation time.

    48 bits of milliseconds, then 80 random bits that are incremented within one millisecond, so
    the ids of one process are always in order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_ms = 0
        self._tail = 0
        self._head = -1
        self._head_text = ""

    def next(self) -> str:
        with self._lock:
            now_ms = time.time_ns() // 1_000_000
            if now_ms > self._last_ms:
                self._last_ms = now_ms
                # The top bit stays free, so that incrementing cannot overflow.
                self._tail = int.from_bytes(os.urandom(10)) % _RANDOM_ROOM
            else:
                self._tail += 1
            number = (self._last_ms << _RANDOM_BITS) | self._tail
            # Ids of the same millisecond mostly differ only in their last four characters.
            if number >> 20 != self._head:
                self._head = number >> 20
                self._head_text = "".join(
                    [_PAIRS[(self._head >> shift) & 1023] for shift in range(100, -1, -10)]
                )
            return self._head_text + _PAIRS[(number >> 10) & 1023] + _PAIRS[number & 1023]


new_id = _Ids().next


def new_incarnation() -> int:
    """48 random bits: every program that reads JSON can represent it."""
    return int.from_bytes(os.urandom(6))
