"""Jobs of a database that was made before there were runs are finished by the code of today."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure import AsyncClient, JobCancelled, JobFailed, JobRecord, Worker
from tests.upgrade import jobs
from tests.upgrade.world import world
from tests.worker.harness import Running, soon

SCHEMA, CODE = 1, {"tasks": jobs.TASKS}
MINUTE = timedelta(minutes=1)
EXECUTED_THEN = {"send done", "rated ann 5", "rated ann 6"}


async def of_group(client: AsyncClient, group: str) -> JobRecord:
    [job] = await client.jobs.list(group=group)
    return await client.jobs.get(job.id)


async def result(client: AsyncClient, group: str) -> object:
    return await soon(client.jobs.handle((await of_group(client, group)).id).result())


async def test_are_all_there_as_they_were(client):
    statuses = {job.group: str(job.status) for job in await client.jobs.list(limit=100)}

    assert statuses == {
        "done": "completed",
        "active": "active",
        "failed": "failed",
        "dead": "dead",
        "retried": "scheduled",
        "rated 5": "completed",
        "rated 6": "completed",
        "rated 7": "waiting",
        "narrow 8": "active",
        "narrow 9": "waiting",
        "waiting": "waiting",
        "urgent": "waiting",
        "large": "waiting",
        "fingerprint": "waiting",
        "later": "scheduled",
        "expiring": "waiting",
        "closed": "waiting",
        "disabled": "disabled",
        "cancelled": "cancelled",
        "released": "paused",
        "aborting": "aborting",
        "held": "active",
    }
    assert (await of_group(client, "active")).progress.message == "half way"
    assert [each.name for each in await client.queues.list() if each.is_paused] == ["closed"]
    [failure] = await client.jobs.attempts((await of_group(client, "failed")).id)
    assert failure.failure.message == "the power is out"


async def test_are_finished_without_being_asked(client, worker, clock):
    assert await result(client, "waiting") == "WAITING"
    assert await result(client, "urgent") == "URGENT"
    assert await result(client, "large") == "X" * 3000
    assert await result(client, "fingerprint") == "FINGERPRINT"
    assert await result(client, "active") == 10
    assert await result(client, "held") == 20
    assert [await result(client, f"narrow {number}") for number in (8, 9)] == [80, 90]
    with pytest.raises(JobCancelled):
        await result(client, "aborting")

    clock.advance(10 * MINUTE)
    assert await result(client, "retried") == 40
    with pytest.raises(JobFailed) as failed:
        await result(client, "expiring")
    assert failed.value.failure is not None
    assert failed.value.failure.type == "perdure.errors.DeadlineExceeded"

    assert (await of_group(client, "later")).status == "scheduled"
    assert (await of_group(client, "rated 7")).status == "waiting"
    clock.advance(60 * MINUTE)
    assert await result(client, "later") == "LATER"
    assert await result(client, "rated 7") == "ann 7"
    assert not EXECUTED_THEN & set(world.executed)


async def test_obey_operators(client, worker):
    for group in ("failed", "dead", "cancelled"):
        await client.jobs.retry((await of_group(client, group)).id)
    await client.jobs.enable((await of_group(client, "disabled")).id)
    await client.jobs.resume((await of_group(client, "released")).id)
    await client.queues.resume("closed")

    assert await result(client, "failed") == 20
    assert await result(client, "dead") == 30
    assert await result(client, "cancelled") == "CANCELLED"
    assert await result(client, "disabled") == "DISABLED"
    assert await result(client, "released") == 10
    assert await result(client, "closed") == 110


async def test_are_found_by_fingerprint_and_input(client):
    again = await client.enqueue(jobs.send.options(fingerprint="only one"), "fingerprint")
    assert not again.is_new
    assert await client.jobs.find_result(jobs.send, ["done"]) == "DONE"


async def test_of_another_namespace_are_left_to_its_workers(store, client, worker):
    assert await result(client, "waiting") == "WAITING"
    other = Running(Worker(store, tasks=jobs.TASKS, namespace="elsewhere", poll="20ms"))
    async with AsyncClient(store, namespace="elsewhere") as elsewhere:
        assert await elsewhere.jobs.count(status="waiting") == 1
        await other.start()
        assert await result(elsewhere, "elsewhere") == "ELSEWHERE"
    await other.stop()
