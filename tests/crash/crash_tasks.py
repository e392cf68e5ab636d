"""What the worker processes of these tests run. Files tell the test what happened, and when."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from perdure import CONTEXT, AsyncContext, Context, CustomLimit, Task, task

LONG_SECONDS = 120.0
STEP_SECONDS = 0.01


def note(path: str, text: str) -> None:
    """Add a line; one write of a short line is never torn apart by another process."""
    with open(path, "a", encoding="utf-8") as log:
        log.write(f"{text}\n")


@task
async def hang_once(ctx: AsyncContext = CONTEXT) -> str:
    """The first worker to run it never finishes."""
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


def outlast(path: str, seconds: float) -> None:
    """Notes its start, that it still runs, and its end; hears no signal."""
    note(path, f"start {os.getpid()} {time.time()}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(STEP_SECONDS)
        note(path, f"run {os.getpid()} {time.time()}")
    note(path, f"end {os.getpid()} {time.time()}")


@task
def ignore_signal(path: str, ctx: Context = CONTEXT) -> str:
    """The first execution is longer than any grace."""
    outlast(path, 0.1 if Path(path).exists() else LONG_SECONDS)
    return f"attempt {ctx.attempt}"


class SlowLimiter:
    """One place per path. It is slow to release it, and notes that it was asked to, and its end."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    async def acquire(
        self, key: str, n: int, ttl: timedelta
    ) -> tuple[Sequence[str], datetime | None]:
        granted = {key} - self.taken
        self.taken |= granted
        return [*granted], None

    async def renew(self, key: str, places: Sequence[str], ttl: timedelta) -> None:
        pass

    async def release(self, key: str, places: Sequence[str]) -> None:
        note(f"{key}-release", "asked")
        await asyncio.sleep(3)
        note(f"{key}-release", "done")


LIMITED = CustomLimit(SlowLimiter(), key=lambda path: path)


@task(limits=[LIMITED])
async def take_place(path: str) -> None:
    pass


@task(limits=[LIMITED])
def keep_place(path: str) -> None:
    outlast(path, LONG_SECONDS)


@task(timeout="300ms", retries=1)
def ignore_timeout(path: str, ctx: Context = CONTEXT) -> str:
    outlast(path, 0.1 if Path(path).exists() else LONG_SECONDS)
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
async def take_a_second() -> str:
    await asyncio.sleep(1)
    return "done"


@task
async def climb(ctx: AsyncContext = CONTEXT) -> list[int]:
    """Stores a step in each attempt, then waits to be killed; the fourth attempt completes."""
    steps = [await ctx.step(f"step {number}", abs, number) for number in range(ctx.attempt)]
    await ctx.progress(len(steps))
    if ctx.attempt < 4:
        await asyncio.sleep(LONG_SECONDS)
    return steps


@task
async def count(number: int, path: str) -> int:
    note(path, f"{number} {os.getpid()}")
    await asyncio.sleep(0)
    return number


FORK = multiprocessing.get_context("fork")


@task
def terminate_child() -> int:
    """Forks a child and terminates it at once, maybe before it has executed anything."""
    child = FORK.Process(target=time.sleep, args=(LONG_SECONDS,))
    child.start()
    child.terminate()
    child.join(LONG_SECONDS)
    # multiprocessing may have waited for it in another body's thread, which stores the code.
    while (code := child.exitcode) is None:
        time.sleep(STEP_SECONDS)
    return code


@task
def use_pool() -> list[int]:
    with FORK.Pool(2) as pool:  # leaving it terminates its processes
        return pool.map(abs, [-1, 2])


@task
def return_in_child() -> int:
    """The child returns from the body, which it must not."""
    if (pid := os.fork()) == 0:
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@task
async def return_in_child_async() -> int:
    if (pid := os.fork()) == 0:
        raise SystemExit(7)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    return os.waitstatus_to_exitcode(status)


EXITS: dict[str, type[BaseException]] = {
    each.__name__: each for each in (KeyboardInterrupt, SystemExit, GeneratorExit)
}


@task
def exit_in_thread(error: str) -> None:
    raise EXITS[error]


@task
async def exit_on_loop(error: str) -> None:
    raise EXITS[error]


@task
async def exit_in_inner_task(error: str) -> None:
    async def inner() -> None:
        raise EXITS[error]

    await asyncio.gather(inner(), asyncio.sleep(0))


@task(isolation="process")
def exit_in_process(error: str) -> None:
    raise EXITS[error]


@task(isolation="process")
async def exit_in_process_async(error: str) -> None:
    raise EXITS[error]


EXITING: list[Task[..., Any]] = [
    exit_in_thread,
    exit_on_loop,
    exit_in_inner_task,
    exit_in_process,
    exit_in_process_async,
]


@task
def stop_worker() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LONG_SECONDS)


@task
async def stop_worker_from_shell() -> None:
    await (await asyncio.create_subprocess_shell(f"kill -INT {os.getpid()}; sleep 1")).wait()
    await asyncio.sleep(LONG_SECONDS)


@task(isolation="process")
def stop_worker_from_process() -> None:
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(LONG_SECONDS)


STOPPING: list[Task[..., Any]] = [stop_worker, stop_worker_from_shell, stop_worker_from_process]

ALL: list[Task[..., Any]] = [
    *EXITING,
    *STOPPING,
    terminate_child,
    use_pool,
    return_in_child,
    return_in_child_async,
    hang_once,
    wait_for_file,
    wait_for_file_in_thread,
    ignore_signal,
    ignore_timeout,
    take_place,
    keep_place,
    hang_in_process,
    die,
    take_a_second,
    climb,
    count,
]
