"""Graph analysis of flows: order, placement, upstream nodes, cycles, mutual exclusion."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import reduce
from typing import Any

from msgspec.structs import replace

from perdure.model.graph import Call, Definition, Graph, ports_of
from perdure.model.job import DEFAULT_QUEUE, PRIORITY_DEFAULT


def in_order(definition: Definition) -> Definition:
    """Sort the nodes topologically, then by id. The flow must have no cycles.

    Equal flows get equal versions, regardless of the order of their branches.
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


Place = tuple[int, str]
"""Priority and queue; the minimum is the most urgent."""


def place_functions(definition: Definition, functions: Mapping[str, Set[str]]) -> Definition:
    """Give plain functions the queue and priority of their predecessor, or of their own node.

    ``functions`` maps their task names to the settings that were given explicitly. The nodes are in
    topological order. Of several predecessors, the most urgent counts.
    """
    if not functions:
        return definition
    graph = Graph(definition)
    places: dict[str, Place] = {}
    nodes = []
    for id, node in graph.nodes.items():
        before = (places[edge.source] for edge in graph.incoming[id])
        place = min(before, default=(PRIORITY_DEFAULT, DEFAULT_QUEUE))
        changes: dict[str, Any] = {}
        for part in ("call", "body", "check", "undo", "notify"):
            call = getattr(node, part, None)
            if not isinstance(call, Call):
                continue
            if (given := functions.get(call.task)) is not None:
                priority, queue = place
                call = changes[part] = replace(
                    call,
                    priority=call.priority if "priority" in given else priority,
                    queue=call.queue if "queue" in given else queue,
                )
            if part in ("call", "body"):
                place = (call.priority, call.queue)
        places[id] = place
        nodes.append(replace(node, **changes) if changes else node)
    return replace(definition, nodes=tuple(nodes))


def places_before(graph: Graph) -> dict[str, Place]:
    """The place that a plain function would inherit at each node of a built flow."""
    found: dict[str, Place] = {}
    places: dict[str, Place] = {}
    for id, node in graph.nodes.items():
        before = (places[edge.source] for edge in graph.incoming[id])
        found[id] = min(before, default=(PRIORITY_DEFAULT, DEFAULT_QUEUE))
        calls = (getattr(node, part, None) for part in ("call", "body"))
        own = [(call.priority, call.queue) for call in calls if isinstance(call, Call)]
        places[id] = own[0] if own else found[id]
    return found


class Upstream:
    """Which nodes are downstream of each of ``sources``: a bitmask per node.

    Sets would need memory for every pair of nodes, too much for large flows.
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
            passed_on = self._before[id] | self._bits.get(id, 0)
            for target in following[id]:
                self._before[target] |= passed_on
                open_edges[target] -= 1
                if not open_edges[target]:
                    ready.append(target)
        self._unknown = {id for id, count in open_edges.items() if count}

    def is_before(self, source: str, id: str) -> bool:
        """Whether a path leads from ``source`` to ``id``; assumed on and after cycles."""
        return id in self._unknown or bool(self._before[id] & self._bits[source])


Following = Mapping[str, Sequence[str]]


def cycles_among(following: Following) -> list[list[str]]:
    """One cycle of each strongly connected component."""
    left = _on_or_between_cycles(following)
    if not left:
        return []
    within = {
        id: [each for each in following[id] if each in left] for id in following if id in left
    }
    groups = _groups(within)
    found: dict[int, list[str]] = {}
    for id in within:
        group = groups[id]
        if group not in found and any(groups[each] == group for each in within[id]):
            found[group] = _walk(id, within, groups)
    return list(found.values())


def _on_or_between_cycles(following: Following) -> set[str]:
    """Remove nodes without predecessors, then those without successors, until none is left."""
    left = _without_sources(following, set(following))
    leading: dict[str, list[str]] = {id: [] for id in left}
    for id in left:
        for target in following[id]:
            if target in left:
                leading[target].append(id)
    return _without_sources(leading, left)


def _without_sources(following: Following, among: set[str]) -> set[str]:
    counts = dict.fromkeys(among, 0)
    for id in among:
        for target in following[id]:
            if target in counts:
                counts[target] += 1
    sources = [id for id, count in counts.items() if not count]
    for id in sources:
        for target in following[id]:
            if target in counts:
                counts[target] -= 1
                if not counts[target]:
                    sources.append(target)
    return among.difference(sources)


def _groups(following: Following) -> dict[str, int]:
    """The number of each node's strongly connected component (Kosaraju)."""
    leading: dict[str, list[str]] = {id: [] for id in following}
    for id, targets in following.items():
        for target in targets:
            leading[target].append(id)
    groups: dict[str, int] = {}
    for number, root in enumerate(reversed(_finishing_order(following))):
        to_visit = [root]
        while to_visit:
            id = to_visit.pop()
            if id not in groups:
                groups[id] = number
                to_visit.extend(leading[id])
    return groups


def _finishing_order(following: Following) -> list[str]:
    """The nodes in depth-first postorder."""
    order: list[str] = []
    seen: set[str] = set()
    for root in following:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(following[root]))]
        while path:
            id, targets = path[-1]
            target = next((each for each in targets if each not in seen), None)
            if target is None:
                order.append(id)
                path.pop()
            else:
                seen.add(target)
                path.append((target, iter(following[target])))
    return order


def _walk(start: str, following: Following, groups: Mapping[str, int]) -> list[str]:
    """A cycle within the component of ``start``."""
    steps: dict[str, int] = {}
    id = start
    while id not in steps:
        steps[id] = len(steps)
        id = next(each for each in following[id] if groups[each] == groups[start])
    return list(steps)[steps[id] :]


Exit = tuple[str, str]
"""A node and one of its ports."""

_ROOT = 0


class Exclusion:
    """Tells which exits exclude each other in an acyclic graph with nodes in topological order.

    The points of the dominator tree are nodes and their ports.
    """

    def __init__(self, graph: Graph) -> None:
        self._parents = [_ROOT]
        self._depths = [0]
        self._jumps = [_ROOT]
        """Jump pointers to ancestors, so that climbing a long chain takes few steps."""
        self._ports: list[frozenset[str] | None] = [None]
        """For a child of a node: the ports of that node that lead to it."""
        self._exits: dict[Exit, int] = {}
        for id, node in graph.nodes.items():
            before = [self._exits[edge.source, edge.port] for edge in graph.incoming[id]]
            parent = reduce(self._last_common, before) if before else _ROOT
            point = self._add_point(parent, self._ports_between(parent, before))
            for port in ports_of(node):
                self._exits[id, port] = self._add_point(point, frozenset((port,)))

    def are_exclusive(self, exits: Iterable[Exit]) -> bool:
        """Whether no run can take two of these exits."""
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

    def _ports_between(self, parent: int, before: list[int]) -> frozenset[str] | None:
        """The ports of the node ``parent`` on the paths to these; None if it is not a node."""
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


def gathering_nodes(graph: Graph, candidates: Iterable[str]) -> set[str]:
    """The candidates that may get more than one output.

    The graph is acyclic, with its nodes in topological order.
    """
    exclusion = Exclusion(graph)
    return {
        id
        for id in candidates
        if len(graph.incoming[id]) > 1
        and not exclusion.are_exclusive((edge.source, edge.port) for edge in graph.incoming[id])
    }
