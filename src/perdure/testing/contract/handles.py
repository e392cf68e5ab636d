"""Concurrent handles on one store, and the hints that a handle receives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from perdure.model.hint import Hint, HintType
from perdure.store.contract import Store

T = TypeVar("T")
THREADS = 4


async def run_concurrently(
    store: Store, work: Callable[[Store, int], Awaitable[T]], count: int = THREADS
) -> list[T]:
    """Run ``work`` on several threads at the same time, each with its own handle and number."""

    async def on_a_handle(number: int) -> T:
        handle = store.clone()
        await handle.open()
        try:
            return await work(handle, number)
        finally:
            await handle.close()

    def on_a_loop(number: int) -> T:
        return asyncio.run(on_a_handle(number))

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(count) as threads:
        runs = [loop.run_in_executor(threads, on_a_loop, number) for number in range(count)]
        return await asyncio.gather(*runs)


class Listener:
    """Collects the hints that one handle receives."""

    def __init__(self, store: Store) -> None:
        self._received: asyncio.Queue[Hint] = asyncio.Queue()
        self.stop = store.subscribe(self._received.put_nowait)

    @property
    def is_silent(self) -> bool:
        return self._received.empty()

    async def receives(self, type: HintType, name: str = "") -> None:
        """Wait for a hint of this type that names ``name``, or all."""
        async with asyncio.timeout(5):
            while True:
                hint = await self._received.get()
                if hint.type is type and (not hint.names or name in hint.names):
                    return
