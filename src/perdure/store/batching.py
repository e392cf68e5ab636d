"""Group commit: items that arrive during a write share the next one.

When idle, an item is written immediately; under load, one round trip and one fsync carry hundreds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batches(Generic[Item]):
    """Feeds items to ``write`` in batches, in the order of arrival.

    One batch at a time, or several with more ``writers``; items of the same ``key`` are never in
    two batches at once.
    """

    def __init__(
        self,
        write: Callable[[list[Item]], Awaitable[None]],
        *,
        batch_max: int,
        writers: int = 1,
        key: Callable[[Item], Hashable] | None = None,
    ) -> None:
        self._write = write
        self._batch_max = batch_max
        self._writers_max = writers
        self._key = key
        self._waiting: list[Item] = []
        self._is_held = False
        self._is_starting = False
        self._writers: set[asyncio.Task[None]] = set()
        self._busy: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._writers and not self._waiting

    def add(self, item: Item, *, starts: bool = True) -> None:
        """Add an item. Without ``starts``, the caller must call ``write_here`` next."""
        self._waiting.append(item)
        if starts:
            self._start()

    async def write_here(self) -> None:
        """Write pending items within the caller's task, unless a write is running.

        This saves a new task and an iteration of the event loop.
        """
        if not self._waiting:
            return
        task = asyncio.current_task()
        if self._writers or self._is_held or task is None:
            self._start()
            return
        self._writers.add(task)
        await self._run(task)

    def hold(self) -> None:
        """Block writes until released: another write is in progress."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._start()

    async def flush(self) -> None:
        """Wait until everything added so far is written."""
        while self._writers:
            await asyncio.wait(self._writers)

    def _start(self) -> None:
        if not self._waiting or self._is_held or self._is_starting:
            return  # the next writer takes the new items
        if len(self._writers) < self._writers_max:
            self._is_starting = True
            self._writers.add(asyncio.create_task(self._run_started()))

    async def _run_started(self) -> None:
        self._is_starting = False
        task = asyncio.current_task()
        assert task is not None
        await self._run(task)

    async def _run(self, task: asyncio.Task[None]) -> None:
        try:
            while batch := self._take():
                keys = set() if self._key is None else {self._key(item) for item in batch}
                self._busy |= keys
                self._start()  # another writer may take the rest
                try:
                    await self._write(batch)
                finally:
                    self._busy -= keys
        finally:
            self._writers.discard(task)

    def _take(self) -> list[Item]:
        batch: list[Item] = []
        left: list[Item] = []
        if self._key is None or not self._busy:
            batch, left = self._waiting[: self._batch_max], self._waiting[self._batch_max :]
        else:
            for item in self._waiting:
                is_free = len(batch) < self._batch_max and self._key(item) not in self._busy
                (batch if is_free else left).append(item)
        self._waiting = left
        return batch


class Batcher(Generic[Item, Answer]):
    """Batches whose items each get their own result."""

    def __init__(
        self, write: Callable[[list[Item]], Awaitable[Sequence[Answer]]], *, batch_max: int
    ) -> None:
        self._write = write
        self._batches = Batches(self._write_batch, batch_max=batch_max)
        self._first: asyncio.Future[None] | None = None

    async def add(self, item: Item) -> Answer:
        """The result of an item, or the exception of its write."""
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
        """Write an item immediately and alone, because nothing else is pending."""
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
