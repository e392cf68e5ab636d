"""What a step costs in large runs, and the runs and values that a worker keeps."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime, timedelta
from statistics import median
from time import thread_time

import pytest

from perdure.engine import runs as module
from perdure.engine.cached_run import VALUES_MAX_BYTES, CachedRun, RunValues
from perdure.engine.plan import Plan, PlanContext, start_run
from perdure.engine.runs import Graphs, RunCache, RunEngine, RunKey
from perdure.errors import RunNotFound, ValueMissing
from perdure.expr.condition import holds, parse_condition
from perdure.forms.schema import faults_of
from perdure.model.event import CompensationStarted
from perdure.model.ids import RunId
from perdure.model.payload import PlainCodec
from perdure.model.trigger import CancelRun, PauseRun, SendSignal
from perdure.store.memory.store import MemoryStore
from tests.rules.graphs import chain, graph, loop, mapped, signal, task
from tests.rules.played import Played

LARGE = 10_000
GROWTH_MAX = 4
"""How much dearer late steps may be; a cost that grew with the run would be hundreds of times."""


def check_flat(steps: Iterable[Callable[[], object]]) -> None:
    times = []
    for step in steps:
        started = thread_time()
        step()
        times.append(thread_time() - started)
    count = len(times) // 10
    early, late = median(times[:count]), median(times[-count:])
    assert late < GROWTH_MAX * early, (early, late)


def finishing(run: Played, keys: Iterable[str]) -> Iterable[Callable[[], object]]:
    return [lambda key=key: run.finish(key, 1) for key in keys]  # type: ignore[misc]


class TestSize:
    """A step costs the same at the end of a large run as at its beginning."""

    def test_a_chain(self):
        ids = [f"n{number}" for number in range(1000)]
        run = Played(chain(*map(task, ids)), checks=False)
        check_flat(finishing(run, ids))
        assert run.result == 1

    def test_fan_out_and_join(self):
        ids = [f"n{number}" for number in range(LARGE)]
        edges = ", ".join(f"start {id}, {id} join" for id in ids)
        nodes = [task("start"), *map(task, ids), task("join", gathers=True)]
        run = Played(graph(*nodes, edges=edges), checks=False)
        run.finish("start")
        assert len(run.live) == LARGE
        check_flat(finishing(run, ids))
        assert run.inputs["join"] == dict.fromkeys(ids, 1)

    @pytest.mark.parametrize("concurrency", [None, 100])
    def test_a_map(self, concurrency):
        items = list(range(LARGE))
        run = Played(chain(mapped("m", concurrency=concurrency)), items, checks=False)
        check_flat(finishing(run, [f"m[{item}]" for item in items]))
        assert run.result == [1] * LARGE

    def test_a_loop(self):
        run = Played(chain(loop("l", iterations_max=LARGE)), 0, checks=False)
        keys = [f"l#{iteration}" for iteration in range(1, 3000)]
        check_flat([lambda key=key: run.finish(key, 1, is_done=False) for key in keys])  # type: ignore[misc]
        assert run.state.number == len(keys) + 1

    def test_signals_and_many_nodes(self):
        ids = [f"n{number}" for number in range(LARGE)]
        waits = [signal(f"s{number}") for number in range(1000)]
        edges = ", ".join(f"s{number} s{number + 1}" for number in range(len(waits) - 1))
        run = Played(graph(*map(task, ids), *waits, edges=edges), checks=False)
        check_flat([lambda: run.signal("go", 1)] * len(waits))
        assert sorted(run.live) == sorted(ids)

    def test_undoing(self):
        ids = [f"n{number}" for number in range(2000)]
        run = Played(chain(*(task(id, undo=True) for id in ids), task("end")), checks=False)
        for id in ids:
            run.finish(id)
        run.fail("end")
        assert isinstance(run.log.events[-1], CompensationStarted)
        check_flat(finishing(run, [f"undo:{id}" for id in reversed(ids)]))
        assert run.status == "failed"


GRAPH = chain(task("a"), task("b"))
FIRST: RunKey = ("default", RunId("first"))
SECOND: RunKey = ("default", RunId("second"))


@pytest.fixture
async def runs() -> AsyncIterator[RunEngine]:
    store = MemoryStore("memory://")
    await store.open()
    runs = RunEngine(store, Graphs([GRAPH]), PlainCodec())
    await runs.graphs.save(store, "default", [GRAPH])
    context = PlanContext("default", runs.graphs.known, runs.codec)
    for _, id in (FIRST, SECOND):
        await store.runs.submit(start_run(context, id, GRAPH, b'"input"', aging_ms=0))
    yield runs
    await store.close()


async def now(runs: RunEngine) -> datetime:
    return await runs.store.now()


async def cached(cache: RunCache, key: RunKey, newest_job: datetime) -> CachedRun:
    run = (await cache.current({key: newest_job}))[key]
    assert isinstance(run, CachedRun)
    return run


LONG = parse_condition({"property": "list", "op": "contains", "value": 7})
FORM = {"properties": {"list": {"items": {"const": 1}}}}


@pytest.mark.parametrize(
    "evaluate", [lambda data: holds(LONG, data), lambda data: faults_of(FORM, data)]
)
async def test_a_long_decision_is_made_in_a_thread(runs, evaluate):
    """Finding 4: a costly condition, or form of an approval, stopped the event loop."""
    threads: list[threading.Thread] = []

    def decide(plan: Plan, size: int) -> None:
        threads.append(threading.current_thread())
        assert not evaluate({"list": [1] * size})

    await runs.plan(await runs.load(*FIRST), lambda plan: decide(plan, 10))
    assert threads == [threading.main_thread()]
    await runs.plan(await runs.load(*FIRST), lambda plan: decide(plan, 50_000))
    assert threads[1] is threading.main_thread()
    assert threads[2] is not threading.main_thread()


class TestRunCache:
    """The runs that a worker keeps: read once, caught up with when others wrote, and bounded."""

    async def test_a_run_is_read_once(self, runs):
        cache, started = RunCache(runs), await now(runs) - timedelta(seconds=1)
        run = await cached(cache, FIRST, started)
        assert await cached(cache, FIRST, started) is run

    async def test_a_newer_job_says_that_others_wrote(self, runs):
        cache, started = RunCache(runs), await now(runs) - timedelta(seconds=1)
        run = await cached(cache, FIRST, started)
        await runs.apply(*FIRST, SendSignal(name="go", payload=b"1"))
        assert (await cached(cache, FIRST, started)).state.number == 1
        caught_up = await cached(cache, FIRST, await now(runs) + timedelta(seconds=1))
        assert caught_up is run
        assert run.state.number == 2

    async def test_a_run_that_is_gone_comes_as_its_error(self, runs):
        gone = ("default", RunId("gone"))
        found = await RunCache(runs).current({FIRST: await now(runs), gone: await now(runs)})
        assert isinstance(found[FIRST], CachedRun)
        assert isinstance(found[gone], RunNotFound)

    async def test_what_is_read_into_a_run_is_counted_with_it(self, runs):
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

    async def test_the_first_are_forgotten_when_there_are_too_many(self, runs, monkeypatch):
        monkeypatch.setattr(module, "CACHED_RUNS_MAX", 1)
        cache, started = RunCache(runs), await now(runs) - timedelta(seconds=1)
        found = await cache.current({FIRST: started, SECOND: started})
        assert await cached(cache, SECOND, started) is found[SECOND]
        assert await cached(cache, FIRST, started) is not found[FIRST]


MEGABYTE = b"x" * 1_000_000


class TestCachedValues:
    """Values at hand: bounded, and read again where they are needed."""

    def test_evicts_the_oldest_when_there_are_too_many(self):
        values = RunValues(PlainCodec())

        for number in range(1, 101):
            values.put(number, MEGABYTE)
            values.trim()
            assert values.size_bytes <= VALUES_MAX_BYTES

        assert values.json(100) == MEGABYTE
        with pytest.raises(ValueMissing):
            values.json(1)
        assert values.missing([1, 100]) == [1]

    def test_keeps_everything_while_a_decision_is_made(self):
        values = RunValues(PlainCodec())
        for number in range(1, 101):
            values.put(number, MEGABYTE)
        assert values.missing(range(1, 101)) == []

    def test_counts_the_items_of_maps(self):
        values = RunValues(PlainCodec())
        values.put(1, b"1")
        values.lists["each"] = [MEGABYTE] * 50
        values.trim()
        assert values.lists == {}
        assert values.size_bytes <= VALUES_MAX_BYTES
