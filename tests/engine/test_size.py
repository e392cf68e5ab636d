"""A step costs the same at the end of a large run as at its beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from time import thread_time

import pytest

from perdure.model.event import CompensationStarted
from tests.engine.graphs import chain, graph, loop, mapped, signal, task
from tests.engine.played import Played

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


def test_a_chain():
    ids = [f"n{number}" for number in range(1000)]
    run = Played(chain(*map(task, ids)), checks=False)
    check_flat(finishing(run, ids))

    assert run.result == 1


def test_fan_out_and_join():
    ids = [f"n{number}" for number in range(LARGE)]
    edges = ", ".join(f"start {id}, {id} join" for id in ids)
    nodes = [task("start"), *map(task, ids), task("join", gathers=True)]
    run = Played(graph(*nodes, edges=edges), checks=False)
    run.finish("start")
    assert len(run.live) == LARGE
    check_flat(finishing(run, ids))

    assert run.inputs["join"] == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("concurrency", [None, 100])
def test_a_map(concurrency):
    items = list(range(LARGE))
    run = Played(chain(mapped("m", concurrency=concurrency)), items, checks=False)
    check_flat(finishing(run, [f"m[{item}]" for item in items]))

    assert run.result == [1] * LARGE


def test_a_loop():
    run = Played(chain(loop("l", iterations_max=LARGE)), 0, checks=False)
    keys = [f"l#{iteration}" for iteration in range(1, 3000)]
    check_flat([lambda key=key: run.finish(key, 1, is_done=False) for key in keys])  # type: ignore[misc]

    assert run.state.number == len(keys) + 1


def test_signals_beside_many_nodes():
    ids = [f"n{number}" for number in range(LARGE)]
    waits = [signal(f"s{number}") for number in range(1000)]
    edges = ", ".join(f"s{number} s{number + 1}" for number in range(len(waits) - 1))
    run = Played(graph(*map(task, ids), *waits, edges=edges), checks=False)
    check_flat([lambda: run.signal("go", 1)] * len(waits))

    assert sorted(run.live) == sorted(ids)


def test_undoing():
    ids = [f"n{number}" for number in range(2000)]
    run = Played(chain(*(task(id, undo=True) for id in ids), task("end")), checks=False)
    for id in ids:
        run.finish(id)
    run.fail("end")
    assert isinstance(run.log.events[-1], CompensationStarted)
    check_flat(finishing(run, [f"undo:{id}" for id in reversed(ids)]))

    assert run.status == "failed"
