"""A flow as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console

from perdure.cli.present import Column, ago
from perdure.cli.terminal import print_pairs, print_table
from perdure.flows.built import BuiltFlow
from perdure.model.facts import FlowRuns
from perdure.model.graph import (
    FAIL,
    ApprovalNode,
    Call,
    DelayNode,
    Edge,
    Graph,
    Node,
    SignalNode,
    kind_of,
)
from perdure.model.times import ms_text
from perdure.render.diagram import deciders_text, delay_text


def flow_fields(flow: BuiltFlow) -> dict[str, Any]:
    return {"name": flow.name, "version": flow.version, "definition": flow.graph.definition}


def listed_fields(flow: BuiltFlow) -> dict[str, Any]:
    """A flow in a list: all but its definition."""
    return {"name": flow.name, "version": flow.version, "nodes": len(flow.graph.nodes)}


def module_columns(flows: Sequence[BuiltFlow]) -> list[Column]:
    """Flows in the code at hand."""
    nodes = [str(len(each.graph.nodes)) for each in flows]
    return [
        Column(title="FLOW", cells=[each.name for each in flows], room_min=12),
        Column(title="VERSION", cells=[each.version for each in flows]),
        Column(title="NODES", cells=nodes, rank=1, is_number=True),
        Column(title="STARTS", cells=[", ".join(each.flows) for each in flows], rank=2, room_min=8),
    ]


def store_columns(flows: Sequence[FlowRuns], now: datetime, *, is_across: bool) -> list[Column]:
    """Flows that a store has runs of; ``is_across`` when they are of several namespaces."""
    last = [each.last_submitted_at for each in flows]
    return [
        Column(title="FLOW", cells=[each.flow for each in flows], room_min=12),
        Column(title="VERSION", cells=[each.version for each in flows]),
        Column(
            title="NAMESPACE",
            cells=[each.namespace if is_across else "" for each in flows],
            rank=2,
            room_min=9,
        ),
        Column(title="LIVE", cells=[str(each.live) for each in flows], is_number=True),
        Column(title="ENDED", cells=[str(each.ended) for each in flows], is_number=True),
        Column(
            title="LAST",
            cells=["" if at is None else ago(at, now) for at in last],
            rank=1,
            is_number=True,
        ),
    ]


def print_flow(console: Console, flow: BuiltFlow) -> None:
    pairs = [("flow", flow.name), ("version", flow.version)]
    children = sorted(flow.flows)
    print_pairs(console, [*pairs, *(("starts", text) for text in children)])
    console.print()
    print_table(console, node_columns(flow.graph))
    console.print()
    console.print(flow.mermaid().rstrip(), soft_wrap=True)


def node_columns(graph: Graph) -> list[Column]:
    nodes = list(graph.nodes.values())
    after = [", ".join(map(_source, graph.incoming[node.id])) for node in nodes]
    return [
        Column(title="NODE", cells=[node.id for node in nodes], room_min=12),
        Column(title="KIND", cells=[kind_of(node) for node in nodes]),
        Column(title="DOES", cells=[does(node) for node in nodes], rank=1, room_min=10),
        Column(title="AFTER", cells=after, rank=2, room_min=10),
        Column(title="QUEUE", cells=[_queue(node) for node in nodes], rank=3, room_min=7),
        Column(title="IF IT FAILS", cells=[_if_it_fails(node) for node in nodes], rank=4),
    ]


def does(node: Node) -> str:
    """What it calls, or what it waits for."""
    match node:
        case DelayNode():
            return f"waits {delay_text(node)}"
        case SignalNode():
            limit = "" if node.timeout_ms is None else f", {ms_text(node.timeout_ms)} at most"
            return f"waits for {node.signal}{limit}"
        case ApprovalNode():
            return f"{node.title}, {deciders_text(node)}"
        case _:
            body = _body(node)
            return body.task if isinstance(body, Call) else body.text


def _source(edge: Edge) -> str:
    return f"{edge.source}:{edge.port}" if edge.port else edge.source


def _body(node: Any) -> Any:
    return getattr(node, "call", None) or getattr(node, "body", None)


def _queue(node: Node) -> str:
    body = _body(node)
    return body.queue if isinstance(body, Call) else ""


def _if_it_fails(node: Node) -> str:
    match getattr(node, "on_error", FAIL):
        case "fail":
            return ""
        case "continue":
            return "goes on"
        case port:
            return f"port {port}"
