"""What the worker processes of these tests run. Files tell the test what happened, and when."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from perdure import CONTEXT, AsyncContext, Context, Task, task

LONG_SECONDS = 120.0
STEP_SECONDS = 0.01


def note(path: str, text: str) -> None:
    """Add a line; one write of a short line is never torn apart by another process."""
    with open(path, "a", encoding="utf-8") as log:
        log.write(f"{text}\n")


@task
async def hang_once(ctx: AsyncContext = CONTEXT) -> str:
    """Whoever runs it first never finishes."""
    if ctx.attempt == 1:
        await asyncio.sleep(LONG_SECONDS)
    return f"attempt {ctx.attempt}"


@task
async def wait_for_file(path: str, ctx: AsyncContext = CONTEXT) -> str:
    """The first attempt waits for the file, any later one does not."""
    while ctx.attempt == 1 and not Path(path).exists():  # noqa: ASYNC110 (a file sets no event)
        await asyncio.sleep(STEP_SECONDS)
    return f"attempt {ctx.attempt}"


@task
def wait_for_file_in_thread(path: str, ctx: Context = CONTEXT) -> str:
    while ctx.attempt == 1 and not Path(path).exists():
        time.sleep(STEP_SECONDS)
    return f"attempt {ctx.attempt}"


@task(isolation="process")
def hang_in_process(ctx: Context = CONTEXT) -> None:
    ctx.progress(1, str(os.getpid()))
    time.sleep(LONG_SECONDS)


@task
async def die(ctx: AsyncContext = CONTEXT) -> None:
    """Takes its worker with it."""
    os._exit(9)


@task
async def report(path: str, ctx: AsyncContext = CONTEXT) -> None:
    """Tells how far it is, and goes on once the file is there."""
    await ctx.progress(50, "half way")
    while not Path(path).exists():  # noqa: ASYNC110 (a file sets no event)
        await asyncio.sleep(STEP_SECONDS)
    await ctx.progress(90, "nearly done")


@task
async def count(number: int, path: str) -> int:
    note(path, f"{number} {os.getpid()}")
    await asyncio.sleep(0)
    return number


ALL: list[Task[..., Any]] = [
    hang_once,
    wait_for_file,
    wait_for_file_in_thread,
    hang_in_process,
    die,
    count,
    report,
]
