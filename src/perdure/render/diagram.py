"""What a picture of a flow or of a run shows, whatever it is drawn with."""

from __future__ import annotations

from enum import StrEnum

from perdure.model.graph import (
    CONTINUE,
    FAIL,
    ORDINARY,
    PORT_OPTIONS,
    Edge,
    Graph,
    Node,
    TaskNode,
    kind_of,
)
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveKind, NodeState, NodeStatus, RunState
from perdure.model.value import Value
from perdure.render.node_text import notes_of


class Mark(StrEnum):
    """How far a run is with a node."""

    COMPLETED = "completed"
    LIVE = "live"
    """A job is queued or runs."""
    WAITING = "waiting"
    """For a time, a signal, a person, somebody outside, or a child run."""
    PAUSED = "paused"
    FAILED = "failed"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    NOT_REACHED = "not reached"


class PictureNode(Value, omit_defaults=True):
    id: str
    kind: str
    shape: str
    """``task``, ``route``, ``map``, ``loop``, ``delay``, ``signal``, ``approval`` or ``child``."""
    notes: tuple[str, ...] = ()
    mark: Mark | None = None
    """None in a picture of a flow, which no run is in."""
    progress: str = ""
    """How far it is: ``12/100 items``."""


class PictureEdge(Value, omit_defaults=True):
    source: str
    target: str
    label: str = ""
    is_unusual: bool = False
    """An error, a timeout, a rejection or a loop's bound leads this way."""
    is_taken: bool | None = None
    """None while that is not decided."""


class Picture(Value, omit_defaults=True):
    title: str
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...]
    status: str = ""
    """Of the run; empty in a picture of a flow."""

    def mermaid(self) -> str:
        """In the language of Mermaid, which GitHub and many editors draw."""
        from perdure.render.mermaid import mermaid  # which draws what is described here

        return mermaid(self)

    def svg(self) -> str:
        """As every browser shows it; it needs nothing else."""
        from perdure.render.svg import svg

        return svg(self)


def picture_of(graph: Graph) -> Picture:
    """A flow as it is built."""
    return Picture(
        title=graph.text,
        nodes=tuple(_node(node) for node in graph.nodes.values()),
        edges=tuple(_edge(graph, edge) for edges in graph.outgoing.values() for edge in edges),
    )


def picture_of_run(run: RunId, graph: Graph, state: RunState) -> Picture:
    """The same, with how far a run of it is."""
    live: dict[str, list[LiveKind]] = {}
    for text, kind in state.live.items():
        live.setdefault(Key.parse(text).node, []).append(kind)
    return Picture(
        title=f"{run}: {graph.text}",
        nodes=tuple(_node(each, state, live.get(each.id, [])) for each in graph.nodes.values()),
        edges=tuple(
            _edge(graph, edge, state) for edges in graph.outgoing.values() for edge in edges
        ),
        status=state.status.value,
    )


def _node(
    node: Node, state: RunState | None = None, live: list[LiveKind] | None = None
) -> PictureNode:
    shape = "task" if isinstance(node, TaskNode) else kind_of(node)
    if state is None:
        return PictureNode(id=node.id, kind=kind_of(node), shape=shape, notes=notes_of(node))
    return PictureNode(
        id=node.id,
        kind=kind_of(node),
        shape=shape,
        notes=notes_of(node),
        mark=mark_of(state, node.id, live or []),
        progress=_progress(state, node.id),
    )


def mark_of(state: RunState, id: str, live: list[LiveKind]) -> Mark:
    """How far a run is with a node, of which these keys are live."""
    node = state.nodes.get(id)
    if node is None:
        return Mark.NOT_REACHED
    if node.status is not NodeStatus.LIVE:
        return Mark(node.status.value)
    if state.is_paused:
        return Mark.PAUSED
    return Mark.LIVE if LiveKind.JOB in live or not live else Mark.WAITING


def _progress(state: RunState, id: str) -> str:
    node, items = state.nodes.get(id), state.maps.get(id)
    if node is None:
        return ""
    if items is not None:
        return f"{len(items.refs)}/{items.count} items"
    if node.has_failed:
        return "after it failed"
    return f"iteration {node.iteration}" if node.iteration else ""


def _edge(graph: Graph, edge: Edge, state: RunState | None = None) -> PictureEdge:
    source = graph.nodes[edge.source]
    unusual = {getattr(source, name, FAIL) for name in PORT_OPTIONS} - {FAIL, CONTINUE}
    parts = [edge.port] if edge.port != ORDINARY else []
    if edge.name:
        parts.append(f"as {edge.name}")
    return PictureEdge(
        source=edge.source,
        target=edge.target,
        label=", ".join(parts),
        is_unusual=edge.port in unusual,
        is_taken=None if state is None else _is_taken(state.nodes.get(edge.source), edge),
    )


def _is_taken(source: NodeState | None, edge: Edge) -> bool | None:
    if source is None or source.status is NodeStatus.LIVE:
        return None
    return source.status is NodeStatus.COMPLETED and source.port == edge.port
