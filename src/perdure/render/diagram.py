"""The contents of a diagram of a flow or a run, independent of its format."""

from __future__ import annotations

from enum import StrEnum

from msgspec.structs import replace

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
    type_of,
)
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveType, NodeStatus, RunState
from perdure.model.times import ms_text
from perdure.model.value import Value


class NodeMark(StrEnum):
    """The progress of a run at a node."""

    COMPLETED = "completed"
    LIVE = "live"
    """A job is queued or runs."""
    WAITING = "waiting"
    """For a time, a signal, a person, an external callback, or a child run."""
    PAUSED = "paused"
    FAILED = "failed"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    NOT_REACHED = "not reached"


class DiagramNode(Value, omit_defaults=True):
    id: str
    type: str
    shape: str
    """``task``, ``route``, ``map``, ``loop``, ``delay``, ``signal``, ``approval`` or ``child``."""
    notes: tuple[str, ...] = ()
    mark: NodeMark | None = None
    """None in a diagram of a flow without a run."""
    progress: str = ""
    """For example ``12/100 items``."""


class DiagramEdge(Value, omit_defaults=True):
    source: str
    target: str
    label: str = ""
    is_unusual: bool = False
    """An error, timeout, rejection or loop bound leads this way."""
    is_taken: bool | None = None
    """None while undecided."""


class Diagram(Value, omit_defaults=True):
    """A drawing of a flow, or of a run with the states of its nodes."""

    title: str
    nodes: tuple[DiagramNode, ...]
    edges: tuple[DiagramEdge, ...]
    status: str = ""
    """The status of the run; empty in a diagram of a flow."""

    def mermaid(self) -> str:
        """The diagram in Mermaid, which GitHub and many editors draw."""
        from perdure.render.mermaid import mermaid  # imported only when used

        return mermaid(self)

    def svg(self) -> str:
        """The diagram as a self-contained SVG."""
        from perdure.render.svg import svg

        return svg(self)


def diagram_of(graph: Graph) -> Diagram:
    """The diagram of a flow."""
    return Diagram(
        title=graph.text,
        nodes=tuple(_node(node) for node in graph.nodes.values()),
        edges=tuple(_edge(graph, edge) for edges in graph.outgoing.values() for edge in edges),
    )


def diagram_of_run(run: RunId, graph: Graph, state: RunState) -> Diagram:
    """The diagram of a flow, with the progress of a run."""
    live: dict[str, list[LiveType]] = {}
    for text, live_type in state.live.items():
        live.setdefault(Key.parse(text).node, []).append(live_type)
    return Diagram(
        title=f"{run}: {graph.text}",
        nodes=tuple(_node(each, state, live.get(each.id, [])) for each in graph.nodes.values()),
        edges=tuple(
            _edge(graph, edge, state) for edges in graph.outgoing.values() for edge in edges
        ),
        status=state.status.value,
    )


def _node(
    node: Node, state: RunState | None = None, live: list[LiveType] | None = None
) -> DiagramNode:
    live_type = type_of(node)
    plain = DiagramNode(
        id=node.id,
        type=live_type,
        shape="task" if isinstance(node, TaskNode) else live_type,
        notes=notes_of(node),
    )
    if state is None:
        return plain
    reached, items, progress = state.nodes.get(node.id), state.maps.get(node.id), ""
    if reached is not None:
        if items is not None:
            progress = f"{len(items.refs)}/{items.count} items"
        elif reached.has_failed:
            progress = "after it failed"
        elif reached.iteration:
            progress = f"iteration {reached.iteration}"
    return replace(plain, mark=mark_of(state, node.id, live or []), progress=progress)


def mark_of(state: RunState, id: str, live: list[LiveType]) -> NodeMark:
    """The progress at a node with these live keys."""
    node = state.nodes.get(id)
    if node is None:
        return NodeMark.NOT_REACHED
    if node.status is not NodeStatus.LIVE:
        return NodeMark(node.status.value)
    if state.is_paused:
        return NodeMark.PAUSED
    return NodeMark.LIVE if LiveType.JOB in live or not live else NodeMark.WAITING


def _edge(graph: Graph, edge: Edge, state: RunState | None = None) -> DiagramEdge:
    options = graph.nodes[edge.source]
    unusual = {getattr(options, name, FAIL) for name in PORT_OPTIONS} - {FAIL, CONTINUE}
    source = None if state is None else state.nodes.get(edge.source)
    is_taken = None
    if source is not None and source.status is not NodeStatus.LIVE:
        is_taken = source.status is NodeStatus.COMPLETED and source.port == edge.port
    parts = [edge.port if edge.port != ORDINARY else "", f"as {edge.name}" if edge.name else ""]
    return DiagramEdge(
        source=edge.source,
        target=edge.target,
        label=", ".join(filter(None, parts)),
        is_unusual=edge.port in unusual,
        is_taken=is_taken,
    )


def notes_of(node: Node) -> tuple[str, ...]:
    """Details of a node besides its name, one per line."""

    def calls(body: Call | FlowRef) -> str:
        if isinstance(body, FlowRef):
            return f"flow {body.text}"
        return "" if body.task == node.id else f"calls {body.task}"

    notes: list[str] = []
    match node:
        case TaskNode():
            live_type = "" if node.type == node.id else f"type {node.type}"
            notes = [live_type if node.type else calls(node.call)]
        case RouteNode():
            pass
        case MapNode():
            over = "for each item" if node.over is None else f"for each of {node.over}"
            at_once = "" if node.concurrency is None else f", {node.concurrency} at once"
            notes = [calls(node.body), over + at_once]
        case LoopNode():
            notes = [calls(node.body), f"again until done, at most {node.iterations_max} times"]
        case DelayNode():
            notes = [delay_text(node)]
        case SignalNode():
            limit = node.timeout_ms
            within = "" if limit is None else f", within {ms_text(limit)}"
            notes = [f"signal {node.signal}{within}"]
        case ApprovalNode():
            notes = [node.title, deciders_text(node)]
        case FlowNode():
            notes = [calls(node.body)]
    return tuple(filter(None, notes))


def delay_text(node: DelayNode) -> str:
    return f"until {node.until}" if node.until else f"for {ms_text(node.delay_ms)}"


def deciders_text(node: ApprovalNode) -> str:
    """The deciders, and how many must agree."""
    who = ", ".join(node.deciders) or "anyone"
    match node.quorum:
        case 0:
            many = "all of "
        case 1:
            many = "one of " if len(node.deciders) > 1 else ""
        case count:
            many = f"{count} of "
    limit = "" if node.timeout_ms is None else f", within {ms_text(node.timeout_ms)}"
    return f"decided by {many}{who}{limit}"
