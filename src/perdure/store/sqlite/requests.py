"""What event loops ask of the database's threads, and how the answers come back to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from perdure.clock import Clock
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.transaction import Connection, Hints, Transaction

Answer = TypeVar("Answer")
Operation = Callable[[Transaction], Answer]


class Request:
    """One operation, and the future that its caller awaits."""

    __slots__ = ("_clock", "_operation", "answer", "error", "future", "hints", "loop")

    def __init__(self, operation: Operation[Any], clock: Clock) -> None:
        self._operation = operation
        self._clock = clock
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.answer: Any = None
        self.error: Exception | None = None
        self.hints: Hints = {}

    def run(self, connection: Connection, sql: Mapping[str, str]) -> None:
        """Do it, in the transaction that the connection is in. May be called again."""
        # The moment is read here rather than when it was asked: it may have waited for a lock.
        transaction = Transaction(connection, sql, micros(self._clock()))
        self.answer = self._operation(transaction)
        self.hints, self.error = transaction.hints, None

    def fail(self, error: Exception) -> None:
        self.error, self.hints = error, {}


def reply(requests: Iterable[Request]) -> None:
    """Hand the answers over, waking each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Request]] = {}
    for request in requests:
        by_loop.setdefault(request.loop, []).append(request)
    for loop, answered in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed: nobody is left to be told
            loop.call_soon_threadsafe(_resolve, answered)


def _resolve(requests: list[Request]) -> None:
    for request in requests:
        if request.future.done():
            continue
        if request.error is not None:
            request.future.set_exception(request.error)
        else:
            request.future.set_result(request.answer)
