"""Tasks that the tests of the command line run, in this process and in others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from perdure import CONTEXT, AsyncContext, Context, Retry, Worker, task

_STEP_SECONDS = 0.02


@task
def add(a: int, b: int) -> int:
    return a + b


@task
def echo(value: Any) -> Any:
    return value


@task(queue="mail")
async def greet(name: str, ctx: AsyncContext = CONTEXT) -> str:
    await ctx.progress(50, "half way", {"letters": len(name)})
    return f"hello {name}"


@task
def fail(message: str) -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise RuntimeError(message) from error


@task(retries=Retry(1, first="10ms", jitter=False))
def fail_once(ctx: Context = CONTEXT) -> int:
    if ctx.attempt == 1:
        raise ValueError("not the first time")
    return ctx.attempt


@task
def hold(release: str, ctx: Context = CONTEXT) -> int:
    """Run until the file ``release`` is there; return the attempt."""
    while not Path(release).exists():
        ctx.check()
        ctx.abort_signal.wait(_STEP_SECONDS)
    return ctx.attempt


@task
def speak() -> None:
    logging.getLogger("tests.sample").info("a task spoke")


some_tasks = [add, greet]
nothing = 42
worker = Worker(
    "sqlite:///own.db",
    tasks=[add, echo, greet, fail, fail_once, hold, speak],
    concurrency=3,
    grace="20s",
)
