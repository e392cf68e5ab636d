"""Readiness: where the nodes stand that a run has not reached, by the nodes that it has.

A node is ready when all edges that lead to it are decided and one of them was taken. Decisions
count edges as they are decided; here they are counted anew, for a run that goes on after a retry,
as a fork, or in another version of its flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from perdure.model.graph import Graph
from perdure.model.run import NodeState, NodeStatus

Counts = tuple[int, int, int]
"""Of the edges that lead to a node: how many are decided, of those taken, of those blocked."""

_DECIDED = frozenset(
    {NodeStatus.COMPLETED, NodeStatus.SKIPPED, NodeStatus.FAILED, NodeStatus.BLOCKED}
)
_BLOCKING = frozenset({NodeStatus.FAILED, NodeStatus.BLOCKED})


class Standing:
    """What follows for the nodes that are not reached."""

    def __init__(self) -> None:
        self.ready: list[str] = []
        self.skipped: list[str] = []
        self.blocked: list[str] = []
        self.edge_counts: dict[str, Counts] = {}
        """Those that wait for more, and some of whose edges are decided."""


def is_decided(source: NodeState | None) -> TypeGuard[NodeState]:
    """Whether it is known which of the edges that leave a node are taken."""
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
    """LIVE if a node with these counts starts, SKIPPED, BLOCKED, or None if it waits for more."""
    decided, taken, blocked = counts
    if decided < len(graph.incoming[id]):
        return None
    if blocked:
        return NodeStatus.BLOCKED
    return NodeStatus.LIVE if taken or not decided else NodeStatus.SKIPPED


def recount(graph: Graph, nodes: Mapping[str, NodeState]) -> Standing:
    """Where every node stands that is not among ``nodes``."""
    standing = Standing()
    counts = {id: count_edges(graph, nodes, id) for id in graph.nodes if id not in nodes}
    complete = [id for id, each in counts.items() if verdict(graph, id, each) is not None]
    for id in complete:  # which grows by those behind a node that is skipped or blocked
        status = verdict(graph, id, counts[id])
        if status is NodeStatus.LIVE:
            standing.ready.append(id)
            continue
        is_blocked = status is NodeStatus.BLOCKED
        (standing.blocked if is_blocked else standing.skipped).append(id)
        for edge in graph.outgoing[id]:
            if (known := counts.get(edge.target)) is None:
                continue
            counts[edge.target] = (known[0] + 1, known[1], known[2] + is_blocked)
            if verdict(graph, edge.target, counts[edge.target]) is not None:
                complete.append(edge.target)
    standing.edge_counts = {
        id: each for id, each in counts.items() if each[0] and verdict(graph, id, each) is None
    }
    return standing
