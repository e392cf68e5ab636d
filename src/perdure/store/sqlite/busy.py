"""What SQLite's error codes mean to us, and waiting while another process has the lock."""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

from perdure.clock import monotonic

Answer = TypeVar("Answer")

COMPLAIN_EVERY_SECONDS = 10.0

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_PAUSE_FIRST, _PAUSE_MAX, _PAUSE_GROWTH = 0.0002, 0.004, 1.4
_log = logging.getLogger("perdure.store")


def primary_code(error: sqlite3.Error) -> int:
    """The error's primary result code; 0 when it did not come from SQLite itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether another connection was in the way, so that the same thing will work later."""
    return isinstance(error, sqlite3.Error) and primary_code(error) in _BUSY


def patiently(action: Callable[[], Answer], where: str, *, seconds_max: float = inf) -> Answer:
    """Do ``action`` again until no other connection is in the way; it must undo itself.

    SQLite's own busy timeout sleeps in ever longer steps, gives up, and does not cover every
    kind of conflict. Short jittered pauses hand the lock over sooner and never give up.
    """
    pause = _PAUSE_FIRST
    started = complained = monotonic()
    while True:
        try:
            return action()
        except sqlite3.Error as error:
            now = monotonic()
            if not is_busy(error) or now - started > seconds_max:
                raise
        if now - complained > COMPLAIN_EVERY_SECONDS:
            complained = now
            _log.warning(
                "waiting for the lock on %s for %.0f s: another process is in a transaction",
                where,
                now - started,
            )
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(pause * _PAUSE_GROWTH, _PAUSE_MAX)
