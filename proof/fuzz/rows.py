"""Work of which somebody spoilt rows: what must go on, and what must have an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from perdure import AsyncClient, Flow, PerdureError, Worker
from perdure.clock import ManualClock
from perdure.store.contract import Store
from perdure.verify import Finding
from proof.fuzz import work
from tests.worker.harness import Running, until

T = TypeVar("T")
gone = Flow("gone").delay("1h").then(work.echo).build()
"""A flow that no worker has code for: its definition is read from the store."""


async def fill(client: AsyncClient) -> Callable[[Finding], bool]:
    """Work of every kind, twice: what will be spoilt, and what must not suffer from it.

    Says of what the checker finds whether it is about something that is spoilt.
    """
    jobs: dict[str, list[str]] = {}
    for who in ("victim", "good"):
        now = await client.enqueue(work.echo, who, group=who)
        later = await client.enqueue(work.echo, who, group=who, delay="30m")
        jobs[who] = [now.id, later.id]
        for flow in ("chain", "delaying", "asking", "deciding", "nesting", "outer"):
            await client.submit(flow, who, id=f"{who}-{flow}")
        await client.schedule(who, "chain", every="1h", input=who)
    await client.submit(gone, 1, id="victim-gone")
    return lambda finding: (
        not (finding.run.startswith("good") or finding.key == "good" or finding.job in jobs["good"])
    )


async def good_ones_go_on(store: Store, client: AsyncClient, clock: ManualClock) -> Running:
    """Start a worker, let time pass, and wait until all that is not spoilt is done."""
    worker = Worker(store, tasks=work.TASKS, flows=work.FLOWS, poll="20ms")
    running = await Running(worker).start()
    clock.advance(timedelta(hours=2))
    await until(lambda: _is_done(client))
    return running


async def _is_done(client: AsyncClient) -> bool:
    jobs = await client.count(group="good", status="completed")
    runs = [str((await client.run(f"good-{flow}")).status) for flow in ("chain", "delaying")]
    ticks = (await client.schedule_record("good")).started
    return jobs == 2 and runs == ["completed", "completed"] and ticks > 0


async def try_all(client: AsyncClient) -> None:
    """Whatever is asked about the victims has an answer, or an error of ours."""
    for job in await _or_refused(client.jobs(limit=100)) or []:
        await _or_refused(client.job(job.id))
        await _or_refused(client.failures(job.id))
    for run in await _or_refused(client.runs(limit=100)) or []:
        handle = client.run_handle(run.id)
        reads = (handle.events, handle.nodes, handle.outputs, handle.approvals, handle.children)
        for read in reads:
            await _or_refused(read())
        await _or_refused(client.lineage(run.id))
        await _or_refused(client.explain(run.id))
        if run.id.startswith("victim"):
            await _or_refused(client.signal(run.id, "go"))
            await _or_refused(client.decide(f"{run.id}:review", "approve"))
            await _or_refused(client.cancel(run.id))
            await _or_refused(client.retry(run.id))
    for about_all in (client.schedules, client.inbox, client.waits, client.workers, client.depth):
        await _or_refused(about_all())
    await _or_refused(client.stranded(work.FLOWS))
    await _or_refused(client.broadcast("go", 1))
    for act in (client.pause_schedule, client.trigger, client.delete_schedule):
        await _or_refused(act("victim"))


async def _or_refused(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except PerdureError:
        return None
