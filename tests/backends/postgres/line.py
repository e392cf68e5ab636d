"""A wire between a store and its server that a test can cut, or silence, at a chosen moment."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Line:
    """Forwards everything, until told to lose an answer or to let nothing through.

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

    def silence(self) -> None:
        """Let nothing through any more on the connections there are now."""
        self._silenced = self.accepted
        self.went_silent.set()

    def silence_from(self, text: str) -> None:
        """Silence all connections as soon as a message holds ``text``, which is swallowed too."""
        self._silent_from = text.encode()

    def hold_back_from(self, text: str) -> None:
        """Cut off whoever sends the next message that holds ``text``, and keep that on its way.

        It arrives when it is let through.
        """
        self._holds_back_from = text.encode()

    def let_through(self) -> None:
        self._let_through.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        number = self.accepted
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
