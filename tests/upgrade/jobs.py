"""The tasks of the jobs in databases of the first schema; the code of then could run them too."""

from __future__ import annotations

from typing import Any

from perdure import CONTEXT, AsyncContext, Concurrency, Rate, Retry, Task, task
from tests.upgrade.world import world


@task
async def send(text: str) -> str:
    world.executed.append(f"send {text[:20]}")
    return text.upper()


@task
async def stalled(number: int, ctx: AsyncContext = CONTEXT) -> int:
    world.executed.append(f"stalled {number}")
    await ctx.progress(50, "half way")
    await world.stall()
    return number * 10


@task
async def failing(number: int) -> int:
    world.executed.append(f"failing {number}")
    world.fail()
    return number * 10


@task(retries=0)
async def hopeless(number: int) -> int:
    world.executed.append(f"hopeless {number}")
    world.stumble()
    return number * 10


@task(retries=Retry(3, first="10m", jitter=False))
async def patient(number: int) -> int:
    world.executed.append(f"patient {number}")
    world.stumble()
    return number * 10


@task(limits=[Rate(2, per="1h", key=lambda user, _: user)])
async def rated(user: str, number: int) -> str:
    world.executed.append(f"rated {user} {number}")
    return f"{user} {number}"


@task(limits=[Concurrency(1, key="narrow")])
async def narrow(number: int) -> int:
    world.executed.append(f"narrow {number}")
    await world.stall()
    return number * 10


@task(queue="closed")
async def closed(number: int) -> int:
    world.executed.append(f"closed {number}")
    return number * 10


@task(queue="by_hand")
async def by_hand(number: int) -> int:
    world.executed.append(f"by_hand {number}")
    return number * 10


TASKS: list[Task[..., Any]] = [
    send,
    stalled,
    failing,
    hopeless,
    patient,
    rated,
    narrow,
    closed,
    by_hand,
]
