"""What ``next`` and ``after`` say: which node follows which, from which port, under which name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.model.graph import APPROVE, DEFAULT_PORT, ORDINARY, ApprovalNode, Node
from perdure.model.path import Path

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
