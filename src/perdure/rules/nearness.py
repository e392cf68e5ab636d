"""Which version of a flow is the most like another one."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.model.graph import Graph


def nearest_to(graph: Graph, known: Iterable[Graph]) -> Graph | None:
    """The version of the same flow with which it has the most in common; None if there is none."""
    edges = set(graph.definition.edges)

    def likeness(other: Graph) -> tuple[int, int, int]:
        return (
            len(graph.nodes.keys() & other.nodes.keys()),
            sum(other.nodes.get(id) == node for id, node in graph.nodes.items()),
            len(edges & set(other.definition.edges)),
        )

    same = [each for each in known if each.name == graph.name]
    return max(same, key=likeness, default=None)
