"""Which exits of nodes can be passed together in one run, told from the graph alone.

What every way to a point passes makes a tree (of dominators). Two points exclude each other if the
last thing on both their ways is a node that they need to end on different ports.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from perdure.model.graph import Edge, Graph, Node, ports_of

Exit = tuple[str, str]
"""A node, and the port that it ends on."""

_ROOT = 0


class Exclusion:
    """Answers for one graph without cycles, whose nodes stand in the order of the work."""

    def __init__(self, graph: Graph) -> None:
        self._parents = [_ROOT]
        self._depths = [0]
        self._jumps = [_ROOT]
        """Some point further up, so that climbing a long chain takes few steps."""
        self._ports: list[frozenset[str] | None] = [None]
        """Of a point right below a node: the ports of that node that lead to it."""
        self._exits: dict[Exit, int] = {}
        for id, node in graph.nodes.items():
            self._add_node(id, node, graph.incoming[id])

    def are_exclusive(self, exits: Iterable[Exit]) -> bool:
        """Whether no run can pass two of these."""
        points = [self._exits[each] for each in exits]
        wanted = set(points)
        if len(wanted) < len(points):
            return False
        taken: dict[int, set[str]] = {}
        seen: set[int] = set()
        for start in points:
            point = start
            while point != _ROOT and point not in seen:
                seen.add(point)
                parent, ports = self._parents[point], self._ports[point]
                if parent in wanted:
                    return False
                if parent not in taken:
                    taken[parent] = set(ports or ())
                elif ports is None or not taken[parent].isdisjoint(ports):
                    return False
                else:
                    taken[parent] |= ports
                point = parent
        return True

    def _add_node(self, id: str, node: Node, incoming: list[Edge]) -> None:
        before = [self._exits[edge.source, edge.port] for edge in incoming]
        parent = reduce(self._last_common, before) if before else _ROOT
        point = self._add_point(parent, self._ports_between(parent, before))
        for port in ports_of(node):
            self._exits[id, port] = self._add_point(point, frozenset((port,)))

    def _ports_between(self, parent: int, before: list[int]) -> frozenset[str] | None:
        """The ports of the node ``parent`` on the ways to these; None if it is no node."""
        ports: set[str] = set()
        for point in before:
            if point == parent:
                return None
            below = self._ports[self._climb(point, self._depths[parent] + 1)]
            if below is None:
                return None
            ports |= below
        return frozenset(ports) if before else None

    def _add_point(self, parent: int, ports: frozenset[str] | None) -> int:
        jump, depths = self._jumps[parent], self._depths
        is_even = depths[parent] - depths[jump] == depths[jump] - depths[self._jumps[jump]]
        self._parents.append(parent)
        self._jumps.append(self._jumps[jump] if is_even else parent)
        self._depths.append(depths[parent] + 1)
        self._ports.append(ports)
        return len(self._parents) - 1

    def _climb(self, point: int, depth: int) -> int:
        while self._depths[point] > depth:
            jump = self._jumps[point]
            point = jump if self._depths[jump] >= depth else self._parents[point]
        return point

    def _last_common(self, one: int, other: int) -> int:
        depth = min(self._depths[one], self._depths[other])
        one, other = self._climb(one, depth), self._climb(other, depth)
        while one != other:
            if self._jumps[one] != self._jumps[other]:
                one, other = self._jumps[one], self._jumps[other]
            else:
                one, other = self._parents[one], self._parents[other]
        return one
