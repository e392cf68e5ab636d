"""Executes, reads, lists, shows and removes accepted work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from perdure import AsyncClient, PerdureError, Worker
from perdure.clock import ManualClock
from perdure.model.job import FINISHED
from perdure.model.run import ENDED
from perdure.store.contract import Store
from perdure.worker.events import WorkerStopped
from proof.fuzz.inspection import check_printed, check_secrets, contents, inspect_store
from proof.fuzz.work import FLOWS, TASKS
from tests.cli.harness import Commands
from tests.worker.harness import Running

PAGE = 1000
SECONDS_MAX = 50.0
DAY = timedelta(days=1)
FOREVER = timedelta(days=400)
LISTS = [
    ("jobs", "list", "--limit", "1000"),
    ("runs", "list", "--limit", "1000"),
    ("schedules", "list"),
    ("inbox",),
    ("waits", "list"),
    ("workers", "list"),
    ("queues", "list"),
]
OF_A_JOB = [("jobs", "get"), ("jobs", "explain")]
OF_A_RUN = [
    ("runs", "get"),
    ("runs", "events"),
    ("runs", "explain"),
    ("runs", "timeline"),
    ("runs", "lineage"),
]
SHOWN_MAX = 1
"""Jobs and runs that are shown by commands, which cost more than calls."""


async def execute_all(store: Store, client: AsyncClient, clock: ManualClock) -> None:
    """Let a worker process all due work."""
    queues = sorted({job.queue for job in await client.jobs.list(limit=PAGE)} | {"default"})
    worker = Worker(store, tasks=TASKS, flows=FLOWS, queues=queues, poll="5ms", concurrency=20)
    running = await Running(worker).start()
    try:
        for queue in await client.queues.list():
            if queue.is_paused:
                await client.queues.resume(queue.name)
        await until_quiet(client, running)
        clock.advance(timedelta(minutes=61))
        await until_quiet(client, running)
        for schedule in await client.schedules.list():
            await client.schedules.delete(schedule.name)
        clock.advance(FOREVER)
        await until_quiet(client, running)
    finally:
        await running.stop()


async def until_quiet(client: AsyncClient, running: Running) -> None:
    """Wait until the worker is idle."""
    async with asyncio.timeout(SECONDS_MAX):
        while any([await client.jobs.count(status=status) for status in ("waiting", "active")]):
            assert not running.all(WorkerStopped), "the worker ended by itself"
            await asyncio.sleep(0.005)
    assert not running.all(WorkerStopped), "the worker ended by itself"


async def read_all(client: AsyncClient, url: str) -> None:
    """All reads succeed, and reveal no secret."""
    look = partial(check_secrets, url=url)
    for job in await client.jobs.list(limit=PAGE):
        await read_job(client, job.id, url)
    for run in await client.runs.list(limit=PAGE):
        await read_run(client, run.id, url)
    for schedule in await client.schedules.list():
        look("a schedule", await client.schedules.get(schedule.name))
    look("the inbox", await client.approvals.list(limit=PAGE))
    look("waits", await client.waits.list(limit=PAGE))
    look("the depth", await client.queues.list())
    look("unserved runs", await client.flows.unserved(FLOWS))


async def read_job(client: AsyncClient, id: str, url: str) -> None:
    check_secrets("a job", await client.jobs.get(id), url)
    check_secrets("its failures", await client.jobs.attempts(id), url)


async def read_run(client: AsyncClient, id: str, url: str) -> None:
    look = partial(check_secrets, url=url)
    handle = client.runs.handle(id)
    look("a run", await client.runs.get(id))
    look("its events", await handle.events())
    look("its nodes", await handle.nodes())
    look("its outputs", await handle.outputs())
    look("its approvals", await handle.approvals())
    look("its children", await handle.children())
    look("its lineage", await client.runs.lineage(id))
    look("its explanation", await client.runs.explain(id))


def show_all(url: str, jobs: Sequence[str], runs: Sequence[str]) -> None:
    """Print jobs and runs by commands."""
    show(url, [*LISTS, *of_work(jobs[:SHOWN_MAX], runs[:SHOWN_MAX])])


def of_work(jobs: Sequence[str], runs: Sequence[str]) -> list[tuple[str, ...]]:
    """The commands that show these jobs and runs."""
    return [
        *((*command, "--", id) for id in jobs for command in OF_A_JOB),
        *((*command, "--", id) for id in runs for command in OF_A_RUN),
    ]


def show(url: str, commands: Sequence[tuple[str, ...]]) -> None:
    """Run commands with text and JSON output; neither reveals a secret or controls a terminal."""
    perdure = Commands(url)
    for command in commands:
        plain = perdure(*command)
        assert plain.exit_code == 0, (command, plain)
        head = command[: command.index("--")] if "--" in command else command
        rest = command[len(head) :]
        done = perdure(*head, "--json", *rest)
        assert done.exit_code == 0, (command, done)
        check_secrets(f"perdure {' '.join(head)}", f"{plain!r}{done!r}", url)
        check_printed(f"perdure {' '.join(head)}", f"{plain!r}{done!r}")
        json.loads(done.out)


async def remove_all(url: str, store: Store, client: AsyncClient, clock: ManualClock) -> None:
    """End live work, and prune it as workers do."""
    for run in await client.runs.list(limit=PAGE):
        if run.status not in ENDED and "/" not in run.id:
            await client.runs.cancel(run.id)
    for job in await client.jobs.list(limit=PAGE):
        if job.status not in FINISHED and job.node is None:
            await client.jobs.cancel(job.id)
    for schedule in await client.schedules.list():
        await client.schedules.delete(schedule.name)
    await _end_live(store, client)
    clock.advance(FOREVER)
    while await store.maintenance.prune_jobs("default", dict.fromkeys(FINISHED, DAY), PAGE):
        pass
    while await store.maintenance.prune_runs("default", dict.fromkeys(ENDED, DAY), PAGE):
        pass
    assert [*await client.jobs.list(), *await client.runs.list()] == []
    left = await contents(url)
    if isinstance(left, dict):
        kept = {table for table, rows in left.items() if rows}
        may_stay = (
            *("definitions", "limits", "limit_starts", "queues", "sqlite_sequence"),
            *("pruned_ends", "past_counts"),  # one row for each namespace, task or queue
        )
        assert all(table.endswith(may_stay) for table in kept), kept


async def _end_live(store: Store, client: AsyncClient) -> None:
    """Let a worker cancel the children of canceled runs."""
    running = await Running(Worker(store, tasks=TASKS, flows=FLOWS, poll="5ms")).start()
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while any(run.status not in ENDED for run in await client.runs.list(limit=PAGE)):
                assert not running.all(WorkerStopped), "the worker ended by itself"
                await asyncio.sleep(0.01)
    finally:
        await running.stop()


async def check_aftermath(
    url: str,
    store: Store,
    client: AsyncClient,
    clock: ManualClock,
    *,
    has_commands: bool = False,
) -> None:
    try:
        await read_all(client, url)
        await execute_all(store, client, clock)
        await read_all(client, url)
        await inspect_store(url, store)
        jobs = [job.id for job in await client.jobs.list()]
        runs = [run.id for run in await client.runs.list()]
        if has_commands:
            await asyncio.to_thread(show_all, url, jobs, runs)
        await remove_all(url, store, client, clock)
    except PerdureError as error:
        raise AssertionError(f"what was accepted is refused later: {error}") from error
