"""What nodes do, in a few words: for tables, pictures and messages alike."""

from __future__ import annotations

from perdure.model.graph import (
    ApprovalNode,
    Call,
    DelayNode,
    FlowNode,
    FlowRef,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def notes_of(node: Node) -> tuple[str, ...]:
    """What there is to say of a node besides its name, a line each."""
    return tuple(filter(None, _notes(node)))


def _notes(node: Node) -> list[str]:
    match node:
        case TaskNode():
            return [_task_note(node)]
        case RouteNode():
            return []
        case MapNode():
            return [_called(node.id, node.body), _map_note(node)]
        case LoopNode():
            bound = f"again until done, at most {node.iterations_max} times"
            return [_called(node.id, node.body), bound]
        case DelayNode():
            return [delay_text(node)]
        case SignalNode():
            return [_signal_note(node)]
        case ApprovalNode():
            return [node.title, deciders_text(node)]
        case FlowNode():
            return [_called(node.id, node.body)]


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
