"""Nodes and edges as a document declares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.expr.path import Path
from perdure.flows.analysis import Exclusion
from perdure.flows.check import NODE_ID, nearest
from perdure.flows.yaml.format import NODE_KEYS
from perdure.flows.yaml.parse import Document, Faults
from perdure.flows.yaml.remainder import Remainder, remainder
from perdure.flows.yaml.shape import node_faults
from perdure.model.graph import APPROVE, DEFAULT_PORT, ORDINARY, ApprovalNode, Graph, Node
from perdure.model.text import type_name

TIMEOUT = "timeout"
"""The port of an approval that nobody answered in time, where ``next`` names it."""


@dataclass(frozen=True, slots=True)
class ToldEdge:
    """One edge, and the place in the file that tells it."""

    source: str
    port: str
    target: str
    path: Path
    name: str = ""


def port_of_key(kind: str, key: str) -> str:
    """The port that a key of ``next`` means at a node of this kind."""
    if kind == "route":
        return key
    is_ordinary = key == DEFAULT_PORT or (kind == "approval" and key == APPROVE)
    return ORDINARY if is_ordinary else key


def key_of_port(node: Node, port: str) -> str:
    """The key of ``next`` that means a port."""
    if port == ORDINARY:
        return APPROVE if isinstance(node, ApprovalNode) else DEFAULT_PORT
    return port


def keys_of_next(told: Any) -> list[str]:
    return list(told) if isinstance(told, Mapping) else []


def edges_to(id: str, kind: str, told: Any, path: Path) -> Iterator[ToldEdge]:
    """The edges that ``next`` of a node tells."""
    if not isinstance(told, Mapping):
        for target, where in _listed(told, path):
            yield ToldEdge(id, ORDINARY, target, where)
        return
    for key, targets in told.items():
        for target, where in _listed(targets, (*path, key)):
            yield ToldEdge(id, port_of_key(kind, key), target, where)


def edges_from(id: str, told: Any, path: Path) -> Iterator[ToldEdge]:
    """The edges that ``after`` of a node tells."""
    if not isinstance(told, Mapping):
        for text, where in _listed(told, path):
            source, _, port = text.partition(":")
            yield ToldEdge(source, port, id, where)
        return
    for name, sources in told.items():
        for text, where in _listed(sources, (*path, name)):
            source, _, port = text.partition(":")
            yield ToldEdge(source, port, id, where, name)


def is_several(after: Any) -> bool:
    """Whether ``after`` names several, so that a task gathers them, as in Python."""
    return isinstance(after, Mapping | list)


def _listed(told: Any, path: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(told, str):
        yield told, path
    elif isinstance(told, list):
        for at, each in enumerate(told):
            if isinstance(each, str):
                yield each, (*path, at)


_ID_WANTED = "use 1 to 128 letters, digits, '_', '.' and '-', not beginning with '.' or '-'"


@dataclass(frozen=True, slots=True)
class ToldNode:
    id: str
    kind: str
    """Empty where it is not told."""
    data: Mapping[str, Any]
    """Without what has not the right shape."""
    path: Path
    is_usable: bool
    """Whether there is enough of it to make a node of."""
    is_whole: bool
    """Whether its ports and its use of inputs can be judged."""

    def edges(self) -> Iterator[ToldEdge]:
        yield from edges_to(self.id, self.kind, self.data.get("next"), (*self.path, "next"))
        yield from edges_from(self.id, self.data.get("after"), (*self.path, "after"))


class ToldNodes:
    """Reads the nodes one after the other, and tells what is wrong."""

    def __init__(self, document: Document, faults: Faults) -> None:
        self._document = document
        self._faults = faults
        self._paths: dict[str, Path] = {}

    def read(self, told: Any) -> list[ToldNode]:
        found: list[ToldNode] = []
        for id, data, path in self._listed(told):
            if not isinstance(data, Mapping):
                message = f"a node must be an object, not {type_name(data)}"
                self._fault(path, message, id or "")
                continue
            found.extend(self._node(id, data, path))
        return found

    def _listed(self, told: Any) -> Iterator[tuple[str | None, Any, Path]]:
        if isinstance(told, Mapping):
            for id, data in told.items():
                yield id, data, ("nodes", id)
        elif isinstance(told, list):
            for at, data in enumerate(told):
                yield None, data, ("nodes", at)
        else:
            self._fault(("nodes",), f"nodes must be a list or an object, not {type_name(told)}")
            return
        if not told:
            self._fault(("nodes",), "it has no nodes")

    def _node(self, id: str | None, data: Mapping[str, Any], path: Path) -> Iterator[ToldNode]:
        own_id = self._id(id, data, path)
        if own_id in self._paths:
            there = self._document.mark_of(self._paths[own_id])
            where = f" in line {there.line}" if there else ""
            self._fault((*path, "id"), f"there is a node of this id already{where}", own_id)
            return
        self._paths[own_id] = path
        kind = self._kind(data, path, own_id)
        told = {key: value for key, value in data.items() if key != "id"}
        shape = node_faults(told, kind) if kind else []
        for place, message in shape:
            self._fault((*path, *place), message, own_id)
        left = remainder(data, kind, (place for place, _ in shape))
        missing = self._missing(kind, data, left) if kind else ""
        if missing:
            self._fault(path, missing, own_id)
        is_usable = left.is_usable and not missing
        yield ToldNode(own_id, kind, left.data, path, is_usable, left.is_whole)

    def _id(self, id: str | None, data: Mapping[str, Any], path: Path) -> str:
        told = data.get("id", id)
        if id is not None and told != id:
            self._fault((*path, "id"), f"the id is {id!r} already; leave this one out", id)
            return id
        if told is None:
            self._fault(path, f"this node needs an id{_hint(data)}")
        elif not isinstance(told, str):
            self._fault((*path, "id"), f"the id must be a text, not {type_name(told)}")
        elif not NODE_ID.fullmatch(told):
            self._fault((*path, "id"), f"{told[:200]!r} cannot be an id; {_ID_WANTED}")
        else:
            return told
        return f"unnamed-{len(self._paths) + 1}"

    def _kind(self, data: Mapping[str, Any], path: Path, id: str) -> str:
        kind = data.get("kind", "task" if "task" in data else None)
        if isinstance(kind, str) and kind:
            return kind
        if kind is not None:
            self._fault((*path, "kind"), f"kind must be a text, not {type_name(kind)}", id)
        else:
            self._fault(path, f"it needs a task or a kind{_hint(data)}", id)
        return ""

    def _missing(self, kind: str, data: Mapping[str, Any], left: Remainder) -> str:
        """What a node of this kind cannot be without, beyond what its schema says."""
        config = data.get("config")
        if any(key in data and key not in left.data for key in ("config", "task")):
            return ""
        if kind == "task" and "task" not in data:
            return "it needs the name of a task: task: NAME"
        if kind in ("task", "signal") or kind not in _NEEDED:
            return ""
        if not isinstance(config, Mapping):
            return f"it needs a config: {_NEEDED[kind]}"
        choices = _CHOICES.get(kind, ())
        given = [key for key in choices if key in config]
        if choices and len(given) != 1 and (given or left.lost.isdisjoint(choices)):
            return f"its config needs {' or '.join(map(repr, choices))}{', not both' * bool(given)}"
        return ""

    def _fault(self, path: Path, message: str, node: str = "") -> None:
        self._faults.add(self._document.fault(path, message, node))


_NEEDED = {
    "route": "{key: ...} or {task: ...}",
    "map": "{task: ...} or {flow: ...}",
    "loop": "{task: ..., until: ...}",
    "delay": "{for: ...} or {until: ...}",
    "approval": "{title: ...}",
    "flow": "{flow: ...}",
}
_CHOICES = {
    "route": ("key", "task"),
    "map": ("task", "flow"),
    "loop": ("task", "flow"),
    "delay": ("for", "until"),
}


def _hint(data: Mapping[str, Any]) -> str:
    """A key that may have been meant."""
    unknown = [key for key in data if key not in NODE_KEYS]
    for wanted in ("task", "kind", "id"):
        near = nearest(wanted, unknown)
        if near and wanted not in data:
            return f"; there is {near.removeprefix('; did you mean ').removesuffix('?')}"
    return ""


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
