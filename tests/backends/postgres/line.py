"""A wire between a store and its server that a test can cut, or silence, at a chosen moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit


class Line:
    """Forwards everything, until asked to lose a response or block all traffic.

    Silenced connections stay open, and take whatever is sent: only nothing comes out at the end.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loses_answer_to = b""
        self._silent_from = b""
        self._silenced = 0
        self._holds_back_from = b""
        self._let_through = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._starting = 0
        self.accepted = 0
        self.went_silent = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The store's URL, by way of this wire."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user, at, _ = self._parts.netloc.rpartition("@")
        return urlunsplit(self._parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))

    def cut(self) -> None:
        """End every connection there is now."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def lose_answer_to(self, text: str) -> None:
        """Deliver the next message that holds ``text``, then cut instead of delivering its answer.

        The message is repeated by its sender; that time it goes through.
        """
        self._loses_answer_to = text.encode()

    def start_after(self, connections: int) -> None:
        """Refuse that many connections the way a server does that is starting."""
        self._starting = connections

    def silence(self) -> None:
        """Let nothing through any more on the connections there are now."""
        self._silenced = self.accepted
        self.went_silent.set()

    def silence_from(self, text: str) -> None:
        """Silence all connections as soon as a message holds ``text``, which is swallowed too."""
        self._silent_from = text.encode()

    def hold_back_from(self, text: str) -> None:
        """Cut the connection that next sends ``text``, and hold the message back.

        It arrives when it is let through.
        """
        self._holds_back_from = text.encode()

    def let_through(self) -> None:
        self._let_through.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        number = self.accepted
        if number <= self._starting:
            fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
            await reader.read(8)  # asks for TLS
            writer.write(b"N")
            await reader.read(65536)
            writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
            await writer.drain()
            writer.close()
            return
        assert self._parts.hostname is not None
        far_reader, far_writer = await asyncio.open_connection(
            self._parts.hostname, self._parts.port or 5432
        )
        self._writers |= {writer, far_writer}
        is_losing = asyncio.Event()
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(
                self._forward(source, sink, writer, is_losing, number, is_answer=sink is writer)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        sender: asyncio.StreamWriter,
        is_losing: asyncio.Event,
        number: int,
        *,
        is_answer: bool,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                if is_answer and is_losing.is_set():
                    sink.transport.abort()
                    return
                if not is_answer and self._silent_from and self._silent_from in data:
                    self._silent_from = b""
                    self.silence()
                if number <= self._silenced:
                    continue
                if not is_answer and self._holds_back_from and self._holds_back_from in data:
                    self._holds_back_from = b""
                    sender.transport.abort()
                    await self._let_through.wait()
                if not is_answer and self._loses_answer_to and self._loses_answer_to in data:
                    self._loses_answer_to = b""
                    is_losing.set()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()


# Forcing an interleaving: lock a row, wait until another session waits for it, release it.


WAITING_FOR_A_LOCK = """
SELECT count(*)
FROM pg_locks
JOIN pg_stat_activity USING (pid)
WHERE NOT granted
  AND query LIKE '%' || $1 || '%'
"""
BY_NAME = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
LOOKS_MAX = 500


@asynccontextmanager
async def row_held(connection: Any, schema: str, id: str) -> AsyncIterator[None]:
    """Keep everybody else from changing one job."""
    async with connection.transaction():
        await connection.execute(f"SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE", id)
        yield


async def until_blocked(connection: Any, schema: str, least: int = 1) -> None:
    """Look until statements about this schema, so many at least, wait for a lock."""
    await _until(connection, WAITING_FOR_A_LOCK, schema, lambda count: count >= least)


async def until_unblocked(connection: Any, schema: str) -> None:
    await _until(connection, WAITING_FOR_A_LOCK, schema, lambda count: count == 0)


async def until_gone(connection: Any, name: str) -> None:
    """Wait until the server has closed all connections of that name."""
    await _until(connection, BY_NAME, name, lambda count: count == 0)


async def _until(connection: Any, query: str, argument: str, is_reached: Any) -> None:
    for _ in range(LOOKS_MAX):
        # Within a transaction the server shows one picture of its connections until it is cleared.
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        if is_reached(await connection.fetchval(query, argument)):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the expected state was not reached")
