"""The writer and readers on one file that all handles of a process share."""

from __future__ import annotations

import asyncio
import os
import threading
from queue import SimpleQueue
from typing import TypeVar

from perdure.clock import Clock
from perdure.diagnostics import declare
from perdure.errors import StoreError
from perdure.store.contract.refusals import CLOSED
from perdure.store.sqlite.address import SqliteAddress
from perdure.store.sqlite.transaction import statements_of
from perdure.store.sqlite.writer import Reader, Request, Requests, Work, Writer
from perdure.store.wakeups import hub_of

FORKED = declare(
    "store.forked",
    "the store at {url} was opened before this process was forked",
    "Open the store in each process",
)

READERS = 2
"""Two, so that a long listing does not block reads of waiters."""

Answer = TypeVar("Answer")


class Database:
    """The threads of one place. Use :func:`open_database` and :func:`close_database`."""

    def __init__(self, place: SqliteAddress) -> None:
        self.place = place
        self.users = 0
        self._process = _open  # replaced by a fork; cheaper than a system call for the process id
        self._lock = threading.Lock()
        self._is_closed = False
        self._sql = statements_of(place.prefix)
        self._writer = Writer(place, self._sql, hub_of(place.name))
        self._reads: Requests = SimpleQueue()
        self._readers: list[Reader] = []

    async def write(self, operation: Work[Answer], clock: Clock) -> Answer:
        """Run it in a transaction; return its result once committed."""
        self._check_process()
        request = Request(operation, clock)
        with self._lock:
            self._check_open()
            self._writer.put(request)
        answer: Answer = await request.future
        return answer

    async def write_small(self, operation: Work[Answer], clock: Clock) -> Answer:
        """Run a write of microseconds, on the caller's thread if no other write is running."""
        self._check_process()
        with self._lock:
            self._check_open()
            done = self._writer.write_now(operation, clock)
        if done:
            answer: Answer = done[0]
            return answer
        return await self.write(operation, clock)

    async def read(self, operation: Work[Answer], clock: Clock) -> Answer:
        self._check_process()
        request = Request(operation, clock)
        with self._lock:
            self._check_open()
            self._reads.put(request)
        answer: Answer = await request.future
        return answer

    def nudge(self) -> None:
        """Wake the writer, because there is a new listener."""
        self._writer.nudge()

    async def opened(self) -> None:
        # Several tasks await it; canceling one must not cancel the others.
        await asyncio.shield(asyncio.wrap_future(self._writer.opened))
        with self._lock:
            while len(self._readers) < READERS:
                self._readers.append(Reader(self.place, self._sql, self._reads))

    async def closed(self) -> None:
        """Finish pending work, then end the threads."""
        with self._lock:
            self._is_closed = True
            for _ in self._readers:
                self._reads.put(None)
        self._writer.stop(self._readers)
        await asyncio.shield(asyncio.wrap_future(self._writer.closed))
        self._writer.join()

    @property
    def is_inherited(self) -> bool:
        """Whether it belongs to the parent of this forked process."""
        return self._process is not _open

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(CLOSED.fault(url=self.place.url))

    def _check_process(self) -> None:
        if self.is_inherited:
            raise StoreError(FORKED.fault(url=self.place.url))


class _Databases:
    """The open databases of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_key: dict[tuple[str, str, str], Database] = {}


_open = _Databases()

_inherited: list[_Databases] = []


def _abandon_inherited() -> None:
    global _open
    # Never closed: closing a connection of the parent could corrupt its file.
    _inherited.append(_open)
    _open = _Databases()


os.register_at_fork(after_in_child=_abandon_inherited)


async def open_database(place: SqliteAddress) -> Database:
    """The process's shared database, opened once; release it with ``close_database``."""
    with _open.lock:
        database = _open.by_key.get(place.key)
        if database is None:
            database = _open.by_key[place.key] = Database(place)
        database.users += 1
    try:
        await database.opened()
    except BaseException:
        with _open.lock:
            _forget(database)
        await close_database(database)
        raise
    return database


async def close_database(database: Database) -> None:
    """Release a database; the last release closes it."""
    if database.is_inherited:
        return
    with _open.lock:
        database.users -= 1
        if database.users:
            return
        _forget(database)
    await database.closed()


def _forget(database: Database) -> None:
    """Unregister the database, so that the next handle opens another one. Requires the lock."""
    if _open.by_key.get(database.place.key) is database:
        del _open.by_key[database.place.key]
