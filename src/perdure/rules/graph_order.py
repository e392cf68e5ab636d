"""The order of nodes and edges in a definition: that of the work, whatever order it was told in."""

from __future__ import annotations

import heapq

from msgspec.structs import replace

from perdure.model.graph import Definition, Graph


def in_order(definition: Definition) -> Definition:
    """The same flow with every node behind those it follows, by id where that leaves a choice.

    So equal flows have equal versions, however their branches were listed. Takes no cycles.
    """
    graph = Graph(definition)
    open_edges = {id: len(edges) for id, edges in graph.incoming.items()}
    ready = sorted(graph.starts)
    positions: dict[str, int] = {}
    while ready:
        id = heapq.heappop(ready)
        positions[id] = len(positions)
        for edge in graph.outgoing[id]:
            open_edges[edge.target] -= 1
            if not open_edges[edge.target]:
                heapq.heappush(ready, edge.target)
    edges = sorted(
        definition.edges,
        key=lambda edge: (positions[edge.source], positions[edge.target], edge.port, edge.name),
    )
    nodes = tuple(graph.nodes[id] for id in positions)
    return replace(definition, nodes=nodes, edges=tuple(edges))
