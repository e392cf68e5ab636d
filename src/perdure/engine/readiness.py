"""Readiness: which nodes can start, given the nodes that have ended.

A node is ready when all its incoming edges are decided and at least one was taken. Decisions count
edges as they are decided. Here they are recounted from scratch, for a run that continues after a
retry, as a fork, or in another version of its flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from perdure.model.graph import Graph
from perdure.model.run import NodeState, NodeStatus

Counts = tuple[int, int, int]
"""How many incoming edges of a node are decided, taken and blocked."""

_DECIDED = frozenset(
    {NodeStatus.COMPLETED, NodeStatus.SKIPPED, NodeStatus.FAILED, NodeStatus.BLOCKED}
)
_BLOCKING = frozenset({NodeStatus.FAILED, NodeStatus.BLOCKED})


class Readiness:
    """The nodes not reached yet, by what follows for them."""

    def __init__(self) -> None:
        self.ready: list[str] = []
        self.skipped: list[str] = []
        self.blocked: list[str] = []
        self.edge_counts: dict[str, Counts] = {}
        """Nodes of which some incoming edges are decided, but not all."""


def is_decided(source: NodeState | None) -> TypeGuard[NodeState]:
    """Whether the outgoing edges of a node are decided."""
    return source is not None and source.status in _DECIDED


def count_edges(graph: Graph, nodes: Mapping[str, NodeState], id: str) -> Counts:
    decided = taken = blocked = 0
    for edge in graph.incoming[id]:
        source = nodes.get(edge.source)
        if not is_decided(source):
            continue
        decided += 1
        taken += source.status is NodeStatus.COMPLETED and source.port == edge.port
        blocked += source.status in _BLOCKING
    return decided, taken, blocked


def verdict(graph: Graph, id: str, counts: Counts) -> NodeStatus | None:
    """LIVE if a node with these counts starts, SKIPPED, BLOCKED, or None if edges are undecided."""
    decided, taken, blocked = counts
    if decided < len(graph.incoming[id]):
        return None
    if blocked:
        return NodeStatus.BLOCKED
    return NodeStatus.LIVE if taken or not decided else NodeStatus.SKIPPED


def recount(graph: Graph, nodes: Mapping[str, NodeState]) -> Readiness:
    """The readiness of every node that is not in ``nodes``."""
    readiness = Readiness()
    counts = {id: count_edges(graph, nodes, id) for id in graph.nodes if id not in nodes}
    complete = [id for id, each in counts.items() if verdict(graph, id, each) is not None]
    for id in complete:  # grows: a skipped or blocked node decides its outgoing edges
        status = verdict(graph, id, counts[id])
        if status is NodeStatus.LIVE:
            readiness.ready.append(id)
            continue
        is_blocked = status is NodeStatus.BLOCKED
        (readiness.blocked if is_blocked else readiness.skipped).append(id)
        for edge in graph.outgoing[id]:
            if (known := counts.get(edge.target)) is None:
                continue
            counts[edge.target] = (known[0] + 1, known[1], known[2] + is_blocked)
            if verdict(graph, edge.target, counts[edge.target]) is not None:
                complete.append(edge.target)
    readiness.edge_counts = {
        id: each for id, each in counts.items() if each[0] and verdict(graph, id, each) is None
    }
    return readiness
