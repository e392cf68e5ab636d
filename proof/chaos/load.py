"""The work of chaos: every node type, and the expected result of each run.

Tasks record outside the store that they started and ended, and sign their outputs. They count, so
that the result of every run is known beforehand.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from perdure import (
    CONTEXT,
    AsyncContext,
    Concurrency,
    Context,
    Flow,
    Permanent,
    Rate,
    Retry,
    RetryLater,
    Task,
    task,
)
from perdure.flows.built import BuiltFlow
from perdure.model.limit import LimitRule
from proof.chaos.journal import evidence

Count = dict[str, Any]
"""``n`` is the number, ``by`` the execution that produced it."""

LEASE_SECONDS = 2.0
BRIEF_SECONDS = 0.03
LONG_SECONDS = 1.5 * LEASE_SECONDS
"""Longer than a lease: such a task ends only if its lease is renewed."""
FAULTY_SHARE = 0.3
ROUNDS = 3

CROWD, STREAM = "crowd", "stream"
LIMITS = (
    LimitRule(key=CROWD, live_max=2),
    LimitRule(key=STREAM, starts_max=20, window=timedelta(seconds=1)),
)

OFTEN = Retry(1_000, first="20ms", max="200ms")

ASIDE = "aside"
"""A queue, and a tag, that only some workers serve."""
RUNNING_MAX = (None, None, None, 2, Concurrency(1, key="few"), Concurrency(1, key="{{ input }}"))
"""What clients choose from as ``max_running`` of a run."""
UNSENT = "never"
"""A signal that no client sends."""


@task
async def work(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    with evidence().execution(ctx) as execution:
        await asyncio.sleep(random.uniform(0, BRIEF_SECONDS))
        return one_more(value, execution.nonce)


@task
def work_in_thread(value: Any, ctx: Context = CONTEXT) -> Count:
    with evidence().execution(ctx) as execution:
        time.sleep(random.uniform(0, BRIEF_SECONDS))
        return one_more(value, execution.nonce)


@task(retries=OFTEN)
async def flaky(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    with evidence().execution(ctx) as execution:
        if random.random() < FAULTY_SHARE:
            raise ConnectionError("as outside services do now and then")
        return one_more(value, execution.nonce)


@task
async def long_work(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    with evidence().execution(ctx) as execution:
        await asyncio.sleep(LONG_SECONDS)
        return one_more(value, execution.nonce)


@task
async def in_steps(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    """The first stored result of a step counts, however often the task is executed."""
    with evidence().execution(ctx) as execution:
        drawn = await ctx.step("draw", random.random)
        await asyncio.sleep(random.uniform(0, BRIEF_SECONDS))
        again = await ctx.step("draw", random.random)
        if drawn != again:
            raise Permanent(f"a step gave {drawn} and then {again}")
        return one_more(value, execution.nonce)


@task
async def later(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    with evidence().execution(ctx) as execution:
        if random.random() < FAULTY_SHARE:
            raise RetryLater(after=0.1)
        return one_more(value, execution.nonce)


@task(retries=Retry(2, first="20ms"))
async def not_ready(value: Any, ctx: AsyncContext = CONTEXT) -> None:
    with evidence().execution(ctx):
        raise RetryLater(after=0.1)


@task(retries=OFTEN)
async def unreachable(value: Any, ctx: AsyncContext = CONTEXT) -> None:
    with evidence().execution(ctx):
        raise ConnectionError("as it always does")


@task
async def spread(value: Any, ctx: AsyncContext = CONTEXT) -> list[Count]:
    with evidence().execution(ctx) as execution:
        return [{"n": number_of(value), "by": execution.nonce}] * 3


@task
async def sum_up(values: Any, ctx: AsyncContext = CONTEXT) -> Count:
    """The sum of a list, or of named branches."""
    with evidence().execution(ctx) as execution:
        numbers = values.values() if isinstance(values, dict) else values
        return {"n": sum(map(number_of, numbers)), "by": execution.nonce}


@task
async def go_round(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    with evidence().execution(ctx) as execution:
        count = one_more(value, execution.nonce)
        return {**count, "done": ctx.iteration == ROUNDS}


@task
async def ask_outside(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    """Parks until a client process reports, and continues with the report."""
    with evidence().execution(ctx) as execution:
        report = await ctx.pause(checkpoint=number_of(value))
        return one_more(report.result, execution.nonce)


@task
async def result(value: Any, ctx: AsyncContext = CONTEXT) -> int:
    """The last node of a run: a plain number, the same for any execution."""
    with evidence().execution(ctx):
        return number_of(value)


@task
async def decision(answer: dict[str, Any], ctx: AsyncContext = CONTEXT) -> str:
    with evidence().execution(ctx):
        made: str = answer["decision"]
        return made


@task
async def fail(value: Any, ctx: AsyncContext = CONTEXT) -> None:
    with evidence().execution(ctx):
        raise Permanent("as it always does")


@task
async def take_back(item: Any, ctx: AsyncContext = CONTEXT) -> None:
    with evidence().execution(ctx):
        await asyncio.sleep(random.uniform(0, BRIEF_SECONDS))


@task(limits=[Concurrency(2, key=CROWD)])
async def crowded(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    with evidence().execution(ctx, [CROWD]) as execution:
        await asyncio.sleep(random.uniform(0, 4 * BRIEF_SECONDS))
        return one_more(value, execution.nonce)


@task(limits=[Rate(20, per="1s", key=STREAM)])
async def streamed(value: Any, ctx: AsyncContext = CONTEXT) -> Count:
    with evidence().execution(ctx, [STREAM]) as execution:
        return one_more(value, execution.nonce)


def number_of(value: Any) -> int:
    number: int = value["n"] if isinstance(value, dict) else value
    return number


def one_more(value: Any, nonce: str) -> Count:
    return {"n": number_of(value) + 1, "by": nonce}


order = (
    Flow("order")
    .then(work, name="begin")
    .fork(
        quick=Flow().then(work, name="quick").then(in_steps),
        slow=Flow().then(work_in_thread, name="slow"),
        faulty=Flow().then(flaky, name="faulty"),
    )
    .join(sum_up, name="together")
    .then(spread)
    .map(work, name="each")
    .then(sum_up)
    .loop(go_round, until="done", max_iterations=ROUNDS)
    .then(result)
    .build()
)
errand = Flow("errand").then(work, name="go").then(work_in_thread, name="back").build()
family = (
    Flow("family")
    .then(work, name="begin")
    .flow(errand, name="child")
    .then(spread)
    .map(errand, name="children")
    .then(sum_up)
    .then(result)
    .build()
)
patient = (
    Flow("patient")
    .then(work, name="begin")
    .delay("300ms")
    .wait_for_signal("go")
    .then(work, name="go-on")
    .then(result)
    .build()
)
SIGNATURE = {"type": "object", "properties": {"by": {"type": "string"}}}
asked = (
    Flow("asked")
    .then(work, name="begin")
    .approve("Take {{ value.n }}?", name="ask", on_reject="no", form=SIGNATURE)
    .then(decision, name="taken")
    .node("left", decision, after="ask:no")
    .build()
)
voted = (
    Flow("voted", max_running=3)
    .then(work, name="begin")
    .approve(
        "Take {{ value.n }}?",
        name="ask",
        deciders=["ann", "bob", "cem"],
        policy={"at_least": 2},
        form=SIGNATURE,
    )
    .then(decision, name="taken")
    .build()
)
outside = Flow("outside").then(work, name="begin").then(ask_outside).then(result).build()
doomed = Flow("doomed").then(work, name="begin", undo=take_back).then(fail).build()
overdue = (
    Flow("overdue", timeout="2s")
    .then(work, name="begin", undo=take_back)
    .wait_for_signal(UNSENT)
    .build()
)
exhausted = (
    Flow("exhausted", max_attempts=5)
    .then(work, name="begin", undo=take_back)
    .then(unreachable)
    .build()
)
ticked = Flow("ticked").then(work, name="tick").then(result).build()

SUBMITTED: tuple[BuiltFlow, ...] = (
    *(order, order, family, patient, asked, voted, outside),
    *(doomed, overdue, exhausted),
)
"""The flows that clients choose from; a repeated one is chosen more often."""
FLOWS: tuple[BuiltFlow, ...] = (*dict.fromkeys(SUBMITTED), errand, ticked)
TASKS: tuple[Task[..., Any], ...] = (
    work,
    work_in_thread,
    flaky,
    later,
    long_work,
    in_steps,
    crowded,
    streamed,
    not_ready,
)

_RESULTS: dict[str, Callable[[int], frozenset[Any]]] = {
    "order": lambda number: frozenset({3 * (3 * number + 8) + ROUNDS}),
    "family": lambda number: frozenset({3 * (number + 5)}),
    "patient": lambda number: frozenset({payload_for(number) + 1}),
    "asked": lambda _: frozenset({"approve", "reject"}),
    "voted": lambda _: frozenset({"approve"}),
    "outside": lambda number: frozenset({payload_for(number) + 1}),
    "ticked": lambda number: frozenset({number + 1}),
}


FAILURES: Mapping[str, str] = {
    "doomed": "task.permanent",
    "overdue": "run.timed_out",
    "exhausted": "run.attempts_exhausted",
}
"""The flows whose runs must fail, and the code of the failure."""
DEAD_AFTER: Mapping[str, int] = {not_ready.name: 3}
"""The tasks whose plain jobs must end as dead letters, and after how many attempts."""


def results_of(flow: str, number: int) -> frozenset[Any]:
    """The possible results of a run of this flow with this input; empty if it must fail."""
    return frozenset() if flow in FAILURES else _RESULTS[flow](number)


def payload_for(number: int) -> int:
    """The payload that a client signals or reports to a run with this input."""
    return 2 * number
