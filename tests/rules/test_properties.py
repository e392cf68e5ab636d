"""What holds for every flow, every outcome and every order; and what a step costs."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime, timedelta
from statistics import median
from time import thread_time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from perdure.engine import runs as module
from perdure.engine import snapshot
from perdure.engine.cached_run import VALUES_MAX_BYTES, CachedRun, RunValues
from perdure.engine.migration import differences
from perdure.engine.plan import Plan, PlanContext, start_run
from perdure.engine.runs import Graphs, RunCache, RunEngine, RunKey
from perdure.errors import PerdureError, RunNotFound, ValueMissing
from perdure.expr.condition import holds, parse_condition
from perdure.forms.schema import faults_of
from perdure.model.event import CompensationStarted, ItemCompleted, NodeCompleted
from perdure.model.graph import Definition, Edge, Graph, ports_of
from perdure.model.ids import Key, RunId
from perdure.model.payload import PlainCodec
from perdure.model.run import NodeStatus, RunStatus
from perdure.model.trigger import CancelRun, PauseRun, ResumeRun, RetryRun, SendSignal, Trigger
from perdure.store.memory.store import MemoryStore
from tests.rules.drawing import World, graphs, worlds
from tests.rules.driving import Driver, check_snapshots, ends_of, nonsense, result_of
from tests.rules.graphs import chain, graph, loop, mapped, signal, task
from tests.rules.played import Played
from tests.rules.reference import interpret

# What holds for every flow, every outcome and every order of arrival.


SEEDS = st.integers(0, 2**31)
INPUTS = st.sampled_from([0, [], [1, 2], [5, 6, 7], {"lines": [3, 4]}, list(range(6)), None])
UNCHECKED = [HealthCheck.too_slow, HealthCheck.filter_too_much]
many = settings(max_examples=60, suppress_health_check=UNCHECKED)
some = settings(max_examples=50, suppress_health_check=UNCHECKED)


def played(graph: Graph, input: object) -> Played:
    """With windows that are smaller than the lists, for maps without a concurrency."""
    return Played(graph, input, map_window=2)


def check_end(run: Played, world: World, input: object) -> None:
    """It ended as the reference says."""
    expected = interpret(run.graph, input, world)
    assert run.status == expected.status
    nodes, outputs = ends_of(run)
    if run.graph.on_failure == "finish" or expected.status == "completed":
        assert nodes == expected.nodes
        assert outputs == expected.outputs
    else:  # it was broken off somewhere
        assert outputs.items() <= expected.outputs.items()
    if expected.status == "completed":
        assert result_of(run) == expected.value


class TestEveryOrder:
    @many
    @given(graphs(), worlds(), INPUTS, st.tuples(SEEDS, SEEDS, SEEDS))
    def test_gives_what_the_reference_gives(self, graph, world, input, seeds):
        for seed in seeds:
            run = Driver(played(graph, input), world, seed).finish()

            check_end(run, world, input)
            assert len(set(run.started)) == len(run.started)  # nothing twice
            assert (run.live, run.state.jobs) == ({}, 0)

    @some
    @given(graphs(), worlds(), INPUTS, SEEDS)
    def test_pauses_change_nothing(self, graph, world, input, seed):
        driver = Driver(played(graph, input), world, seed)
        driver.pauses = 0.3
        check_end(driver.finish(), world, input)


class TestTheLog:
    @some
    @given(graphs(has_undo=True), worlds(), INPUTS, SEEDS)
    def test_folds_to_the_state_from_nothing_and_every_snapshot(self, graph, world, input, seed):
        driver = Driver(played(graph, input), world, seed)
        snapshots = [snapshot.take(driver.run.state)]
        while not driver.run.state.is_ended:
            driver.step()
            snapshots.append(snapshot.take(driver.run.state))
        assert driver.run.log.state() == driver.run.state
        check_snapshots(driver.run, snapshots)


class TestNonsense:
    @some
    @given(graphs(has_undo=True), worlds(), INPUTS, SEEDS)
    def test_decides_nothing_in_any_state(self, graph, world, input, seed):
        driver = Driver(played(graph, input), world, seed)
        while True:
            for trigger in nonsense(driver.run):
                assert driver.decided(trigger) == ([], []), trigger
            if driver.run.state.is_ended:
                break
            driver.step()

    @some
    @given(graphs(has_undo=True), worlds(failures=30), INPUTS, SEEDS, st.data())
    def test_whatever_is_asked_is_done_or_refused(self, graph, world, input, seed, data):
        run = played(graph, input)
        driver = Driver(run, world, seed)
        asks: list[Trigger] = [
            PauseRun(),
            ResumeRun(),
            CancelRun(),
            CancelRun(compensates=True),
            RetryRun(),
            SendSignal(name="s", payload=b"1"),
            SendSignal(name="unknown", payload=b"1"),
        ]
        for asked in data.draw(st.lists(st.sampled_from([None, None, *asks]), max_size=30)):
            if asked is None:
                if not run.state.is_ended and not run.state.is_paused and not driver.is_stuck:
                    driver.step()
            else:
                number = run.state.number
                try:
                    run.happen(asked)
                except PerdureError:
                    assert run.state.number == number
        assert run.log.state() == run.state


class TestRetry:
    @some
    @given(graphs(), worlds(failures=30), INPUTS, SEEDS)
    def test_ends_as_if_nothing_had_failed(self, graph, world, input, seed):
        driver = Driver(played(graph, input), world, seed)
        run = driver.finish()
        assume(run.status == RunStatus.FAILED)
        kept = {id for id, status in run.nodes.items() if status is NodeStatus.COMPLETED}
        started = list(run.started)
        world.is_mended = True

        run.retry()
        driver.finish()

        check_end(run, world, input)
        again = run.started[len(started) :]
        assert not any(key.split("[")[0].split("#")[0] in kept for key in again)


class TestFork:
    @some
    @given(graphs(), worlds(), INPUTS, SEEDS, st.data())
    def test_from_any_event_ends_the_same(self, graph, world, input, seed, data):
        run = Driver(played(graph, input), world, seed).finish()
        after = data.draw(st.integers(1, run.state.number))
        other = run.fork(after)
        Driver(other, world, seed + 1).finish()
        check_end(other, world, input)


class TestCompensation:
    @some
    @given(graphs(has_undo=True), worlds(failures=30), INPUTS, SEEDS)
    def test_undoes_all_that_was_completed_last_first(self, graph, world, input, seed):
        run = Driver(played(graph, input), world, seed).finish()

        undone = [key.removeprefix("undo:") for key in run.started if key.startswith("undo:")]
        ended = {
            getattr(event, "key", "") or getattr(event, "node", ""): number
            for number, event in enumerate(run.log.events, start=1)
            if isinstance(event, NodeCompleted | ItemCompleted)
        }
        ends = [ended[key] for key in undone]
        assert ends == sorted(ends, reverse=True)
        completed = {
            key
            for key in ended
            for id in [Key.parse(key).node]
            if getattr(graph.nodes[id], "undo", None) is not None
            if key == id or id not in ended  # the items of a completed map are undone together
        }
        assert set(undone) == (completed if run.status == RunStatus.FAILED else set())


class TestMigration:
    @some
    @given(graphs(), worlds(failures=0), INPUTS, SEEDS, st.booleans())
    def test_continues_in_a_version_with_more_nodes(self, graph, world, input, seed, is_paused):
        chance = random.Random(seed)
        run = played(graph, input)
        driver = Driver(run, world, seed)
        for _ in range(chance.randrange(5)):
            if not run.state.is_ended:
                driver.step()
        assume(not run.state.is_ended)
        new = extended(graph, chance)
        assert differences(graph, new, run.state) == ()

        if is_paused:
            run.pause()
        run.migrate(new)
        if is_paused:
            run.unpause()
        driver.finish()

        check_end(run, world, input)
        assert len(set(run.started)) == len(run.started)


def extended(graph: Graph, chance: random.Random) -> Graph:
    """The same with two more nodes, behind whatever is there or behind nothing."""
    nodes, edges = graph.definition.nodes, graph.definition.edges
    for id in ("more1", "more2"):
        sources = chance.sample(nodes, min(len(nodes), chance.randrange(3)))
        edges += tuple(
            Edge(source=node.id, target=id, port=chance.choice(ports_of(node))) for node in sources
        )
        nodes = (*nodes, task(id, gathers=True))
    definition = graph.definition
    return Graph(
        Definition(
            name=definition.name,
            nodes=nodes,
            edges=edges,
            gathers=definition.gathers,
            on_failure=definition.on_failure,
        )
    )


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

    def test_signals_beside_many_nodes(self):
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
    await runs.plan(await runs.load(*FIRST), lambda plan: decide(plan, 100_000))
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

    def test_lets_go_of_the_oldest_when_there_are_too_many(self):
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
