"""Runs of a database that the first code with runs made are finished by the code of today."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure import AsyncClient, RunFailed, Worker
from perdure.model.ids import RunId
from perdure.store.contract import EventsAfter
from tests.upgrade import runs
from tests.upgrade.making.runs import RESTING
from tests.upgrade.world import world
from tests.worker.harness import Running, soon, until

SCHEMA, CODE = 2, {"flows": runs.FLOWS}
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
EXECUTED_NOW = {
    "stall 2", "finish 20",  # chain
    "finish 3",  # timer
    "finish answered",  # asking, and below parent
    "finish <answered>",  # parent
    "finish None",  # silence and passed
    "stall 1", "finish 10", "finish ['<10>', '<20>']",  # family
    "item 3", "item 4", "item 5", "finish [0, 1, 4, 9, 16, 25]",  # mapped
    "again 210", "again 211", "finish 212",  # looped
    "stall 8", "finish {'left': '<8>', 'right': 'early'}",  # branches
    "stall 9", "finish 90",  # routed
    "take_back_slowly 10",  # undone
    "stumble 12", "finish 120",  # retried
    "stepped 14", "finish [14, 15]",  # stepping
    "narrow 14", "narrow 15", "finish 140", "finish 150",  # narrow-1, narrow-2
    "begin 20", "stall 21", "finish 210",  # queued
}  # fmt: skip


async def result(client: AsyncClient, id: str) -> object:
    return await soon(client.runs.handle(id).result())


async def test_have_the_versions_that_the_same_flows_have_today(store):
    stored = {count.flow: count.version for count in await store.admin.live_flows("default")}
    today = {flow.name: flow.version for flow in runs.FLOWS if flow.name in stored}
    assert {name: stored[name] for name in today} == today
    assert stored.keys() - today.keys() == {"by_key"}


async def test_are_all_there_as_they_were(client, store):
    changed_last = {"paused": "paused", "held": "paused", "stopped": "cancelled"}

    statuses = {id: str((await client.runs.get(id)).status) for id in RESTING}

    assert statuses == RESTING | changed_last
    for run in await client.runs.list(limit=100):
        assert await client.runs.handle(run.id).nodes()
        assert (await client.runs.handle(run.id).events())[0].number == 1
    [loaded] = await store.runs.load([EventsAfter(namespace="default", id=RunId("looped"))])
    assert loaded is not None
    assert loaded.snapshot is not None


async def test_are_finished_without_a_difference(client, worker, clock):
    for id in ("asking", "parent/asking"):
        await client.runs.signal(id, "answer", "answered", by="ann")

    assert await result(client, "chain") == "<20>"
    assert await result(client, "queued") == "<210>"
    assert await result(client, "asking") == "<answered>"
    assert await result(client, "parent") == "<<answered>>"
    assert await result(client, "family") == "<['<10>', '<20>']>"
    assert await result(client, "mapped") == "<[0, 1, 4, 9, 16, 25]>"
    assert await result(client, "looped") == "<212>"
    assert await result(client, "branches") == "<{'left': '<8>', 'right': 'early'}>"
    assert await result(client, "routed") == "<90>"
    assert await result(client, "stepping") == "<[14, 15]>"
    assert [await result(client, f"narrow-{number}") for number in (1, 2)] == ["<140>", "<150>"]
    with pytest.raises(RunFailed, match="the power is out"):
        await result(client, "undone")

    clock.advance(10 * MINUTE)
    assert await result(client, "retried") == "<120>"

    clock.advance(HOUR)
    assert await result(client, "timer") == "<3>"
    assert await result(client, "silence") == "<None>"
    assert await result(client, "passed") == "<None>"
    assert set(world.executed) == EXECUTED_NOW


async def test_obey_operators(client, worker, clock):
    assert await result(client, "done") == "<yes>"
    clock.advance(HOUR)
    for id in ("paused", "held"):
        await client.runs.resume(id, by="ann")
    for id in ("refused", "stopped"):
        await client.runs.retry(id, by="ann")

    assert await result(client, "held") == "<early>"
    assert await result(client, "paused") == "<17>"
    assert await result(client, "refused") == "<110>"
    clock.advance(HOUR)
    assert await result(client, "stopped") == "<18>"
    forked = await client.runs.handle("done").fork(after="answer", patch={"answer": "no"})
    assert await soon(forked.result()) == "<no>"


class TestAVersionThatIsGone:
    """Routes by a key have it in their definition today, so the version of then is another."""

    async def test_is_reported_by_explain(self, client, worker, clock):
        clock.advance(HOUR)
        # Once its delay is over, and the worker has been seen since.
        await until(lambda: self.is_told(client))
        [stranded] = await client.flows.unserved([*runs.FLOWS, runs.by_key])
        assert [run.id for run in stranded.runs] == ["by_key"]
        assert stranded.nearest == runs.by_key.version

    async def test_is_left_by_migrating(self, client, store, clock):
        await client.runs.migrate("by_key", to=runs.by_key, by="ann")
        clock.advance(HOUR)
        running = await Running(Worker(store, flows=[runs.by_key], poll="20ms")).start()
        assert await result(client, "by_key") == "<{'kind': 'small', 'number': 3}>"
        await running.stop()

    async def is_told(self, client: AsyncClient) -> bool:
        explanation = await client.runs.explain("by_key")
        found = {finding.about: finding.code for finding in explanation.findings}
        return found == {"size": "explain.no_version"}
