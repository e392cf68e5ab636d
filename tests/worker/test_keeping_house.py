"""Behaviour 13: any worker keeps house, one at a time: retention, due jobs, idle worker rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    JobCancelled,
    JobDead,
    JobFailed,
    JobNotFound,
    Permanent,
    Retry,
    Status,
    StoreError,
    Worker,
    task,
)
from perdure.clock import ManualClock
from perdure.model.ids import WorkerId
from perdure.model.partition import Partition
from perdure.model.worker import WorkerInfo
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.store.opening import store_at
from perdure.testing.wrapped_store import wrap_store
from perdure.worker.events import AttemptCompleted, AttemptStarted, WorkerEvents
from perdure.worker.janitor import PRUNE_BATCHES, Janitor, leader_row
from tests.conformance.builders import close_limit
from tests.worker.conftest import StartWorker
from tests.worker.harness import Gate, until

DAY = timedelta(days=1)
OTHER = WorkerId("other-worker")
LEADER = leader_row("default")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def still_store(store_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    """The store with a clock that the test turns."""
    store = store_at(store_url, clock=clock)
    await store.open()
    yield store
    await store.close()


@task
async def end(how: str) -> str:
    if how == "fail":
        raise Permanent("failed")
    if how == "die":
        raise ValueError("again")
    return how


class TestRetention:
    async def test_removes_finished_jobs_each_after_its_own_time(
        self, still_store, clock, start_worker
    ):
        async with AsyncClient(still_store) as client:
            jobs = await one_of_each(client, start_worker, still_store)
            seen: dict[int, set[str]] = {}
            for days in (6, 8, 31, 1000):
                await still_store.maintenance.register_worker(idle_worker())
                clock.advance(days * DAY)
                worker = await start_worker(end, store=still_store)
                await until(lambda: has_pruned(still_store))
                await worker.stop()
                seen[days] = await left_of(jobs, client)
                clock.advance(-days * DAY)

        assert seen[6] == {"well", "cancelled", "fail", "die", "waiting"}
        assert seen[8] == {"fail", "die", "waiting"}
        assert seen[31] == {"die", "waiting"}
        assert seen[1000] == {"die", "waiting"}

    async def test_of_none_keeps_for_ever(self, still_store, clock, start_worker):
        kept: dict[str, Any] = {"keep_completed": None, "keep_failed": None}
        async with AsyncClient(still_store) as client:
            jobs = await one_of_each(client, start_worker, still_store, **kept)
            await still_store.maintenance.register_worker(idle_worker())
            clock.advance(10_000 * DAY)
            await start_worker(end, store=still_store, **kept)
            await until(lambda: has_pruned(still_store))

            assert await left_of(jobs, client) == set(jobs)

    async def test_of_zero_hides_a_job_at_once_and_its_waiter_still_gets_the_result(
        self, client, store_url, start_worker
    ):
        gate = Gate()

        @task
        async def work(how: str) -> str:
            await gate.pass_through()
            if how == "fail":
                raise Permanent("failed")
            return how

        worker = await start_worker(work, keep_completed=0, keep_failed=0)
        well = await client.enqueue(work, "well")
        bad = await client.enqueue(work, "fail")
        await gate.reached(2)
        waits = [asyncio.create_task(job.result(10)) for job in (well, bad)]
        await asyncio.sleep(0)
        gate.open()
        await worker.told(AttemptCompleted, well.id)

        assert await waits[0] == "well"
        with pytest.raises(JobFailed, match="failed"):
            await waits[1]
        assert list(await client.jobs.list()) == []
        assert await client.jobs.count() == 0
        async with AsyncClient(store_url) as other:
            with pytest.raises(JobNotFound):
                await other.jobs.get(well.id)

    async def test_of_zero_gives_the_result_to_a_waiter_that_comes_a_moment_later(
        self, client, start_worker
    ):
        worker = await start_worker(end, keep_completed=0)
        job = await client.enqueue(end, "well")
        await worker.told(AttemptCompleted)

        assert await job.result(10) == "well"

    async def test_of_zero_frees_the_store_in_the_end(self, still_store, clock, start_worker):
        async with AsyncClient(still_store) as client:
            first = await start_worker(end, store=still_store, keep_completed=0)
            job = await client.enqueue(end, "well")
            await first.told(AttemptCompleted)
            await first.stop()
            clock.advance(timedelta(minutes=1))
            await start_worker(end, store=still_store, keep_completed=0)

            async def is_gone() -> bool:
                return await still_store.queries.job_states([job.id]) == {}

            await until(is_gone)


class TestDuties:
    async def test_drop_the_rows_of_workers_that_were_not_seen_for_long(
        self, still_store, clock, start_worker
    ):
        await still_store.maintenance.register_worker(idle_worker())
        clock.advance(timedelta(minutes=4))
        await still_store.maintenance.register_worker(idle_worker(id=WorkerId("seen-lately")))
        clock.advance(timedelta(minutes=2))
        worker = await start_worker(end, store=still_store)

        async def is_hidden() -> bool:
            rows = await still_store.queries.workers(None)
            return {row.info.id for row in rows} == {"seen-lately", worker.id}

        await until(is_hidden)

    async def test_drop_no_worker_that_renews_seldom(self, still_store, clock, start_worker):
        slow = await start_worker(end, store=still_store, lease="30m")
        await still_store.maintenance.register_worker(idle_worker())
        since = {row.info.id: row.started_at for row in await still_store.queries.workers(None)}
        clock.advance(timedelta(minutes=50))
        await start_worker(end, store=still_store)
        await until(lambda: has_pruned(still_store))

        rows = {row.info.id: row.started_at for row in await still_store.queries.workers(None)}
        assert rows[WorkerId(slow.id)] == since[WorkerId(slow.id)]

    async def test_forget_limits_that_were_not_used_for_long(
        self, still_store, clock, start_worker
    ):
        await close_limit(still_store, "default", "smtp", clock() + timedelta(minutes=1))
        clock.advance(2 * DAY)
        await still_store.maintenance.register_worker(idle_worker())
        clock.advance(DAY)
        await start_worker(end, store=still_store)
        await until(lambda: has_pruned(still_store))

        assert await still_store.maintenance.prune_limits("default", timedelta(0), 10) == 0

    async def test_leave_other_namespaces_alone(self, still_store, clock, start_worker):
        async with AsyncClient(still_store) as client:
            jobs = await one_of_each(client, start_worker, still_store)
            held = await client.enqueue(end, "held")
            await hold(still_store, "end", lease=timedelta(seconds=1))
            await still_store.maintenance.register_worker(idle_worker(namespace="team-a"))
            clock.advance(DAY)
            zealous = {"keep_completed": 0, "keep_failed": 0, "keep_dead": 0, "max_crashes": 1}
            await start_worker(end, store=still_store, namespace="team-a", **zealous)
            await until(lambda: has_pruned(still_store))

            assert await left_of(jobs, client) == set(jobs)
            assert await held.status() is Status.ACTIVE

    async def test_are_led_apart_in_each_namespace(self, store, start_worker):
        assert await store.maintenance.acquire_lease(LEADER, OTHER, timedelta(hours=1))
        await store.maintenance.register_worker(idle_worker(namespace="team-a"))
        async with AsyncClient(store, namespace="team-a") as client:
            job = await client.enqueue(end, "well")
            await hold(store, "end", lease=timedelta(milliseconds=10), namespace="team-a")
            await start_worker(end, store=store, namespace="team-a", poll="50ms")

            assert await job.result(10) == "well"

    async def test_see_to_what_is_urgent_in_the_midst_of_a_long_prune(
        self, still_store, clock, monkeypatch
    ):
        monkeypatch.setattr("perdure.worker.janitor.BATCH", 1)
        worker = Worker(still_store, tasks=[end], keep_completed=0)
        events = WorkerEvents(worker.id)
        janitor = Janitor(still_store, worker.settings, worker.id, events)
        async with AsyncClient(still_store) as client:
            jobs = await client.enqueue_many(end, ["well"] * (PRUNE_BATCHES + 2))
            for job in jobs:
                await job.cancel()
            clock.advance(timedelta(hours=1))

            assert not await janitor.process(await still_store.maintenance.poll("default"))
            assert await client.jobs.count() == 2
            urgent = await client.enqueue(end, "well")
            await hold(still_store, "end", lease=timedelta(seconds=1))
            clock.advance(timedelta(seconds=2))
            assert await janitor.process(await still_store.maintenance.poll("default"))

            assert await urgent.status() is Status.WAITING
            assert (await client.jobs.count(), events.stats(0, 1).taken_over) == (1, 1)

    async def test_prune_after_a_poll_if_a_takeover_failed_before_it(self, still_store, clock):
        failures = [StoreError("for a moment")]

        async def around(name: str, method: Any, args: Any, kwargs: Any) -> Any:
            if name == "maintenance.take_over_expired" and failures:
                raise failures.pop()
            return await method(*args, **kwargs)

        worker = Worker(still_store, tasks=[end], keep_completed=0)
        store = wrap_store(still_store, around)
        janitor = Janitor(store, worker.settings, worker.id, WorkerEvents(worker.id))
        async with AsyncClient(still_store) as client:
            await (await client.enqueue(end, "well")).cancel()
            await client.enqueue(end, "held")
            await hold(still_store, "end", lease=timedelta(seconds=1))
            clock.advance(timedelta(hours=1))

            await janitor.process(await still_store.maintenance.poll("default"))
            assert (await client.jobs.count(), failures) == (2, [])
            await janitor.process(await still_store.maintenance.poll("default"))

            assert await client.jobs.count() == 1

    async def test_are_done_by_one_worker_at_a_time(self, client, store, start_worker):
        job = await client.enqueue(end, "well")
        await hold(store, "end", lease=timedelta(milliseconds=50))
        assert await store.maintenance.acquire_lease(LEADER, OTHER, timedelta(hours=1))
        worker = await start_worker(end, poll="50ms")
        for _ in range(3):  # a delayed job runs only if the worker looked around
            await (await client.enqueue(end.options(delay="50ms"), "marker")).result(10)
        assert worker.all(AttemptStarted, job.id) == []
        assert await job.status() is Status.ACTIVE
        assert await store.maintenance.acquire_lease(LEADER, OTHER, timedelta(0))

        assert await job.result(10) == "well"

    async def test_are_left_to_others_as_soon_as_they_are_done(self, client, store, start_worker):
        await start_worker(end)
        await until(lambda: store.maintenance.acquire_lease(LEADER, OTHER, timedelta(hours=1)))

    async def test_promote_many_due_jobs_in_batches(self, still_store, clock, start_worker):
        async with AsyncClient(still_store) as client:
            jobs = await client.enqueue_many(end.options(delay="1h"), ["well"] * 1_500)
            clock.advance(timedelta(hours=2))
            worker = await start_worker(end, store=still_store, concurrency=100)
            await worker.told(AttemptCompleted, count=1_500)

            assert await client.jobs.count(status="completed") == len(jobs)


async def one_of_each(
    client: AsyncClient, start_worker: StartWorker, store: Store, **settings: Any
) -> dict[str, str]:
    """Jobs that ended in every way, and one that has not, by name."""
    worker = await start_worker(end, store=store, **settings)
    well = await client.enqueue(end, "well")
    fail = await client.enqueue(end, "fail")
    die = await client.enqueue(end.options(retries=Retry(0)), "die")
    waiting = await client.enqueue(end.options(queue="unserved"), "waiting")
    cancelled = await client.enqueue(end.options(queue="unserved"), "cancelled")
    await cancelled.cancel()
    assert await well.result(10) == "well"
    for job, error in ((fail, JobFailed), (die, JobDead), (cancelled, JobCancelled)):
        with pytest.raises(error):
            await job.result(10)
    await worker.stop()
    handles = [well, fail, die, waiting, cancelled]
    return {(await handle.record()).args[0]: handle.id for handle in handles}


async def has_pruned(store: Store) -> bool:
    """Idle workers are dropped last, so all that was to be removed is gone."""
    return OTHER not in {row.info.id for row in await store.queries.workers(None)}


async def left_of(jobs: dict[str, str], client: AsyncClient) -> set[str]:
    left = {job.id for job in await client.jobs.list(limit=100)}
    return {name for name, id in jobs.items() if id in left}


async def hold(store: Store, name: str, *, lease: timedelta, namespace: str = "default") -> None:
    partition = Partition(queue="default", task=name)
    claimed = await store.jobs.claim(
        ClaimRequest(
            namespace=namespace,
            worker=OTHER,
            partitions=[PartitionClaim(partition=partition.text, queue="default")],
            limit=1,
            lease=lease,
        )
    )
    assert len(claimed.jobs) == 1


def idle_worker(id: WorkerId = OTHER, namespace: str = "default") -> WorkerInfo:
    return WorkerInfo(
        id=id,
        namespace=namespace,
        host="host",
        pid=1,
        queues=("default",),
        tasks=("end",),
        tags=None,
        concurrency=1,
        lease=timedelta(seconds=30),
    )
