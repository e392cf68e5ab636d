"""Which nodes come before which, told from the edges alone."""

from __future__ import annotations

from collections.abc import Set

from perdure.model.graph import Definition


class Upstream:
    """Answers about the nodes in ``sources``: one number a node, a bit for each of them.

    Sets would need memory for every pair of nodes, which large flows have too many of.
    """

    def __init__(self, definition: Definition, sources: Set[str]) -> None:
        following: dict[str, list[str]] = {node.id: [] for node in definition.nodes}
        open_edges = dict.fromkeys(following, 0)
        for edge in definition.edges:
            if edge.source in following and edge.target in following:
                following[edge.source].append(edge.target)
                open_edges[edge.target] += 1
        self._bits = {source: 1 << number for number, source in enumerate(sorted(sources))}
        self._before = dict.fromkeys(following, 0)
        ready = [id for id, count in open_edges.items() if not count]
        while ready:
            id = ready.pop()
            handed_on = self._before[id] | self._bits.get(id, 0)
            for target in following[id]:
                self._before[target] |= handed_on
                open_edges[target] -= 1
                if not open_edges[target]:
                    ready.append(target)
        self._unknown = {id for id, count in open_edges.items() if count}

    def is_before(self, source: str, id: str) -> bool:
        """Whether a way leads from one to the other; taken to be so on and behind cycles."""
        return id in self._unknown or bool(self._before[id] & self._bits[source])
