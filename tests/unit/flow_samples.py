"""Tasks to build flows of, and what a built flow looks like."""

from __future__ import annotations

from typing import Any

from perdure import Flow, task
from perdure.flows.built import BuiltFlow
from perdure.model.graph import Edge, TaskNode

Link = tuple[str, str] | tuple[str, str, str]


@task
def fetch(number: int) -> dict[str, Any]:
    return {"number": number}


@task(queue="slow", priority=1, tags=["gpu"])
def score(order: Any) -> Any:
    return order


@task
def decide(order: Any) -> Any:
    return order


@task
def charge(order: Any) -> Any:
    return order


@task
def refuse(order: Any) -> Any:
    return order


@task
def pack(order: Any) -> Any:
    return order


@task
def take_back(order: Any) -> None: ...


@task
def tick() -> int:
    return 1


shipping = Flow("shipping").then(pack).build()


def links(flow: BuiltFlow) -> set[Link]:
    """Edges as ``(source, target)`` or ``(source:port, target, name)``."""
    return {_link(edge) for edge in flow.graph.definition.edges}


def _link(edge: Edge) -> Link:
    source = f"{edge.source}:{edge.port}" if edge.port else edge.source
    return (source, edge.target, edge.name) if edge.name else (source, edge.target)


def ids(flow: BuiltFlow) -> list[str]:
    return list(flow.graph.nodes)


def task_at(flow: BuiltFlow, id: str) -> TaskNode:
    node = flow.graph.nodes[id]
    assert isinstance(node, TaskNode)
    return node
