"""The tasks that these tests enqueue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure import CONTEXT, AsyncContext, Concurrency, Retry, task


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task
def echo(value: Any) -> Any:
    return value


@task(queue="embeddings", priority=2, retries=Retry(5), timeout="30s", tags=["gpu"])
async def embed(text: str, ctx: AsyncContext = CONTEXT) -> dict[str, Any]:
    await ctx.progress(50, "half way")
    return {"text": text}


@task
def mirror(point: Point) -> Point:
    return Point(point.y, point.x)


@task
def named(*, queue: str, text: str = "") -> str:
    return f"{queue} {text}"


@task(limits=[Concurrency(2, key=lambda user, _text="": f"user:{user}")])
def for_user(user: str, text: str = "") -> str:
    return user + text


@task
async def until_aborted(ctx: AsyncContext = CONTEXT) -> None:
    await ctx.progress(50, "half way", {"done": 1})
    await ctx.abort_signal.wait_async()
