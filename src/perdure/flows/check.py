"""All faults of a flow definition: graph, inputs, templates, settings, approvals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import Fault, declare, render
from perdure.errors import FaultText, InvalidInput, fault_text
from perdure.expr.condition import condition_faults
from perdure.expr.path import Path, path_text
from perdure.expr.template import DEPTH_MAX, TemplateUse, template_faults, template_names
from perdure.flows.analysis import Upstream, cycles_among
from perdure.forms.schema import by_field, check_schema, faults_of
from perdure.model.graph import (
    APPROVE,
    CONTINUE,
    DEFAULT_PORT,
    FAIL,
    ORDINARY,
    PORT_OPTIONS,
    REJECT,
    ApprovalNode,
    Definition,
    DelayNode,
    Edge,
    Input,
    JsonSchema,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
    inputs_of,
    ports_of,
)
from perdure.model.times import ms_text

INVALID_NODE = declare("flow.invalid_node", "node {node!r}: {message}")
INVALID_STRUCTURE = declare("flow.invalid_structure", "{message}")
GENERIC = (INVALID_NODE.name, INVALID_STRUCTURE.name, InvalidInput.CODE.name)
"""Codes of what is told in words alone."""


def at(message: str, *where: str | int) -> FaultText:
    """A problem at this place within a node."""
    return FaultText(message, INVALID_NODE.fault(where, message=message))


def whole_fault(error: InvalidInput) -> Fault:
    """The error as one fault, also where it has several."""
    if len(error.faults) == 1:
        return error.faults[0]
    return Fault(code=error.code, args=error.diagnostic.args)


def flow_fault(label: str, problem: str | InvalidInput, node: str = "") -> FaultText:
    """A problem of what the label names: a node by its id, or else of the flow."""
    text = f"{label}: {problem}"
    fault = problem.fault if isinstance(problem, FaultText) else None
    if isinstance(problem, InvalidInput):
        fault = whole_fault(problem)
    where = fault.where if fault else ()
    if fault is None or fault.code in GENERIC:
        message = str(problem)
        if not node:
            return FaultText(text, INVALID_STRUCTURE.fault(where, message=text))
        fault = INVALID_NODE.fault(where, node=node, message=message)
    return FaultText(text, fault.under("nodes", node) if node else fault)


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


TITLE_MAX = 1_000


def approval_faults(node: ApprovalNode) -> Iterator[str]:
    if not node.title.strip():
        yield "it needs a title: what there is to decide"
    elif len(node.title) > TITLE_MAX:
        yield f"its title has more than {TITLE_MAX} characters; put the rest in the message"
    yield from _decider_faults(node)
    yield from _answer_faults(node)
    yield from _port_faults(node)
    yield from _time_faults(node)
    yield from _show_faults(node)


def _decider_faults(node: ApprovalNode) -> Iterator[str]:
    for name, count in Counter(node.deciders).items():
        if count > 1:
            yield f"decider {name!r} is there {count} times"
    if node.quorum == 0 and not node.deciders:
        yield 'policy="all" needs deciders=[...]: without them it is not known who all are'
    known = set(node.deciders)
    for each in node.escalations:
        when = ms_text(each.after_ms)
        if not each.deciders:
            yield f"escalate: nobody is named to decide after {when}"
        elif not node.deciders:
            yield "escalate needs deciders=[...]: without them anyone may decide from the start"
        for name in each.deciders:
            if name in known:
                yield f"escalate: {name!r} may decide before {when} already"
            known.add(name)


def _answer_faults(node: ApprovalNode) -> Iterator[str]:
    if APPROVE not in node.answers:
        near = nearest(APPROVE, node.answers)
        yield f"answers={list(node.answers)} must have {APPROVE!r} among them{near}"
    default = node.default_answer
    if default is None:
        return
    if default.decision not in node.answers:
        known = ", ".join(map(repr, node.answers))
        near = nearest(default.decision, node.answers)
        yield f"on_timeout: the decision {default.decision!r} is no answer; there is {known}{near}"
    if node.form is None or default.data is None or check_schema(node.form):
        return
    if not isinstance(default.data, dict):
        yield "on_timeout: its data must be an object with fields of the form"
        return
    found = by_field(faults_of(_without_required(node.form), default.data))
    for field, reasons in found.items():
        place = f" at {field}" if field else ""
        yield f"on_timeout: its data does not fit the form{place}: {'; '.join(reasons)}"


def _without_required(form: JsonSchema) -> JsonSchema:
    """The form for some of its fields: the data of the approval may have the others."""
    if isinstance(form, bool):
        return form
    return {keyword: value for keyword, value in form.items() if keyword != "required"}


def _port_faults(node: ApprovalNode) -> Iterator[str]:
    if REJECT not in node.answers and node.on_reject != FAIL:
        yield f"on_reject={node.on_reject!r} is in vain, as {REJECT!r} is none of its answers"
    for option in ("on_timeout", "on_reject"):
        port = getattr(node, option)
        # What follows a rejection may be called like the answer that leads there.
        is_own = option == "on_reject" and port == REJECT
        if port in node.answers and port not in (FAIL, CONTINUE) and not is_own:
            yield (
                f"{option}={port!r} is one of its answers, and cannot be a port besides; name "
                f"another port{_default_hint(option, port)}"
            )


def _default_hint(option: str, port: str) -> str:
    if option != "on_timeout":
        return ""
    return f', or let that be the answer: on_timeout={{"decision": "{port}"}}'


def _time_faults(node: ApprovalNode) -> Iterator[str]:
    for at, count in Counter(node.reminders_ms).items():
        if count > 1:
            yield f"reminders: {ms_text(at)} is there {count} times"
    times = Counter(each.after_ms for each in node.escalations)
    for at, count in times.items():
        if count > 1:
            yield f"escalate: {ms_text(at)} is there {count} times; name all deciders at once"
    if node.timeout_ms is None:
        return
    for option, told in (("reminders", node.reminders_ms), ("escalate", tuple(times))):
        for at in told:
            if at >= node.timeout_ms:
                yield (
                    f"{option}: {ms_text(at)} is not before the deadline "
                    f"({ms_text(node.timeout_ms)})"
                )


def _show_faults(node: ApprovalNode) -> Iterator[str]:
    names = [each.name for each in node.inputs]
    for name in node.shows or ():
        if name not in names:
            declared = f"; it has {', '.join(map(repr, names))}" if names else "; it declares none"
            yield f"show: {name!r} is none of its inputs{nearest(name, names) or declared}"


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


RESERVED_PORTS = (ORDINARY, DEFAULT_PORT)
"""What the ordinary port is called where ports are named."""


def setting_faults(node: Node) -> Iterator[str]:
    match node:
        case TaskNode():
            yield from _schema_faults("input_schema", node.input_schema)
            yield from _schema_faults("output_schema", node.output_schema)
            if node.check is not None:
                yield from _schema_faults("schema of check", node.check.schema)
                yield from _condition_faults("condition of check", node.check.condition)
            yield from name_faults("port", node.ports)
        case ApprovalNode():
            yield from _schema_faults("form", node.form)
            yield from name_faults("answer", node.answers)
        case SignalNode():
            yield from _condition_faults("where", node.where, has_templates=True)
        case LoopNode() if not isinstance(node.until, str):
            yield from _condition_faults("until", node.until)


def name_faults(what: str, names: Sequence[str]) -> Iterator[str]:
    """Of names that become ports."""
    for name, count in Counter(names).items():
        if count > 1:
            yield f"the {what} {name!r} is there {count} times"
        if name in RESERVED_PORTS:
            yield f"no {what} can be called {name!r}: that is the ordinary port; choose another"


def _schema_faults(option: str, schema: Any) -> Iterator[str]:
    if schema is not None:
        for fault in check_schema(schema):
            yield FaultText(f"{option}: {fault_text(fault)}", fault.under(*_setting_path(option)))


def _condition_faults(option: str, data: Any, *, has_templates: bool = False) -> Iterator[str]:
    if data is None:
        return
    for fault in condition_faults(data, has_templates=has_templates):
        place = f" at {path_text(fault.where)}" if fault.where else ""
        yield FaultText(f"{option}{place}: {render(fault)}", fault.under(*_setting_path(option)))


def _setting_path(option: str) -> list[str]:
    """``schema of check`` is at ``check.schema``."""
    return option.split(" of ")[::-1]


def check_definition(
    definition: Definition,
    labels: Mapping[str, str] | None = None,
    reads: Mapping[str, Set[str]] | None = None,
    ended: Set[tuple[str, str]] = frozenset(),
) -> list[FaultText]:
    """All faults; ``labels`` are what nodes are called in them, by id.

    ``reads`` are the inputs that kinds look at by themselves, besides their templates, by node.
    ``ended`` are ports, each with its node, that nothing is meant to follow.
    """
    labels = labels or {}
    faults = check_graph(definition, labels, ended)
    if len(definition.nodes) > NODES_MAX:
        return faults
    faults += check_inputs(definition, labels, reads or {})
    for node in definition.nodes:
        label = labels.get(node.id, f"node {node.id!r}")
        faults += [flow_fault(label, each, node.id) for each in setting_faults(node)]
        if isinstance(node, ApprovalNode):
            faults += [flow_fault(label, each, node.id) for each in approval_faults(node)]
    return faults
