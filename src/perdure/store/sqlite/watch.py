"""Noticing what other processes commit: SQLite has no way to be told, but a cheap way to ask."""

from __future__ import annotations

import sqlite3

from perdure.clock import monotonic
from perdure.model.hint import Hint, HintKind
from perdure.store.wakeups import Hub

_SECONDS_BUSY, _SECONDS_IDLE, _GROWTH = 0.003, 0.010, 1.02
_SECONDS_EARLY = 0.0005  # a wait may end a little before its time; do not wait again for the rest


class Watch:
    """Asks often just after something happened, less often when idle, and never for nobody."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._version: int | None = None
        self._seconds = _SECONDS_IDLE
        self._looked_at = monotonic()

    @property
    def seconds_to_next_look(self) -> float | None:
        """How long to wait at most; None when nobody listens."""
        if not self._hub.is_heard:
            return None
        return max(_SECONDS_EARLY, self._looked_at + self._seconds - monotonic())

    @property
    def is_due(self) -> bool:
        left = self.seconds_to_next_look
        return left is not None and left <= _SECONDS_EARLY

    def hurry(self) -> None:
        """Something happened: more may follow."""
        self._seconds = _SECONDS_BUSY

    def look(self, connection: sqlite3.Connection) -> None:
        """If it is time to, see whether another connection committed; then hint at anything."""
        if not self.is_due:
            return
        self._looked_at = monotonic()
        if self._has_changed(connection):
            self.hurry()
            for kind in HintKind:
                self._hub.publish(Hint(kind=kind))
        else:
            self._seconds = min(self._seconds * _GROWTH, _SECONDS_IDLE)

    def _has_changed(self, connection: sqlite3.Connection) -> bool:
        # It counts commits of all connections but this one.
        try:
            [(version,)] = connection.execute("PRAGMA data_version").fetchall()
        except sqlite3.Error:
            return False  # it was busy, or is broken: whoever looks for himself will find out
        before, self._version = self._version, version
        # At first nothing is known of the time since somebody listens; a hint too many is harmless.
        return bool(before != version)
