"""Looking at a run again and again, on every backend: what is new, who works, what is missing."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta

import pytest

from perdure import RunNotFound, RunStatus
from perdure.model.job import CLAIMED, NodeRef
from perdure.model.run import WaitType
from tests.client.flows import asking, failing, hanging, ordering
from tests.client.runs import worker_at


async def test_end_with_the_run_and_have_every_event_once(client, store):
    run = await client.submit(ordering, 3)
    async with worker_at(store), asyncio.timeout(20):
        seen = [snapshot async for snapshot in run.observe()]

    assert seen[-1].run.status is RunStatus.COMPLETED
    assert [event for snapshot in seen for event in snapshot.events] == await run.events()
    assert list(seen[-1].graph.nodes) == ["read_order", "total"]


async def test_show_who_works_on_what(client, store):
    run = await client.submit(hanging, 1)
    async with worker_at(store) as worker, asyncio.timeout(20), aclosing(run.observe()) as sights:
        async for snapshot in sights:
            if any(job.status in CLAIMED for job in snapshot.jobs):
                break

    [held] = snapshot.jobs
    assert held.worker == worker.id
    assert held.node == NodeRef(run=run.id, key="never")
    assert [each.info.id for each in snapshot.workers] == [worker.id]


async def test_show_what_is_waited_for(client, store):
    run = await client.submit(asking, 1)
    async with worker_at(store), asyncio.timeout(20), aclosing(run.observe()) as sights:
        async for snapshot in sights:
            if snapshot.waits:
                break

    assert [(wait.key, wait.type, wait.name) for wait in snapshot.waits] == [
        ("answer", WaitType.SIGNAL, "answer")
    ]


async def test_keep_what_nodes_failed_with(client, store):
    run = await client.submit(failing, 1)
    async with worker_at(store), asyncio.timeout(20):
        seen = [snapshot async for snapshot in run.observe()]

    assert seen[-1].failures["refuse"].message == "out of paper"


async def test_of_an_ended_run_are_one(client):
    run = await client.submit(asking, 1)
    await run.cancel()

    statuses = [snapshot.run.status async for snapshot in run.observe()]

    assert statuses == [RunStatus.CANCELLED]


async def test_of_an_unknown_run_are_refused(client):
    with pytest.raises(RunNotFound):
        await anext(client.runs.handle("nobody").observe())


async def test_of_a_run_that_was_replaced_are_refused(client, clock):
    run = await client.submit(asking, 1, id="taken")
    async with asyncio.timeout(20), aclosing(run.observe()) as sights:
        await anext(sights)
        clock.advance(timedelta(seconds=1))
        await client.submit(asking, 2, id="taken", on_conflict="replace")

        with pytest.raises(RunNotFound):
            await anext(sights)
