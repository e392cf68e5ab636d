"""Which nodes gather where nothing says so: those that may get several outputs in one run."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.model.graph import Graph
from perdure.rules.exclusion import Exclusion


def gathering_nodes(graph: Graph, candidates: Iterable[str]) -> set[str]:
    """Of nodes that others name as ``next``, those for which more than one output may be there.

    The graph has no cycles, and its nodes stand in the order of the work.
    """
    exclusion = Exclusion(graph)
    return {
        id
        for id in candidates
        if len(graph.incoming[id]) > 1
        and not exclusion.are_exclusive((edge.source, edge.port) for edge in graph.incoming[id])
    }
