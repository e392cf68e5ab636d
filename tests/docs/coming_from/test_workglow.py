"""Coming from Workglow: what the page says that Perdure does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Concurrency,
    InvalidInput,
    JobCancelled,
    JobDead,
    JobDisabled,
    JobFailed,
    JobNotFound,
    Permanent,
    Rate,
    Retry,
    RetryLater,
    Status,
    task,
)
from perdure.worker.events import AttemptRetried
from tests.worker.harness import Gate, until

HOUR = timedelta(hours=1)


@task
def keep(value: Any) -> Any:
    return value


@task
def number(value: int) -> int:
    return value


@task
async def until_aborted(ctx: AsyncContext = CONTEXT) -> str:
    await ctx.progress(50, "half way", {"page": 3})
    await ctx.abort_signal.wait_async()
    return "came to its end all the same"


async def is_active(client: AsyncClient, id: str) -> bool:
    return (await client.jobs.get(id)).status is Status.ACTIVE


async def test_another_client_waits_for_the_result(client, store, start_worker):
    job = await client.enqueue(keep, 7)
    async with AsyncClient(store) as other:
        waiting = asyncio.create_task(other.jobs.handle(job.id).result(timeout=10))
        await start_worker(tasks=[keep])

        assert await waiting == 7


async def test_all_who_wait_are_told(client, start_worker):
    job = await client.enqueue(keep, 7)
    waiting = [asyncio.create_task(job.result(timeout=10)) for _ in range(3)]

    await start_worker(tasks=[keep])

    assert await asyncio.gather(*waiting) == [7, 7, 7]


async def test_a_batch_is_all_or_none(client):
    with pytest.raises(InvalidInput):
        await client.enqueue_many(number, [1, 2, "three"])

    assert await client.jobs.count() == 0


async def test_one_live_job_has_a_fingerprint(client, start_worker):
    first = await client.enqueue(keep.options(fingerprint="one"), 1)
    second = await client.enqueue(keep.options(fingerprint="one"), 2)
    assert (second.id, second.is_new) == (first.id, False)

    await start_worker(tasks=[keep])
    await first.result(timeout=10)

    assert (await client.enqueue(keep.options(fingerprint="one"), 3)).is_new


async def test_a_kept_result_is_found_by_its_input(client, start_worker):
    await start_worker(tasks=[keep])
    await (await client.enqueue(keep, {"a": 1, "b": {"x": 1, "y": 2}})).result(timeout=10)

    found = await client.jobs.find_result(keep, [{"b": {"y": 2, "x": 1}, "a": 1}])

    assert found == {"a": 1, "b": {"x": 1, "y": 2}}


async def test_a_job_is_not_claimed_before_its_time(client, queue, clock):
    job = await client.enqueue(keep.options(run_at=clock() + HOUR), 1)
    assert await queue.dequeue("worker-1") is None

    clock.advance(HOUR)

    claimed = await queue.dequeue("worker-1")
    assert claimed is not None
    assert claimed.id == job.id


async def test_a_deadline_holds_while_a_job_waits_and_while_it_runs(client, start_worker, clock):
    waiting = await client.enqueue(keep.options(deadline="1h", delay="50m"), 1)
    clock.advance(HOUR)
    running = await client.enqueue(until_aborted.options(deadline="30ms"))
    await start_worker(tasks=[keep, until_aborted])
    await until(lambda: is_active(client, running.id))
    clock.advance(HOUR)

    for job in (waiting, running):
        with pytest.raises(JobFailed, match="DeadlineExceeded"):
            await job.result(timeout=10)


async def test_an_exception_is_retried_only_if_the_task_has_retries(client, start_worker):
    @task
    async def plain() -> None:
        raise ValueError("no luck")

    @task(retries=Retry(1, first=0))
    async def patient() -> None:
        raise ValueError("no luck")

    await start_worker(tasks=[plain, patient])
    attempts = []
    for each in (plain, patient):
        job = await client.enqueue(each)
        with pytest.raises(JobFailed):
            await job.result(timeout=10)
        attempts.append((await job.record()).attempt)

    assert attempts == [1, 2]


async def test_retry_later_waits_until_its_moment(client, start_worker, clock):
    at = clock() + HOUR

    @task
    async def busy(ctx: AsyncContext = CONTEXT) -> int:
        if ctx.attempt == 1:
            raise RetryLater("not now", until=at)
        return ctx.attempt

    worker = await start_worker(tasks=[busy])
    job = await client.enqueue(busy)
    await worker.told(AttemptRetried, job.id)
    record = await job.record()
    assert (record.status, record.ready_at) == (Status.SCHEDULED, at)
    clock.advance(HOUR)

    assert await job.result(timeout=10) == 2


async def test_n_retries_are_n_plus_one_executions(client, start_worker):
    executions: list[int] = []

    @task(retries=Retry(3, first=0))
    async def work(ctx: AsyncContext = CONTEXT) -> None:
        executions.append(ctx.attempt)
        raise ValueError("no luck")

    await start_worker(tasks=[work])
    with pytest.raises(JobDead):
        await (await client.enqueue(work)).result(timeout=10)

    assert executions == [1, 2, 3, 4]


async def test_the_errors_of_all_attempts_are_kept(client, start_worker):
    @task(retries=Retry(1, first=0))
    async def work(ctx: AsyncContext = CONTEXT) -> None:
        raise ValueError(f"number {ctx.attempt}")

    await start_worker(tasks=[work])
    job = await client.enqueue(work)
    with pytest.raises(JobDead, match="number 2"):
        await job.result(timeout=10)

    kept = [each.failure.message for each in await job.attempts()]
    assert kept == ["number 1", "number 2"]


async def test_a_permanent_error_is_not_retried(client, start_worker):
    @task(retries=5)
    async def work() -> None:
        raise Permanent("the password is wrong")

    await start_worker(tasks=[work])
    job = await client.enqueue(work)
    with pytest.raises(JobFailed):
        await job.result(timeout=10)

    assert (await job.record()).attempt == 1


async def test_the_client_sees_type_message_and_traceback(client, start_worker):
    @task
    async def work() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    await start_worker(tasks=[work])
    with pytest.raises(JobFailed) as caught:
        await (await client.enqueue(work)).result(timeout=10)

    failure = caught.value.failure
    assert failure is not None
    assert (failure.type, failure.message) == ("ValueError", "outer")
    assert "in work" in (failure.traceback or "")
    assert [cause.type for cause in failure.causes] == ["KeyError"]


async def test_a_waiting_job_is_aborted_at_once(client):
    job = await client.enqueue(keep, 1)

    await job.cancel()

    assert await job.status() is Status.CANCELLED


async def test_a_running_job_is_told_to_stop(client, start_worker):
    await start_worker(tasks=[until_aborted])
    job = await client.enqueue(until_aborted)
    await until(lambda: is_active(client, job.id))

    await job.cancel()

    with pytest.raises(JobCancelled):
        await job.result(timeout=10)


async def test_finished_is_final(client, start_worker):
    await start_worker(tasks=[keep])
    job = await client.enqueue(keep, 7)
    await job.result(timeout=10)

    await job.cancel()

    assert await job.result(timeout=10) == 7


async def test_a_group_is_aborted_and_no_other(client):
    july = await client.enqueue_many(keep.options(group="july"), [1, 2])
    august = await client.enqueue_many(keep.options(group="august"), [3, 4])

    await client.jobs.cancel_group("july")

    assert [await job.status() for job in july] == [Status.CANCELLED] * 2
    assert [await job.status() for job in august] == [Status.WAITING] * 2


async def test_a_disabled_job_does_not_run_until_it_is_enabled(client, start_worker):
    job = await client.enqueue(keep, 7)
    await client.jobs.disable(job.id)
    await start_worker(tasks=[keep])
    assert await (await client.enqueue(keep, 8)).result(timeout=10) == 8
    with pytest.raises(JobDisabled):
        await job.result(timeout=10)

    await client.jobs.enable(job.id)

    assert await job.result(timeout=10) == 7


async def test_progress_is_kept_and_told(client, start_worker):
    await start_worker(tasks=[until_aborted])
    job = await client.enqueue(until_aborted)

    async for update in job.watch():
        if update.progress.percent:
            break
    kept = await job.progress()
    await job.cancel()

    assert (kept.percent, kept.message, kept.details) == (50, "half way", {"page": 3})


async def test_a_limit_holds_over_workers(client, start_worker):
    gate = Gate()

    @task(limits=[Concurrency(2)])
    async def work(_: int) -> None:
        await gate.pass_through()

    for _ in range(2):
        await start_worker(tasks=[work, keep])
    jobs = await client.enqueue_many(work, range(4))
    await gate.reached(2)
    await client.jobs.results(await client.enqueue_many(keep, range(8)), timeout=10)
    assert gate.visits == 2
    gate.open()

    assert await client.jobs.results(jobs, timeout=10) == [None] * 4


async def test_a_closed_limit_holds_for_everybody(client, start_worker, clock):
    called: list[str] = []

    @task(limits=[Rate(100, per="1s", key="mailer")])
    async def mail(to: str) -> None:
        called.append(to)
        if len(called) == 1:
            raise RetryLater("too many requests", after="1h", limit="mailer")

    worker = await start_worker(tasks=[mail, keep], concurrency=1)
    ada = await client.enqueue(mail, "ada")
    await worker.told(AttemptRetried, ada.id)
    bob = await client.enqueue(mail, "bob")
    await (await client.enqueue(keep, "something else")).result(timeout=10)
    assert called == ["ada"]
    clock.advance(HOUR)
    await client.jobs.results([ada, bob], timeout=10)

    assert sorted(called) == ["ada", "ada", "bob"]


async def test_a_dead_workers_job_is_taken_over_without_costing_a_retry(
    client, queue, start_worker, clock
):
    job = await client.enqueue(keep.options(max_attempts=1), 7)
    assert await queue.dequeue("a worker that dies", lease="1m") is not None

    clock.advance(HOUR)
    await start_worker(tasks=[keep])

    assert await job.result(timeout=10) == 7


async def test_a_stop_fails_nothing(client, start_worker):
    gate = Gate()

    @task
    async def work(value: int) -> int:
        await gate.pass_through()
        return value

    worker = await start_worker(tasks=[work])
    job = await client.enqueue(work, 7)
    await gate.reached()
    worker.worker.shutdown("1m")
    gate.open()
    await worker.stopped()

    assert await job.status() is Status.COMPLETED


async def test_a_completed_job_may_be_removed_at_once(client, start_worker):
    await start_worker(tasks=[keep], keep_completed=0)
    job = await client.enqueue(keep, 7)

    assert await job.result(timeout=10) == 7

    async def is_gone() -> bool:
        return await client.jobs.count() == 0

    await until(is_gone)
    with pytest.raises(JobNotFound):
        await client.jobs.get(job.id)


async def test_a_worker_is_scaled_while_it_runs(client, start_worker):
    gate = Gate()

    @task
    async def work(_: int) -> None:
        await gate.pass_through()

    worker = await start_worker(tasks=[work], concurrency=1)
    jobs = await client.enqueue_many(work, range(3))
    await gate.reached(1)
    worker.worker.scale(3)
    await gate.reached(3)
    gate.open()

    assert await client.jobs.results(jobs, timeout=10) == [None] * 3


async def test_a_worker_counts_what_it_did(client, start_worker):
    @task(retries=Retry(1, first=0))
    async def work(ctx: AsyncContext, succeed_at: int) -> None:
        if ctx.attempt < succeed_at:
            raise ValueError("no luck")

    worker = await start_worker(tasks=[work])
    jobs = await client.enqueue_many(work, [1, 2, 9])
    await client.jobs.results(jobs, timeout=10, return_errors=True)

    async def has_counted() -> bool:
        stats = worker.worker.stats()
        return (stats.started, stats.completed, stats.retried, stats.dead) == (5, 2, 2, 1)

    await until(has_counted)


@pytest.mark.parametrize("value", [0, "", False, [], {}, None], ids=repr)
async def test_empty_results_come_back_as_they_were(client, start_worker, value):
    await start_worker(tasks=[keep])
    result = await (await client.enqueue(keep, value)).result(timeout=10)

    assert (type(result), result) == (type(value), value)
