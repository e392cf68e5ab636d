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
        self._writer: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: Item) -> None:
        self._waiting.append(item)
        if self._writer is None:
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

    def add(self, item: Item) -> asyncio.Future[Answer]:
        """Queue an item; the future gets the answer of its write, or that write's exception."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._batches.add((item, future))
        return future

    async def flush(self) -> None:
        """Wait until everything added so far is written."""
        await self._batches.flush()

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
