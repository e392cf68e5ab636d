"""Faults that the flow builder finds, brought to the place in the file that they are about."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.diagnostics import Fault
from perdure.errors import FaultText
from perdure.expr.path import Path
from perdure.flows.assembly import Assembly
from perdure.flows.yaml.parse import Document, FlowFault
from perdure.flows.yaml.told_nodes import ToldNode

_PLACE = re.compile("\x01(\\d+)\x02")
_OPTION = re.compile(r"^(?:, |: )([a-z_]+)=?:? ?")
_AT = re.compile(r"^: ([a-z_]+)(?: of ([a-z]+))? at ([\w.-]+): ")
_PATH = re.compile(r"^: (\w+(?:\.[\w-]+)+): ")
_TEMPLATE = re.compile(r"^: template .*? in ([\w.-]+): ", re.DOTALL)
_CONFIG = re.compile(r"^: config '([^']*)': ")
_INPUT = re.compile(r"^: (?:no )?input (?:can be called )?'([^']*)'")
_KEYS = {
    "retries": "retry",
    "delay": "for",
    "signal": "name",
    "condition": "check",
    "schema": "check",
    "port": "ports",
    "answer": "answers",
    "policy": "policy",
}
"""What the builder calls otherwise."""


_WORDS = {
    "use .loop(...)": "use a node of kind 'loop'",
    "over=... is": "over is",
    "over= names": "over names",
    "with inputs=, it": "with inputs, it",
    "inputs={...}": "inputs",
    "deciders=[...]": "deciders",
    "a deadline=...": "a deadline",
    "a timeout=...": "a timeout",
}
"""How the builder speaks, and what that is in a file."""


def place_of(index: int) -> str:
    """What a node's place is called while the builder looks for faults."""
    return f"\x01{index}\x02"


class BuilderFaults:
    def __init__(self, document: Document, nodes: Sequence[ToldNode], assembly: Assembly) -> None:
        self._document = document
        self._nodes = nodes
        self._assembly = assembly

    def located(self, text: str) -> FlowFault:
        found = self._plain_fault(text)
        place = _PLACE.search(text)
        node = self._nodes[int(place[1])] if place and int(place[1]) < len(self._nodes) else None
        if node is None:
            return self._document.fault((), text.removeprefix("the flow: "), found=found)
        label = self._assembly.label(node.id)
        if not text.startswith(label):
            return self._document.fault(node.path, self._plain(text), found=found)
        rest = text[len(label) :]
        path = (*node.path, *_key_path(rest, node.data))
        return self._document.fault(path, self._plain(rest).lstrip(":, "), node.id, found)

    def _plain_fault(self, text: str) -> Fault | None:
        if not isinstance(text, FaultText):
            return None
        args = text.fault.args.items()
        plain = {name: self._plain(each) if isinstance(each, str) else each for name, each in args}
        return replace(text.fault, args=plain)

    def _plain(self, text: str) -> str:
        """The text with nodes called by their ids and lines."""
        for index in {int(found) for found in _PLACE.findall(text)}:
            if index < len(self._nodes):
                node = self._nodes[index]
                mark = self._document.mark_of(node.path)
                line = f" (line {mark.line})" if mark else ""
                label = self._assembly.label(node.id)
                text = text.replace(label, f"node {node.id!r}{line}")
        for python, yaml in _WORDS.items():
            text = text.replace(python, yaml)
        return _PLACE.sub("", text)


def _key_path(rest: str, data: Mapping[str, Any]) -> Path:
    """The key of a node that a fault is about, as far as its words tell."""
    if found := _TEMPLATE.match(rest) or _PATH.match(rest):
        return _existing(tuple(found[1].split(".")), data)
    if found := _AT.match(rest):
        owner = (found[2],) if found[2] else ()
        return _existing((*owner, found[1], *found[3].split(".")), data)
    if found := _CONFIG.match(rest):
        return _existing(("config", *found[1].split(".")), data)
    if found := _INPUT.match(rest):
        return _existing(("inputs", found[1]), data)
    if rest.startswith(": its config"):
        return ("config",)
    found = _OPTION.match(rest)
    name = _KEYS.get(found[1], found[1]) if found else ""
    return _existing((name,), data)


def _existing(path: Path, data: Any) -> Path:
    """The path, from the top of the node or from its config, as far as it is there."""
    config = data.get("config")
    if path[0] not in data and isinstance(config, Mapping) and path[0] in config:
        path = ("config", *path)
    reached: list[str | int] = []
    for part in path:
        if isinstance(data, list) and str(part).isdigit() and int(part) < len(data):
            part = int(part)
        elif not isinstance(data, Mapping) or part not in data:
            break
        reached.append(part)
        data = data[part]
    return tuple(reached)
