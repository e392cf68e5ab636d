"""PostgreSQL restarted or cut off, under load or during runs: nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from perdure import CONTEXT, AsyncClient, AsyncContext, AsyncRunHandle, Status, Worker, task
from perdure.worker import service
from perdure.worker.events import WorkerStarted
from tests.backends.postgres.line import Line
from tests.crash.flow_tasks import busy
from tests.crash.test_flow_recovery import committed
from tests.postgres_schemas import with_query
from tests.postgres_server import PostgresServer

JOBS = 400

CUT_ALL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND datname = current_database()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database()


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        yield client


def cut(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(CUT_ALL)


class TestJobs:
    """PostgreSQL restarted or cut off under load loses nothing and doubles nothing."""

    async def test_reconnect_after_all_connections_were_cut(self, client, url):
        @task
        async def double(number: int) -> int:
            await asyncio.sleep(0.01)
            return 2 * number

        worker = Worker(url, tasks=[double], poll="500ms")
        started = asyncio.Event()
        worker.on(WorkerStarted, lambda _: started.set())
        serving = asyncio.create_task(worker.serve())
        await started.wait()
        waiting = []
        for number in range(60):
            waiting.append(await client.enqueue(double, number))
            if number % 20 == 10:
                cut(url)

        assert await client.jobs.results(waiting, timeout=30) == [
            2 * number for number in range(60)
        ]
        cut(url)
        began = time.monotonic()
        assert await (await client.enqueue(double, 4)).result(20) == 8
        assert time.monotonic() - began < 10
        worker.shutdown()
        await asyncio.wait_for(serving, 20)

    async def test_reconnect_when_connections_stay_open_and_nothing_comes_through(
        self, client, url
    ):
        inside, opened = asyncio.Event(), asyncio.Event()

        @task
        async def hold_on(ctx: AsyncContext = CONTEXT) -> int:
            inside.set()
            await opened.wait()
            return ctx.attempt

        async with Line(url) as line:
            impatient_url = with_query(line.url, answer_timeout="1")
            worker = Worker(impatient_url, tasks=[hold_on], lease="6s", poll="200ms")
            serving = asyncio.create_task(worker.serve())
            held = await client.enqueue(hold_on)
            await asyncio.wait_for(inside.wait(), 20)
            line.silence()
            opened.set()
            later = await client.enqueue(hold_on)

            assert await client.jobs.results([held, later], timeout=20) == [1, 1]
            assert {(await job.record()).crashes for job in (held, later)} == {0}
            worker.shutdown()
            await asyncio.wait_for(serving, 20)

    async def test_reconnect_does_not_hold_up_a_stop_while_the_store_is_down(
        self, client, url, server, monkeypatch
    ):
        monkeypatch.setattr(service, "FLUSH_SECONDS", 1.0)
        monkeypatch.setattr(service, "SIGN_OFF_SECONDS", 0.5)
        inside = asyncio.Event()

        @task
        async def wait() -> None:
            inside.set()
            await asyncio.sleep(60)

        worker = Worker(url, tasks=[wait], lease="1s", poll="200ms")
        serving = asyncio.create_task(worker.serve())
        job = await client.enqueue(wait)
        await asyncio.wait_for(inside.wait(), 20)
        await asyncio.to_thread(server.stop, "immediate")
        began = time.monotonic()
        worker.shutdown(0)
        await asyncio.wait_for(serving, 20)

        assert time.monotonic() - began < 10
        await asyncio.to_thread(server.start)
        assert (await job.record()).status is Status.ACTIVE  # until its lease is taken over

    async def test_reconnect_after_an_outage_longer_than_the_lease_takes_nothing_from_live_workers(
        self, client, url, server
    ):
        opened = asyncio.Event()
        running: set[int] = set()
        all_run = asyncio.Event()

        @task
        async def hold_on(number: int, ctx: AsyncContext = CONTEXT) -> int:
            running.add(number)
            if len(running) == 6:
                all_run.set()
            await opened.wait()
            return ctx.attempt

        workers = [
            Worker(url, tasks=[hold_on], concurrency=2, lease="3s", poll="200ms") for _ in range(3)
        ]
        serving = [asyncio.create_task(worker.serve()) for worker in workers]
        jobs = await client.enqueue_many(hold_on, range(6))
        await asyncio.wait_for(all_run.wait(), 20)
        leases = [job.lease_until for job in await client.jobs.list(status="active")]
        await asyncio.to_thread(server.stop, "immediate")
        outlasted_at = max(lease for lease in leases if lease) + timedelta(seconds=4)
        # In real time: the outage has to outlast every lease.
        await asyncio.sleep((outlasted_at - datetime.now(UTC)).total_seconds())
        await asyncio.to_thread(server.start)
        renewed = False
        while not renewed:
            held = await client.jobs.list(status="active")
            now = datetime.now(UTC)
            renewed = len(held) == 6 and all(
                job.lease_until and job.lease_until > now for job in held
            )
        opened.set()

        assert await client.jobs.results(jobs, timeout=20) == [1] * 6
        assert {job.crashes for job in await client.jobs.list(status="completed")} == {0}
        for worker in workers:
            worker.shutdown()
        await asyncio.wait_for(asyncio.gather(*serving), 20)


RUNS = 60

KEYS = sorted(["one", "two", "spread", "each", "sum_up", *(f"each[{item}]" for item in range(4))])


class TestRuns:
    """PostgreSQL restarted or cut off in the middle of runs: each node is committed once."""

    async def test_runs_survive_a_crash_of_postgresql_and_cut_connections(
        self, client, url, server, launch
    ):
        settings = {"flows": "tests.crash.flow_tasks:BUSY", "concurrency": 8}
        workers = await asyncio.gather(
            *(launch(url, lease="3s", poll="300ms", **settings) for _ in range(2))
        )

        async def submit_all() -> list[AsyncRunHandle]:
            return [await client.submit(busy, number, id=f"r{number}") for number in range(RUNS)]

        submitting = asyncio.create_task(submit_all())
        for worker in workers:
            await worker.emitted("AttemptCompleted")
        cut(url)
        await asyncio.to_thread(server.restart, "immediate")
        runs = await asyncio.wait_for(submitting, 30)
        cut(url)
        results = await asyncio.gather(*(run.result(40) for run in runs))

        assert results == [4 * (number + 3) for number in range(RUNS)]
        assert await client.runs.count() == RUNS
        assert [committed(await run.events()) for run in runs] == [KEYS] * RUNS
