"""Runs in every condition, made by the code that first had runs, and then killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from perdure import AsyncClient, Worker
from perdure.clock import ManualClock
from perdure.store.opening import store_at
from tests.upgrade import runs
from tests.upgrade.making.jobs import until
from tests.upgrade.world import world

SUBMITTED = {
    "chain": 1,
    "timer": 2,
    "asking": 3,
    "silence": 4,
    "parent": 5,
    "family": 2,
    "mapped": 6,
    "looped": 0,
    "branches": 7,
    "routed": 8,
    "undone": 9,
    "refused": 10,
    "passed": 11,
    "retried": 12,
    "stepping": 13,
}
HELD = 11
"""Bodies that stall: two items of the map, two children of the family, and one of seven runs."""
RESTING = {
    "chain": "running",
    "timer": "waiting",
    "asking": "waiting",
    "silence": "waiting",
    "parent": "waiting",
    "family": "waiting",
    "mapped": "running",
    "looped": "running",
    "branches": "running",
    "routed": "running",
    "undone": "compensating",
    "refused": "failed",
    "passed": "waiting",
    "retried": "running",
    "stepping": "running",
    "by_key": "waiting",
    "done": "completed",
    "narrow-1": "running",
    "narrow-2": "running",
    "held": "waiting",
    "paused": "waiting",
    "stopped": "waiting",
}


async def make(url: str) -> None:
    subprocess.run([sys.executable, "-m", __spec__.name, url, "and work"], check=True)
    store = store_at(url, clock=ManualClock())
    await store.open()
    client = AsyncClient(store, flows=[*runs.FLOWS, runs.by_key])
    await client.submit("chain", 20, id="queued")
    await client.runs.pause("paused", reason="lunch", by="ann")
    await client.runs.pause("held", by="ann")
    await client.runs.signal("held", "answer", "early", by="ben")
    await client.runs.cancel("stopped", reason="no need", by="ann")
    await store.close()


async def work(url: str) -> None:
    """As a worker that is killed: what it holds stays held."""
    world.is_then = True
    store = store_at(url, clock=ManualClock())
    await store.open()
    client = AsyncClient(store, flows=[*runs.FLOWS, runs.by_key])
    flows = [*runs.FLOWS, runs.by_key]
    serving = asyncio.create_task(Worker(store, flows=flows, concurrency=90, poll="50ms").serve())
    for name, value in SUBMITTED.items():
        await client.submit(name, value, id=name)
    await client.submit("by_key", 3, id="by_key")
    await client.submit("limited", 14, id="narrow-1")
    await client.submit("limited", 15, id="narrow-2")
    await client.submit("timer", 16, id="paused")
    await client.submit("timer", 17, id="stopped")
    for id in ("done", "held"):
        await client.submit("asking", 18, id=id)
    await client.runs.signal("done", "answer", "yes")
    await client.runs.signal("branches", "go", "early", by="ben")
    await until(lambda: is_at_rest(client))
    assert not serving.done()
    os._exit(0)


async def is_at_rest(client: AsyncClient) -> bool:
    statuses = {id: (await client.runs.get(id)).status for id in RESTING}
    has_looped = f"again {runs.LOOPS_THEN}" in world.executed
    return has_looped and statuses == RESTING and await client.jobs.count(status="active") == HELD


if __name__ == "__main__":
    asyncio.run(make(sys.argv[1]) if len(sys.argv) == 2 else work(sys.argv[1]))
