"""Jobs in every condition, made by the code of before there were runs, and then killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable

from perdure import AsyncClient, AsyncJobQueue, Worker
from perdure.clock import ManualClock
from perdure.store.opening import store_at
from tests.upgrade import jobs
from tests.upgrade.world import world


async def make(url: str) -> None:
    subprocess.run([sys.executable, "-m", __spec__.name, url, "and work"], check=True)
    store = store_at(url, clock=ManualClock())
    await store.open()
    client = AsyncClient(store, tasks=jobs.TASKS)
    await left_in_the_queue(client, AsyncClient(store, namespace="elsewhere"))
    await held_by_hand(client, AsyncJobQueue(store))
    await store.close()


async def work(url: str) -> None:
    """As a worker that is killed: what it holds stays held."""
    world.is_then = True
    store = store_at(url, clock=ManualClock())
    await store.open()
    client = AsyncClient(store, tasks=jobs.TASKS)
    worker = Worker(store, tasks=jobs.TASKS, queues=["default"], concurrency=50, poll="50ms")
    serving = asyncio.create_task(worker.serve())
    await left_by_a_worker(client)
    await until(lambda: is_idle(client))
    assert not serving.done()
    os._exit(0)


async def held_by_hand(client: AsyncClient, queue: AsyncJobQueue) -> None:
    """Released, and aborted while it is held."""
    for group in ("released", "aborting"):
        handle = await client.enqueue(jobs.by_hand.options(group=group), 1)
        job = await queue.dequeue("hand", queues=["by_hand"], lease="30s")
        assert job is not None
        if group == "released":
            await queue.release(job)
        else:
            await handle.cancel()
    await client.enqueue(jobs.by_hand.options(group="held"), 2)
    assert await queue.dequeue("hand", queues=["by_hand"], lease="30s")


async def left_by_a_worker(client: AsyncClient) -> None:
    await client.enqueue(jobs.send.options(group="done"), "done")
    await client.enqueue(jobs.stalled.options(group="active"), 1)
    await client.enqueue(jobs.failing.options(group="failed"), 2)
    await client.enqueue(jobs.hopeless.options(group="dead"), 3)
    await client.enqueue(jobs.patient.options(group="retried"), 4)
    for number in (5, 6, 7):
        await client.enqueue(jobs.rated.options(group=f"rated {number}"), "ann", number)
    for number in (8, 9):
        await client.enqueue(jobs.narrow.options(group=f"narrow {number}"), number)


async def left_in_the_queue(client: AsyncClient, elsewhere: AsyncClient) -> None:
    await client.queues.pause("closed", by="ann")
    await client.enqueue(jobs.send.options(group="waiting"), "waiting")
    await client.enqueue(jobs.send.options(group="urgent", priority=1), "urgent")
    await client.enqueue(jobs.send.options(group="large"), "x" * 3000)
    await client.enqueue(
        jobs.send.options(group="fingerprint", fingerprint="only one"), "fingerprint"
    )
    await client.enqueue(jobs.send.options(group="later", delay="1h"), "later")
    await client.enqueue(jobs.closed.options(group="expiring", deadline="10m"), 10)
    await client.enqueue(jobs.closed.options(group="closed"), 11)
    disabled = await client.enqueue(jobs.send.options(group="disabled"), "disabled")
    await client.jobs.disable(disabled.id)
    cancelled = await client.enqueue(jobs.send.options(group="cancelled"), "cancelled")
    await cancelled.cancel()
    await elsewhere.enqueue(jobs.send.options(group="elsewhere"), "elsewhere")


async def is_idle(client: AsyncClient) -> bool:
    """Whatever the worker can do is done."""
    wanted = {"completed": 3, "active": 2, "failed": 1, "dead": 1, "waiting": 2, "scheduled": 1}
    return wanted == {status: await client.jobs.count(status=status) for status in wanted}


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await is_so():  # noqa: ASYNC110 (nobody would set an event)
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(make(sys.argv[1]) if len(sys.argv) == 2 else work(sys.argv[1]))
