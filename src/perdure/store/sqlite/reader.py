"""A thread that reads: each operation sees one snapshot, and never waits for the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from queue import SimpleQueue
from threading import Thread

from perdure.store.sqlite.busy import patiently
from perdure.store.sqlite.connecting import as_store_error, connect_reader
from perdure.store.sqlite.place import SqlitePlace
from perdure.store.sqlite.requests import Request, reply

Requests = SimpleQueue[Request | None]


class Reader:
    """Takes requests from a queue that it shares with other readers; None ends one of them."""

    def __init__(self, place: SqlitePlace, sql: Mapping[str, str], requests: Requests) -> None:
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

        patiently(attempt, self._place.path)
