"""The writer thread: group commit, checkpoints, and detecting writes of other processes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from perdure.clock import Clock, monotonic
from perdure.model.hint import Hint, HintType
from perdure.store.hints import WriteHints
from perdure.store.sqlite.address import SqliteAddress
from perdure.store.sqlite.connection import (
    BYTES,
    as_opening_error,
    as_store_error,
    connect_reader,
    connect_writer,
    is_busy,
    retry_while_busy,
)
from perdure.store.sqlite.migrations import migrate
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.transaction import Connection, Transaction
from perdure.store.wakeups import Hub

Answer = TypeVar("Answer")

Work = Callable[[Transaction], Answer]


class Request:
    """A unit of work, and the future that its caller awaits."""

    __slots__ = ("_clock", "_operation", "answer", "error", "future", "hints", "loop")

    def __init__(self, operation: Work[Any], clock: Clock) -> None:
        self._operation = operation
        self._clock = clock
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.answer: Any = None
        self.error: Exception | None = None
        self.hints = WriteHints()

    def run(self, connection: Connection, sql: Mapping[str, str]) -> None:
        """Run it in the connection's current transaction. May be called again."""
        # The time is read here, not on submission: the request may have waited for a lock.
        transaction = Transaction(connection, sql, micros(self._clock()))
        self.answer = self._operation(transaction)
        self.hints, self.error = transaction.hints, None

    def fail(self, error: Exception) -> None:
        self.error, self.hints = error, WriteHints()


def reply(requests: Iterable[Request]) -> None:
    """Deliver the results, waking each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Request]] = {}
    for request in requests:
        by_loop.setdefault(request.loop, []).append(request)
    for loop, answered in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, answered)


def _resolve(requests: list[Request]) -> None:
    for request in requests:
        if request.future.done():
            continue
        if request.error is not None:
            request.future.set_exception(request.error)
        else:
            request.future.set_result(request.answer)


Requests = SimpleQueue[Request | None]


class Reader:
    """A thread that takes requests from a queue shared with other readers; None ends it."""

    def __init__(self, place: SqliteAddress, sql: Mapping[str, str], requests: Requests) -> None:
        self._place = place
        self._sql = sql
        self._requests = requests
        self._thread = Thread(target=self._run, name=f"perdure reads {place.path}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while (request := self._requests.get()) is not None:
            if request.future.cancelled():
                continue
            try:
                connection = connection or connect_reader(self._place)
                self._read(connection, request)
            except Exception as error:
                request.fail(as_store_error(error, self._place))
            reply([request])
        if connection is not None:
            connection.close()

    def _read(self, connection: sqlite3.Connection, request: Request) -> None:
        def attempt() -> None:
            connection.execute("BEGIN")
            try:
                request.run(connection, self._sql)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        retry_while_busy(attempt, self._place.path)


PAGES = 4_000
"""Estimated pages per checkpoint: the same pages are written again and again, so gathering more of
them saves most of the copying.
"""

PAGES_PER_COMMIT = 3

ROWS_PER_PAGE = 8

CHECK_EVERY = 8
"""Commits between two checks of the file's size."""


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
        """Whether a checkpoint is due but not made yet: writing more now only adds to it."""
        return self._are_due

    def are_due(self, connection: sqlite3.Connection) -> bool:
        """Whether a checkpoint is due; called after every commit."""
        rows = connection.total_changes
        if rows != self._seen_rows and not self._are_due:
            self._seen_rows = rows
            self._commits += 1
            pages = self._commits * PAGES_PER_COMMIT + (rows - self._rows) // ROWS_PER_PAGE
            self._are_due = pages >= PAGES or (
                self._commits % CHECK_EVERY == 0 and self._wal_bytes() - self._bytes >= BYTES
            )
        return self._are_due

    def make(self, connection: sqlite3.Connection) -> None:
        """Checkpoint as much as possible; pages that others still read wait for the next time."""
        self._rows = self._seen_rows = connection.total_changes
        self._commits = 0
        self._are_due = False
        is_all_moved = False
        with suppress(sqlite3.Error):
            [(_, pages, moved)] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            is_all_moved = pages == moved
        # After a full checkpoint the file is reused from its start, and truncated to ``BYTES``;
        # otherwise it keeps growing.
        self._bytes = min(self._wal_bytes(), BYTES) if is_all_moved else self._wal_bytes()

    def _wal_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size
        except OSError:
            return 0


_SECONDS_BUSY, _SECONDS_IDLE, _GROWTH = 0.003, 0.010, 1.02

_SECONDS_EARLY = 0.0005  # a wait may end slightly early; do not wait again for the rest


class ChangePoller:
    """Polls ``data_version``: often after a change, rarely when idle, never without listeners."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._version: int | None = None
        self._seconds = _SECONDS_IDLE
        self._looked_at = monotonic()

    @property
    def seconds_to_next_poll(self) -> float | None:
        """Maximum time to wait; None without listeners."""
        if not self._hub.has_listeners:
            return None
        return max(_SECONDS_EARLY, self._looked_at + self._seconds - monotonic())

    @property
    def is_due(self) -> bool:
        left = self.seconds_to_next_poll
        return left is not None and left <= _SECONDS_EARLY

    def expect_changes(self) -> None:
        """Poll often again after a change."""
        self._seconds = _SECONDS_BUSY

    def poll(self, connection: sqlite3.Connection) -> None:
        """If due, publish hints of all types if another connection has committed."""
        if not self.is_due:
            return
        self._looked_at = monotonic()
        if self._has_changed(connection):
            self.expect_changes()
            for hint_type in HintType:
                self._hub.publish(Hint(type=hint_type))
        else:
            self._seconds = min(self._seconds * _GROWTH, _SECONDS_IDLE)

    def _has_changed(self, connection: sqlite3.Connection) -> bool:
        # ``data_version`` counts commits of all connections except this one.
        try:
            [(version,)] = connection.execute("PRAGMA data_version").fetchall()
        except sqlite3.Error:
            return False  # busy or broken: a regular read will report it
        before, self._version = self._version, version
        # On the first poll, changes since the subscription are unknown; an extra hint is harmless.
        return bool(before != version)


GROUP_MAX = 256
"""Operations per transaction, so that none waits long for its result."""


class _Undone(Exception):
    """SQLite rolled back the whole transaction, not just the failed operation."""


class Writer:
    """The writer thread, started immediately; ``opened`` resolves when the file is usable."""

    def __init__(self, place: SqliteAddress, sql: Mapping[str, str], hub: Hub) -> None:
        self.opened: Future[None] = Future()
        self.closed: Future[None] = Future()
        self._place = place
        self._sql = sql
        self._hub = hub
        self._watch = ChangePoller(hub)
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._readers: Sequence[Reader] = ()
        self._is_stopping = False
        self._turn = Lock()
        """Guards the connection."""
        self._checkpoints = Checkpoints(place.path)
        self._thread = Thread(target=self._run, name=f"perdure writes {place.path}", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> None:
        self._requests.put(request)

    def write_now(self, operation: Work[Any], clock: Clock) -> tuple[Any, ...]:
        """Run a small operation on this thread; returns an empty tuple if the thread must do it."""
        if not self._may_write_now or not self._requests.empty():
            return ()
        if self._checkpoints.are_waiting:
            return ()  # otherwise the thread, which checkpoints, could be starved
        if not self._turn.acquire(blocking=False):
            return ()
        try:
            transaction, answer = self._commit_now(operation, clock)
        except sqlite3.Error:
            return ()  # locked by another process, or broken: the thread reports it
        else:
            self._watch.poll(self._connection)  # saves the thread from acquiring the lock
        finally:
            self._turn.release()
        if transaction.hints and self._hub.has_listeners:
            for hint in transaction.hints.hints():
                self._hub.publish(hint)
        if self._checkpoints.are_due(self._connection):
            self.nudge()
        return (answer,)

    @property
    def _may_write_now(self) -> bool:
        # With "full", every commit waits for the disk, which must not block an event loop.
        return self._place.synchronous == "normal"

    def _commit_now(self, operation: Work[Any], clock: Clock) -> tuple[Transaction, Any]:
        execute = self._connection.execute
        self._leave_transaction()
        execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(self._connection, self._sql, micros(clock()))
            answer = operation(transaction)
            execute("COMMIT")
        except BaseException:
            self._leave_transaction()
            raise
        return transaction, answer

    def nudge(self) -> None:
        """Wake the thread: a listener subscribed, or it is time to stop."""
        self._requests.put(None)

    def stop(self, readers: Sequence[Reader]) -> None:
        """End the thread once all requests are done and the readers have ended; sets ``closed``."""
        self._readers = readers
        self._is_stopping = True
        self.nudge()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._connection = self._open()
        except Exception as error:
            self.closed.set_result(None)
            self.opened.set_exception(as_opening_error(error, self._place))
            return
        self.opened.set_result(None)
        try:
            self._serve()
        finally:
            for reader in self._readers:
                reader.join()
            self._connection.close()  # the last one to close the file also empties the WAL
            self.closed.set_result(None)

    def _open(self) -> sqlite3.Connection:
        self._place.check_reachable()
        connection = connect_writer(self._place)
        try:
            migrate(connection, self._place)
        except BaseException:
            connection.close()
            raise
        return connection

    def _serve(self) -> None:
        while not self._is_stopping or not self._requests.empty():
            group = self._next_group()
            if group:
                with self._turn:
                    self._write(group)
                # After releasing the lock: a caller that gets its result may write again
                # immediately.
                self._answer(group)
            if self._checkpoints.are_due(self._connection):
                with self._turn:
                    self._checkpoints.make(self._connection)
            # Whichever thread has the lock polls itself.
            if self._watch.is_due and self._turn.acquire(blocking=False):
                try:
                    self._watch.poll(self._connection)
                finally:
                    self._turn.release()

    def _next_group(self) -> list[Request]:
        """All pending requests; none when a poll is due."""
        requests = self._requests
        try:
            found = [requests.get(timeout=self._watch.seconds_to_next_poll)]
        except Empty:
            return []
        while len(found) < GROUP_MAX and not requests.empty():  # only this thread takes from it
            found.append(requests.get())
        return [request for request in found if request is not None]

    def _write(self, group: Sequence[Request]) -> None:
        try:
            retry_while_busy(lambda: self._commit(group), self._place.path)
        except Exception as error:
            if len(group) > 1:
                # One of them, or the disk, failed the group: run each alone, so that the others
                # succeed.
                for request in group:
                    self._write([request])
                return
            group[0].fail(as_store_error(error, self._place))
        self._watch.expect_changes()

    def _commit(self, group: Sequence[Request]) -> None:
        execute = self._connection.execute
        self._leave_transaction()  # in case the last rollback failed
        execute("BEGIN IMMEDIATE")
        try:
            # A canceled request must not be executed after its caller has given up.
            wanted = [request for request in group if not request.future.cancelled()]
            if len(wanted) == 1:
                wanted[0].run(self._connection, self._sql)
            else:
                for request in wanted:
                    self._run_apart(request)
            execute("COMMIT")
        except BaseException:
            self._leave_transaction()
            raise

    def _leave_transaction(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _run_apart(self, request: Request) -> None:
        execute = self._connection.execute
        execute("SAVEPOINT operation")
        try:
            request.run(self._connection, self._sql)
        except Exception as error:
            if is_busy(error):
                raise
            if not self._connection.in_transaction:
                raise _Undone from error
            execute("ROLLBACK TO operation")
            request.fail(as_store_error(error, self._place))
        execute("RELEASE operation")

    def _answer(self, group: Sequence[Request]) -> None:
        reply(group)
        if self._hub.has_listeners:
            hints = WriteHints()
            for request in group:
                hints.merge(request.hints)
            for hint in hints.hints():
                self._hub.publish(hint)
