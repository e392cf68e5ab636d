"""The version of a flow: the same for the same flow, told in whatever order, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Flow, task
from perdure.flows.built import BuiltFlow
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


@task
def tell(order: Any) -> Any: ...


@task
def takes_all(**fields: Any) -> Any: ...


def base() -> Flow:
    return Flow("orders").then(fetch).fork(a=charge, b=pack)


def test_is_the_same_in_every_process():
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
    (
        lambda: Flow("o").then(takes_all, inputs={"a": "input.a", "b": "input.b"}),
        lambda: Flow("o").then(takes_all, inputs={"b": "input.b", "a": {"from": "input.a"}}),
    ),
    (
        lambda: Flow("o").then(takes_all, config={"a": 1, "b": [2]}),
        lambda: Flow("o").then(takes_all, config={"b": (2,), "a": 1}),
    ),
    (
        lambda: Flow("o").then(fetch, inputs={}, on_missing="error", ports=[], check=None),
        lambda: Flow("o").then(fetch),
    ),
    (
        lambda: Flow("o").approve("Go?", deadline="24h", reminders=["2h", "1h"], policy="any"),
        lambda: Flow("o").approve("Go?", deadline="1d", reminders=["1h", "120m"], policy=1),
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
    lambda: Flow("orders").loop(fetch, until={"property": "done", "op": "exists"}),
    lambda: Flow("orders").loop(fetch, until={"property": "ended", "op": "exists"}),
    lambda: Flow("orders").then(takes_all),
    lambda: Flow("orders").then(takes_all, config={}),
    lambda: Flow("orders").then(takes_all, config={"a": 1}),
    lambda: Flow("orders").then(takes_all, inputs={"a": "input"}),
    lambda: Flow("orders").then(takes_all, inputs={"a": "input.a"}),
    lambda: Flow("orders").then(takes_all, inputs={"a": "secret.a"}),
    lambda: Flow("orders").then(takes_all, inputs={"a": "input.a"}, on_missing="skip"),
    lambda: Flow("orders").then(fetch, ports=["a"]),
    lambda: Flow("orders").then(fetch, on_timeout="continue"),
    lambda: Flow("orders").then(fetch, input_schema={"type": "object"}),
    lambda: Flow("orders").then(fetch, output_schema={"type": "object"}),
    lambda: Flow("orders").then(fetch, check={"schema": {"type": "object"}}),
    lambda: Flow("orders").then(fetch, check={"schema": {"type": "object"}, "advisory": True}),
    lambda: Flow("orders").approve("Go?"),
    lambda: Flow("orders").approve("Go on?"),
    lambda: Flow("orders").approve("Go?", deciders=["a"]),
    lambda: Flow("orders").approve("Go?", deciders=["a"], policy="all"),
    lambda: Flow("orders").approve("Go?", form={"type": "object"}),
    lambda: Flow("orders").delay("1d"),
    lambda: Flow("orders").delay(until="{{ value }}"),
    lambda: Flow("orders").wait_for_signal("go"),
    lambda: Flow("orders").wait_for_signal("go", where={"property": "a", "op": "exists"}),
    lambda: Flow("orders").map(fetch),
    lambda: Flow("orders").map(fetch, concurrency=3),
    lambda: Flow("orders").flow(child_of(fetch)),
    lambda: Flow("orders").flow(child_of(charge)),
]


def child_of(task: Any) -> BuiltFlow:
    return Flow("child").then(task, name="x").build()


@pytest.mark.parametrize("one,other", SAME)
def test_does_not_change_with_the_order_of_telling(one, other):
    assert one().build().graph.definition == other().build().graph.definition
    assert one().build().version == other().build().version


def test_changes_with_names_structure_and_policies():
    versions = [make().build().version for make in DIFFERENT]

    assert len(set(versions)) == len(DIFFERENT)


def test_does_not_change_with_descriptions():
    @task(name="fetch")
    def fetch_otherwise(order: Any) -> Any:
        """Described in other words."""

    assert Flow("o").then(fetch).build().version == Flow("o").then(fetch_otherwise).build().version


def test_comes_back_with_the_stored_definition():
    flow = base().build()

    assert Graph.parse(flow.graph.data).version == flow.version


KNOWN: dict[str, Callable[[], Flow]] = {
    "c544fc299443a6cc": lambda: (
        Flow("line")
        .then(fetch)
        .then(charge, retries=2, timeout="5s", undo=pack, on_error="continue")
    ),
    "309035b6e2a43b41": lambda: Flow("fork").then(fetch).fork(a=charge, b=pack).join(tell),
    "3d285500aa797a17": lambda: (
        Flow("graph")
        .node("a", fetch, on_error="bad")
        .node("b", charge, after="a:bad")
        .node("c", pack, after={"x": "a"})
    ),
    "74ee98b9a504c18c": lambda: Flow("route").route(
        lambda v: v, {"a": charge, "b": None}, default=pack
    ),
    "7316e017facba0ba": lambda: Flow("map").map(fetch, over="lines", concurrency=3),
    "ca2351c85ed8ead5": lambda: (
        Flow("loop")
        .loop(fetch, until=lambda v: v, max_iterations=3, on_max="late")
        .then(charge, after="fetch:late")
    ),
    "4b9fc6e012dc5bd6": lambda: (
        Flow("wait")
        .delay("2h")
        .wait_for_signal("go", timeout="3d", on_timeout="late")
        .then(charge, after="go:late")
    ),
    "0678bd1dcba0e3ae": lambda: Flow("parent", on_failure="finish").flow(
        Flow("child").then(fetch).build()
    ),
}


@pytest.mark.parametrize("version", KNOWN)
def test_stays_what_it_was(version):
    """Runs are under way in versions: what nodes can do more must not change those of others."""
    assert KNOWN[version]().build().version == version
