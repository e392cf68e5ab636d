"""What is wrong with the inputs of nodes, and with the templates that name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import render
from perdure.errors import FaultText, InvalidInput
from perdure.model.graph import (
    ApprovalNode,
    Definition,
    DelayNode,
    Input,
    MapNode,
    Node,
    SignalNode,
    TaskNode,
    inputs_of,
)
from perdure.model.path import Path, path_text
from perdure.rules.flow_faults import at, flow_fault
from perdure.rules.graph_check import nearest
from perdure.rules.template import DEPTH_MAX, TemplateUse, template_faults, template_names
from perdure.rules.upstream import Upstream

RUN_INPUT, RUN, NODE, SECRET = "input", "run", "node", "secret"
VALUE = "value"
"""What the edges of a node hand on, where it declares no inputs."""

BUILT_IN: Mapping[str, Sequence[str]] = {
    RUN_INPUT: (),
    RUN: ("id", "flow", "version"),
    NODE: ("id",),
    SECRET: (),
}
"""What every template may name, with the keys where they are known."""

_NAMED_MAX = 12
_COMPARED_MAX = 10
"""How many unknown names are compared with all known ones for a suggestion."""


def with_run_input(node: Node, reads: Set[str] = frozenset()) -> Node:
    """The node with the run's input among its inputs, if the worker needs it.

    That is for a template that names it, or for a kind that ``reads`` it.
    """
    if not isinstance(node, TaskNode) or any(each.name == RUN_INPUT for each in node.inputs):
        return node
    if RUN_INPUT not in reads and not any(use.name == RUN_INPUT for use in _uses(node.config)):
        return node
    inputs = sorted((*node.inputs, Input(name=RUN_INPUT)), key=lambda each: each.name)
    return replace(node, inputs=tuple(inputs))


def check_inputs(
    definition: Definition, labels: Mapping[str, str], reads: Mapping[str, Set[str]]
) -> Iterator[FaultText]:
    """Faults of all nodes; ``reads`` are the inputs that kinds look at besides templates."""
    sources = {each.source for node in definition.nodes for each in inputs_of(node) if each.source}
    upstream = Upstream(definition, sources)
    known = {node.id for node in definition.nodes}
    compared = 0
    for node in definition.nodes:
        label = labels.get(node.id, f"node {node.id!r}")
        for each in inputs_of(node):
            fault = _input_fault(node, each)
            if not fault:
                fault = _source_fault(node, each, known, upstream)
                if each.source and each.source not in known and compared < _COMPARED_MAX:
                    compared += 1
                    fault += _suggestion(each.source, known - {node.id})
            if fault:
                yield flow_fault(label, at(fault, "inputs", each.name), node.id)
        for fault in _node_faults(node, reads.get(node.id, frozenset())):
            yield flow_fault(label, fault, node.id)


def _input_fault(node: Node, each: Input) -> str:
    if each.name in BUILT_IN and each != Input(name=RUN_INPUT):
        return (
            f"no input can be called {each.name!r}, which templates know already; choose another "
            "name"
        )
    if not each.name or not all(part.isalnum() or part in "_-" for part in each.name):
        return f"input {each.name!r} cannot be called so; use letters, digits, '_' and '-'"
    if each.secret and not isinstance(node, TaskNode):
        return (
            f"input {each.name!r} is a secret; only tasks and kinds can have one, as it is "
            "resolved by the worker that executes them"
        )
    return ""


def _source_fault(node: Node, each: Input, known: Set[str], upstream: Upstream) -> str:
    if not each.source:
        return ""
    if each.source not in known:
        return f"input {each.name!r} refers to node {each.source!r}, which is unknown"
    if not upstream.is_before(each.source, node.id):
        return (
            f"input {each.name!r} refers to node {each.source!r}, which is not upstream: no edge "
            "leads from it to here; let this node follow it, also through others"
        )
    return ""


def _node_faults(node: Node, reads: Set[str]) -> Iterator[str]:
    names = [each.name for each in inputs_of(node)]
    for option, config in _templates(node):
        for malformed in template_faults(config):
            text = f"{_place(option, malformed.where)}: {render(malformed)}"
            yield FaultText(text, malformed.under(option))
        for use in _uses(config):
            if fault := _use_fault(node, use, names):
                text = f"template {use.text!r} in {_place(option, use.where)}: {fault}"
                yield at(text, option, *use.where)
    for name in sorted(reads - set(names)):
        yield f"its config names {name!r}, which is {_undeclared(name, names)}"
    if isinstance(node, MapNode) and names and node.over not in names:
        told = "over= names none of its inputs" if node.over else "over=... is missing"
        yield f"{told}; with inputs=, it names the one that is the list: {_listed(names)}"
        return
    for name in sorted(set(names) - {RUN_INPUT} - (reads | _used(node, names))):
        unused = f"input {name!r} is never used{_how_to_use(node)}{_about_keys(node, name)}"
        yield at(unused, "inputs", name)


def _use_fault(node: Node, use: TemplateUse, names: Sequence[str]) -> str:
    if use.name in names:
        return ""
    if use.name == SECRET:
        if not isinstance(node, TaskNode):
            return (
                "there are no secrets here; only tasks and kinds can have one, as it is resolved "
                "by the worker that executes them"
            )
        return "" if len(use.path) == 1 else "name one secret: {{ secret.NAME }}"
    if use.name in BUILT_IN:
        keys = BUILT_IN[use.name]
        if keys and use.path and use.path[0] not in keys:
            return f"{use.name!r} has {', '.join(map(repr, keys))}, and no {use.path[0]!r}"
        return ""
    if use.name == VALUE and not names and not isinstance(node, TaskNode):
        return ""
    return f"{use.name!r} is {_undeclared(use.name, names)}"


def _undeclared(name: str, names: Sequence[str]) -> str:
    if not names:
        return f'none of its inputs, as it declares none; declare it: inputs={{"{name}": ...}}'
    near = nearest(name, [*names, *BUILT_IN])
    return f"none of its inputs{near or f'; it has {_listed(names)}'}"


def _templates(node: Node) -> list[tuple[str, Any]]:
    """The parts of a node that have templates, by the options that gave them."""
    match node:
        case TaskNode():
            return [("config", node.config)]
        case ApprovalNode():
            return [("title", node.title), ("message", node.message), ("data", node.data)]
        case DelayNode():
            return [("until", node.until)]
        case SignalNode():
            return [("where", node.where)]
        case _:
            return []


def _used(node: Node, names: Sequence[str]) -> Set[str]:
    """The inputs that have an effect."""
    match node:
        case TaskNode(kind="", config=None):
            return set(names)
        case MapNode():
            return {node.over or ""}
        case ApprovalNode() if node.data is None or node.shows is None:
            return set(names)
        case TaskNode() | SignalNode() | ApprovalNode() | DelayNode():
            shown = node.shows or () if isinstance(node, ApprovalNode) else ()
            return {use.name for _, part in _templates(node) for use in _uses(part)} | set(shown)
        case _:
            return set(names)  # handed to what it calls, all together


def _how_to_use(node: Node) -> str:
    match node:
        case MapNode():
            return f"; only {node.over!r} is, which is the list"
        case ApprovalNode():
            return ": no template names it, and it is not shown"
        case SignalNode():
            return ": where= has no template that names it"
        case DelayNode():
            return ": until= has no template that names it"
        case _:
            return ": no template of its config names it"


def _about_keys(node: Node, name: str) -> str:
    """For those who wrote a template where there is none."""
    keys = [key for _, part in _templates(node) for key in _keys(part)]
    is_meant = any(use.name == name for use in _uses(keys))
    return "; a key does, but a key is never a template, only a value is" if is_meant else ""


def _keys(config: Any, depth: int = 0) -> Iterator[str]:
    """All keys of objects; too deep ones are told of otherwise."""
    if depth > DEPTH_MAX:
        return
    if isinstance(config, Mapping):
        yield from config
    elif not isinstance(config, list | tuple):
        return
    for value in config.values() if isinstance(config, Mapping) else config:
        yield from _keys(value, depth + 1)


def _uses(config: Any) -> list[TemplateUse]:
    try:
        return template_names(config)
    except InvalidInput:  # which template_faults tells
        return []


def _place(option: str, where: Path) -> str:
    return path_text((option, *where))


def _suggestion(name: str, known: Set[str]) -> str:
    near = nearest(name, sorted(known))
    if near or not known or len(known) > _NAMED_MAX:
        return near
    return f"; known: {_listed(sorted(known))}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
