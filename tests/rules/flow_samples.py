"""Tasks to build flows of, and what a built flow looks like."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from perdure import Flow, InvalidFlow, task
from perdure.diagnostics import Fault
from perdure.flows.built import BuiltFlow
from perdure.model.graph import Edge, Node, TaskNode

Link = tuple[str, ...]
AnyNode = TypeVar("AnyNode", bound=Node)


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


def faults(flow: Flow) -> list[Fault]:
    with pytest.raises(InvalidFlow) as caught:
        flow.build()
    assert caught.value.flow == ("unnamed" if flow.name is None else flow.name)
    return list(caught.value.faults)


def only_fault(flow: Flow) -> Fault:
    [fault] = faults(flow)
    return fault


def codes(flow: Flow) -> list[str]:
    return [fault.code for fault in faults(flow)]


def path_of(fault: Fault) -> str:
    return ".".join(map(str, fault.where)).removeprefix("nodes.")


def call_of(fault: Fault) -> str:
    """The call of the builder that a fault is about."""
    assert fault.source is not None
    return fault.source.call


def links(flow: BuiltFlow) -> set[Link]:
    """Edges as ``(source, target)`` or ``(source:port, target, name)``."""
    return {_link(edge) for edge in flow.graph.definition.edges}


def edges(text: str) -> set[Link]:
    """Links as ``source target`` or ``source:port target as name``, separated by commas."""
    return {(*each.split()[:2], *each.split()[3:]) for each in text.split(", ")}


def _link(edge: Edge) -> Link:
    source = f"{edge.source}:{edge.port}" if edge.port else edge.source
    return (source, edge.target, edge.name) if edge.name else (source, edge.target)


def ids(flow: BuiltFlow) -> list[str]:
    return list(flow.graph.nodes)


def node_at(flow: BuiltFlow, id: str, type: type[AnyNode]) -> AnyNode:
    node = flow.graph.nodes[id]
    assert isinstance(node, type)
    return node


def task_at(flow: BuiltFlow, id: str) -> TaskNode:
    return node_at(flow, id, TaskNode)
