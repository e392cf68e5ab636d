"""Behaviour 10: progress is clamped, throttled, seen live, and the last one is always written."""

from __future__ import annotations

import asyncio

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Context,
    InvalidInput,
    JobFailed,
    Progress,
    task,
)
from perdure.worker.events import AttemptProgressed, AttemptStarted
from tests.worker.harness import Gate, soon


async def test_progress_is_seen_while_the_job_runs(client, start_worker):
    gate = Gate()

    @task
    async def half(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.progress(50, "half way", {"done": 1})
        await gate.pass_through()

    worker = await start_worker(half)
    job = await client.enqueue(half)
    told = await worker.told(AttemptProgressed)
    seen = await job.progress()
    gate.open()
    await job.result(10)

    expected = Progress(percent=50, message="half way", details={"done": 1})
    assert told.progress == expected
    assert seen == expected


async def test_progress_of_a_sync_task_is_seen_while_it_runs(client, start_worker):
    gate = Gate()

    @task
    def half(ctx: Context = CONTEXT) -> None:
        ctx.progress(50, "half way")
        gate.pass_in_thread()

    worker = await start_worker(half)
    job = await client.enqueue(half)
    await worker.told(AttemptProgressed)
    seen = await job.progress()
    gate.open()
    await job.result(10)

    assert (seen.percent, seen.message) == (50, "half way")


@pytest.mark.parametrize("reported, kept", [(-5, 0), (250, 100), (float("inf"), 100)])
async def test_progress_is_clamped(client, start_worker, reported, kept):
    gate = Gate()

    @task
    async def report(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.progress(reported)
        await gate.pass_through()

    worker = await start_worker(report)
    job = await client.enqueue(report)
    await worker.told(AttemptProgressed)

    assert (await job.progress()).percent == kept
    gate.open()
    await job.result(10)


async def test_progress_is_written_a_few_times_a_second_and_the_last_one_always(
    client, start_worker
):
    gate = Gate()

    @task
    async def count(ctx: AsyncContext = CONTEXT) -> None:
        for number in range(1000):
            await ctx.progress(number / 20, f"step {number}")
            if number % 100 == 0:
                await asyncio.sleep(0.05)
        await gate.pass_through()

    worker = await start_worker(count)
    job = await client.enqueue(count)
    await gate.reached()
    while worker.all(AttemptProgressed)[-1:] != [] and (await job.progress()).message != "step 999":
        await worker.told(AttemptProgressed, count=len(worker.all(AttemptProgressed)) + 1)
    gate.open()
    await job.result(10)

    assert 2 <= len(worker.all(AttemptProgressed)) <= 8
    assert (await job.progress()).message == "step 999"


async def test_progress_reported_just_before_the_end_is_kept(client, start_worker):
    @task
    async def hurry(ctx: AsyncContext = CONTEXT) -> None:
        for number in range(5):
            await ctx.progress(number, f"step {number}")

    await start_worker(hurry)
    job = await client.enqueue(hurry)
    await job.result(10)

    assert await job.progress() == Progress(percent=100, message="step 4")


async def test_progress_of_a_failed_attempt_is_kept(client, start_worker):
    @task
    async def stumble(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.progress(30, "so far")
        raise ValueError("no further")

    await start_worker(stumble)
    job = await client.enqueue(stumble)
    with pytest.raises(JobFailed):
        await job.result(10)

    assert await job.progress() == Progress(percent=30, message="so far")


async def test_progress_is_still_written_after_a_job_that_reported_and_ended_at_once(
    client, start_worker
):
    gate = Gate()

    @task
    async def hurry(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.progress(10)

    @task
    async def linger(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.progress(10, "lingering")
        await gate.pass_through()

    worker = await start_worker(hurry, linger)
    await (await client.enqueue(hurry)).result(10)
    lingering = await client.enqueue(linger)
    told = await worker.told(AttemptProgressed, lingering.id)

    assert told.progress.message == "lingering"
    gate.open()
    await lingering.result(10)


async def test_progress_is_watched_from_another_client(client, start_worker, store_url):
    gate = Gate()

    @task
    async def half(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.progress(50, "half way")
        await gate.pass_through()

    await start_worker(half)
    job = await client.enqueue(half)
    seen = []
    async with AsyncClient(store_url) as other, asyncio.timeout(10):
        async for update in other.jobs.handle(job.id).watch():
            seen.append((update.status.value, update.progress.message))
            if update.progress.message == "half way":
                gate.open()

    assert ("active", "half way") in seen
    assert seen[-1] == ("completed", "half way")


async def test_progress_of_a_stale_claim_is_ignored(client, store, start_worker):
    gate = Gate()
    contexts: list[AsyncContext] = []

    @task
    async def report(ctx: AsyncContext = CONTEXT) -> None:
        contexts.append(ctx)
        await gate.pass_through()

    worker = await start_worker(report)
    job = await client.enqueue(report)
    await gate.reached()
    await client.jobs.disable(job.id)
    await contexts[0].progress(70, "too late")
    await soon(contexts[0].abort_signal.wait_async())
    await client.jobs.enable(job.id)
    await worker.told(AttemptStarted, count=2)
    gate.open()
    await job.result(10)

    assert (await job.progress()).message == ""


@pytest.mark.parametrize(
    "message, kept", [("a\x00b", "a\\x00b"), ("\ud800", "\\ud800"), (42, "42"), ("ß…", "ß…")]
)
async def test_progress_messages_of_any_text_are_kept(client, start_worker, message, kept):
    @task
    async def report(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.progress(50, message, {"zero": "a\x00b"})

    await start_worker(report)
    job = await client.enqueue(report)
    await job.result(10)

    assert await job.progress() == Progress(percent=100, message=kept, details={"zero": "a\x00b"})


@pytest.mark.parametrize("details", [{"at": object()}, float("nan"), "\ud800", "x" * 2**20])
async def test_progress_details_that_cannot_be_stored_are_refused_in_the_body(
    client, start_worker, details
):
    @task
    async def report(ctx: AsyncContext = CONTEXT) -> str:
        with pytest.raises(InvalidInput, match="the details of progress"):
            await ctx.progress(50, "", details)
        return "went on"

    await start_worker(report)
    job = await client.enqueue(report)

    assert await job.result(10) == "went on"


async def test_progress_details_are_kept_as_they_were_reported(client, start_worker):
    gate = Gate()

    @task
    async def report(ctx: AsyncContext = CONTEXT) -> None:
        details = {"done": [1]}
        await ctx.progress(50, "", details)
        details["done"].append(2)
        await gate.pass_through()

    worker = await start_worker(report)
    job = await client.enqueue(report)
    told = await worker.told(AttemptProgressed)
    gate.open()
    await job.result(10)

    assert told.progress.details == {"done": [1]}
    assert (await job.progress()).details == {"done": [1]}
