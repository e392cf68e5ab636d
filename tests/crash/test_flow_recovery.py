"""A worker that is killed at any point costs a run nothing: each node is committed once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from perdure import AsyncRunHandle, RunFailed, RunStatus
from perdure.operations.records import EventRecord
from tests.crash.flow_tasks import DEADLY, POINTS, holding, poison, stepping, survivable

QUICK = {"lease": "700ms", "poll": "200ms"}
KEYS = ["a", "b", "b2", "c", "d", "e", "e[0]", "e[1]", "e[2]", "f"]


def committed(events: list[EventRecord]) -> list[str]:
    """The keys that the log says were completed, each as often as it says so."""
    node_types = ("node_completed", "item_completed", "iteration_completed")
    return sorted(str(event.key) for event in events if event.type in node_types)


async def test_recovery_from_a_kill_at_each_point(client, shared_url, launch, tmp_path):
    flows = "tests.crash.flow_tasks:DEADLY"
    nodes = {"claimed": "a", "executing": "b", "executed": "d", "committed": "b2"}

    async def victim(point: str) -> AsyncRunHandle:
        dies = None if point == "executing" else [point, nodes[point]]
        worker = await launch(shared_url, flows=flows, queues=[point], id=point, dies=dies, **QUICK)
        input = {"log": str(tmp_path / point), "victim": "executing", "dies": "b"}
        run = await client.submit(DEADLY[POINTS.index(point)], input, id=point)
        assert await worker.ended() == -9
        return run

    runs = await asyncio.gather(*(victim(point) for point in POINTS))
    await launch(shared_url, flows=flows, **QUICK)
    results = [await run.result(20) for run in runs]
    logs = {run.id: committed(await run.events()) for run in runs}

    assert results == [3] * len(POINTS)
    assert logs == dict.fromkeys(POINTS, KEYS)
    executed = {
        point: Counter(line.split()[1] for line in (tmp_path / point).read_text().splitlines())
        for point in POINTS
    }
    assert executed["claimed"]["a"] == 1  # its body had not started
    assert executed["executing"]["b"] == 2
    assert executed["committed"]["b2"] == 1  # what is committed is not executed again
    for point in POINTS:
        keys = [line.split() for line in (tmp_path / point).read_text().splitlines()]
        # However often it is executed, a node has one idempotency key of its own.
        assert len({tuple(key[1:4]) for key in keys}) == len({key[4] for key in keys})


async def test_recovery_from_a_node_that_kills_its_workers_fails_the_run(
    client, shared_url, launch, tmp_path
):
    input = {"log": str(tmp_path / "log")}
    failing = await client.submit(poison, input)
    going_on = await client.submit(survivable, input)
    settings = {
        "flows": "tests.crash.flow_tasks:POISON",
        "max_crashes": 1,
        "concurrency": 1,
        **QUICK,
    }

    async def victim(queue: str) -> None:
        worker = await launch(shared_url, queues=[queue], **settings)
        assert await worker.ended() == -9

    for _ in range(2):
        await asyncio.gather(victim("default"), victim("other"))
    await launch(shared_url, **settings)

    assert await going_on.result(20) == "on"
    with pytest.raises(RunFailed) as raised:
        await failing.result(20)
    assert raised.value.failure is not None
    assert raised.value.failure.type == "perdure.errors.WorkerCrashed"
    assert raised.value.node == "kill"
    assert committed(await failing.events()) == ["first"]


async def test_recovery_does_not_repeat_a_step_that_was_stored(
    client, shared_url, launch, tmp_path
):
    log = tmp_path / "log"
    run = await client.submit(stepping, {"log": str(log), "victim": "first"})
    settings = {"flows": "tests.crash.flow_tasks:STEPPING", **QUICK}
    victim = await launch(shared_url, id="first", **settings)
    assert await victim.ended() == -9
    await launch(shared_url, id="second", **settings)

    assert await run.result(20) == ["first", "second"]
    assert log.read_text().splitlines() == ["step first", "step second"]


async def test_pause_and_cancel_reach_bodies_in_another_process_within_a_second(
    client, shared_url, launch, tmp_path
):
    settings = {"flows": "tests.crash.flow_tasks:HOLDING", "lease": "1h", "poll": "1m"}
    await launch(shared_url, **settings)
    log, go = tmp_path / "log", tmp_path / "go"
    run = await client.submit(holding, {"log": str(log), "go": str(go)})
    await lines(log, ["hold started"])
    async with asyncio.timeout(1):
        await run.pause(reason="maintenance", by="ops")
        await lines(log, ["hold cancelled"])
    paused = await run.record()
    await run.resume()
    await lines(log, ["hold started"] * 2)
    async with asyncio.timeout(1):
        await run.cancel()
        await lines(log, ["hold cancelled"] * 2)

    assert (paused.status, paused.reason, paused.by) == (RunStatus.PAUSED, "maintenance", "ops")
    assert await run.status() is RunStatus.CANCELLED
    assert committed(await run.events()) == ["before"]


async def lines(log: Path, expected: list[str]) -> None:
    """Wait until these lines are in a log, each as often as it is here."""

    def left() -> Counter[str]:
        there = log.read_text().splitlines() if log.exists() else []
        return Counter(expected) - Counter(there)

    async with asyncio.timeout(20):
        while left():  # noqa: ASYNC110 (a file sets no event)
            await asyncio.sleep(0.01)
