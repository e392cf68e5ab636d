"""The runs that a worker keeps: read once, caught up with when others wrote, and bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from perdure.engine import runs as module
from perdure.engine.cached_run import CachedRun
from perdure.engine.plan import PlanContext, start_run
from perdure.engine.runs import Graphs, RunCache, RunKey, Runs
from perdure.errors import RunNotFound
from perdure.model.ids import RunId
from perdure.model.payload import PlainCodec
from perdure.model.trigger import CancelRun, PauseRun, SendSignal
from perdure.store.memory.store import MemoryStore
from tests.engine.graphs import chain, task

GRAPH = chain(task("a"), task("b"))
FIRST: RunKey = ("default", RunId("first"))
SECOND: RunKey = ("default", RunId("second"))


@pytest.fixture
async def runs() -> AsyncIterator[Runs]:
    store = MemoryStore("memory://")
    await store.open()
    runs = Runs(store, Graphs([GRAPH]), PlainCodec())
    await runs.graphs.save(store, "default", [GRAPH])
    context = PlanContext("default", runs.graphs.known, runs.codec)
    for _, id in (FIRST, SECOND):
        await store.runs.submit(start_run(context, id, GRAPH, b'"input"', aging_ms=0))
    yield runs
    await store.close()


async def now(runs: Runs) -> datetime:
    return await runs.store.now()


async def cached(cache: RunCache, key: RunKey, newest_job: datetime) -> CachedRun:
    run = (await cache.current({key: newest_job}))[key]
    assert isinstance(run, CachedRun)
    return run


async def test_a_run_is_read_once(runs):
    cache, started = RunCache(runs), await now(runs) - timedelta(seconds=1)

    run = await cached(cache, FIRST, started)

    assert await cached(cache, FIRST, started) is run


async def test_a_newer_job_says_that_others_wrote(runs):
    cache, started = RunCache(runs), await now(runs) - timedelta(seconds=1)
    run = await cached(cache, FIRST, started)
    await runs.apply(*FIRST, SendSignal(name="go", payload=b"1"))
    assert (await cached(cache, FIRST, started)).state.number == 1

    caught_up = await cached(cache, FIRST, await now(runs) + timedelta(seconds=1))

    assert caught_up is run
    assert run.state.number == 2


async def test_a_run_that_is_gone_comes_as_its_error(runs):
    gone = ("default", RunId("gone"))

    found = await RunCache(runs).current({FIRST: await now(runs), gone: await now(runs)})

    assert isinstance(found[FIRST], CachedRun)
    assert isinstance(found[gone], RunNotFound)


async def test_what_is_read_into_a_run_is_counted_with_it(runs):
    cache = RunCache(runs)
    run = await cached(cache, FIRST, await now(runs))
    run.values.put(99, b"x" * 1_000)
    pause = await runs.plan(run, lambda plan: plan.apply(PauseRun()))
    cache.committed(pause, None)
    assert cache.size_bytes == run.values.size_bytes > 1_000
    run.values.put(98, b"x" * 1_000)

    cancel = await runs.plan(run, lambda plan: plan.apply(CancelRun()))
    cache.committed(cancel, None)

    assert cache.size_bytes == 0  # it ended, and was forgotten


async def test_the_first_are_forgotten_when_there_are_too_many(runs, monkeypatch):
    monkeypatch.setattr(module, "CACHED_RUNS_MAX", 1)
    cache, started = RunCache(runs), await now(runs) - timedelta(seconds=1)

    found = await cache.current({FIRST: started, SECOND: started})

    assert await cached(cache, SECOND, started) is found[SECOND]
    assert await cached(cache, FIRST, started) is not found[FIRST]
