"""Stores are verified while workers continue, however their runs fall on pages."""

from __future__ import annotations

import asyncio

from perdure import CONTEXT, AsyncClient, AsyncContext, Concurrency, Flow, Retry, task
from perdure.store.opening import store_at
from perdure.verify import verifier, verify_store
from tests.flows.catalogue import FLOWS
from tests.support.stores import opened
from tests.worker.conftest import start_worker

__all__ = ["start_worker"]

RUNS, JOBS = 60, 30
asking = Flow("asking").wait_for_signal("go").build()


@task
async def add_one(number: int) -> int:
    return number + 1


chain = Flow("chain").then(add_one, name="a").then(add_one, name="b").then(add_one, name="c")
chain_flow = chain.build()


@task(retries=Retry(2, first="5ms"), limits=[Concurrency(3, key="printer")])
async def print_it(number: int, ctx: AsyncContext = CONTEXT) -> int:
    if ctx.attempt == 1:
        raise ValueError("out of paper")
    return number


class TestLiveStore:
    async def test_finds_nothing_while_workers_continue(self, store_url, start_worker):
        await asyncio.gather(
            *(start_worker(print_it, flows=[chain_flow, *FLOWS]) for _ in range(2))
        )
        async with opened(store_at(store_url)) as store:
            findings = []
            async with AsyncClient(store_url) as client:
                runs = [await client.submit(chain_flow, 1, id=f"r{n}") for n in range(RUNS)]
                jobs = [await client.enqueue(print_it, n) for n in range(JOBS)]
                await client.schedules.save("often", print_it, every="1s", args=[1])
                results = [*(run.result(40) for run in runs), *(job.result(40) for job in jobs)]
                ending = asyncio.gather(*results)
                while not ending.done():
                    findings += await verify_store(store)
                await ending
            findings += await verify_store(store)

        assert findings == []


class TestPages:
    async def test_sees_every_run_once_however_they_fall_on_pages(self, store_url, monkeypatch):
        monkeypatch.setattr(verifier, "RUNS", 2)
        monkeypatch.setattr(verifier, "WAITS", 2)
        async with opened(store_at(store_url)) as store:
            for namespace in ("one", "two", "three"):
                async with AsyncClient(store, namespace=namespace) as client:
                    for name in ("a", "b", "c"):
                        await client.submit(asking, 1, id=name)

            runs = [
                (r.namespace, r.id) async for page in verifier.pages_of_runs(store) for r in page
            ]
            waits = [
                (w.namespace, w.run) async for page in verifier.pages_of_waits(store) for w in page
            ]

            expected = {(n, id) for n in ("one", "two", "three") for id in ("a", "b", "c")}
            assert sorted(runs) == sorted(expected)
            assert sorted(waits) == sorted(expected)
