"""Behaviour 18: a worker sees and touches only its own namespace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure import AsyncClient, Concurrency, InvalidInput, Status, task
from perdure.model.failure import Failure
from perdure.model.ids import WorkerId
from perdure.model.outcome import Retried, Settlement
from perdure.model.partition import Partition
from perdure.store.contract import ClaimRequest, PartitionClaim
from perdure.worker.events import AttemptStarted
from tests.worker.harness import Gate


async def test_namespaces_keep_their_jobs_to_their_own_workers(store_url, start_worker):
    @task
    async def work(name: str) -> str:
        return name

    async with (
        AsyncClient(store_url, namespace="team-a") as team_a,
        AsyncClient(store_url, namespace="team-b") as team_b,
    ):
        worker = await start_worker(work, namespace="team-a")
        theirs = await team_b.enqueue(work, "theirs")
        ours = await team_a.enqueue(work, "ours")

        assert await ours.result(10) == "ours"
        assert await theirs.status() is Status.WAITING
        assert [event.job_id for event in worker.all(AttemptStarted)] == [ours.id]
        assert list(await team_b.workers.list()) == []
        assert [each.info.namespace for each in await team_a.workers.list()] == ["team-a"]


async def test_namespaces_pause_and_limit_their_own_queues(store_url, start_worker):
    gate = Gate()

    @task(limits=[Concurrency(1, key="api")])
    async def work(name: str) -> str:
        if name == "held":
            await gate.pass_through()
        return name

    async with (
        AsyncClient(store_url, namespace="team-a") as team_a,
        AsyncClient(store_url, namespace="team-b") as team_b,
    ):
        for name in ("team-a", "team-b"):
            await start_worker(work, namespace=name)
        held = await team_a.enqueue(work, "held")
        await gate.reached()
        await team_a.queues.pause("default")

        assert await (await team_b.enqueue(work, "free")).result(10) == "free"
        gate.open()
        assert await held.result(10) == "held"


async def test_namespaces_are_all_watched_by_an_operator(store_url, start_worker):
    gate = Gate()

    @task
    async def work() -> None:
        await gate.pass_through()

    async with (
        AsyncClient(store_url, namespace="team-a") as team_a,
        AsyncClient(store_url, namespace="*") as operator,
    ):
        worker = await start_worker(work, namespace="team-a", abort_grace=0)
        job = await team_a.enqueue(work)
        await gate.reached()
        [listed] = await operator.workers.list()
        await operator.jobs.cancel(job.id)
        async with asyncio.timeout(10):
            final = [update.status async for update in operator.jobs.handle(job.id).watch()][-1]

    assert listed.info.id == worker.id
    assert final is Status.CANCELLED


async def test_namespaces_are_not_disturbed_by_far_times_in_another(store_url, store, start_worker):
    far = datetime.max.replace(tzinfo=UTC)

    @task
    async def work(number: int) -> int:
        return number

    async with (
        AsyncClient(store_url, namespace="team-a") as team_a,
        AsyncClient(store_url, namespace="team-b") as team_b,
    ):
        with pytest.raises(InvalidInput):
            await team_a.enqueue(work.options(run_at=far), 0)
        with pytest.raises(InvalidInput):
            await team_a.enqueue(work.options(deadline=far), 0)
        job = await team_a.enqueue(work, 0)
        partition = Partition(queue="default", task=work.name)
        claimed = await store.jobs.claim(
            ClaimRequest(
                namespace="team-a",
                worker=WorkerId("odd"),
                partitions=[PartitionClaim(partition=partition.text, queue=partition.queue)],
                limit=1,
                lease=timedelta(days=9_999_999),
            )
        )
        retried = Retried(failure=Failure(type="Odd", message="far"), until=far)
        await store.jobs.settle([Settlement(claim=claimed.jobs[0].claim, outcome=retried)])
        await start_worker(work, namespace="team-b")

        assert await (await team_b.enqueue(work, 1)).result(10) == 1
        assert await (await team_b.enqueue(work.options(delay="50ms"), 2)).result(10) == 2
        assert await job.status() is Status.SCHEDULED
