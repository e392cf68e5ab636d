"""A proxy between the processes and PostgreSQL that injects network faults."""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024


class Connection:
    """One connection through the proxy: two streams, and its current fault."""

    def __init__(self, *ends: StreamWriter) -> None:
        self._ends = ends
        self._may_pass = asyncio.Event()
        self._may_pass.set()

    def hold(self) -> None:
        """Forward nothing in either direction, but stay open."""
        self._may_pass.clear()

    def release(self) -> None:
        """Forward everything that was held, late."""
        self._may_pass.set()

    def cut(self) -> None:
        """Reset the connection in the middle of a message."""
        for end in self._ends:
            _reset(end)
        self._may_pass.set()

    @property
    def is_over(self) -> bool:
        return any(end.transport.is_closing() for end in self._ends)

    async def passing(self) -> None:
        await self._may_pass.wait()


class Proxy:
    """Forwards connections from ``port`` to the local port ``target``."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.delay_seconds = 0.0
        """The delay in each direction."""
        self.delayed = 0
        """The number of delays so far."""
        self._target = target
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accepted, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cut()
        await asyncio.gather(*self._serving)

    def chosen(self, wanted: Callable[[], bool]) -> list[Connection]:
        return [connection for connection in self._connections if wanted()]

    def _accepted(self, reader: StreamReader, writer: StreamWriter) -> None:
        serving = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._target)
        except OSError:  # the server is down
            _reset(writer)
            return
        connection = Connection(writer, far_writer)
        self._connections.add(connection)
        if self._is_closed:
            connection.cut()
        pumps = [
            asyncio.ensure_future(self._pump(connection, reader, far_writer)),
            asyncio.ensure_future(self._pump(connection, far_reader, writer)),
        ]
        # As in PostgreSQL, the end of one direction ends both.
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self._connections.discard(connection)
        connection.cut()
        await asyncio.gather(*pumps)

    async def _pump(
        self, connection: Connection, source: StreamReader, target: StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                if self.delay_seconds:
                    self.delayed += 1
                    await asyncio.sleep(self.delay_seconds)
                await connection.passing()
                target.write(data)
                await target.drain()


def _reset(end: StreamWriter) -> None:
    connection = end.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):  # already closed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.transport.abort()
