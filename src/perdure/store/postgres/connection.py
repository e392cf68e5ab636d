"""Connections to the database: a pool, retries, and transactions on them."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, TypeVar

import asyncpg

from perdure.clock import monotonic
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
"""Attempts of a statement while the server is busy, short of resources or silent."""

CLOSE_TIMEOUT_S = 2.0

STARTING_SECONDS_MAX = 600.0
"""How long to wait for a server that is starting; a standby may refuse connections forever."""

ERROR_TEXT_MAX = 200

_CLASH_STATES = frozenset({"40001", "40P01"})  # serialization failure, deadlock

_STARTING = "57P03"  # or in recovery

_LOST_STATES = frozenset(
    {
        "25006",  # read only: the server has become a standby
        "25P03",  # idle in transaction for too long
        "53300",  # too many connections
        "57P01",  # shut down by the administrator
        "57P02",  # shut down by a crash
        _STARTING,
        "57P05",  # idle for too long
    }
)

_BUSY_STATES = frozenset({"55P03", "57014"})  # lock timeout, statement canceled or timed out

_SHORTAGE_CLASS = "53"  # disk full, out of memory, other shortages

_UNSTORABLE_CLASSES = ("22", "54")  # invalid data, server limit exceeded

_INTEGRITY_CLASS = "23"

_CONNECTION_CLASS = "08"

_REFUSED_AT_START = "08P01"  # PgBouncer refusing unknown settings

# Our statements rely on specific indexes. Plans must not depend on current statistics, nor be
# computed for each call.
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
    """A pool of up to ``pool_max`` connections."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._slots = asyncio.Semaphore(address.pool_max)
        self._idle: list[Connection] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._returning: set[asyncio.Task[None]] = set()
        """Connections of cancelled calls that will be idle soon."""
        self._is_closed = False
        self._is_out = False

    async def open(self) -> None:
        """Connect once; raises ``StoreUnreachable`` instead of retrying forever.

        Only a server that says it is starting, as during crash recovery, is waited for.
        """
        self._is_closed = False
        give_up_at = monotonic() + STARTING_SECONDS_MAX
        for delay in growing_delays():
            try:
                self._idle.append(await connect(self._address))
                return
            except asyncpg.ClientConfigurationError as error:
                raise InvalidStoreUrl(url=self._address.url, reason=str(error)) from error
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                state = getattr(error, "sqlstate", None)
                if state != _STARTING or monotonic() > give_up_at:
                    reason = str(error) or type(error).__name__
                    if state == _REFUSED_AT_START:
                        reason += "; behind PgBouncer, add ?statement_cache=0 to the URL"
                    raise StoreUnreachable(url=self._address.url, reason=reason) from error
                if not self._is_out:
                    self._is_out = True
                    _log.warning(
                        "the server is starting; waiting up to 10 minutes",
                        extra={"fields": {"store": self._address.url, "error": repr(error)}},
                    )
            await asyncio.sleep(delay)

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            await close_gently(self._idle.pop())
        if unfinished := self._leaving | self._returning:
            await asyncio.wait(unfinished, timeout=CLOSE_TIMEOUT_S)

    async def fetch(self, statement: str, *arguments: Any) -> list[Record]:
        """The rows of one statement, retried until the server has answered."""

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
        while self._idle or self._returning:
            if not self._idle:
                await asyncio.wait(self._returning, return_when=asyncio.FIRST_COMPLETED)
                continue
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        # Not cancelled with the call, since asyncpg leaves pieces of a cancelled one behind; the
        # connection serves the next call.
        connecting = asyncio.create_task(connect(self._address))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            self._in_background(self._keep(connecting), self._returning)
            raise

    def _put_back(self, connection: Connection) -> None:
        if self._is_out:
            self._is_out = False
            _log.info("the store answers again", extra={"fields": {"store": self._address.url}})
        if self._is_closed or len(self._idle) >= self._address.pool_max:
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
            self._leave(connection, error)
        elif connection is not None:
            connection.terminate()
        if self._is_closed or not isinstance(error, Exception):
            return False
        self._lose_all(error)
        return True

    def _leave(self, connection: Connection, error: BaseException) -> None:
        """Clean up a connection in the background, while its statement may still be running.

        After a timeout the server may be gone, so the connection is closed. A caller that cancels
        costs nothing but the statement: the connection is used again.
        """
        is_cancelled = isinstance(error, asyncio.CancelledError) and not self._is_closed
        if is_cancelled:
            self._in_background(self._recover(connection), self._returning)
        else:
            self._in_background(close_gently(connection), self._leaving)

    def _in_background(
        self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]
    ) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _keep(self, connecting: asyncio.Task[Connection]) -> None:
        with suppress(*_OF_THE_DRIVER):
            connection = await connecting
            if self._is_closed:
                await close_gently(connection)
            else:
                self._put_back(connection)

    async def _recover(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                # asyncpg has asked the server to cancel the statement, and waits for that first.
                await connection.execute("ROLLBACK" if connection.is_in_transaction() else "SELECT")
                if connection.is_in_transaction():  # cancelled after it had started
                    await connection.execute("ROLLBACK")
        except BaseException:  # still running, or lost
            connection.terminate()
        else:
            self._put_back(connection)

    def _lose_all(self, error: Exception) -> None:
        """Drop all idle connections: if one is lost, usually all are, and reconnecting is cheap."""
        while self._idle:
            self._idle.pop().terminate()
        if not self._is_out:
            self._is_out = True
            _log.warning(
                "lost the connection to the store; trying again until it answers",
                extra={"fields": {"store": self._address.url, "error": repr(error)}},
            )


async def connect(
    address: Address, answer_timeout_s: float | None = None, **more_settings: str
) -> Connection:
    """A connection set up for our statements; ``answer_timeout_s`` overrides the address's."""
    settings = {} if address.is_named else {"application_name": "perdure"}
    if address.statement_cache:  # otherwise behind PgBouncer, which refuses settings
        # A frozen or disconnected process must not keep the locks of its transaction.
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
        async with asyncio.timeout(CLOSE_TIMEOUT_S):  # some versions exceed their own timeout
            await connection.close(timeout=CLOSE_TIMEOUT_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


def is_lost(error: BaseException, connection: Connection | None) -> bool:
    """Whether the connection is lost or refused, so that another one may succeed."""
    if isinstance(error, OSError | asyncpg.TargetServerAttributeNotMatched):  # including timeouts
        return True
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith(_CONNECTION_CLASS) or state in _LOST_STATES
    is_driver_error = isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)
    return is_driver_error and connection is not None and bool(connection.is_closed())


def is_given_up(error: BaseException) -> bool:
    """Whether a statement was abandoned: canceled, or unanswered for too long."""
    return isinstance(error, TimeoutError) or not isinstance(error, Exception)


def is_clash(error: BaseException) -> bool:
    """Whether the transaction was rolled back because of a conflict with another one."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _CLASH_STATES


def is_busy(error: BaseException) -> bool:
    """Whether the server was too busy for the statement, and rolled it back."""
    if not isinstance(error, asyncpg.PostgresError) or is_lost(error, None):
        return False
    state = error.sqlstate or ""
    return state in _BUSY_STATES or state.startswith(_SHORTAGE_CLASS)


def growing_delays() -> Iterator[float]:
    """Seconds between attempts, endlessly: doubling up to a cap, with jitter."""
    delay = RETRY_DELAY_FIRST_S
    while True:
        yield delay * random.uniform(0.5, 1)
        delay = min(delay * 2, RETRY_DELAY_MAX_S)


def _unstorable(error: BaseException) -> InvalidInput:
    return InvalidInput(UNSTORABLE.fault(reason=str(error)[:ERROR_TEXT_MAX]))


def _notice_silence(connection: Connection) -> None:
    """Let the kernel detect a peer that vanished without closing the connection."""
    line = connection._transport.get_extra_info("socket")  # asyncpg has no public API for it
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("KEEPIDLE", 15), ("KEEPINTVL", 5), ("KEEPCNT", 3)):
        if option := getattr(socket, f"TCP_{name}", None):
            line.setsockopt(socket.IPPROTO_TCP, option, value)
    if option := getattr(socket, "TCP_USER_TIMEOUT", None):
        line.setsockopt(socket.IPPROTO_TCP, option, 30_000)


class Transacting:
    """``async with``: commits at the end, rolls back after an error.

    After a cancellation or an unanswered statement, a rollback would wait for the running
    statement, perhaps forever. The connection is dropped instead, and the transaction with it.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        readonly: bool = False,
        isolation: Literal["repeatable_read"] | None = None,
    ) -> None:
        # Not by asyncpg's own transaction, which would take a connection whose transaction was
        # cancelled and rolled back to be still in it.
        self._connection = connection
        self._begin = "BEGIN"
        if isolation is not None:
            self._begin += " ISOLATION LEVEL REPEATABLE READ"
        if readonly:
            self._begin += " READ ONLY"
        self._is_kept = True

    def undo(self) -> None:
        """Roll back at the end: there is nothing to commit, and no fsync to wait for."""
        self._is_kept = False

    async def __aenter__(self) -> Transacting:
        await self._connection.execute(self._begin)
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None and self._is_kept:
            await self._connection.execute("COMMIT")
        elif error is None or not is_given_up(error):
            await self._connection.execute("ROLLBACK")
