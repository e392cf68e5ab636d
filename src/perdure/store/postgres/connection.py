"""Connections to the database: a pool, retries, and transactions on them."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Literal, TypeVar

import asyncpg

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, InvalidStoreUrl, StoreError, StoreUnreachable
from perdure.store.contract.refusals import CLOSED, OUTCOME_UNKNOWN, REFUSED
from perdure.store.postgres.address import Address

UNSTORABLE = declare(
    "store.unstorable",
    "PostgreSQL cannot store one of the values: {reason}",
    "Strings may contain neither NUL characters nor half a surrogate pair",
)

Connection = Any  # asyncpg.Connection; asyncpg has no type hints

Record = Any  # asyncpg.Record; read by position

Answer = TypeVar("Answer")

RETRY_DELAY_FIRST_S, RETRY_DELAY_MAX_S = 0.05, 5.0

BUSY_TRIES = 4
"""Tries of what the server has no time or room for, or never answers. All must end some time."""

CLOSE_TIMEOUT_S = 2.0

ERROR_TEXT_MAX = 200

_CLASH_STATES = frozenset({"40001", "40P01"})  # serialization failure, deadlock

_LOST_STATES = frozenset(
    {
        "25006",  # read only: the server we knew is a standby now
        "25P03",  # idle in a transaction for too long
        "53300",  # too many connections
        "57P01",  # shut down by the administrator
        "57P02",  # shut down by a crash
        "57P03",  # starting up
        "57P05",  # idle for too long
    }
)

_BUSY_STATES = frozenset({"55P03", "57014"})  # no lock in time, statement cancelled or timed out

_SHORTAGE_CLASS = "53"  # disk full, out of memory, too little of anything else

_UNSTORABLE_CLASSES = ("22", "54")  # bad data, beyond a limit of the server

_INTEGRITY_CLASS = "23"

_CONNECTION_CLASS = "08"

_REFUSED_AT_START = "08P01"  # how PgBouncer refuses settings it does not know

# Our statements are written for the indexes that serve them. Plans must not change with the
# statistics of the moment, nor be made again for each call.
_SETTINGS = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "default_transaction_isolation": "read committed",
}

_OF_THE_DRIVER = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

_log = logging.getLogger("perdure.store")


class Connections:
    """Up to ``pool_max`` connections, handed to one piece of work at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._slots = asyncio.Semaphore(address.pool_max)
        self._idle: list[Connection] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._is_out = False

    async def open(self) -> None:
        """Make the first connection; raises ``StoreUnreachable`` instead of trying for ever."""
        self._is_closed = False
        try:
            self._idle.append(await connect(self._address))
        except asyncpg.ClientConfigurationError as error:
            raise InvalidStoreUrl(url=self._address.url, reason=str(error)) from error
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            reason = str(error) or type(error).__name__
            if getattr(error, "sqlstate", None) == _REFUSED_AT_START:
                reason += "; behind PgBouncer, add ?statement_cache=0 to the URL"
            raise StoreUnreachable(url=self._address.url, reason=reason) from error

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            await close_gently(self._idle.pop())
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def fetch(self, statement: str, *arguments: Any) -> list[Record]:
        """The rows of one statement, repeated until the server has answered."""

        async def work(connection: Connection, is_repeated: bool) -> list[Record]:
            rows: list[Record] = await connection.fetch(statement, *arguments)
            return rows

        return await self.run(work)

    async def run(self, work: Callable[[Connection, bool], Awaitable[Answer]]) -> Answer:
        """Run ``work`` on a connection, retrying while connections are lost.

        ``work`` gets whether an earlier attempt may have been committed without a response. Raises
        ``StoreError`` for server errors, and ``InvalidInput`` for a bad value.
        """
        is_repeated, busy_tries = False, 0
        for delay in growing_delays():
            async with self._slots:
                connection = None
                try:
                    connection = await self._take()
                    answer = await work(connection, is_repeated)
                except BaseException as error:
                    may_repeat = self._survives(error, connection)
                    if is_busy(error) or (connection is not None and is_given_up(error)):
                        busy_tries += 1
                        may_repeat &= busy_tries < BUSY_TRIES
                    if not may_repeat:
                        is_lost_now = connection is not None and is_lost(error, connection)
                        typed = self._typed(error, is_unclear=is_repeated or is_lost_now)
                        if typed is error:
                            raise
                        raise typed from error
                    is_undone = is_clash(error) or is_busy(error)
                    is_repeated |= connection is not None and not is_undone
                else:
                    self._put_back(connection)
                    return answer
            await asyncio.sleep(delay)
        raise AssertionError("delays never end")

    def _typed(self, error: BaseException, *, is_unclear: bool) -> BaseException:
        """Convert an error for the caller. Constraint violations pass: the caller handles them."""
        state: str = getattr(error, "sqlstate", None) or ""
        if state.startswith(_UNSTORABLE_CLASSES):
            return _unstorable(error)
        if state.startswith(_INTEGRITY_CLASS) or not isinstance(error, _OF_THE_DRIVER):
            return error
        reason = str(error) or f"no answer within {self._address.answer_timeout_s} s"
        if is_unclear:
            return StoreError(OUTCOME_UNKNOWN.fault(url=self._address.url, reason=reason))
        return StoreError(REFUSED.fault(url=self._address.url, reason=reason))

    async def _take(self) -> Connection:
        if self._is_closed:
            raise StoreError(CLOSED.fault(url=self._address.url))
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await connect(self._address)

    def _put_back(self, connection: Connection) -> None:
        if self._is_out:
            self._is_out = False
            _log.info("the store answers again", extra={"store": self._address.url})
        if self._is_closed:
            connection.terminate()
        else:
            self._idle.append(connection)

    def _survives(self, error: BaseException, connection: Connection | None) -> bool:
        """Keep or drop the connection after an error; return whether to retry."""
        if isinstance(error, Exception) and not is_lost(error, connection):
            if connection is not None:
                self._put_back(connection)
            return not self._is_closed and (is_clash(error) or is_busy(error))
        if connection is not None and is_given_up(error):
            self._leave(connection)
        elif connection is not None:
            connection.terminate()
        if self._is_closed or not isinstance(error, Exception):
            return False
        self._lose_all(error)
        return True

    def _leave(self, connection: Connection) -> None:
        """Drop the connection after a cancellation or timeout: its state is unknown.

        Closing it first asks the server to stop the statement.
        """
        task = asyncio.create_task(close_gently(connection))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _lose_all(self, error: Exception) -> None:
        """Drop all idle connections: if one is lost, usually all are, and reconnecting is cheap."""
        while self._idle:
            self._idle.pop().terminate()
        if not self._is_out:
            self._is_out = True
            _log.warning(
                "lost the connection to the store; trying again until it answers",
                extra={"store": self._address.url, "error": repr(error)},
            )


async def connect(
    address: Address, answer_timeout_s: float | None = None, **more_settings: str
) -> Connection:
    """One connection, set up for our statements; with a limit of its own, if it is given."""
    settings = {} if address.is_named else {"application_name": "perdure"}
    if address.statement_cache:  # without it we are behind PgBouncer, which refuses settings
        # A process that is frozen in a transaction, or disconnected, must not keep its locks.
        idle = {"idle_in_transaction_session_timeout": f"{address.answer_timeout_s}s"}
        settings |= _SETTINGS | idle | more_settings
    connection = await asyncpg.connect(
        address.dsn,
        timeout=address.connect_timeout_s,
        command_timeout=answer_timeout_s or address.answer_timeout_s,
        statement_cache_size=address.statement_cache,
        max_cached_statement_lifetime=0,
        server_settings=settings,
    )
    _notice_silence(connection)
    return connection


async def close_gently(connection: Connection) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):  # some versions wait for more than they say
            await connection.close(timeout=CLOSE_TIMEOUT_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


def is_lost(error: BaseException, connection: Connection | None) -> bool:
    """Whether the server went away, or will not have us now: another connection may do better."""
    if isinstance(error, OSError | asyncpg.TargetServerAttributeNotMatched):  # timeouts too
        return True
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith(_CONNECTION_CLASS) or state in _LOST_STATES
    is_driver_error = isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)
    return is_driver_error and connection is not None and bool(connection.is_closed())


def is_given_up(error: BaseException) -> bool:
    """Whether a statement was left under way: cancelled, or without an answer for too long."""
    return isinstance(error, TimeoutError) or not isinstance(error, Exception)


def is_clash(error: BaseException) -> bool:
    """Whether two transactions got in each other's way, and this one was undone."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _CLASH_STATES


def is_busy(error: BaseException) -> bool:
    """Whether the server had no time or room for the statement, and undid it."""
    if not isinstance(error, asyncpg.PostgresError) or is_lost(error, None):
        return False
    state = error.sqlstate or ""
    return state in _BUSY_STATES or state.startswith(_SHORTAGE_CLASS)


def growing_delays() -> Iterator[float]:
    """Seconds between tries, for ever: doubling up to a cap, and never in step with others."""
    delay = RETRY_DELAY_FIRST_S
    while True:
        yield delay * random.uniform(0.5, 1)
        delay = min(delay * 2, RETRY_DELAY_MAX_S)


def _unstorable(error: BaseException) -> InvalidInput:
    return InvalidInput(UNSTORABLE.fault(reason=str(error)[:ERROR_TEXT_MAX]))


def _notice_silence(connection: Connection) -> None:
    """Let the kernel find out when the other end is gone without a word (a cut cable, a crash)."""
    line = connection._transport.get_extra_info("socket")  # asyncpg offers no other way
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("KEEPIDLE", 15), ("KEEPINTVL", 5), ("KEEPCNT", 3)):
        if option := getattr(socket, f"TCP_{name}", None):
            line.setsockopt(socket.IPPROTO_TCP, option, value)
    if option := getattr(socket, "TCP_USER_TIMEOUT", None):
        line.setsockopt(socket.IPPROTO_TCP, option, 30_000)


class Transacting:
    """``async with``: committed at its end, rolled back after an error.

    After a cancellation, or a statement without an answer, a rollback would wait for what is still
    under way, perhaps for ever. The connection is dropped then, and the transaction with it.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        readonly: bool = False,
        isolation: Literal["repeatable_read"] | None = None,
    ) -> None:
        self._transaction = connection.transaction(readonly=readonly, isolation=isolation)
        self._is_kept = True

    def undo(self) -> None:
        """Roll back at the end: there is nothing to keep, and no disk to wait for."""
        self._is_kept = False

    async def __aenter__(self) -> Transacting:
        await self._transaction.start()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None and self._is_kept:
            await self._transaction.commit()
        elif error is None or not is_given_up(error):
            await self._transaction.rollback()
