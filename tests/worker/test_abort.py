"""Behaviour 9: waiting jobs are cancelled at once, running ones told within a second."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from perdure import (
    CONTEXT,
    Aborted,
    AsyncClient,
    AsyncContext,
    Context,
    JobCancelled,
    Retry,
    Status,
    task,
)
from perdure.worker import attempt
from perdure.worker.events import AttemptAborting, AttemptProgressed, AttemptStarted
from perdure.worker.events import AttemptCancelled as JobCancelledEvent
from tests.worker import process_tasks
from tests.worker.harness import Gate, until


async def test_abort_cancels_a_waiting_job_at_once(client, start_worker):
    @task
    async def work() -> str:
        return "ran"

    job = await client.enqueue(work)
    later = await client.enqueue(work.options(delay="1h"))
    outcomes = [await job.cancel(), await later.cancel()]
    worker = await start_worker(work)
    assert await (await client.enqueue(work)).result(10) == "ran"

    assert [outcome.after for outcome in outcomes] == [Status.CANCELLED] * 2
    with pytest.raises(JobCancelled):
        await job.result(10)
    assert len(worker.all(AttemptStarted)) == 1


async def test_abort_of_a_finished_job_does_nothing_and_says_so(client, start_worker):
    @task
    async def work() -> str:
        return "ran"

    await start_worker(work)
    job = await client.enqueue(work)
    await job.result(10)
    outcome = await job.cancel()

    assert outcome.was_finished
    assert outcome.before is outcome.after
    assert await job.result(10) == "ran"


async def test_abort_cancels_an_active_async_body_after_its_grace(client, start_worker):
    gate = Gate()
    ends: list[str] = []

    @task
    async def work() -> None:
        try:
            await gate.pass_through()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    worker = await start_worker(work, abort_grace="50ms")
    job = await client.enqueue(work)
    await gate.reached()
    outcome = await job.cancel()
    with pytest.raises(JobCancelled):
        await job.result(10)

    assert outcome.after is Status.ABORTING
    assert ends == ["cancelled"]
    await worker.told(JobCancelledEvent, job.id)
    assert (worker.worker.stats().cancelled, worker.worker.stats().running) == (1, 0)


@pytest.mark.parametrize("poll", ["100ms", "1m"])
async def test_abort_signal_fires_within_a_second(client, store_url, start_worker, poll):
    @task
    async def work(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.abort_signal.wait_async()

    worker = await start_worker(work, abort_grace="1h", poll=poll, lease="1h")
    job = await client.enqueue(work)
    await worker.told(AttemptStarted)
    async with AsyncClient(store_url) as other:
        began = time.monotonic()
        await other.jobs.cancel(job.id)
        await worker.told(AttemptAborting, job.id)
        took = time.monotonic() - began
    with pytest.raises(JobCancelled):
        await job.result(10)

    assert took < 1


async def test_abort_lets_a_body_end_by_itself_within_its_grace(client, start_worker):
    ends: list[str] = []

    @task
    async def work(ctx: AsyncContext = CONTEXT) -> str:
        while True:
            try:
                ctx.check()
            except Aborted as error:
                ends.append(str(error))
                return "tidied up"
            await asyncio.sleep(0.01)

    worker = await start_worker(work, abort_grace="1h")
    job = await client.enqueue(work)
    await worker.told(AttemptStarted)
    await job.cancel()
    with pytest.raises(JobCancelled):
        await job.result(10)

    assert ends == [f"job {job.id}: the job was aborted"]


async def test_abort_flags_a_sync_body_and_goes_on_without_it(client, start_worker):
    gate = Gate()
    flags: list[bool] = []

    @task
    def ignore(ctx: Context = CONTEXT) -> str:
        gate.pass_in_thread()
        flags.append(ctx.aborted)
        gate.leave()
        return "overwritten?"

    @task
    def other() -> str:
        return "the slot is free"

    await start_worker(ignore, other, abort_grace="50ms", concurrency=1)
    job = await client.enqueue(ignore)
    await gate.reached()
    await job.cancel()
    with pytest.raises(JobCancelled):
        await job.result(10)
    gate.open()
    await gate.left()
    assert await (await client.enqueue(other)).result(10) == "the slot is free"

    assert flags == [True]
    assert await job.status() is Status.CANCELLED
    assert (await job.record()).output is None


async def test_abort_wakes_a_sync_body_that_waits_for_its_signal(client, start_worker):
    heard: list[str | None] = []

    @task
    def wait(ctx: Context = CONTEXT) -> None:
        ctx.progress(1, "waiting")
        ctx.abort_signal.wait(10)
        heard.append(ctx.abort_signal.reason)

    worker = await start_worker(wait, abort_grace="1h")
    job = await client.enqueue(wait)
    await worker.told(AttemptProgressed)
    await job.cancel()
    with pytest.raises(JobCancelled):
        await job.result(10)

    assert heard == ["the job was aborted"]


async def test_abort_cannot_be_overwritten_by_a_body_that_ignores_it(
    client, start_worker, monkeypatch
):
    monkeypatch.setattr(attempt, "CANCEL_GRACE_SECONDS", 0.1)
    gate = Gate()

    @task(retries=Retry(5, first=0))
    async def ignore() -> str:
        while not gate.is_open:
            try:
                await gate.pass_through()
            except asyncio.CancelledError:
                continue
        return "overwritten?"

    worker = await start_worker(ignore, abort_grace="50ms")
    job = await client.enqueue(ignore)
    await gate.reached()
    await job.cancel()
    await worker.told(JobCancelledEvent, job.id)
    gate.open()
    with pytest.raises(JobCancelled):
        await job.result(10)

    assert len(worker.all(AttemptStarted)) == 1
    assert (await job.record()).output is None


async def test_abort_wins_over_a_failure_that_would_be_retried(client, start_worker):
    @task(retries=Retry(5, first=0))
    async def stumble(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.abort_signal.wait_async()
        raise ValueError("while being aborted")

    worker = await start_worker(stumble, hold_off=0)
    job = await client.enqueue(stumble)
    await worker.told(AttemptStarted)
    await job.cancel()
    with pytest.raises(JobCancelled):
        await job.result(10)

    assert len(worker.all(AttemptStarted)) == 1


async def test_abort_reaches_a_body_in_a_process_and_kills_it_if_need_be(client, start_worker):
    worker = await start_worker(process_tasks.heed, process_tasks.hang, abort_grace="1s")
    heeding = await client.enqueue(process_tasks.heed)
    hanging = await client.enqueue(process_tasks.hang)
    await worker.told(AttemptProgressed, heeding.id)
    pid = int((await worker.told(AttemptProgressed, hanging.id)).progress.message)
    await heeding.cancel()
    await hanging.cancel()
    for job in (heeding, hanging):
        with pytest.raises(JobCancelled):
            await job.result(10)

    assert (await heeding.progress()).message == "heard: the job was aborted"
    await until(lambda: is_gone(pid))


async def test_abort_of_a_group_touches_only_that_group(client, start_worker):
    gate = Gate()

    @task
    async def wait(name: str) -> str:
        await gate.pass_through()
        return name

    await start_worker(wait, concurrency=3, abort_grace="20ms")
    mine = await client.enqueue_many(wait.options(group="mine"), ["mine"] * 2)
    theirs = await client.enqueue(wait.options(group="theirs"), "theirs")
    await gate.reached(3)
    queued = await client.enqueue(wait.options(group="mine"), "queued")
    alone = await client.enqueue(wait, "alone")
    outcome = await client.jobs.cancel_group("mine")
    for job in (*mine, queued):
        with pytest.raises(JobCancelled):
            await job.result(10)
    gate.open()

    assert (outcome.cancelled, outcome.aborting) == (1, 2)
    assert await client.jobs.results([theirs, alone], timeout=10) == ["theirs", "alone"]


async def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
