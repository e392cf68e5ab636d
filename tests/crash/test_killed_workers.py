"""Workers that die or freeze: their jobs are completed by others, once in the record."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from perdure import (
    JobDead,
    Status,
)
from tests.crash.crash_tasks import (
    die,
    hang_in_process,
    hang_once,
    wait_for_file,
    wait_for_file_in_thread,
)

BRISK = {"lease": "1s", "poll": "200ms"}


async def test_leases_of_a_killed_worker_are_taken_over_and_the_job_completed_once(
    client, shared_url, launch
):
    first = await launch(shared_url, **BRISK)
    job = await client.enqueue(hang_once.options(max_attempts=1))
    await first.told("AttemptStarted", job.id)
    second = await launch(shared_url, **BRISK)
    await first.kill()

    assert await job.result(20) == "attempt 2"
    await second.told("AttemptCompleted", job.id)
    record = await job.record()
    assert (record.crashes, record.failures, record.attempt) == (1, 0, 2)
    [death] = await job.attempts()
    assert death.failure.type == "perdure.errors.WorkerCrashed"


@pytest.mark.parametrize("wait", [wait_for_file, wait_for_file_in_thread], ids=["async", "sync"])
async def test_fencing_a_frozen_worker_that_comes_back_changes_nothing(
    client, shared_url, launch, tmp_path, wait
):
    go = tmp_path / "go"
    frozen = await launch(shared_url, **BRISK)
    job = await client.enqueue(wait, str(go))
    await frozen.told("AttemptStarted", job.id)
    other = await launch(shared_url, **BRISK)
    frozen.send(signal.SIGSTOP)
    assert await job.result(20) == "attempt 2"
    await other.told("AttemptCompleted", job.id)
    finished = await job.record()
    go.touch()
    frozen.send(signal.SIGCONT)
    await frozen.told("AttemptLost", job.id)
    frozen.send(signal.SIGTERM)

    assert await frozen.ended() == 0
    assert await job.record() == finished
    assert finished.result == "attempt 2"
    assert finished.crashes == 1
    assert frozen.count("AttemptCompleted") == 0


async def test_leases_a_job_that_kills_its_workers_is_dead_lettered(client, shared_url, launch):
    job = await client.enqueue(die)
    for _ in range(2):
        victim = await launch(shared_url, **BRISK, max_crashes=2)
        await victim.ended()
    await launch(shared_url, **BRISK, max_crashes=2)

    with pytest.raises(JobDead, match="WorkerCrashed"):
        await job.result(20)
    assert (await job.record()).crashes == 2


async def test_time_the_processes_of_a_killed_worker_end_with_it(client, shared_url, launch):
    worker = await launch(shared_url)
    job = await client.enqueue(hang_in_process)
    await worker.told("AttemptProgressed", job.id)
    child = int((await job.progress()).message)
    await worker.kill()

    async with asyncio.timeout(10):
        while is_alive(child):  # noqa: ASYNC110 (no event tells the end of another's child)
            await asyncio.sleep(0.02)


async def test_stop_that_reaches_child_processes_too_fails_no_job(client, shared_url, launch):
    """As a service manager does that signals every process of a service."""
    worker = await launch(shared_url)
    job = await client.enqueue(hang_in_process)
    await worker.told("AttemptProgressed", job.id)
    child = int((await job.progress()).message)
    os.kill(child, signal.SIGTERM)
    worker.send(signal.SIGTERM)

    assert await worker.ended() == 0
    record = await job.record()
    assert (record.status, record.attempt, record.failures) == (Status.WAITING, 0, 0)


async def test_stop_on_sigterm_lets_work_finish(client, shared_url, launch, tmp_path):
    go = tmp_path / "go"
    worker = await launch(shared_url, concurrency=1)
    job = await client.enqueue(wait_for_file, str(go))
    await worker.told("AttemptStarted", job.id)
    queued = await client.enqueue(wait_for_file, str(go))
    worker.send(signal.SIGTERM)
    await worker.told("WorkerStopping")
    go.touch()

    assert await worker.ended() == 0
    assert await job.result(10) == "attempt 1"
    assert await queued.status() is Status.WAITING
    assert worker.errors == ""


async def test_stop_on_a_second_signal_gives_work_back_at_once(
    client, shared_url, launch, tmp_path
):
    worker = await launch(shared_url)
    job = await client.enqueue(wait_for_file, str(tmp_path / "never"))
    await worker.told("AttemptStarted", job.id)
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGINT)  # another kind, because two pending ones of one kind would be one

    assert await worker.ended() == 0
    record = await job.record()
    assert (record.status, record.attempt) == (Status.WAITING, 0)
    assert worker.told_so_far[-2:] == [("AttemptRequeued", job.id), ("WorkerStopped", None)]


async def test_stop_on_sigint_is_at_once_when_idle(shared_url, launch):
    worker = await launch(shared_url)
    worker.send(signal.SIGINT)

    async with asyncio.timeout(5):
        assert await worker.ended() == 0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that nobody has reaped yet is as dead as it will be.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
