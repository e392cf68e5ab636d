"""Concurrent commands on one run while a worker executes it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Flow,
    PerdureError,
    Task,
    Worker,
    paused,
    task,
)
from perdure.model.run import ENDED
from perdure.operations.records import ReportOutcome
from perdure.store.contract import Store
from proof.fuzz.work import ANY_FIELDS
from tests.worker.harness import Running, until

SECONDS_MAX = 30.0
POLL = "45s"
"""Longer than a run may take to end: whatever only a poll would find counts as stuck."""


@task
async def outside(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
    return paused(name="outside") if ctx.last_pause is None else value


@task
async def fragile(value: Any) -> Any:
    if value == "fail":
        raise ValueError(value)
    return value


TASKS: list[Task[..., Any]] = [outside, fragile]
FLOWS = {
    "reported": Flow("reported").then(outside, name="node").then(fragile).build(),
    "signalled": Flow("signalled").wait_for_signal("go", name="node").then(fragile).build(),
    "decided": Flow("decided")
    .approve(
        "ok?",
        form=ANY_FIELDS,
        on_reject="continue",
        deciders=["role:team"],
        escalate={"1h": ["boss"]},
        name="node",
    )
    .then(fragile)
    .build(),
    "failed": Flow("failed").then(fragile, name="node").build(),
    "nested": Flow("nested")
    .flow(Flow("inner").wait_for_signal("go", name="node").build(), name="child")
    .then(fragile)
    .build(),
}
COMMANDS: dict[str, Callable[[AsyncClient, str, int], Awaitable[Any]]] = {
    "report": lambda c, run, _: c.runs.report(run, "node", status="completed", result=1),
    "report with a key": lambda c, run, _: c.runs.report(
        run, "node", status="completed", result=1, key="same"
    ),
    "report of progress": lambda c, run, n: c.runs.report(
        run, "node", status="progress", progress=n
    ),
    "report of failure": lambda c, run, _: c.runs.report(run, "node", status="failed", error="no"),
    "approve": lambda c, run, n: c.approvals.decide(
        f"{run}:node", "approve", by=f"p{n}", roles=["team"], data={"n": n}
    ),
    "reject": lambda c, run, n: c.approvals.decide(
        f"{run}:node", "reject", by=f"p{n}", roles=["team"]
    ),
    "signal": lambda c, run, n: c.runs.signal(run, "go", n),
    "signal to the child": lambda c, run, n: c.runs.signal(f"{run}/child", "go", n),
    "broadcast": lambda c, run, n: c.runs.broadcast("go", n),
    "cancel": lambda c, run, _: c.runs.cancel(run),
    "pause": lambda c, run, _: c.runs.pause(run),
    "resume": lambda c, run, _: c.runs.resume(run),
    "retry": lambda c, run, _: c.runs.retry(run),
    "fork": lambda c, run, n: c.runs.fork(run, new_id=f"{run}-fork"),
    "replace": lambda c, run, _: c.submit("signalled", "new", id=run, on_conflict="replace"),
}
OF_ALL = ["cancel", "pause", "resume", "retry", "fork", "replace"]
OF_ONE = {
    "reported": [each for each in COMMANDS if each.startswith("report")],
    "signalled": ["signal", "broadcast"],
    "decided": ["approve", "reject"],
    "failed": ["retry", "fork"],
    "nested": ["signal to the child", "broadcast"],
}
"""Commands that a run of this flow waits for."""


def _commands(flow: str) -> st.SearchStrategy[tuple[str, list[str]]]:
    fitting = st.sampled_from(OF_ONE[flow])
    commands = st.one_of(
        fitting.map(lambda command: [command] * 3),
        st.lists(fitting | st.sampled_from(OF_ALL), min_size=2, max_size=6),
        st.lists(st.sampled_from(list(COMMANDS)), min_size=2, max_size=4),
    )
    return st.tuples(st.just(flow), commands)


EXAMPLES = st.sampled_from(list(FLOWS)).flatmap(_commands)
"""A flow, and what is done to a run of it at the same time."""


async def race(
    store: Store, clients: Sequence[AsyncClient], id: str, flow: str, commands: Sequence[str]
) -> bool:
    """Act all at once, then let the run end; whether any command was accepted."""
    client = clients[0]
    given = "fail" if flow == "failed" else "input"
    await client.submit(flow, given, id=id)
    worker = Worker(store, tasks=TASKS, flows=list(FLOWS.values()), poll=POLL, hold_off="0s")
    running = await Running(worker).start()
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await until(lambda: _is_settled(client, id))
            answers = await asyncio.gather(
                *(
                    COMMANDS[command](clients[n % len(clients)], id, n)
                    for n, command in enumerate(commands)
                ),
                return_exceptions=True,
            )
            refused = [each for each in answers if isinstance(each, BaseException)]
            for each in refused:
                if not isinstance(each, PerdureError):
                    raise each
            _check_winners(flow, commands, answers)
            await _finish(client, id)
            for run in await client.runs.list(limit=1000):
                if run.id == f"{id}-fork":
                    await _finish(client, run.id)
    finally:
        await running.stop()
    return len(refused) < len(answers)


async def _is_settled(client: AsyncClient, id: str) -> bool:
    return (await client.runs.get(id)).status != "running"


EXCLUSIVE = [{"approve", "reject"}, {"fork"}, {"report with a key"}]
"""Commands of which one is accepted; the others are refused, or acknowledged as repeated."""


def _check_winners(flow: str, commands: Sequence[str], answers: Sequence[Any]) -> None:
    if {"replace", "retry"} & {
        *commands
    }:  # then they may be about several runs, or several attempts
        return
    won = Counter(
        command
        for command, each in zip(commands, answers, strict=True)
        if not isinstance(each, BaseException)
        and getattr(each, "outcome", None) is not ReportOutcome.REPEATED
    )
    for group in EXCLUSIVE:
        assert sum(won[command] for command in group) <= 1, (group, answers)
    if flow == "decided" and {*commands} <= EXCLUSIVE[0]:
        assert sum(won.values()) == 1, answers


async def _finish(client: AsyncClient, id: str) -> None:
    """Do what the run waits for, until it ends."""
    while True:
        run = await client.runs.get(id)
        if run.status in ENDED:
            return
        for command in ("resume", "report", "approve", "broadcast"):
            try:
                await COMMANDS[command](client, id, 99)
            except PerdureError:
                continue
        await asyncio.sleep(0.005)
