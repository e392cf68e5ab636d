"""Connections to the file: opening, errors, and retries while it is busy."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TypeVar

from perdure.clock import monotonic
from perdure.diagnostics import declare
from perdure.errors import PerdureError, SchemaMismatch, StoreError
from perdure.store.contract.refusals import REFUSED
from perdure.store.sqlite.address import SqliteAddress

TOO_OLD = declare(
    "store.sqlite_too_old",
    "SQLite {version} is too old: this store needs {least} or newer",
    "Use a Python with a newer SQLite, or use PostgreSQL",
)
NOT_A_DATABASE = declare(
    "store.not_a_database", "{path} is not a SQLite database", "Name another file"
)
DAMAGED = declare("store.damaged", "the database {path} is damaged: {reason}", "Restore a backup")

BYTES = 16 * 1024 * 1024
"""The size that the WAL file is truncated to, and how far it may grow beyond that for large rows.
"""

SQLITE_MIN = (3, 35)
"""The first version with RETURNING."""

OPEN_SECONDS_MAX = 15.0
"""How long opening waits while another process locks the file."""

_STATEMENTS_CACHED = 512

_CACHE_KIB = 32 * 1024

_PRAGMAS = (
    f"PRAGMA journal_size_limit = {BYTES}",
    # The writer thread checkpoints: the commit of a small write must not wait for the disk.
    "PRAGMA wal_autocheckpoint = 0",
    f"PRAGMA cache_size = -{_CACHE_KIB}",
    "PRAGMA temp_store = MEMORY",
)


def connect_writer(place: SqliteAddress) -> sqlite3.Connection:
    """The writing connection; creates the file if there is none."""
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        raise StoreError(TOO_OLD.fault(version=sqlite3.sqlite_version, least="3.35"))
    _create_private(place.path)
    synchronous = f"PRAGMA synchronous = {place.synchronous}"
    return _connect(place, synchronous, seconds_max=OPEN_SECONDS_MAX)


def _create_private(path: str) -> None:
    """Create the file for its owner alone; SQLite gives the WAL and shm files the same mode."""
    with suppress(OSError):  # it exists, or SQLite reports why it cannot be created
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def connect_reader(place: SqliteAddress) -> sqlite3.Connection:
    return _connect(place, "PRAGMA query_only = 1", seconds_max=inf)


def _connect(place: SqliteAddress, own_pragma: str, *, seconds_max: float) -> sqlite3.Connection:
    # We manage transactions and lock waits ourselves: neither the sqlite3 module nor SQLite may do
    # so implicitly.
    connection = sqlite3.connect(
        place.path,
        timeout=0,
        isolation_level=None,
        cached_statements=_STATEMENTS_CACHED,
        check_same_thread=False,  # callers use the writer's too, one at a time
    )

    def set_up() -> None:
        # With WAL, readers never wait for the writer. Enabling it needs exclusive access for a
        # moment.
        [(mode,)] = connection.execute("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise place.unreachable(
                "SQLite cannot share it between processes there", "Put the file on a local disk"
            )
        for pragma in (*_PRAGMAS, own_pragma):
            connection.execute(pragma)

    try:
        retry_while_busy(set_up, place.path, seconds_max=seconds_max)
    except BaseException:
        connection.close()
        raise
    return connection


def as_store_error(error: Exception, place: SqliteAddress) -> Exception:
    """Convert an SQLite error on an open store to a store error; our own errors pass."""
    if isinstance(error, PerdureError) or not isinstance(error, sqlite3.Error):
        return error
    typed = StoreError(REFUSED.fault(url=place.url, reason=str(error)))
    typed.__cause__ = error
    return typed


def as_opening_error(error: Exception, place: SqliteAddress) -> Exception:
    """Convert an error while the store is being opened."""
    if not isinstance(error, sqlite3.Error):
        return error
    typed = _opening_error(error, place)
    typed.__cause__ = error
    return typed


def _opening_error(error: sqlite3.Error, place: SqliteAddress) -> StoreError:
    code = primary_code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return SchemaMismatch(NOT_A_DATABASE.fault(path=place.path))
    if code == sqlite3.SQLITE_CORRUPT:
        return SchemaMismatch(DAMAGED.fault(path=place.path, reason=str(error)))
    if code == sqlite3.SQLITE_BUSY:
        return place.unreachable(
            f"another process has had it locked for {OPEN_SECONDS_MAX:g} s",
            "End that process, or its transaction",
        )
    return place.unreachable(str(error), "Is the file writable, and on a local disk?")


Answer = TypeVar("Answer")

COMPLAIN_EVERY_SECONDS = 10.0

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_PAUSE_FIRST, _PAUSE_MAX, _PAUSE_GROWTH = 0.0002, 0.004, 1.4

_log = logging.getLogger("perdure.store")


def primary_code(error: sqlite3.Error) -> int:
    """The error's primary result code; 0 if it did not come from SQLite."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether another connection held a lock, so that a retry will succeed."""
    return isinstance(error, sqlite3.Error) and primary_code(error) in _BUSY


def retry_while_busy(
    action: Callable[[], Answer], where: str, *, seconds_max: float = inf
) -> Answer:
    """Retry ``action`` while other connections lock the file; it must undo itself on failure.

    SQLite's own busy timeout sleeps in ever longer steps, gives up, and does not cover every type
    of conflict. Short jittered pauses hand the lock over sooner and never give up.
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
            fields = {"store": where, "seconds": round(now - started)}
            _log.warning(
                "waiting for the lock: another process is in a transaction",
                extra={"fields": fields},
            )
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(pause * _PAUSE_GROWTH, _PAUSE_MAX)
