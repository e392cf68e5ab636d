"""Behaviour 11: limits hold across all workers, count what is live, and block nothing else."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from itertools import pairwise

import pytest

from perdure import Concurrency, Rate, Spacing, task
from perdure.model.ids import WorkerId
from perdure.model.limit import LimitRule
from perdure.model.partition import Partition
from perdure.store.contract import ClaimRequest, PartitionClaim
from perdure.worker.events import AttemptCompleted, AttemptStarted
from tests.worker.harness import Gate, Peak

BRIEFLY = 0.01


TIMED = [Spacing("10ms"), Rate(1, per="10ms"), Rate(100, per="1s", evenly=True)]


class TestWhatOpensByItself:
    @pytest.mark.parametrize("limit", TIMED, ids=["spacing", "rate", "evenly"])
    async def test_lets_the_next_one_start_while_the_last_one_still_runs(
        self, client, start_worker, limit
    ):
        together = asyncio.Barrier(3)

        @task(limits=[limit])
        async def meet(number: int) -> int:
            await together.wait()
            return number

        await start_worker(meet, concurrency=10, poll="1m")
        jobs = await client.enqueue_many(meet, range(3))

        assert await client.jobs.results(jobs, timeout=15) == [0, 1, 2]


class TestConcurrency:
    async def test_of_a_task_holds_across_workers(self, client, start_worker):
        peak = Peak()

        @task(limits=[Concurrency(3)])
        async def work(number: int) -> None:
            with peak:
                await asyncio.sleep(BRIEFLY)

        for _ in range(2):
            await start_worker(work, concurrency=10, poll="1m")
        await client.jobs.results(await client.enqueue_many(work, range(30)), timeout=15)

        assert peak.most == 3

    async def test_of_a_queue_counts_all_its_tasks(self, client, start_worker):
        peak, free = Peak(), Peak()

        @task(queue="mail")
        async def send(number: int) -> None:
            with peak:
                await asyncio.sleep(BRIEFLY)

        @task(queue="mail")
        async def fetch(number: int) -> None:
            with peak:
                await asyncio.sleep(BRIEFLY)

        @task(queue="bulk")
        async def load(number: int) -> None:
            with free:
                await asyncio.sleep(BRIEFLY)

        for _ in range(2):
            await start_worker(send, fetch, load, limits=[Concurrency(2, queue="mail")], poll="1m")
        jobs = [
            *await client.enqueue_many(send, range(10)),
            *await client.enqueue_many(fetch, range(10)),
            *await client.enqueue_many(load, range(10)),
        ]
        await client.jobs.results(jobs, timeout=15)

        assert peak.most == 2
        assert free.most > 2

    async def test_under_the_name_of_a_queue_governs_that_queue(self, client, start_worker):
        peak = Peak()

        @task(queue="embeddings")
        async def embed(number: int) -> None:
            with peak:
                await asyncio.sleep(BRIEFLY)

        await start_worker(embed, limits=[Concurrency(1, key="embeddings")], poll="1m")
        await client.jobs.results(await client.enqueue_many(embed, range(8)), timeout=15)

        assert peak.most == 1

    async def test_of_a_computed_key_counts_each_value_apart(self, client, start_worker):
        peaks = {"ann": Peak(), "bob": Peak()}
        all_of_them = Peak()

        @task(limits=[Concurrency(1, key=lambda user, number: f"user:{user}")])
        async def work(user: str, number: int) -> None:
            with peaks[user], all_of_them:
                await asyncio.sleep(BRIEFLY)

        for _ in range(2):
            await start_worker(work, poll="1m")
        calls = [(user, number) for number in range(8) for user in peaks]
        await client.jobs.results(await client.enqueue_many(work, calls), timeout=15)

        assert [peak.most for peak in peaks.values()] == [1, 1]
        assert all_of_them.most == 2

    async def test_that_is_full_blocks_no_other_partition(self, client, start_worker):
        gate = Gate()

        @task(limits=[Concurrency(1)])
        async def limited(number: int) -> int:
            await gate.pass_through()
            return number

        @task
        async def free(number: int) -> int:
            return number

        await start_worker(limited, free, concurrency=2)
        held = await client.enqueue_many(limited.options(priority=1), range(50))
        await gate.reached()
        passing = await client.enqueue_many(free.options(priority=5), range(20))

        assert await client.jobs.results(passing, timeout=10) == list(range(20))
        assert gate.visits == 1
        gate.open()
        await client.jobs.results(held, timeout=15)

    async def test_is_freed_when_its_holder_dies(self, client, store, start_worker):
        @task(limits=[Concurrency(1)])
        async def work(name: str) -> str:
            return name

        first = await client.enqueue(work, "first")
        partition = Partition(queue="default", task="work")
        rule = LimitRule(key="task:work", live_max=1)
        await store.jobs.claim(
            ClaimRequest(
                namespace="default",
                worker=WorkerId("dead-worker"),
                partitions=[
                    PartitionClaim(partition=partition.text, queue="default", rules=(rule,))
                ],
                limit=1,
                lease=timedelta(milliseconds=300),
            )
        )
        second = await client.enqueue(work, "second")
        began = time.monotonic()
        await start_worker(work)

        assert await client.jobs.results([first, second], timeout=10) == ["first", "second"]
        assert time.monotonic() - began >= 0.2


class TestRate:
    async def test_holds_in_any_window_across_workers(self, client, start_worker):
        starts: list[float] = []

        @task
        async def call(number: int) -> None:
            starts.append(time.monotonic())

        for _ in range(2):
            await start_worker(call, limits=[Rate(4, per="400ms", key="api")], poll="1m")
        await client.jobs.results(await client.enqueue_many(call, range(12)), timeout=15)
        starts.sort()

        assert len(starts) == 12
        # Bodies start a little after their claims, which are what is counted.
        assert all(after - before > 0.3 for before, after in zip(starts, starts[4:], strict=False))
        assert starts[-1] - starts[0] < 3

    async def test_evenly_spaces_the_starts(self, client, start_worker):
        starts: list[float] = []

        @task(limits=[Rate(10, per="1s", evenly=True)])
        async def call(number: int) -> None:
            starts.append(time.monotonic())

        await start_worker(call, poll="1m")
        await client.jobs.results(await client.enqueue_many(call, range(6)), timeout=15)

        assert all(after - before > 0.07 for before, after in pairwise(starts))
        assert starts[-1] - starts[0] >= 0.45

    async def test_per_computed_key_starts_each_at_once(self, client, start_worker):
        starts: dict[str, list[float]] = {"ann": [], "bob": []}

        @task(limits=[Rate(1, per="300ms", key=lambda user: user)])
        async def call(user: str) -> None:
            starts[user].append(time.monotonic())

        await start_worker(call, poll="1m")
        await client.jobs.results(await client.enqueue_many(call, ["ann", "bob"] * 2), timeout=15)

        assert abs(starts["ann"][0] - starts["bob"][0]) < 0.2
        assert all(second - first > 0.2 for first, second in starts.values())


class TestSpacing:
    async def test_keeps_starts_apart_across_workers(self, client, start_worker):
        starts: list[float] = []

        @task
        async def call(number: int) -> None:
            starts.append(time.monotonic())

        for _ in range(2):
            await start_worker(call, limits=[Spacing("120ms", task="call")], poll="1m")
        await client.jobs.results(await client.enqueue_many(call, range(5)), timeout=15)
        starts.sort()

        assert all(after - before > 0.08 for before, after in pairwise(starts))
        assert starts[-1] - starts[0] < 2.5


async def test_limits_combine_and_all_of_them_hold(client, start_worker):
    peak, starts = Peak(), []

    @task(limits=[Concurrency(2, key="api"), Rate(5, per="300ms", key="api")])
    async def call(number: int) -> None:
        starts.append(time.monotonic())
        with peak:
            await asyncio.sleep(BRIEFLY)

    for _ in range(2):
        await start_worker(call, poll="1m")
    await client.jobs.results(await client.enqueue_many(call, range(12)), timeout=15)
    starts.sort()

    assert peak.most <= 2
    assert all(after - before > 0.2 for before, after in zip(starts, starts[5:], strict=False))


async def test_limits_that_nobody_reaches_delay_nothing(client, start_worker):
    @task(limits=[Concurrency(1000), Rate(100_000, per="1m")])
    async def work(number: int) -> int:
        return number

    worker = await start_worker(work, concurrency=50, poll="1m")
    jobs = await client.enqueue_many(work, range(200))

    assert await client.jobs.results(jobs, timeout=15) == list(range(200))
    await worker.told(AttemptCompleted, count=200)
    assert len(worker.all(AttemptStarted)) == 200
