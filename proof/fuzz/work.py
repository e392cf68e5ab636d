"""Quick tasks and flows of every construct, for executing accepted input."""

from __future__ import annotations

from typing import Any

from perdure import CONTEXT, AsyncContext, Concurrency, Flow, Retry, Task, paused, task


@task
async def echo(value: Any = None, *more: Any, **named: Any) -> Any:
    return [value, list(more), named] if more or named else value


@task(retries=Retry(1, first="1ms"), limits=[Concurrency(3, key="narrow")])
def limited(value: Any = None) -> Any:
    return value


@task
async def stepping(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
    await ctx.progress(50, "half way", {"at": value})
    return await ctx.step("once", lambda: value)


@task
async def outside(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
    return paused(checkpoint=value, name="outside") if ctx.last_pause is None else value


@task
async def typed(number: int) -> int:
    return number + 1


TASKS: list[Task[..., Any]] = [echo, limited, stepping, outside, typed]

chain = Flow("chain").then(echo).then(stepping).build()
asking = Flow("asking").then(echo).wait_for_signal("go").build()
ANY_FIELDS = {"type": "object", "additionalProperties": True}
deciding = Flow("deciding").approve("ok?", form=ANY_FIELDS, name="review").build()
mapping = Flow("mapping").map(echo, over="items").build()
delaying = Flow("delaying").delay("1h").then(echo).build()
nesting = Flow("nesting").flow(asking).build()
outer = Flow("outer").then(outside).build()
FLOWS = [chain, asking, deciding, mapping, delaying, nesting, outer]
