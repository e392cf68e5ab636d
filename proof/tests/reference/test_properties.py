"""What holds for every flow, every outcome and every order."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from perdure.engine import snapshot
from perdure.engine.migration import differences
from perdure.errors import PerdureError
from perdure.model.event import ItemCompleted, NodeCompleted
from perdure.model.graph import Definition, Edge, Graph, ports_of
from perdure.model.ids import Key
from perdure.model.run import NodeStatus, RunStatus
from perdure.model.trigger import CancelRun, PauseRun, ResumeRun, RetryRun, SendSignal, Trigger
from proof.reference.drawing import World, graphs, worlds
from proof.reference.driving import Driver, check_snapshots, ends_of, nonsense, result_of
from proof.reference.interpreter import interpret
from tests.rules.graphs import task
from tests.rules.played import Played

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
    def test_gives_what_the_reference_gives(
        self, graph: Graph, world: World, input: object, seeds: tuple[int, int, int]
    ) -> None:
        for seed in seeds:
            run = Driver(played(graph, input), world, seed).finish()

            check_end(run, world, input)
            assert len(set(run.started)) == len(run.started)  # nothing twice
            assert (run.live, run.state.jobs) == ({}, 0)

    @some
    @given(graphs(), worlds(), INPUTS, SEEDS)
    def test_pauses_change_nothing(
        self, graph: Graph, world: World, input: object, seed: int
    ) -> None:
        driver = Driver(played(graph, input), world, seed)
        driver.pauses = 0.3
        check_end(driver.finish(), world, input)


class TestTheLog:
    @some
    @given(graphs(has_undo=True), worlds(), INPUTS, SEEDS)
    def test_folds_to_the_state_from_nothing_and_every_snapshot(
        self, graph: Graph, world: World, input: object, seed: int
    ) -> None:
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
    def test_decides_nothing_in_any_state(
        self, graph: Graph, world: World, input: object, seed: int
    ) -> None:
        driver = Driver(played(graph, input), world, seed)
        while True:
            for trigger in nonsense(driver.run):
                assert driver.decided(trigger) == ([], []), trigger
            if driver.run.state.is_ended:
                break
            driver.step()

    @some
    @given(graphs(has_undo=True), worlds(failures=30), INPUTS, SEEDS, st.data())
    def test_whatever_is_asked_is_done_or_refused(
        self, graph: Graph, world: World, input: object, seed: int, data: st.DataObject
    ) -> None:
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
    def test_ends_as_if_nothing_had_failed(
        self, graph: Graph, world: World, input: object, seed: int
    ) -> None:
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
    def test_from_any_event_ends_the_same(
        self, graph: Graph, world: World, input: object, seed: int, data: st.DataObject
    ) -> None:
        run = Driver(played(graph, input), world, seed).finish()
        after = data.draw(st.integers(1, run.state.number))
        other = run.fork(after)
        Driver(other, world, seed + 1).finish()
        check_end(other, world, input)


class TestCompensation:
    @some
    @given(graphs(has_undo=True), worlds(failures=30), INPUTS, SEEDS)
    def test_undoes_all_that_was_completed_last_first(
        self, graph: Graph, world: World, input: object, seed: int
    ) -> None:
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
    def test_continues_in_a_version_with_more_nodes(
        self, graph: Graph, world: World, input: object, seed: int, is_paused: bool
    ) -> None:
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
