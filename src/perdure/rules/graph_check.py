"""What is wrong with a definition: all of it at once, each fault with the node that it is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches

from perdure.errors import FaultText
from perdure.model.graph import (
    CONTINUE,
    FAIL,
    ORDINARY,
    PORT_OPTIONS,
    Definition,
    Edge,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    TaskNode,
    ports_of,
)
from perdure.rules.cycles import cycles_among
from perdure.rules.flow_faults import INVALID_STRUCTURE, at, flow_fault

NODES_MAX = 20_000
NODE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

_LISTED_MAX = 20
"""How many nodes one message names."""
_COMPARED_MAX = 10
"""How many unknown names are compared with all known ones for a suggestion."""
_KNOWN_MAX = 12
"""How many nodes there may be for all of them to be named where an unknown one was."""
_RANKED_MAX = 200
"""How many names are compared in full, to find the nearest where none is near."""


def check_graph(
    definition: Definition,
    labels: Mapping[str, str] | None = None,
    ended: Set[tuple[str, str]] = frozenset(),
) -> list[FaultText]:
    """The faults of a definition; ``labels`` are what its nodes are called in them, by id.

    ``ended`` are ports, each with its node, that nothing is meant to follow.
    """
    if not definition.nodes:
        return [_whole("it has no nodes: add one, for example with .then(task)")]
    if len(definition.nodes) > NODES_MAX:
        count = len(definition.nodes)
        return [_whole(f"it has {count} nodes, more than the {NODES_MAX} allowed")]
    checking = _Checking(definition, labels or {})
    return [
        *checking.duplicates(),
        *(fault for node in definition.nodes for fault in checking.faults_of(node)),
        *checking.edge_faults(),
        *checking.unused_ports(ended),
        *checking.reach_faults(),
    ]


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion to end a message with, or nothing."""
    found = get_close_matches(name, list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


class _Checking:
    def __init__(self, definition: Definition, labels: Mapping[str, str]) -> None:
        self._definition = definition
        self._labels = labels
        self._nodes = {node.id: node for node in definition.nodes}
        self._fed = {edge.target for edge in definition.edges}
        self._ports = {id: ports_of(node) for id, node in self._nodes.items()}
        self._sound = [edge for edge in definition.edges if self._is_sound(edge)]
        self._compared = 0

    def duplicates(self) -> Iterator[FaultText]:
        counts = Counter(node.id for node in self._definition.nodes)
        for id, count in counts.items():
            if count > 1:
                yield self._fault(id, f"{count} nodes have this id; ids must differ")
        told = Counter(self._definition.edges)
        for edge, count in told.items():
            if count > 1:
                yield self._fault(edge.target, f"follows {edge.source!r} {count} times alike")

    def faults_of(self, node: Node) -> Iterator[FaultText]:
        if not NODE_ID.fullmatch(node.id):
            yield self._fault(
                node.id,
                f"{node.id!r} cannot be an id; use 1 to 128 letters, digits, '_', '.' and '-', "
                "not beginning with '.' or '-', and give it with name=...",
            )
        match node:
            case TaskNode(gathers=True) if node.id not in self._fed:
                yield self._fault(node.id, "it joins nothing; name the nodes that it follows")
            case RouteNode():
                yield from self._route_faults(node)
            case MapNode(concurrency=int(concurrency)) if concurrency < 1:
                problem = f"concurrency={concurrency} must be at least 1"
                yield self._fault(node.id, problem, "concurrency")
            case LoopNode(iterations_max=most) if most < 1:
                problem = f"max_iterations={most} must be at least 1"
                yield self._fault(node.id, problem, "max_iterations")

    def _route_faults(self, node: RouteNode) -> Iterator[FaultText]:
        if not node.ports:
            yield self._fault(node.id, "a route needs at least one branch")
        if ORDINARY in node.ports:
            yield self._fault(node.id, "the key of a branch must not be empty")
        if len(set(node.ports)) < len(node.ports):
            yield self._fault(node.id, "two branches have the same key")
        if node.on_error == CONTINUE:
            yield self._fault(
                node.id,
                'on_error="continue" has no branch to go on with; name a port and give it a node',
                "on_error",
            )

    def edge_faults(self) -> Iterator[FaultText]:
        for edge in self._definition.edges:
            if edge.target not in self._nodes:
                near = self._nearest_node(edge.target, edge.source)
                yield self._fault(edge.source, f"is followed by {edge.target!r}, unknown{near}")
            elif edge.source not in self._nodes:
                near = self._nearest_node(edge.source, edge.target)
                yield self._fault(edge.target, f"follows {edge.source!r}, which is unknown{near}")
            elif edge.port not in self._ports[edge.source]:
                yield self._fault(edge.target, self._port_fault(edge))

    def _port_fault(self, edge: Edge) -> str:
        ports, source = self._ports[edge.source], edge.source
        if edge.port == ORDINARY:
            written = ", ".join(repr(f"{source}:{port}") for port in ports)
            return f"follows the route {source!r}, so it has to say from which port: {written}"
        named = [port for port in ports if port != ORDINARY]
        known = f"it has {', '.join(map(repr, named))}" if named else "it has none"
        near = nearest(edge.port, named)
        return f"follows port {edge.port!r} of {source!r}, which is unknown; {known}{near}"

    def unused_ports(self, ended: Set[tuple[str, str]]) -> Iterator[FaultText]:
        used = {(edge.source, edge.port) for edge in self._definition.edges} | ended
        for id, node in self._nodes.items():
            for option in PORT_OPTIONS:
                port = getattr(node, option, FAIL)
                if port not in (FAIL, CONTINUE) and (id, port) not in used:
                    yield self._fault(
                        id,
                        f"{option}={port!r} is a port that nothing follows; add a node with "
                        f'after="{id}:{port}", or use "fail" or "continue"',
                        option,
                    )

    def reach_faults(self) -> Iterator[FaultText]:
        """Cycles, and what is only behind them."""
        following: dict[str, list[str]] = {id: [] for id in self._nodes}
        for edge in self._sound:
            following[edge.source].append(edge.target)
        cycles = cycles_among(following)
        for cycle in cycles:
            where = ", ".join(self._label(id) for id in cycle[:_LISTED_MAX])
            yield _whole(f"a cycle: {_path(cycle)}; use .loop(...) to repeat work ({where})")
        on_cycles = {id for cycle in cycles for id in cycle}
        hidden = [id for id in self._unreached(following) if id not in on_cycles]
        if hidden:
            names = ", ".join(self._label(id) for id in hidden[:_LISTED_MAX])
            more = f" and {len(hidden) - _LISTED_MAX} more" if len(hidden) > _LISTED_MAX else ""
            behind = "cannot be reached, as everything before is part of a cycle"
            yield flow_fault(f"{names}{more}", behind, hidden[0] if len(hidden) == 1 else "")

    def _unreached(self, following: Mapping[str, Sequence[str]]) -> list[str]:
        soundly_fed = {edge.target for edge in self._sound}
        # What follows something unknown is told of already, and counts as reached.
        reached = {id for id in self._nodes if id not in soundly_fed}
        reached |= {edge.target for edge in self._definition.edges if not self._is_sound(edge)}
        to_visit = list(reached)
        while to_visit:
            for target in following.get(to_visit.pop(), ()):
                if target not in reached:
                    reached.add(target)
                    to_visit.append(target)
        return [id for id in self._nodes if id not in reached]

    def _is_sound(self, edge: Edge) -> bool:
        return edge.target in self._nodes and edge.port in self._ports.get(edge.source, ())

    def _nearest_node(self, name: str, asking: str) -> str:
        """What may have been meant, other than the node that is asking."""
        self._compared += 1
        if self._compared > _COMPARED_MAX:
            return ""
        known = [id for id in self._nodes if id != asking]
        if not known:
            return ""
        near = nearest(name, known)
        if len(known) <= _KNOWN_MAX:
            told = ", ".join(map(repr, known))
            return f"{near} Known: {told}" if near else f"; known: {told}"
        if near or len(known) > _RANKED_MAX:
            return near
        found = get_close_matches(name, known, n=3, cutoff=0)
        return f"; the nearest of {len(known)}: {', '.join(map(repr, found))}"

    def _fault(self, id: str, message: str, *where: str) -> FaultText:
        return flow_fault(self._label(id), at(message, *where), id)

    def _label(self, id: str) -> str:
        return self._labels.get(id, f"node {id!r}")


def _whole(text: str) -> FaultText:
    return FaultText(text, INVALID_STRUCTURE.fault(message=text))


def _path(cycle: Sequence[str]) -> str:
    shown = list(cycle[:_LISTED_MAX])
    if len(cycle) > _LISTED_MAX:
        shown.append("…")
    return " → ".join([*shown, cycle[0]])
