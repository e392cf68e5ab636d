"""The tasks that are measured: they do nothing, so that all that is left is Perdure."""

from __future__ import annotations

import time

from perdure import task


@task
async def noop(number: int) -> int:
    return number


@task
def noop_sync(number: int) -> int:
    """The same as a plain function, which a worker runs in a thread."""
    return number


@task
async def stamp() -> float:
    """When the body began, on the clock that the caller reads too."""
    return time.time()
