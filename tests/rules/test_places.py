"""Runs that wait for a place: what is queued, and what a retry or a fork of them starts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.model.ids import RUN_START, RUN_TIMEOUT
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.store.admission import starting
from tests.rules.graphs import chain, loop, mapped, task
from tests.rules.played import Played

PLACED = RunSettings(max_running=1, running_key="acme", delay_ms=5, timeout_ms=1000)


@pytest.mark.parametrize(
    "held, limits, started",
    [
        (0, [2, 2, 2], 2),
        (1, [2, 2], 1),
        (2, [2], 0),
        (3, [2, 9], 0),  # the second does not overtake the first
        (0, [1, 3, 3], 1 + 2),
        (0, [], 0),
    ],
)
def test_as_many_start_as_have_a_place_in_order(held: int, limits: list[int], started: int):
    queue = list(enumerate(limits))
    assert starting(held, queue) == list(range(started))


def started(run: Played) -> Played:
    run.due(RUN_START)
    return run


def of_a_map(settings: RunSettings) -> Played:
    run = begun(chain(task("a"), mapped("m"), task("end")), settings)
    run.finish("a", [1, 2, 3])
    run.finish("m[0]", 1)
    run.fail("m[1]")
    return run


def of_a_loop(settings: RunSettings) -> Played:
    run = begun(chain(task("a"), loop("l"), task("end")), settings)
    run.finish("a", 1)
    run.finish("l#1", 2)
    run.finish("check:l#1", False)
    run.fail("l#2")
    return run


def begun(graph: Any, settings: RunSettings) -> Played:
    run = Played(graph, settings=settings)
    if settings is PLACED:
        assert (run.status, run.live, run.started) == ("queued", {}, [])
        started(run)
    return run


def numbered_alike(run: Played) -> Any:
    """What is live, with what input, and how far its nodes are."""
    nodes = {id: replace(node, ref=0, end_number=0) for id, node in run.state.nodes.items()}
    return run.status, run.live, nodes, {key: run.inputs[key] for key in run.live}


class TestAQueuedRun:
    @pytest.mark.parametrize("scenario", [of_a_map, of_a_loop])
    def test_that_was_retried_restarts_when_it_has_a_place(self, scenario):
        run, plain = scenario(PLACED), scenario(NO_SETTINGS)

        decision = run.retry()
        plain.retry()

        assert (run.status, run.live, decision.is_started) == ("queued", {}, False)
        [wait] = decision.waits
        assert (wait.key, wait.delay, wait.due_at) == (RUN_START, None, None)
        decision = run.due(RUN_START)
        assert (decision.is_started, decision.close_waits) == (True, [RUN_START])
        assert RUN_TIMEOUT in [wait.key for wait in decision.waits]
        assert numbered_alike(run) == numbered_alike(plain)

    @pytest.mark.parametrize(
        "scenario, patch",
        [
            (of_a_map, {}),
            (of_a_map, {"a": [7, 8]}),
            (of_a_loop, {}),
            (of_a_loop, {"a": 5}),
            (of_a_loop, {"l#1": 9}),
        ],
    )
    def test_that_was_forked_starts_as_any_fork(self, scenario, patch):
        run, plain = scenario(PLACED), scenario(NO_SETTINGS)
        after = len(plain.log.events)

        fork = run.fork(len(run.log.events), patch)

        assert (fork.status, fork.live, fork.state.settings.delay_ms) == ("queued", {}, None)
        assert numbered_alike(started(fork)) == numbered_alike(plain.fork(after, patch))

    def test_stays_queued_while_it_is_paused_and_can_be_cancelled(self):
        run = Played(chain(task("a")), settings=PLACED)
        run.pause()
        assert not run.due(RUN_START).events
        run.unpause()
        assert run.status == "queued"
        run.cancel()
        assert run.status == "cancelled"
        run.retry()
        assert started(run).live.keys() == {"a"}
