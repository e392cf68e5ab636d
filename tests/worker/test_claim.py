"""Behaviour 2: each job is claimed once, the most urgent first, by a worker that can run it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from perdure import AsyncClient, Status, task
from perdure.clock import new_id
from perdure.model.ids import JobId
from perdure.model.job import NewJob
from perdure.model.partition import Partition
from perdure.store.contract import POLL_PARTITIONS_MAX
from perdure.worker.events import AttemptCompleted, AttemptRequeued, AttemptStarted
from tests.worker.harness import Gate


async def test_claim_hands_each_of_many_jobs_to_one_of_several_workers(client, start_worker):
    bodies: Counter[int] = Counter()

    @task
    async def count(number: int) -> int:
        bodies[number] += 1
        await asyncio.sleep(0)
        return number

    workers = [await start_worker(count, concurrency=5) for _ in range(3)]
    jobs = await client.enqueue_many(count, range(300))
    results = await client.jobs.results(jobs, timeout=20)

    assert results == list(range(300))
    assert set(bodies.values()) == {1}
    assert sum(worker.worker.stats().started for worker in workers) == 300


async def test_claim_takes_the_most_urgent_first_and_the_oldest_of_those(client, start_worker):
    order: list[str] = []

    @task
    async def note(name: str) -> None:
        order.append(name)

    await client.enqueue(note.options(priority=5), "low")
    await client.enqueue(note, "middle")
    await client.enqueue(note.options(priority=1), "first high")
    last = await client.enqueue(note.options(priority=1), "second high")
    worker = await start_worker(note, concurrency=1)
    await worker.told(AttemptCompleted, count=4)

    assert order == ["first high", "second high", "middle", "low"]
    assert await last.status() is Status.COMPLETED


async def test_claim_lets_a_job_grow_more_urgent_while_it_waits(client, store_url, start_worker):
    order: list[str] = []

    @task
    async def note(name: str) -> None:
        order.append(name)

    async with AsyncClient(store_url, aging="1ms") as hasty:
        await hasty.enqueue(note.options(priority=5), "waited long")
        await asyncio.sleep(0.02)  # time itself is what is tested
        await hasty.enqueue(note.options(priority=1), "more urgent")
    worker = await start_worker(note, concurrency=1)
    await worker.told(AttemptCompleted, count=2)

    assert order == ["waited long", "more urgent"]


async def test_claim_takes_nothing_of_other_queues_tasks_or_tags(client, start_worker):
    @task
    async def ours() -> None:
        pass

    @task
    async def theirs() -> None:
        pass

    refused = [
        await client.enqueue(theirs),
        await client.enqueue(ours.options(queue="other")),
        await client.enqueue(ours.options(tags=["gpu", "big"])),
    ]
    accepted = [
        await client.enqueue(ours),
        await client.enqueue(ours.options(tags=["gpu"])),
        await client.enqueue(ours.options(tags=["gpu", "eu"])),
    ]
    worker = await start_worker(ours, queues=["default"], tags=["gpu", "eu"])
    await client.jobs.results(accepted, timeout=10)

    assert [await job.status() for job in refused] == [Status.WAITING] * 3
    assert len(worker.all(AttemptStarted)) == 3


async def test_claim_of_a_worker_without_tags_takes_any_tags(client, start_worker):
    @task(tags=["gpu"])
    async def embed() -> str:
        return "done"

    await start_worker(embed)

    assert await (await client.enqueue(embed)).result(10) == "done"
    assert await (await client.enqueue(embed.options(tags=["tpu"]))).result(10) == "done"


async def test_claim_is_not_starved_by_jobs_that_the_worker_cannot_run(client, store, start_worker):
    @task(name="zebra")
    async def known() -> str:
        return "ran"

    partitions = [
        Partition(queue="default", task=f"unknown-{i:05}") for i in range(POLL_PARTITIONS_MAX + 50)
    ]
    await store.jobs.insert([foreign_job(partition) for partition in partitions])
    job = await client.enqueue(known)
    await start_worker(known, poll="1m")

    assert await job.result(10) == "ran"


async def test_claim_asks_all_partitions_however_many_there_are(client, start_worker):
    gates = [Gate() for _ in range(2)]

    @task(tags=["none"])
    async def count(place: int) -> int:
        await gates[place].pass_through()
        return place

    blocked = [
        await client.enqueue_many(count.options(tags=[f"tag-{number:04}"], queue="paused"), [0])
        for number in range(250)
    ]
    await client.queues.pause("paused")
    last = await client.enqueue(count.options(tags=["zzz"], queue="running"), 1)
    gates[0].open()
    gates[1].open()
    worker = await start_worker(count, queues=["paused", "running"], poll="1m", concurrency=300)

    assert await last.result(10) == 1
    assert worker.worker.stats().started == 1
    await client.queues.resume("paused")
    await client.jobs.results([job for jobs in blocked for job in jobs], timeout=10)


async def test_claim_takes_nothing_of_a_paused_queue_until_it_is_resumed(client, start_worker):
    @task(queue="mail")
    async def send() -> str:
        return "sent"

    @task(queue="bulk")
    async def load() -> str:
        return "loaded"

    worker = await start_worker(send, load, poll="1m")
    await client.queues.pause("mail", by="ann")
    held = await client.enqueue(send)
    assert await (await client.enqueue(load)).result(10) == "loaded"
    assert await held.status() is Status.WAITING
    assert [job.task for job in worker.all(AttemptStarted)] == ["load"]
    await client.queues.resume("mail")

    assert await held.result(10) == "sent"


async def test_claim_lets_what_runs_go_on_when_its_queue_is_paused(client, start_worker):
    gate = Gate()

    @task
    async def wait() -> str:
        await gate.pass_through()
        return "done"

    await start_worker(wait)
    job = await client.enqueue(wait)
    await gate.reached()
    await client.queues.pause("default")
    gate.open()

    assert await job.result(10) == "done"


async def test_claim_ahead_gives_back_what_finds_no_slot(client, start_worker):
    """Fast jobs make a worker claim ahead; slow ones among them must not hold up the rest."""
    gate = Gate()

    @task
    async def work(found_type: str) -> str:
        if found_type == "slow":
            await gate.pass_through()
        return found_type

    await client.queues.pause("default")
    fast = await client.enqueue_many(work.options(priority=1), ["fast"] * 400)
    slow = await client.enqueue_many(work.options(priority=2), ["slow"] * 2)
    rest = await client.enqueue_many(work.options(priority=3), ["rest"] * 10)
    busy = await start_worker(work, concurrency=2)
    await client.queues.resume("default")
    await gate.reached(2)
    other = await start_worker(work, concurrency=2)
    await client.jobs.results([*fast, *rest], timeout=10)

    assert other.worker.stats().completed >= 10
    records = [await client.jobs.get(job.id) for job in rest]
    assert {record.attempt for record in records} == {1}
    assert busy.worker.stats().requeued == len(busy.all(AttemptRequeued))
    gate.open()
    await client.jobs.results(slow, timeout=10)


def foreign_job(partition: Partition) -> NewJob:
    return NewJob(
        id=JobId(new_id()),
        namespace="default",
        partition=partition,
        priority=3,
        aging=timedelta(minutes=5),
        input=b"[[],{}]",
        input_hash=1,
    )
