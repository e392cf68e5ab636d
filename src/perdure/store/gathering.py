"""Group commit: what arrives while one write is under way travels together in the next.

When idle an item is written at once; under load one round trip and one fsync carry hundreds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batches(Generic[Item]):
    """Feeds items to ``write`` in batches, one batch at a time, in the order of arrival."""

    def __init__(self, write: Callable[[list[Item]], Awaitable[None]], *, batch_max: int) -> None:
        self._write = write
        self._batch_max = batch_max
        self._waiting: list[Item] = []
        self._is_held = False
        self._writer: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return self._writer is None and not self._waiting

    def add(self, item: Item, *, starts: bool = True) -> None:
        """Have an item written; unless it ``starts`` the writing, ``write_here`` is to follow."""
        self._waiting.append(item)
        if starts:
            self._start()

    async def write_here(self) -> None:
        """Write what waits within the caller's own task, if nobody is writing.

        It spares the making of a task, and a turn of the event loop.
        """
        if self._writer is None and self._waiting and not self._is_held:
            self._writer = asyncio.current_task()
            await self._run()

    def hold(self) -> None:
        """Write nothing until released: another write is under way."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._start()

    def _start(self) -> None:
        if self._writer is None and self._waiting and not self._is_held:
            self._writer = asyncio.create_task(self._run())

    async def flush(self) -> None:
        """Wait until everything added so far is written."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._batch_max]
                del self._waiting[: self._batch_max]
                await self._write(batch)
        finally:
            self._writer = None


class Gathering(Generic[Item, Answer]):
    """Batches whose items each wait for an answer of their own."""

    def __init__(
        self, write: Callable[[list[Item]], Awaitable[Sequence[Answer]]], *, batch_max: int
    ) -> None:
        self._write = write
        self._batches = Batches(self._write_batch, batch_max=batch_max)
        self._first: asyncio.Future[None] | None = None

    async def add(self, item: Item) -> Answer:
        """The answer to an item, or the exception of the write that carried it."""
        if self._first is None and self._batches.is_idle:
            return await self._write_first(item)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._batches.add((item, future))
        return await future

    async def flush(self) -> None:
        """Wait until everything added so far is written."""
        if self._first is not None:
            await asyncio.wait([self._first])
        await self._batches.flush()

    async def _write_first(self, item: Item) -> Answer:
        """Whoever comes when nothing is under way writes at once, and by itself."""
        self._first = asyncio.get_running_loop().create_future()
        self._batches.hold()
        try:
            [answer] = await self._write([item])
            return answer
        finally:
            self._first.set_result(None)
            self._first = None
            self._batches.release()

    async def _write_batch(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._write([item for item, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
