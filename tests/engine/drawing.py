"""Graphs of every shape, for Hypothesis to draw."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from perdure.model.graph import Definition, Edge, FlowRef, Graph, Node, ports_of
from tests.engine.graphs import call, child, delay, loop, mapped, route, signal, task
from tests.engine.worlds import NEVER_SENT, World

NESTED = FlowRef(name="nested", version="n1")
ON_ERROR = st.sampled_from(["fail", "fail", "continue", "oops"])
KINDS = ["task", "task", "join", "route", "map", "loop", "delay", "signal", "late", "child"]


@st.composite
def worlds(draw: st.DrawFn, *, failures: int = 15) -> World:
    """With a flow for children, which has children of no further kind."""
    nested = draw(graphs(name=NESTED.name, nodes_max=4, is_nested=True))
    share = draw(st.sampled_from([0, failures]))
    return World(draw(st.integers(0, 2**31)), failures=share, graphs={NESTED.name: nested})


@st.composite
def graphs(
    draw: st.DrawFn,
    *,
    name: str = "flow",
    nodes_max: int = 9,
    is_nested: bool = False,
    has_undo: bool = False,
) -> Graph:
    ids = [f"n{number}" for number in range(draw(st.integers(1, nodes_max)))]
    nodes = [_node(draw, id, is_nested, has_undo) for id in ids]
    edges = [edge for number in range(1, len(nodes)) for edge in _edges(draw, nodes, number)]
    return Graph(
        Definition(
            name=name,
            nodes=tuple(draw(st.permutations(nodes))),
            edges=tuple(draw(st.permutations(edges))),
            gathers=draw(st.booleans()),
            on_failure=draw(st.sampled_from(["stop", "finish"])),
        )
    )


def _node(draw: st.DrawFn, id: str, is_nested: bool, has_undo: bool) -> Node:
    options: dict[str, Any] = {"on_error": draw(ON_ERROR)}
    undo: dict[str, Any] = {"undo": call("undo")} if has_undo and draw(st.booleans()) else {}
    body = NESTED if not is_nested and draw(st.booleans()) else call(id)
    match draw(st.sampled_from(KINDS)):
        case "join":
            return task(id, gathers=True, **options)
        case "route":
            ports = draw(st.sampled_from([("x",), ("x", "y"), ("x", "default")]))
            return route(id, *ports, on_error=draw(st.sampled_from(["fail", "oops"])))
        case "map":
            over = draw(st.sampled_from([None, None, "lines"]))
            window = draw(st.sampled_from([None, 1, 2]))
            return mapped(id, body, over=over, concurrency=window, **options, **undo)
        case "loop":
            on_max = draw(st.sampled_from(["fail", "continue", "enough"]))
            return loop(id, body, on_max=on_max, **options, **undo)
        case "delay":
            return delay(id)
        case "signal":
            return signal(id, draw(st.sampled_from(["s", "t"])))
        case "late":
            on_timeout = draw(st.sampled_from(["fail", "continue", "late"]))
            return signal(id, NEVER_SENT, timeout_ms=1, on_timeout=on_timeout)
        case "child" if not is_nested:
            return child(id, NESTED, **options, **undo)
        case _:
            return task(id, undo=bool(undo), **options)


def _edges(draw: st.DrawFn, nodes: list[Node], number: int) -> list[Edge]:
    """Edges to a node from those before it, by some of their ports."""
    ways = [(node.id, port) for node in nodes[:number] for port in ports_of(node)]
    taken = draw(st.lists(st.sampled_from(ways), unique=True, max_size=3))
    return [Edge(source=source, target=nodes[number].id, port=port) for source, port in taken]
