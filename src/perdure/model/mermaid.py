"""A flow as a picture in text, in the language of Mermaid. The same for equal definitions."""

from __future__ import annotations

import re

from perdure.model.graph import (
    CONTINUE,
    FAIL,
    ORDINARY,
    PORT_OPTIONS,
    ApprovalNode,
    Call,
    DelayNode,
    Edge,
    FlowNode,
    FlowRef,
    Graph,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

# What Mermaid would read as markup, or as the end of a label.
_MARKUP = re.compile(r'[#"<>&;`|\\\n\r\t]')


def mermaid(graph: Graph) -> str:
    """A ``flowchart TD``: one shape for each kind of node, ports and names on the edges."""
    places = {id: f"n{number}" for number, id in enumerate(graph.nodes, 1)}
    lines = ["flowchart TD"]
    for id, node in graph.nodes.items():
        lines.append(f"    {places[id]}{_shape(node)}")
    for edges in graph.outgoing.values():
        for edge in edges:
            arrow = _arrow(graph.nodes[edge.source], edge)
            lines.append(f"    {places[edge.source]} {arrow} {places[edge.target]}")
    return "\n".join(lines) + "\n"


def _shape(node: Node) -> str:
    match node:
        case TaskNode():
            return f'["{_label(node.id, _task_note(node))}"]'
        case RouteNode():
            return f'{{"{_label(node.id)}"}}'
        case MapNode():
            return f'[/"{_label(node.id, _called(node.id, node.body), _map_note(node))}"/]'
        case LoopNode():
            note = f"again until done, at most {node.iterations_max} times"
            return f'(["{_label(node.id, _called(node.id, node.body), note)}"])'
        case DelayNode():
            return f'("{_label(node.id, delay_text(node))}")'
        case SignalNode():
            return f'{{{{"{_label(node.id, _signal_note(node))}"}}}}'
        case ApprovalNode():
            return f'[/"{_label(node.id, node.title, deciders_text(node))}"\\]'
        case FlowNode():
            return f'[["{_label(node.id, _called(node.id, node.body))}"]]'


def _called(id: str, body: Call | FlowRef) -> str:
    if isinstance(body, FlowRef):
        return f"flow {body.text}"
    return "" if body.task == id else f"calls {body.task}"


def _task_note(node: TaskNode) -> str:
    if node.kind:
        return "" if node.kind == node.id else f"kind {node.kind}"
    return _called(node.id, node.call)


def _map_note(node: MapNode) -> str:
    over = "for each item" if node.over is None else f"for each of {node.over}"
    return over if node.concurrency is None else f"{over}, {node.concurrency} at once"


def _signal_note(node: SignalNode) -> str:
    if node.timeout_ms is None:
        return f"signal {node.signal}"
    return f"signal {node.signal}, within {duration_text(node.timeout_ms)}"


def delay_text(node: DelayNode) -> str:
    return f"until {node.until}" if node.until else f"for {duration_text(node.delay_ms)}"


def deciders_text(node: ApprovalNode) -> str:
    """Who decides, and how many of them."""
    who = ", ".join(node.deciders) or "anyone"
    match node.quorum:
        case 0:
            many = "all of "
        case 1:
            many = "one of " if len(node.deciders) > 1 else ""
        case count:
            many = f"{count} of "
    limit = "" if node.timeout_ms is None else f", within {duration_text(node.timeout_ms)}"
    return f"decided by {many}{who}{limit}"


def duration_text(ms: int) -> str:
    """As people write it: ``1h30m``."""
    parts: list[str] = []
    for unit, length in _UNITS_MS.items():
        count, ms = divmod(ms, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _arrow(source: Node, edge: Edge) -> str:
    """Dotted where an error, a timeout, a rejection or a loop's bound leads on."""
    unusual = {getattr(source, name, FAIL) for name in PORT_OPTIONS}
    line = "-.->" if edge.port in unusual - {FAIL, CONTINUE} else "-->"
    parts = [edge.port] if edge.port != ORDINARY else []
    if edge.name:
        parts.append(f"as {edge.name}")
    return f'{line}|"{_escaped(", ".join(parts))}"|' if parts else line


def _label(*lines: str) -> str:
    return "<br/>".join(_escaped(line) for line in lines if line)


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda found: f"#{ord(found[0])};", text)
