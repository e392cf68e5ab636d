"""Behaviour 1: a job passes through its states in the order that the table allows."""

from __future__ import annotations

import asyncio

import pytest

from perdure import IllegalTransition, JobDisabled, JobFailed, Permanent, Status, task
from perdure.worker.events import AttemptStarted
from tests.worker.harness import Gate


async def test_states_of_a_job_from_enqueueing_to_completion(client, start_worker):
    gate = Gate()

    @task
    async def wait() -> None:
        await gate.pass_through()

    job = await client.enqueue(wait.options(delay="100ms"))
    states = [await job.status()]
    await start_worker(wait)
    await gate.reached()
    states.append(await job.status())
    gate.open()
    await job.result(10)
    record = await job.record()

    assert states == [Status.SCHEDULED, Status.ACTIVE]
    assert record.status is Status.COMPLETED
    assert (record.attempt, record.failures, record.crashes) == (1, 0, 0)
    assert record.started_at is not None
    assert record.finished_at is not None
    assert record.created_at <= record.ready_at <= record.started_at <= record.finished_at
    assert record.lease_until is None


async def test_states_are_watched_as_they_change(client, start_worker):
    gate = Gate()

    @task
    async def wait() -> None:
        await gate.pass_through()

    job = await client.enqueue(wait)
    seen: list[Status] = []

    async def watch() -> None:
        async for update in job.watch():
            seen.append(update.status)
            if update.status is Status.ACTIVE:
                gate.open()

    watching = asyncio.create_task(watch())
    await start_worker(wait)
    await asyncio.wait_for(watching, 10)

    assert seen[-2:] == [Status.ACTIVE, Status.COMPLETED]


async def test_states_a_disabled_job_does_not_run_until_it_is_enabled(client, start_worker):
    @task
    async def run() -> str:
        return "ran"

    disabled = await client.enqueue(run)
    await client.jobs.disable(disabled.id)
    worker = await start_worker(run)
    assert await (await client.enqueue(run)).result(10) == "ran"
    with pytest.raises(JobDisabled):
        await disabled.result(10)
    assert len(worker.all(AttemptStarted)) == 1
    await client.jobs.enable(disabled.id)

    assert await disabled.result(10) == "ran"


async def test_states_a_failed_job_is_started_anew_by_an_explicit_retry_only(client, start_worker):
    answers = iter([Permanent("not yet"), None])

    @task
    async def once() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "at last"

    await start_worker(once)
    job = await client.enqueue(once)
    with pytest.raises(JobFailed):
        await job.result(10)
    with pytest.raises(IllegalTransition):
        await client.jobs.enable(job.id)
    await client.jobs.retry(job.id)

    assert await job.result(10) == "at last"
    assert (await job.record()).attempt == 2
    with pytest.raises(IllegalTransition):
        await client.jobs.retry(job.id)
