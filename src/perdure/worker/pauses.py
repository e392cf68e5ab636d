"""Waiting for an event, but not for ever."""

from __future__ import annotations

import asyncio


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set; False when the time is over first."""
    try:
        # Not wait_for: on Python 3.11 it swallows a cancellation that comes with the event.
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    except TimeoutError:
        return False
