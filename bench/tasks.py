"""The measured tasks. They do nothing, so that only Perdure's cost remains."""

from __future__ import annotations

import time

from perdure import task


@task
async def noop(number: int) -> int:
    return number


@task
def noop_sync(number: int) -> int:
    """The no-op as a sync function, which a worker runs in a thread."""
    return number


@task
async def stamp() -> float:
    """When the task started, on the caller's clock."""
    return time.time()
