"""Short ways to write graphs down in tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from perdure.model.graph import (
    ApprovalNode,
    Call,
    Definition,
    DelayNode,
    Edge,
    FlowNode,
    FlowRef,
    Graph,
    Input,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)

CHILD = FlowRef(name="child", version="c1")


def graph(*nodes: Node, edges: str = "", name: str = "flow", **options: Any) -> Graph:
    """``edges`` like ``"a b, route.left c, a b as first"``: source[.port] target [as name]."""
    return Graph(Definition(name=name, nodes=nodes, edges=_edges(edges), **options))


def chain(*nodes: Node, **options: Any) -> Graph:
    edges = ", ".join(f"{first.id} {second.id}" for first, second in pairwise(nodes))
    return graph(*nodes, edges=edges, **options)


def _edges(text: str) -> tuple[Edge, ...]:
    found: list[Edge] = []
    for each in filter(None, map(str.strip, text.split(","))):
        source, target, *rest = each.split()
        id, _, port = source.partition(".")
        found.append(Edge(source=id, target=target, port=port, name=rest[1] if rest else ""))
    return tuple(found)


def call(task: str) -> Call:
    return Call(task=task, queue="default", priority=3)


def task(id: str, *, undo: bool = False, **options: Any) -> TaskNode:
    return TaskNode(id=id, call=call(id), undo=call(f"undo_{id}") if undo else None, **options)


def route(id: str, *ports: str, **options: Any) -> RouteNode:
    return RouteNode(id=id, call=call(id), ports=ports, **options)


def mapped(id: str, body: Call | FlowRef | None = None, **options: Any) -> MapNode:
    return MapNode(id=id, body=body or call(id), **options)


def loop(
    id: str, body: Call | FlowRef | None = None, *, iterations_max: int = 3, **options: Any
) -> LoopNode:
    return LoopNode(
        id=id,
        body=body or call(id),
        check=call(f"{id}_done"),
        iterations_max=iterations_max,
        **options,
    )


def delay(id: str, delay_ms: int = 1000) -> DelayNode:
    return DelayNode(id=id, delay_ms=delay_ms)


def signal(id: str, name: str = "go", **options: Any) -> SignalNode:
    return SignalNode(id=id, signal=name, **options)


def child(id: str, body: FlowRef = CHILD, **options: Any) -> FlowNode:
    return FlowNode(id=id, body=body, **options)


def approval(id: str = "ok", title: str = "Go on?", **options: Any) -> ApprovalNode:
    return ApprovalNode(id=id, title=title, **options)


def named(**references: str) -> tuple[Input, ...]:
    """``order="load.output.lines"``, ``who="input.name"``: node ids without dots."""
    found: list[Input] = []
    for name, reference in references.items():
        first, *path = reference.split(".")
        if first == "input":
            found.append(Input(name=name, path=tuple(path)))
        else:
            assert path.pop(0) == "output", reference
            found.append(Input(name=name, source=first, path=tuple(path)))
    return tuple(found)
