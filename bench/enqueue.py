"""Enqueueing one job at a time, and many in one call."""

from __future__ import annotations

import time

from bench.tasks import noop
from perdure import AsyncClient


async def enqueue_single(url: str, count: int) -> float:
    """Jobs per second through one client, each awaited before the next."""
    async with AsyncClient(url) as client:
        await client.enqueue(noop, -1)
        began = time.perf_counter()
        for number in range(count):
            await client.enqueue(noop, number)
        return count / (time.perf_counter() - began)


async def enqueue_bulk(url: str, count: int) -> float:
    async with AsyncClient(url) as client:
        await client.enqueue(noop, -1)
        began = time.perf_counter()
        await client.enqueue_many(noop, range(count))
        return count / (time.perf_counter() - began)
