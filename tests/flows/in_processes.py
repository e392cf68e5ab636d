"""Bodies that run in processes of their own, which import no more than this."""

from __future__ import annotations

from typing import Any

from perdure import task
from perdure.tasks.context import CONTEXT, AsyncContext, Context


@task(isolation="process")
def pause_in_process(number: int, ctx: Context = CONTEXT) -> Any:
    return [number, ctx.pause("a").result, ctx.pause("b").result]


@task(isolation="process")
async def pause_in_process_async(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    return [number, (await ctx.pause()).result]
