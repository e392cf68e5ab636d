"""Moving what the WAL has gathered into the file, when there is enough of it.

SQLite would do so within some commit. Here the writer's thread does, because a commit that an
event loop makes must not wait for the disk. How many pages the WAL has gathered is not told by
SQLite, so it is estimated from what was written; how large its file is, is looked at.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

PAGES = 4_000
"""Pages gathered, as estimated: the same ones are written again and again, so waiting for more of
them saves most of the copying."""
PAGES_PER_COMMIT = 3
ROWS_PER_PAGE = 8
BYTES = 16 * 1024 * 1024
"""What is kept of the WAL's file, and how far it may grow beyond that, for rows that are large."""
LOOK_EVERY = 8
"""Commits between two looks at the file's size."""


class Checkpoints:
    def __init__(self, path: str) -> None:
        self._wal = f"{path}-wal"
        self._rows = 0
        self._seen_rows = 0
        self._commits = 0
        self._bytes = 0
        self._are_due = False

    @property
    def are_waiting(self) -> bool:
        """Whether one is due and was not made yet: what is written now only adds to it."""
        return self._are_due

    def are_due(self, connection: sqlite3.Connection) -> bool:
        """Whether it is time for one; asked after every commit."""
        rows = connection.total_changes
        if rows != self._seen_rows and not self._are_due:
            self._seen_rows = rows
            self._commits += 1
            pages = self._commits * PAGES_PER_COMMIT + (rows - self._rows) // ROWS_PER_PAGE
            self._are_due = pages >= PAGES or (
                self._commits % LOOK_EVERY == 0 and self._wal_bytes() - self._bytes >= BYTES
            )
        return self._are_due

    def make(self, connection: sqlite3.Connection) -> None:
        """Move what can be moved; what others still read is moved the next time."""
        self._rows = self._seen_rows = connection.total_changes
        self._commits = 0
        self._are_due = False
        is_all_moved = False
        with suppress(sqlite3.Error):
            [(_, pages, moved)] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            is_all_moved = pages == moved
        # If all was, the file is filled again from its beginning, and cut where it was larger than
        # what is kept; else it grows on.
        self._bytes = min(self._wal_bytes(), BYTES) if is_all_moved else self._wal_bytes()

    def _wal_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size
        except OSError:
            return 0
