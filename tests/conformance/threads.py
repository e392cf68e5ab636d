"""Several handles at once, each on a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from perdure.store.contract import Store

T = TypeVar("T")
THREADS = 4


async def at_once(
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
