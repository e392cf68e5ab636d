"""Flows whose workers are killed. Files record what was executed, and what may continue."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from perdure import CONTEXT, AsyncContext, Context, Flow, task
from perdure.flows.built import BuiltFlow
from tests.crash.crash_tasks import LONG_SECONDS, STEP_SECONDS, note

POINTS = ("claimed", "executing", "executed", "committed")
"""Where a worker is killed: each has a queue of its own, and so its own victim."""


@task
async def work(settings: dict[str, Any], ctx: AsyncContext = CONTEXT) -> dict[str, Any]:
    """Notes that it was executed, and hands on what it got."""
    note(
        settings["log"], f"{ctx.run_id} {ctx.node} {ctx.iteration} {ctx.item} {ctx.idempotency_key}"
    )
    if settings.get("dies") == ctx.node and ctx.worker == settings["victim"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return settings


@task
def work_in_thread(settings: dict[str, Any], ctx: Context = CONTEXT) -> dict[str, Any]:
    note(
        settings["log"], f"{ctx.run_id} {ctx.node} {ctx.iteration} {ctx.item} {ctx.idempotency_key}"
    )
    return settings


@task
async def gather(branches: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = branches["b"]
    return {**settings, "items": [settings] * 3}


@task
async def finish(items: list[Any], ctx: AsyncContext = CONTEXT) -> int:
    note(items[0]["log"], f"{ctx.run_id} {ctx.node} 0 None {ctx.idempotency_key}")
    return len(items)


def flow_for(point: str) -> BuiltFlow:
    return (
        Flow(f"dies-{point}")
        .then(work, name="a", queue=point)
        .fork(
            b=Flow().then(work, name="b", queue=point).then(work_in_thread, name="b2", queue=point),
            c=Flow().then(work_in_thread, name="c", queue=point),
        )
        .join(gather, name="d", queue=point)
        .map(work, over="items", name="e", queue=point)
        .then(finish, name="f", queue=point)
        .build()
    )


DEADLY = [flow_for(point) for point in POINTS]


@task
async def kill(_: Any) -> None:
    """Takes its worker with it, always."""
    os.kill(os.getpid(), signal.SIGKILL)


poison = Flow("poison").then(work, name="first").then(kill).build()
survivable = (
    Flow("survivable")
    .then(kill, on_error="continue", queue="other")
    .then(lambda _: "on", name="next")
    .build()
)
POISON = [poison, survivable]


@task
async def step_by_step(settings: dict[str, Any], ctx: AsyncContext = CONTEXT) -> list[Any]:
    """Dies after its first step; the step is not executed again."""
    first = await ctx.step("first", _count, settings["log"], ctx.worker)
    if ctx.worker == settings["victim"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return [first, await ctx.step("second", _count, settings["log"], ctx.worker)]


def _count(log: str, worker: str) -> str:
    note(log, f"step {worker}")
    return worker


stepping = Flow("stepping").then(step_by_step).build()
STEPPING = [stepping]


@task
async def hold(settings: dict[str, Any], ctx: AsyncContext = CONTEXT) -> dict[str, Any]:
    """Waits for a file; notes that it was asked to stop."""
    note(settings["log"], f"{ctx.node} started")
    try:
        async with asyncio.timeout(LONG_SECONDS):
            while not Path(settings["go"]).exists():  # noqa: ASYNC110 (a file sets no event)
                await asyncio.sleep(STEP_SECONDS)
    except asyncio.CancelledError:
        note(settings["log"], f"{ctx.node} cancelled")
        raise
    return settings


holding = Flow("holding").then(work, name="before").then(hold).then(work, name="after").build()
HOLDING = [holding]


@task
async def brief(number: int) -> int:
    await asyncio.sleep(0.005)
    return number + 1


@task
async def sum_up(numbers: list[int]) -> int:
    return sum(numbers)


busy = (
    Flow("busy")
    .then(brief, name="one")
    .then(brief, name="two")
    .then(lambda number: [number] * 4, name="spread")
    .map(brief, name="each")
    .then(sum_up)
    .build()
)
BUSY = [busy]
