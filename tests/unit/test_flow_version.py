"""The version of a flow: the same for the same flow, told in whatever order, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Flow, task
from perdure.model.flow import BuiltFlow
from perdure.model.graph import Graph

BUILDS_A_FLOW = """
from perdure import Flow, task

def made(name):
    return task(name=name, tags={"gpu", "eu", "ssd", "arm"})(lambda value: value)

a, b, c, d, e = map(made, "abcde")
child = Flow("child").then(a).build()
flow = (
    Flow("orders")
    .then(a, retries=2, timeout="5s")
    .fork(x=b, y=[c, child])
    .join(d, tags={"one", "two", "three"})
    .route("kind", {"p": None, "q": Flow().delay("1s"), "r": Flow().delay("2s")}, keys={*"pqr"})
    .map(e, over="lines")
    .build()
)
print(flow.version, flow.mermaid())
"""


@task
def fetch(order: Any) -> Any:
    """Fetch an order."""


@task
def charge(order: Any) -> Any: ...


@task
def pack(order: Any) -> Any: ...


def base() -> Flow:
    return Flow("orders").then(fetch).fork(a=charge, b=pack)


def test_is_the_same_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", BUILDS_A_FLOW],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(printed) == 1
    assert "flowchart TD" in printed.pop()


SAME: list[tuple[Callable[[], Flow], Callable[[], Flow]]] = [
    (base, base),
    (base, lambda: Flow("orders").then(fetch).fork(b=pack, a=charge)),
    (base, lambda: Flow("orders").then(fetch).fork({"b": [pack], "a": Flow().then(charge)})),
    (
        lambda: Flow("o").then(fetch).then(charge),
        lambda: Flow("o").node("charge", charge, after="fetch").node("fetch", fetch),
    ),
    (
        lambda: Flow("o").then(fetch).fork(a=charge, pack=pack).join(fetch, name="j"),
        lambda: (
            Flow("o")
            .node("pack", pack, after="fetch")
            .node("j", fetch, after={"pack": "pack", "a": "charge"})
            .node("charge", charge, after="fetch")
            .node("fetch", fetch)
        ),
    ),
    (
        lambda: Flow("o").route("kind", {"a": charge, "b": pack}, default=fetch),
        lambda: Flow("o").route("kind", {"default": fetch, "b": pack, "a": charge}),
    ),
    (
        lambda: Flow("o").fork(a=Flow().delay("1s"), b=Flow().delay("2s")),
        lambda: Flow("o").fork(b=Flow().delay("2s"), a=Flow().delay("1s")),
    ),
    (
        lambda: Flow("o").then(fetch, tags=["x", "y"]),
        lambda: Flow("o").then(fetch, tags=["y", "x"]),
    ),
    (
        lambda: Flow("o").then(fetch, timeout="60s"),
        lambda: Flow("o").then(fetch, timeout="1m"),
    ),
]

DIFFERENT: list[Callable[[], Flow]] = [
    base,
    lambda: Flow("others").then(fetch).fork(a=charge, b=pack),
    lambda: Flow("orders", on_failure="finish").then(fetch).fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, name="get").fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, retries=1).fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, timeout=1).fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, queue="other").fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, on_error="continue").fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, undo=pack).fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch).then(charge).then(pack),
    lambda: Flow("orders").then(fetch).fork(a=charge, b=pack).join(fetch, name="j"),
    lambda: Flow("orders").then(fetch).fork(a=charge, c=pack).join(fetch, name="j"),
    lambda: Flow("orders").route("kind", {"a": fetch}),
    lambda: Flow("orders").route("sort", {"a": fetch}),
    lambda: Flow("orders").loop(fetch, until="done"),
    lambda: Flow("orders").loop(fetch, until="ended"),
    lambda: Flow("orders").loop(fetch, until="done", max_iterations=3),
    lambda: Flow("orders").map(fetch),
    lambda: Flow("orders").map(fetch, concurrency=3),
    lambda: Flow("orders").flow(child_of(fetch)),
    lambda: Flow("orders").flow(child_of(charge)),
]


def child_of(task: Any) -> BuiltFlow:
    return Flow("child").then(task, name="x").build()


@pytest.mark.parametrize("one,other", SAME)
def test_does_not_change_with_the_order_of_telling(
    one: Callable[[], Flow], other: Callable[[], Flow]
) -> None:
    assert one().build().graph.definition == other().build().graph.definition
    assert one().build().version == other().build().version


def test_changes_with_names_structure_and_policies() -> None:
    versions = [make().build().version for make in DIFFERENT]

    assert len(set(versions)) == len(DIFFERENT)


def test_does_not_change_with_descriptions() -> None:
    @task(name="fetch")
    def fetch_otherwise(order: Any) -> Any:
        """Described in other words."""

    assert Flow("o").then(fetch).build().version == Flow("o").then(fetch_otherwise).build().version


def test_comes_back_with_the_stored_definition() -> None:
    flow = base().build()

    assert Graph.parse(flow.graph.data).version == flow.version
