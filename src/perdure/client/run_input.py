"""The input of a run against the types of the tasks that get it, before anything is written."""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidInput
from perdure.expr.path import MISSING, value_at
from perdure.flows.built import BuiltFlow
from perdure.model.graph import (
    Call,
    FlowNode,
    FlowRef,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    TaskNode,
    inputs_of,
)


def check_input(flow: BuiltFlow, value: Any) -> None:
    """Refuse plain JSON values that a task at the beginning of the flow would refuse."""
    for id in flow.graph.starts:
        try:
            _check_node(flow, flow.graph.nodes[id], value)
        except InvalidInput as error:
            error.add_note(f"This is about node {id!r} of flow {flow.name!r}. Nothing was written.")
            raise


def _check_node(flow: BuiltFlow, node: Node, value: Any) -> None:
    if inputs := inputs_of(node):
        value = {each.name: value_at(value, each.path) for each in inputs if not each.secret}
        if MISSING in value.values():
            return  # what follows from that is for the rules to say
    match node:
        case TaskNode() if not node.is_plain:
            if not node.kind and node.config is None:
                flow.tasks[node.call.task].check_types([], value)
        case TaskNode(gathers=False) | RouteNode():
            _check_call(flow, node.call, value)
        case LoopNode() | FlowNode():
            _check_call(flow, node.body, value)
        case MapNode():
            for item in _items(node, value):
                _check_call(flow, node.body, item)
        case _:
            pass  # hands it on, or gets nothing


def _check_call(flow: BuiltFlow, body: Call | FlowRef, value: Any) -> None:
    if isinstance(body, FlowRef):
        check_input(flow.flows[body.text], value)
    elif body.takes_input:
        flow.tasks[body.task].check_types([value], {})


def _items(node: MapNode, value: Any) -> list[Any]:
    """The items as far as there are any: what is no list is refused by the rules, which say why."""
    if node.over is not None:
        value = value.get(node.over) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []
