"""How the edges of a flow are written: as ``next`` of the source, or ``after`` of the target."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from perdure.client.declared.edges import TIMEOUT, key_of_port
from perdure.client.declared.gathering import gathering_nodes
from perdure.client.flow_assembly import open_exits
from perdure.model.graph import (
    APPROVE,
    DEFAULT_PORT,
    ORDINARY,
    REJECT,
    ApprovalNode,
    Edge,
    Graph,
    Node,
    RouteNode,
    TaskNode,
    ports_of,
)
from perdure.nodes.registry import Kinds
from perdure.rules.exclusion import Exclusion

_Data = dict[str, Any]


class WrittenEdges:
    """``with_inputs`` are the nodes that take their inputs by name."""

    def __init__(self, graph: Graph, with_inputs: Collection[str]) -> None:
        self._graph = graph
        self._with_inputs = with_inputs
        self._by_after = {id for id in graph.nodes if self._needs_after(id)}
        self._gathering = gathering_nodes(graph, graph.nodes)
        self._next = {id: self._followers(id) for id in graph.nodes}

    @property
    def gathers_unasked(self) -> bool:
        """Whether the flow's result would be an object by node if nothing said so."""
        return not Exclusion(self._graph).are_exclusive(open_exits(self._graph))

    def of(self, node: Node) -> _Data:
        """``next``, ``after`` and ``gathers`` of a node, as far as they are needed."""
        written: _Data = {}
        is_kind = isinstance(node, TaskNode) and bool(node.kind)
        if any(self._next[node.id].values()) or (self._next[node.id] and not is_kind):
            written["next"] = _shortest(node, self._next[node.id])
        if node.id in self._by_after:
            written["after"] = self._sources(node)
        if isinstance(node, TaskNode) and node.gathers != self._gathers_unasked(node):
            written["gathers"] = node.gathers
        return written

    def ports_of(self, node: Node) -> _Data:
        """``ports`` where ``next`` does not tell them all."""
        if not isinstance(node, TaskNode | RouteNode):
            return {}
        if isinstance(node, TaskNode) and node.kind:
            is_told = set(node.ports) == set(_ports_of_kind(node))
        else:
            is_told = all(key_of_port(node, port) in self._next[node.id] for port in node.ports)
        return {} if is_told else {"ports": list(node.ports)}

    def said_by_next(self, node: ApprovalNode) -> dict[str, str]:
        """Options of an approval that follow from the keys of its ``next``."""
        followed = self._next[node.id]
        said = {"on_reject": REJECT} if REJECT in followed else {}
        return {**said, "on_timeout": TIMEOUT} if TIMEOUT in followed else said

    def _needs_after(self, id: str) -> bool:
        """Names of inputs, and ports that are called like the key of another, need ``after``."""
        return any(
            edge.name or _is_hidden(self._graph.nodes[edge.source], edge.port)
            for edge in self._graph.incoming[id]
        )

    def _followers(self, id: str) -> dict[str, list[str]]:
        """The targets of a node by the keys of its ports in ``next``."""
        node = self._graph.nodes[id]
        elsewhere = {e.port for e in self._graph.outgoing[id] if e.target in self._by_after}
        found: dict[str, list[str]] = {}
        for port in self._ports_in_order(node):
            if _is_hidden(node, port):
                continue
            targets = self._targets(id, port)
            is_open = port != ORDINARY and port not in elsewhere
            if targets or is_open:
                found[key_of_port(node, port)] = targets
        return found

    def _ports_in_order(self, node: Node) -> tuple[str, ...]:
        declared = node.ports if isinstance(node, TaskNode | RouteNode) else ()
        return tuple(dict.fromkeys((ORDINARY, *declared, *ports_of(node))))

    def _targets(self, id: str, port: str) -> list[str]:
        edges = self._graph.outgoing[id]
        return [e.target for e in edges if e.port == port and e.target not in self._by_after]

    def _sources(self, node: Node) -> Any:
        incoming = self._graph.incoming[node.id]
        if not any(edge.name for edge in incoming):
            sources = [_source(edge) for edge in incoming]
            return sources[0] if len(sources) == 1 else sources
        by_name: dict[str, list[str]] = {}
        for edge in incoming:
            by_name.setdefault(edge.name or edge.source, []).append(_source(edge))
        return {name: _one_or_all(sources) for name, sources in by_name.items()}

    def _gathers_unasked(self, node: TaskNode) -> bool:
        if node.id in self._with_inputs:
            return False
        if node.id in self._by_after:
            return not isinstance(self._sources(node), str)
        return node.id in self._gathering


def _ports_of_kind(node: TaskNode) -> tuple[str, ...]:
    """The ports that a kind has by itself, as far as that is known here."""
    kinds = Kinds()
    return tuple(kinds[node.kind].ports_of(node.config)) if node.kind in kinds else ()


def _is_hidden(node: Node, port: str) -> bool:
    """Whether the key of this port in ``next`` would mean the ordinary one."""
    if isinstance(node, RouteNode):
        return False
    return port == DEFAULT_PORT or (isinstance(node, ApprovalNode) and port == APPROVE)


def _shortest(node: Node, followers: dict[str, list[str]]) -> Any:
    if list(followers) == [key_of_port(node, ORDINARY)] and not isinstance(node, RouteNode):
        return _one_or_all(followers[key_of_port(node, ORDINARY)])
    return {key: _one_or_all(targets) for key, targets in followers.items()}


def _one_or_all(names: Iterable[str]) -> str | list[str] | None:
    listed = list(names)
    return (listed[0] if len(listed) == 1 else listed) if listed else None


def _source(edge: Edge) -> str:
    return f"{edge.source}:{edge.port}" if edge.port else edge.source
