"""Waiting for effects of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WAIT_SECONDS = 30


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():  # noqa: ASYNC110 (the end of a process sets no event of ours)
            await asyncio.sleep(0.01)
