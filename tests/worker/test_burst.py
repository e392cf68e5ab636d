"""Burst mode: run what is there, then return what was done."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    BurstResult,
    Concurrency,
    Flow,
    InvalidInput,
    Rate,
    Retry,
    RunStatus,
    Status,
    Worker,
    task,
)
from tests.support.refusal import refused
from tests.support.tasks import flaky, gated
from tests.worker.harness import Gate


@task
async def double(number: int) -> int:
    return 2 * number


@task
async def add_one(number: int) -> int:
    return number + 1


doubling = Flow("doubling").then(double).then(add_one).build()
parent = Flow("parent").flow(doubling, name="child").then(add_one).build()


@pytest.fixture
def worker(store_url: str) -> Worker:
    return Worker(store_url, tasks=[double], flows=[doubling, parent])


class TestRunUntilIdle:
    async def test_runs_jobs_and_runs_with_their_children(self, client, worker):
        jobs = await client.enqueue_many(double, range(30))
        run = await client.submit(parent, 1)

        done = await worker.serve_until_idle()

        assert [await job.result(0) for job in jobs] == [2 * number for number in range(30)]
        assert await run.result(0) == 4
        assert done == BurstResult(started=33, completed=33, is_idle=True)
        assert not (await client.workers.list()).items

    async def test_returns_at_once_without_work_and_can_be_repeated(self, client, worker):
        await client.enqueue(double, 1)
        assert (await worker.serve_until_idle()).completed == 1
        assert await worker.serve_until_idle() == BurstResult(is_idle=True)

    async def test_runs_what_its_bodies_enqueue(self, client, store_url):
        @task
        async def countdown(number: int) -> None:
            if number:
                await client.enqueue(countdown, number - 1)

        await client.enqueue(countdown, 5)
        done = await Worker(store_url, tasks=[countdown]).serve_until_idle()
        assert done == BurstResult(started=6, completed=6, is_idle=True)

    async def test_retries_at_once_but_does_not_wait_for_later(self, client, store_url):
        errors = [ValueError("first"), ValueError("second")]
        _, soon = flaky(*errors, name="soon", retries=Retry(2, first=0))
        _, later = flaky(*errors, name="later", retries=Retry(2, first="1h"))
        _, never = flaky(*errors, name="never")
        flow = Flow("waits").delay("1h").then(add_one).build()
        jobs = [await client.enqueue(each) for each in (soon, later, never)]
        run = await client.submit(flow)

        done = await Worker(store_url, tasks=[soon, later, never], flows=[flow]).serve_until_idle()

        expected = BurstResult(started=5, completed=1, failed=1, retried=3, is_idle=True)
        assert done == expected
        found = [(await client.jobs.get(job.id)).status for job in jobs]
        assert found == [Status.COMPLETED, Status.SCHEDULED, Status.FAILED]
        assert await run.status() is RunStatus.WAITING

    async def test_waits_for_limits_that_open_by_time(self, client, store_url):
        @task(limits=[Rate(2, per="300ms")])
        async def limited(number: int) -> int:
            return number

        jobs = await client.enqueue_many(limited, range(5))
        done = await Worker(store_url, tasks=[limited], poll="1m").serve_until_idle()
        assert done == BurstResult(started=5, completed=5, is_idle=True)
        assert [await job.result(0) for job in jobs] == list(range(5))

    async def test_leaves_what_it_cannot_claim(self, client, store_url, world):
        gate = Gate()

        @task(limits=[Concurrency(1)])
        async def alone(waits: bool) -> None:
            if waits:
                await gate.pass_through()

        @task(queue="paused")
        async def idle() -> None:
            pass

        held = await world.enqueue(alone, True)
        await gate.reached()
        left = [await client.enqueue(alone, False), await client.enqueue(idle)]
        await client.queues.pause("paused")

        assert await Worker(
            store_url, tasks=[alone, idle], queues=["default", "paused"]
        ).serve_until_idle() == BurstResult(is_idle=True)
        assert [(await client.jobs.get(job.id)).status for job in left] == [Status.WAITING] * 2
        gate.open()
        await held.result(10)

    @pytest.mark.parametrize("most", [1, 3, 4, 9])
    async def test_runs_no_more_than_asked(self, client, worker, most):
        run = await client.submit(doubling, 1)
        jobs = await client.enqueue_many(double, range(4))

        done = await worker.serve_until_idle(max_jobs=most)

        count = min(most, 6)
        assert done == BurstResult(started=count, completed=count, is_idle=most > 6)
        left = await client.jobs.count(status=Status.WAITING)
        rest = await worker.serve_until_idle()
        assert rest.started == 6 - count
        assert left == min(rest.started, left)
        assert await run.result(0) == 3
        assert [await job.result(0) for job in jobs] == [0, 2, 4, 6]

    async def test_can_be_stopped(self, client, store_url):
        gate, wait = gated()
        job = await client.enqueue(wait)
        worker = Worker(store_url, tasks=[wait])
        serving = asyncio.create_task(worker.serve_until_idle())
        await gate.reached()
        was_running = worker.is_running
        worker.shutdown(grace=0)

        assert await asyncio.wait_for(serving, 10) == BurstResult(started=1, requeued=1)
        assert (was_running, worker.is_running) == (True, False)
        assert (await client.jobs.get(job.id)).status is Status.WAITING

    async def test_is_refused_where_it_would_block_or_makes_no_sense(self, worker):
        for call in (worker.run_until_idle, worker.process_next):
            with refused("worker.on_event_loop", InvalidInput):
                call()
        with refused("argument.range", InvalidInput):
            await worker.serve_until_idle(max_jobs=0)


class TestSync:
    async def test_one_at_a_time_and_all_in_a_thread(self, client: AsyncClient, worker: Worker):
        jobs = await client.enqueue_many(double, [1, 2, 3])
        results: list[Any] = []

        def run() -> None:
            results.append(worker.process_next())
            results.append(worker.run_until_idle())
            results.append(worker.process_next())

        thread = threading.Thread(target=run)
        thread.start()
        await asyncio.to_thread(thread.join, 30)

        assert [result.completed for result in results] == [1, 2, 0]
        assert [result.is_idle for result in results] == [False, True, True]
        assert [await job.result(0) for job in jobs] == [2, 4, 6]

    def test_a_handle_says_whether_its_worker_runs(self, worker: Worker):
        assert not worker.is_running
        handle = worker.start()
        assert (worker.is_running, handle.is_running) == (True, True)
        handle.shutdown()
        assert handle.join(10)
        assert (worker.is_running, handle.is_running) == (False, False)
