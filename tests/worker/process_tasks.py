"""Tasks that run in processes of their own, which import them from here."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import time
from multiprocessing.connection import Connection

from perdure import CONTEXT, AsyncContext, BaseContext, Context, Retry, RetryLater, resource, task

LONG_SECONDS = 60
DEEP = 900


@task(isolation="process")
def add(first: int, second: int) -> int:
    return first + second


@task(isolation="process")
def note_time(path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{time.monotonic()}\n")


SLOW = resource("slow", float)


async def provide_slowly(ctx: BaseContext) -> dict[str, object]:
    """Every second job waits for its resource."""
    seconds = 0.0 if ctx.arguments["number"] % 2 else 0.5
    await asyncio.sleep(seconds)
    return {"slow": seconds}


@task(isolation="process")
def note_slow(path: str, number: int, slow: float = SLOW) -> None:
    note_time.function(path)


@task(isolation="process", retries=Retry(5, first=0))
def retry_adding(first: int, second: int = 0) -> int:
    return first + second


@task(isolation="process")
def log_handlers() -> int:
    return len(logging.getLogger().handlers)


@task(isolation="process")
async def own_pid() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@task(isolation="process")
def hang(ctx: Context = CONTEXT) -> None:
    """Tells where it runs, and then neither ends nor looks at its signal."""
    ctx.progress(1, str(os.getpid()))
    time.sleep(LONG_SECONDS)


@task(isolation="process", timeout="700ms")
def hang_past_timeout(ctx: Context = CONTEXT) -> None:
    ctx.progress(1, str(os.getpid()))
    time.sleep(LONG_SECONDS)


@task(isolation="process")
def heed(ctx: Context = CONTEXT) -> str:
    """Ends by itself once it is asked to."""
    ctx.progress(1, "listening")
    ctx.abort_signal.wait(LONG_SECONDS)
    ctx.progress(2, f"heard: {ctx.abort_signal.reason}")
    return "ended by itself"


@task(isolation="process", retries=Retry(1, first=0))
def die(ctx: Context = CONTEXT) -> str:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@task(isolation="process")
def fail(found_type: str) -> None:
    if found_type == "later":
        raise RetryLater("busy", after="1h")
    if found_type == "exit":
        raise SystemExit(7)
    if found_type == "odd":
        raise ValueError("zero \x00 and half a pair \ud800")
    try:
        raise OSError("the disk")
    except OSError as error:
        raise KeyError("the page") from error


@task(isolation="process")
def unstorable() -> object:
    return object()


@task(isolation="process")
def leave_a_reporter_behind(ctx: Context = CONTEXT) -> int:
    def report() -> None:
        while True:
            ctx.progress(99, "from the past")
            time.sleep(0.01)

    threading.Thread(target=report, daemon=True).start()
    return os.getpid()


@task(isolation="process")
def report_once(ctx: Context = CONTEXT) -> int:
    ctx.progress(10, "from the present")
    time.sleep(0.2)
    return os.getpid()


@task(isolation="process", retries=Retry(3, first=0))
def steps_in_process(number: int, ctx: Context = CONTEXT) -> list[object]:
    """Fails after its steps, the first time; they are not executed again the second time."""
    steps = [
        ctx.step("nothing", _only_first, ctx.attempt),
        ctx.step("number", _only_first, ctx.attempt, str(number)),
    ]
    if ctx.attempt == 1:
        raise ValueError("again")
    return [*steps, ctx.attempt]


def _only_first(attempt: int, value: str | None = None) -> str | None:
    assert attempt == 1
    return value


@task(isolation="process")
def pause_in_process(number: int, ctx: Context = CONTEXT) -> list[object]:
    report = ctx.pause("outside", checkpoint={"kept": number})
    last = ctx.last_pause
    assert last is not None
    return [report.status, report.error, last.checkpoint, ctx.partial]


@task(isolation="process")
async def tell_in_process(how: str, ctx: AsyncContext = CONTEXT) -> object:
    """Gives a secret away, which the parent resolves and masks."""
    secret = ctx.secret("key")
    ctx.progress(1, secret)
    if how == "raise":
        raise ValueError(("x" * 1990 + secret) * 4) from KeyError(secret)
    if how == "step":
        return await ctx.step("kept", lambda: secret)
    return {"found": secret}


@task(isolation="process")
def report_deeply(ctx: Context = CONTEXT) -> str:
    """Reports what passes the pipe, and is too deep to be masked."""
    details: list[object] = [ctx.secret("key")]
    for _ in range(DEEP):
        details = [details]
    ctx.progress(1, "deep", details)
    return "done"


@task(isolation="process")
def talk_nonsense(ctx: Context = CONTEXT) -> str:
    """Sends its worker a message that is no JSON."""
    for each in gc.get_objects():
        if isinstance(each, Connection):
            each.send_bytes(b"nonsense")
    return "done"


@task(isolation="process")
def inputs_in_process(amount: int, ctx: Context = CONTEXT) -> list[object]:
    return [amount, dict(ctx.inputs)]


@task(isolation="process")
def echo_in_process(value: object) -> object:
    return value
