"""The thread that writes: one connection, one transaction for all that came in meanwhile.

A small operation that finds nobody writing need not wait for the thread: its caller does it at
once, on the same connection. It never waits there, neither for a lock nor for the disk.

Each operation of such a group commit stands alone: it is undone when it fails, and the others are
not. An answer is given after the commit, so what was answered is written. Nothing that goes wrong
ends the thread. While it is idle and somebody listens, it watches for commits of other processes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

from perdure.clock import Clock
from perdure.store.sqlite.busy import is_busy, patiently
from perdure.store.sqlite.checkpoints import Checkpoints
from perdure.store.sqlite.connecting import as_opening_error, as_store_error, connect_writer
from perdure.store.sqlite.migrations import migrate
from perdure.store.sqlite.place import SqlitePlace
from perdure.store.sqlite.reader import Reader
from perdure.store.sqlite.requests import Operation, Request, reply
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.transaction import Hints, Transaction, as_hints, merge_hints
from perdure.store.sqlite.watch import Watch
from perdure.store.wakeups import Hub

GROUP_MAX = 256
"""Operations in one transaction, so that none waits long for its answer."""


class _Undone(Exception):
    """SQLite rolled the whole transaction back, not just the operation that failed."""


class Writer:
    """Starts at once; ``opened`` tells whether the file could be used."""

    def __init__(self, place: SqlitePlace, sql: Mapping[str, str], hub: Hub) -> None:
        self.opened: Future[None] = Future()
        self.closed: Future[None] = Future()
        self._place = place
        self._sql = sql
        self._hub = hub
        self._watch = Watch(hub)
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._readers: Sequence[Reader] = ()
        self._is_stopping = False
        self._turn = Lock()
        """Whoever uses the connection holds it."""
        self._checkpoints = Checkpoints(place.path)
        self._thread = Thread(target=self._run, name=f"perdure writes {place.path}", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> None:
        self._requests.put(request)

    def write_now(self, operation: Operation[Any], clock: Clock) -> tuple[Any, ...]:
        """Do a small operation here, and return its answer; nothing if it must wait its turn."""
        if not self._may_write_now or not self._requests.empty():
            return ()
        if self._checkpoints.are_waiting:
            return ()  # else the thread, which makes it, could wait for its turn for long
        if not self._turn.acquire(blocking=False):
            return ()
        try:
            transaction, answer = self._commit_now(operation, clock)
        except sqlite3.Error:
            return ()  # another process is in the way, or it is broken: the thread will find out
        else:
            self._watch.look(self._connection)  # while at it: the thread need not ask for its turn
        finally:
            self._turn.release()
        if transaction.hints and self._hub.is_heard:
            for hint in as_hints(transaction.hints):
                self._hub.publish(hint)
        if self._checkpoints.are_due(self._connection):
            self.nudge()
        return (answer,)

    @property
    def _may_write_now(self) -> bool:
        # With "full" every commit waits for the disk, which no event loop should.
        return self._place.synchronous == "normal"

    def _commit_now(self, operation: Operation[Any], clock: Clock) -> tuple[Transaction, Any]:
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
        """Look up from waiting: somebody may have begun to listen, or it is time to stop."""
        self._requests.put(None)

    def stop(self, readers: Sequence[Reader]) -> None:
        """End after everything that was put is done, and after the readers; ``closed`` tells."""
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
                # Not before the turn is over: whoever gets an answer may write again at once.
                self._answer(group)
            if self._checkpoints.are_due(self._connection):
                with self._turn:
                    self._checkpoints.make(self._connection)
            # Whoever else has the turn now looks by himself.
            if self._watch.is_due and self._turn.acquire(blocking=False):
                try:
                    self._watch.look(self._connection)
                finally:
                    self._turn.release()

    def _next_group(self) -> list[Request]:
        """All that waits by now; nothing, when it is time to look around."""
        requests = self._requests
        try:
            found = [requests.get(timeout=self._watch.seconds_to_next_look)]
        except Empty:
            return []
        while len(found) < GROUP_MAX and not requests.empty():  # nobody else takes from it
            found.append(requests.get())
        return [request for request in found if request is not None]

    def _write(self, group: Sequence[Request]) -> None:
        try:
            patiently(lambda: self._commit(group), self._place.path)
        except Exception as error:
            if len(group) > 1:
                # One of them, or the disk, spoilt it for all: those that can shall succeed.
                for request in group:
                    self._write([request])
                return
            group[0].fail(as_store_error(error, self._place))
        self._watch.hurry()

    def _commit(self, group: Sequence[Request]) -> None:
        execute = self._connection.execute
        self._leave_transaction()  # in case that leaving the last one failed
        execute("BEGIN IMMEDIATE")
        try:
            # Whoever gave up while it waited must not find out later that it was done after all.
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
        if self._hub.is_heard:
            hints: Hints = {}
            for request in group:
                merge_hints(hints, request.hints)
            for hint in as_hints(hints):
                self._hub.publish(hint)
