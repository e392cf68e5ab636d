"""Moving what the WAL has gathered into the file, when there is enough of it.

SQLite would do so within some commit. Here the writer's thread does, because a commit that an
event loop makes must not wait for the disk.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

ROWS = 3_000
"""Rows changed since the last time."""
BYTES = 16 * 1024 * 1024
"""Growth of the WAL's file since then, for rows that are large."""
LOOK_EVERY = 8
"""How often it is asked before the file's size is looked at."""


class Checkpoints:
    def __init__(self, path: str) -> None:
        self._wal = f"{path}-wal"
        self._rows = 0
        self._bytes = 0
        self._asked = 0
        self._are_due = False

    def are_due(self, connection: sqlite3.Connection) -> bool:
        """Whether it is time for one."""
        if not self._are_due:
            self._asked += 1
            self._are_due = connection.total_changes - self._rows >= ROWS or (
                self._asked % LOOK_EVERY == 0 and self._wal_bytes() - self._bytes >= BYTES
            )
        return self._are_due

    def make(self, connection: sqlite3.Connection) -> None:
        """Move what can be moved; what others still read is moved the next time."""
        self._are_due = False
        self._rows = connection.total_changes
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        # The file keeps its size, and is filled again from its beginning.
        self._bytes = self._wal_bytes()

    def _wal_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size
        except OSError:
            return 0
