"""Check a flow definition: graph, inputs, templates, settings, approvals."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import Fault, Path, declare, near
from perdure.errors import InvalidInput
from perdure.expr.condition import condition_faults
from perdure.expr.template import DEPTH_MAX, TemplateUse, template_faults, template_names
from perdure.flows.analysis import Upstream, cycles_among
from perdure.forms.schema import check_schema, faults_of
from perdure.model import check
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
from perdure.model.wait import TITLE_MAX

NODES_MAX = 20_000
NODE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
RESERVED_PORTS = (ORDINARY, DEFAULT_PORT)
"""Names of the ordinary port."""

_LISTED_MAX = 20
"""Most nodes named in one message."""
_COMPARED_MAX = 10
"""Most unknown names that get suggestions."""
_KNOWN_MAX = 12
"""Most nodes that are all listed if one is unknown."""
_RANKED_MAX = 200
"""Most nodes that are ranked by similarity if none is close."""

EMPTY = declare("flow.empty", "a flow needs at least one node")
TOO_MANY_NODES = declare("flow.too_many_nodes", "{count} nodes are more than the {most} allowed")
UNSTORABLE_TEXT = declare(
    "flow.unstorable_text", "has text with the character {character!r}, which cannot be stored"
)
DUPLICATE_NODE = declare(
    "flow.duplicate_node", "another node has the same id[ ({there})]", "Rename one of them"
)
DUPLICATE_EDGE = declare(
    "flow.duplicate_edge", "follows {source!r} more than once[; already in {there}]", "Name it once"
)
NODE_NAME = declare(
    "flow.node_id",
    "{id!r} cannot be an id",
    "Use 1 to 128 letters, digits, '_', '.' and '-', not beginning with '.' or '-'",
)
JOINS_NOTHING = declare("flow.joins_nothing", "joins nothing", "Name the nodes that it follows")
EMPTY_ROUTE = declare("flow.empty_route", "a route needs at least one branch")
EMPTY_KEY = declare("flow.empty_branch_key", "the key of a branch must not be empty")
DUPLICATE_BRANCH = declare("flow.duplicate_branch", "two branches have the key {key!r}")
ROUTE_CONTINUES = declare(
    "flow.route_continues",
    '`on_error` cannot be "continue": there is no branch to continue with',
    "Name a port, and a node that follows it",
)
UNKNOWN_NODE = declare(
    "flow.unknown_node",
    "[input {input!r}: ]unknown node {name!r}[; did you mean {nearest:or}?][; known: {known}]"
    "[; closest of {count}: {ranked}]",
)
UNKNOWN_PORT = declare(
    "flow.unknown_port",
    "node {source!r} has no port {port!r}[; did you mean {nearest:or}?][; it has {ports}]",
    "[To let its result choose {undeclared!r}, declare it in `ports`]",
)
PORT_NEEDED = declare(
    "flow.port_needed", "node {source!r} is a route", "Name the port to follow: {ports:or}"
)
UNUSED_PORT = declare(
    "flow.unused_port",
    "{option} is {port!r}, a port that nothing follows",
    'Let a node follow "{node}:{port}", or use "fail" or "continue"',
)
CYCLE = declare(
    "flow.cycle", "nodes form a cycle: {cycle} ({nodes})", "Repeat work with a loop instead"
)
UNREACHABLE = declare(
    "flow.unreachable",
    "cannot be reached, as everything before is part of a cycle[: {nodes}][ and {more} more]",
)
TITLE_MISSING = declare("flow.title_missing", "`title` must not be empty")
TITLE_TOO_LONG = declare(
    "flow.title_too_long", "`title` has more than {most} characters", "Put the rest in `message`"
)
DUPLICATE_NAME = declare("flow.duplicate_name", "{option}: {name!r} is listed {count} times")
DUPLICATE_TIME = declare("flow.duplicate_time", "{option}: {time} is listed {count} times")
RESERVED_PORT = declare(
    "flow.reserved_port",
    "{option}: {name!r} is the default port",
    "Choose another name",
)
DECIDERS_NEEDED = declare(
    "flow.deciders_needed", "{option} needs `deciders`: without them anyone may decide"
)
NO_DECIDER_NAMED = declare("flow.no_decider_named", "escalate: no decider is named for {time}")
DECIDES_ALREADY = declare(
    "flow.decides_already", "escalate: {name!r} is already a decider before {time}"
)
APPROVE_MISSING = declare(
    "flow.approve_missing", "answers must include 'approve'[; did you mean {nearest:or}?]"
)
UNKNOWN_DECISION = declare(
    "flow.unknown_decision",
    "on_timeout: the decision {decision!r} is not among the answers"
    "[; did you mean {nearest:or}?][; known: {known}]",
)
DEFAULT_DATA = declare(
    "flow.default_data", "on_timeout: its data must be an object with fields of the form"
)
REJECT_UNUSED = declare(
    "flow.reject_unused", "on_reject has no effect, as 'reject' is not among the answers"
)
PORT_IS_ANSWER = declare(
    "flow.port_is_answer",
    "{option} is {port!r}, which is one of the answers",
    "Name another port[, or make {decision!r} the default answer: an object with `decision`]",
)
AFTER_DEADLINE = declare(
    "flow.after_deadline", "{option}: {time} is not before the deadline ({deadline})"
)
UNKNOWN_SHOWN = declare(
    "flow.unknown_shown",
    "show: {name!r} is not an input of the node[; did you mean {nearest:or}?][; it has {known}]",
)
RESERVED_INPUT = declare(
    "flow.reserved_input",
    "no input can be named {input!r}, which is built into templates",
    "Choose another name",
)
INPUT_CHARACTERS = declare(
    "flow.input_characters",
    "{input!r} cannot be the name of an input",
    "Use letters, digits, '_' and '-', with single dots between them",
)
INPUT_WITHIN = declare(
    "flow.input_within",
    "input {input!r} is also a path into input {other!r}, so templates could mean either",
    "Rename one of them",
)
SECRET_INPUT = declare(
    "flow.secret_input",
    "input {input!r} is a secret; only tasks and node types can have one, since the worker that "
    "executes them resolves it",
)
NOT_UPSTREAM = declare(
    "flow.not_upstream",
    "input {input!r} refers to node {source!r}, which is not upstream: no edge leads from it to "
    "here",
    "Let this node follow it, directly or through other nodes",
)
UNUSED_INPUT = declare(
    "flow.unused_input",
    "input {input!r} is never used: no template names it[; a key does, but only values are "
    "templates: {key!r}]",
)
UNUSED_MAP_INPUT = declare(
    "flow.unused_map_input", "input {input!r} is never used: a map only uses the list, {over!r}"
)
OVER_MISSING = declare(
    "flow.over_missing", "with `inputs`, `over` must name the input with the list: {inputs:or}"
)
UNDECLARED_READ = declare(
    "flow.undeclared_input",
    "its config names {name!r}, which is not an input of the node"
    "[; did you mean {nearest:or}?][; it has {inputs}]",
    "Declare it in `inputs`",
)
UNDECLARED = declare(
    "template.undeclared_input",
    "{template!r} names {name!r}, which is not an input of the node"
    "[; did you mean {nearest:or}?][; it has {inputs}]",
    "Declare it in `inputs`",
)
NO_SECRETS = declare(
    "template.secret",
    "{template!r}: only tasks and node types can have secrets, since the worker that executes "
    "them resolves them",
)
ONE_SECRET = declare(
    "template.one_secret", "{template!r} must name one secret", "Write {{ secret.NAME }}"
)
UNKNOWN_KEY = declare(
    "template.unknown_key", "{template!r}: {name!r} has no {key!r}, only {known:and}"
)


def check_definition(
    definition: Definition,
    places: Mapping[str, str] | None = None,
    reads: Mapping[str, Set[str]] | None = None,
    ended: Set[tuple[str, str]] = frozenset(),
) -> list[Fault]:
    """All faults of a definition.

    ``places`` says where each node was defined, for faults about several nodes. ``reads`` are the
    inputs that node types read in addition to templates, by node. ``ended`` are the (node, port)
    pairs that intentionally have no successor.
    """
    faults = check_graph(definition, places, ended)
    if len(definition.nodes) > NODES_MAX:
        return faults
    faults += _input_faults(definition, reads or {})
    for node in definition.nodes:
        try:
            msgspec.json.encode(node)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            faults.append(UNSTORABLE_TEXT.fault(("nodes", node.id), character=character))
        faults += (each.under("nodes", node.id) for each in _setting_faults(node))
        if isinstance(node, ApprovalNode):
            faults += (each.under("nodes", node.id) for each in _approval_faults(node))
    return faults


# The graph


def check_graph(
    definition: Definition,
    places: Mapping[str, str] | None = None,
    ended: Set[tuple[str, str]] = frozenset(),
) -> list[Fault]:
    """The faults of nodes and edges alone."""
    if not definition.nodes:
        return [EMPTY.fault()]
    if len(definition.nodes) > NODES_MAX:
        return [TOO_MANY_NODES.fault(count=len(definition.nodes), most=NODES_MAX)]
    checking = _GraphCheck(definition, places or {})
    return [
        *checking.duplicates(),
        *(fault for node in definition.nodes for fault in checking.node_faults(node)),
        *checking.edge_faults(),
        *checking.unused_ports(ended),
        *checking.reach_faults(),
    ]


class NearNodes:
    """Suggestions for unknown nodes; limited to the first few, since each compares all names."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._compared = 0

    def unknown(self, name: str, asking: str, **args: Any) -> Fault:
        """The fault with suggestions other than the node ``asking``."""
        self._compared += 1
        if self._compared > _COMPARED_MAX:
            return UNKNOWN_NODE.fault(name=name, **args)
        known = [id for id in self._known if id != asking]
        if nearest := near(name, known):
            return UNKNOWN_NODE.fault(name=name, nearest=nearest, **args)
        if len(known) <= _KNOWN_MAX:
            return UNKNOWN_NODE.fault(name=name, known=tuple(known), **args)
        if len(known) > _RANKED_MAX:
            return UNKNOWN_NODE.fault(name=name, **args)
        ranked = tuple(get_close_matches(name, known, n=3, cutoff=0))
        return UNKNOWN_NODE.fault(name=name, count=len(known), ranked=ranked, **args)


def port_fault(node: Node, port: str) -> Fault:
    """Why nothing can follow this port of a node that does not have it."""
    ports = [each for each in ports_of(node) if each != ORDINARY]
    if port == ORDINARY:
        written = tuple(f"{node.id}:{each}" for each in ports[:_KNOWN_MAX])
        return PORT_NEEDED.fault(source=node.id, ports=written)
    nearest = near(port, ports)
    is_free = isinstance(node, TaskNode) and not node.ports
    return UNKNOWN_PORT.fault(
        source=node.id,
        port=port,
        nearest=nearest,
        ports=() if nearest else tuple(ports[:_KNOWN_MAX]),
        undeclared=port if is_free and not nearest else "",
    )


class _GraphCheck:
    def __init__(self, definition: Definition, places: Mapping[str, str]) -> None:
        self._definition = definition
        self._places = places
        self._nodes = {node.id: node for node in definition.nodes}
        self._fed = {edge.target for edge in definition.edges}
        self._ports = {id: ports_of(node) for id, node in self._nodes.items()}
        self._sound = [edge for edge in definition.edges if self._is_sound(edge)]

    def duplicates(self) -> Iterator[Fault]:
        for id, count in Counter(node.id for node in self._definition.nodes).items():
            if count > 1:
                yield DUPLICATE_NODE.fault(("nodes", id))
        for edge, count in Counter(self._definition.edges).items():
            if count > 1:
                yield DUPLICATE_EDGE.fault(("nodes", edge.target, "after"), source=edge.source)

    def node_faults(self, node: Node) -> Iterator[Fault]:
        where = ("nodes", node.id)
        if not NODE_ID.fullmatch(node.id):
            yield NODE_NAME.fault((*where, "name"), id=node.id[:_RANKED_MAX])
        match node:
            case TaskNode(gathers=True) if node.id not in self._fed:
                yield JOINS_NOTHING.fault((*where, "gathers"))
            case RouteNode():
                if not node.ports:
                    yield EMPTY_ROUTE.fault(where)
                if ORDINARY in node.ports:
                    yield EMPTY_KEY.fault(where)
                for key, count in Counter(node.ports).items():
                    if count > 1:
                        yield DUPLICATE_BRANCH.fault(where, key=key)
                    if fault := check.control_fault(key, where, label="key"):
                        yield fault
                if node.on_error == CONTINUE:
                    yield ROUTE_CONTINUES.fault((*where, "on_error"))

    def edge_faults(self) -> Iterator[Fault]:
        nodes = NearNodes(self._nodes)
        for edge in self._definition.edges:
            where = ("nodes", edge.target, "after")
            if fault := check.control_fault(edge.name, where, label="name"):
                yield fault
            if edge.target not in self._nodes:
                yield nodes.unknown(edge.target, edge.source).under("nodes", edge.source)
            elif edge.source not in self._nodes:
                yield nodes.unknown(edge.source, edge.target).under(*where)
            elif edge.port not in self._ports[edge.source]:
                yield port_fault(self._nodes[edge.source], edge.port).under(*where)

    def unused_ports(self, ended: Set[tuple[str, str]]) -> Iterator[Fault]:
        used = {(edge.source, edge.port) for edge in self._definition.edges} | ended
        for id, node in self._nodes.items():
            for option in PORT_OPTIONS:
                port = getattr(node, option, FAIL)
                if port not in (FAIL, CONTINUE) and (id, port) not in used:
                    where = ("nodes", id, option)
                    yield UNUSED_PORT.fault(where, option=option, port=port, node=id)

    def reach_faults(self) -> Iterator[Fault]:
        """Cycles, and nodes that are only reachable through them."""
        following: dict[str, list[str]] = {id: [] for id in self._nodes}
        for edge in self._sound:
            following[edge.source].append(edge.target)
        cycles = cycles_among(following)
        for cycle in cycles:
            steps = [*cycle[:_LISTED_MAX], *(["…"] if len(cycle) > _LISTED_MAX else []), cycle[0]]
            yield CYCLE.fault(cycle=" → ".join(steps), **self._named(cycle))
        on_cycles = {id for cycle in cycles for id in cycle}
        hidden = [id for id in self._unreached(following) if id not in on_cycles]
        if len(hidden) == 1:
            yield UNREACHABLE.fault(("nodes", hidden[0]))
        elif hidden:
            more = len(hidden) - _LISTED_MAX
            yield UNREACHABLE.fault(more=more if more > 0 else None, **self._named(hidden))

    def _unreached(self, following: Mapping[str, Sequence[str]]) -> list[str]:
        soundly_fed = {edge.target for edge in self._sound}
        # Nodes that follow an unknown one have a fault already, and count as reached.
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

    def _named(self, ids: Sequence[str]) -> dict[str, Any]:
        """Arguments of a fault about several nodes: some of them, and where they were defined."""
        some = ids[:_LISTED_MAX]
        labels = (
            f"node {id!r} ({self._places[id]})" if self._places.get(id) else f"node {id!r}"
            for id in some
        )
        return {"ids": tuple(some), "nodes": ", ".join(labels)}


# Inputs and templates

RUN_INPUT, RUN, NODE, SECRET = "input", "run", "node", "secret"
VALUE = "value"
"""The previous output, for nodes without named inputs."""

BUILT_IN: Mapping[str, Sequence[str]] = {
    RUN_INPUT: (),
    RUN: ("id", "flow", "version"),
    NODE: ("id",),
    SECRET: (),
}
"""Names that every template may use, with their keys where known."""


def with_run_input(node: Node, reads: Set[str] = frozenset()) -> Node:
    """Add the run's input to the node's inputs if a template or the node type uses it."""
    if not isinstance(node, TaskNode) or any(each.name == RUN_INPUT for each in node.inputs):
        return node
    if RUN_INPUT not in reads and not any(use.name == RUN_INPUT for use in _uses(node.config)):
        return node
    inputs = sorted((*node.inputs, Input(name=RUN_INPUT)), key=lambda each: each.name)
    return replace(node, inputs=tuple(inputs))


def _input_faults(definition: Definition, reads: Mapping[str, Set[str]]) -> Iterator[Fault]:
    """Faults of the inputs and templates of all nodes."""
    sources = {each.source for node in definition.nodes for each in inputs_of(node) if each.source}
    upstream = Upstream(definition, sources)
    known = {node.id: None for node in definition.nodes}
    nodes = NearNodes(known)
    for node in definition.nodes:
        for each in inputs_of(node):
            fault = _input_fault(node, each)
            if fault is None and each.source and each.source not in known:
                fault = nodes.unknown(each.source, node.id, input=each.name)
            elif fault is None and each.source and not upstream.is_before(each.source, node.id):
                fault = NOT_UPSTREAM.fault(input=each.name, source=each.source)
            if fault is not None:
                yield fault.under("nodes", node.id, "inputs", each.name)
        for fault in _use_faults(node, reads.get(node.id, frozenset())):
            yield fault.under("nodes", node.id)


def _input_fault(node: Node, each: Input) -> Fault | None:
    parts = each.name.split(".")
    if parts[0] in BUILT_IN and each != Input(name=RUN_INPUT):
        return RESERVED_INPUT.fault(input=each.name)
    if not all(parts) or not all(sign.isalnum() or sign in "_-" for sign in "".join(parts)):
        return INPUT_CHARACTERS.fault(input=each.name)
    for other in inputs_of(node):
        if other.name != each.name and each.name.startswith(f"{other.name}."):
            return INPUT_WITHIN.fault(input=each.name, other=other.name)
    if each.secret and not isinstance(node, TaskNode):
        return SECRET_INPUT.fault(input=each.name)
    return None


def _use_faults(node: Node, reads: Set[str]) -> Iterator[Fault]:
    """Names in templates that do not exist, and unused inputs."""
    names = tuple(each.name for each in inputs_of(node))
    for option, config in _templates(node):
        for malformed in template_faults(config):
            yield malformed.under(option)
        for use in _uses(config):
            if fault := _use_fault(node, use, names):
                yield fault.under(option, *use.where)
    heads = {name.partition(".")[0] for name in names}
    for name in sorted(reads - heads - set(names)):
        yield UNDECLARED_READ.fault(("config",), **_undeclared(name, names))
    if isinstance(node, MapNode) and names and node.over not in names:
        yield OVER_MISSING.fault(("over",), over=node.over, inputs=names)
        return
    used = reads | _used(node, names)
    unused = {name for name in names if not used & {name, name.partition(".")[0]}}
    for name in sorted(unused - {RUN_INPUT}):
        if isinstance(node, MapNode):
            yield UNUSED_MAP_INPUT.fault(("inputs", name), input=name, over=node.over)
        else:
            keys = [key for _, part in _templates(node) for key in _keys(part)]
            meant = [use.text for use in _uses(keys) if _is_of(use, name)]
            yield UNUSED_INPUT.fault(("inputs", name), input=name, key=meant[0] if meant else "")


def _use_fault(node: Node, use: TemplateUse, names: Sequence[str]) -> Fault | None:
    if any(_is_of(use, name) for name in names):
        return None
    if use.name == SECRET:
        if not isinstance(node, TaskNode):
            return NO_SECRETS.fault(template=use.text)
        return None if len(use.path) == 1 else ONE_SECRET.fault(template=use.text)
    if use.name in BUILT_IN:
        known = BUILT_IN[use.name]
        if known and use.path and use.path[0] not in known:
            return UNKNOWN_KEY.fault(
                template=use.text, name=use.name, known=tuple(known), key=use.path[0]
            )
        return None
    if use.name == VALUE and not names and not isinstance(node, TaskNode):
        return None
    return UNDECLARED.fault(template=use.text, **_undeclared(use.name, names))


def _is_of(use: TemplateUse, name: str) -> bool:
    """Whether a template is about this input, a part of it, or an object with it."""
    return all(one == other for one, other in zip(use.whole_path, name.split("."), strict=False))


def _undeclared(name: str, names: Sequence[str]) -> dict[str, Any]:
    nearest = near(name, [*names, *BUILT_IN]) if names else ()
    return {"name": name, "nearest": nearest, "inputs": () if nearest else tuple(names)}


def _templates(node: Node) -> list[tuple[str, Any]]:
    """The parts of a node that have templates, by option."""
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
        case TaskNode(type="", config=None):
            return set(names)
        case MapNode():
            return {node.over or ""}
        case ApprovalNode() if node.data is None or node.shows is None:
            return set(names)
        case TaskNode() | SignalNode() | ApprovalNode() | DelayNode():
            shown = node.shows or () if isinstance(node, ApprovalNode) else ()
            uses = [use for _, part in _templates(node) for use in _uses(part)]
            return {name for name in names if any(_is_of(use, name) for use in uses)} | set(shown)
        case _:
            return set(names)  # passed to its call as one object


def _keys(config: Any, depth: int = 0) -> Iterator[str]:
    """All keys of objects; excessive depth is a fault of its own."""
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
    except InvalidInput:  # reported by template_faults
        return []


# Settings


def _setting_faults(node: Node) -> Iterator[Fault]:
    match node:
        case TaskNode():
            yield from _schema_faults(node.input_schema, "input_schema")
            yield from _schema_faults(node.output_schema, "output_schema")
            if node.check is not None:
                yield from _schema_faults(node.check.schema, "check", "schema")
                yield from _condition_faults(node.check.condition, "check", "condition")
            for fault in _name_faults("ports", node.ports):
                # The ports of the node type come first, and are not in the option `ports`.
                yield dataclasses.replace(fault, where=("ports",)) if node.type else fault
        case ApprovalNode():
            yield from _schema_faults(node.form, "form")
            yield from _name_faults("answers", node.answers)
        case SignalNode():
            yield from _condition_faults(node.where, "where", has_templates=True)
        case LoopNode() if not isinstance(node.until, str):
            yield from _condition_faults(node.until, "until")


def _name_faults(option: str, names: Sequence[str]) -> Iterator[Fault]:
    """Faults of names that become ports."""
    yield from _duplicates(option, names)
    for at, name in enumerate(names):
        if name in RESERVED_PORTS:
            yield RESERVED_PORT.fault((option, at), option=option, name=name)


def _duplicates(option: str, names: Sequence[str]) -> Iterator[Fault]:
    for name, count in Counter(names).items():
        if count > 1:
            second = names.index(name, names.index(name) + 1)
            yield DUPLICATE_NAME.fault((option, second), option=option, name=name, count=count)


def _schema_faults(schema: Any, *where: str) -> Iterator[Fault]:
    if schema is not None:
        yield from (fault.under(*where) for fault in check_schema(schema))


def _condition_faults(data: Any, *where: str, has_templates: bool = False) -> Iterator[Fault]:
    if data is not None:
        found = condition_faults(data, has_templates=has_templates)
        yield from (fault.under(*where) for fault in found)


# Approvals


def _approval_faults(node: ApprovalNode) -> Iterator[Fault]:
    if not node.title.strip():
        yield TITLE_MISSING.fault(("title",))
    elif len(node.title) > TITLE_MAX:
        yield TITLE_TOO_LONG.fault(("title",), most=TITLE_MAX)
    yield from _decider_faults(node)
    yield from _answer_faults(node)
    yield from _time_faults(node)
    names = [each.name for each in node.inputs]
    for at, name in enumerate(node.shows or ()):
        if name not in names:
            nearest = near(name, names)
            known = () if nearest else tuple(names)
            yield UNKNOWN_SHOWN.fault(("show", at), name=name, nearest=nearest, known=known)


def _decider_faults(node: ApprovalNode) -> Iterator[Fault]:
    yield from _duplicates("deciders", node.deciders)
    if node.quorum == 0 and not node.deciders:
        yield DECIDERS_NEEDED.fault(("policy",), option="policy")
    known = set(node.deciders)
    for each in node.escalations:
        time = ms_text(each.after_ms)
        if not each.deciders:
            yield NO_DECIDER_NAMED.fault(("escalate",), time=time)
        elif not node.deciders:
            yield DECIDERS_NEEDED.fault(("escalate",), option="escalate")
        for name in each.deciders:
            if name in known:
                yield DECIDES_ALREADY.fault(("escalate",), name=name, time=time)
            known.add(name)


def _answer_faults(node: ApprovalNode) -> Iterator[Fault]:
    if APPROVE not in node.answers:
        yield APPROVE_MISSING.fault(("answers",), nearest=near(APPROVE, node.answers))
    yield from _default_answer_faults(node)
    if REJECT not in node.answers and node.on_reject != FAIL:
        yield REJECT_UNUSED.fault(("on_reject",))
    for option in ("on_timeout", "on_reject"):
        port = getattr(node, option)
        # The port after a rejection may have the name of that answer.
        is_own = option == "on_reject" and port == REJECT
        if port in node.answers and port not in (FAIL, CONTINUE) and not is_own:
            decision = port if option == "on_timeout" else ""
            yield PORT_IS_ANSWER.fault((option,), option=option, port=port, decision=decision)


def _default_answer_faults(node: ApprovalNode) -> Iterator[Fault]:
    default = node.default_answer
    if default is None:
        return
    if default.decision not in node.answers:
        nearest = near(default.decision, node.answers)
        yield UNKNOWN_DECISION.fault(
            ("on_timeout", "decision"),
            decision=default.decision,
            nearest=nearest,
            known=() if nearest else node.answers,
        )
    if node.form is None or default.data is None or check_schema(node.form):
        return
    where: Path = ("on_timeout", "data")
    if not isinstance(default.data, dict):
        yield DEFAULT_DATA.fault(where)
        return
    for fault in faults_of(_without_required(node.form), default.data):
        yield fault.under(*where)


def _without_required(form: JsonSchema) -> JsonSchema:
    """The form with all fields optional: the approval's data may supply the others."""
    if isinstance(form, bool):
        return form
    return {keyword: value for keyword, value in form.items() if keyword != "required"}


def _time_faults(node: ApprovalNode) -> Iterator[Fault]:
    escalated = [each.after_ms for each in node.escalations]
    times: Iterable[tuple[str, Sequence[int]]]
    times = (("reminders", node.reminders_ms), ("escalate", escalated))
    for option, given in times:
        for at, count in Counter(given).items():
            time = ms_text(at)
            if count > 1:
                yield DUPLICATE_TIME.fault((option,), option=option, time=time, count=count)
            if node.timeout_ms is not None and at >= node.timeout_ms:
                deadline = ms_text(node.timeout_ms)
                yield AFTER_DEADLINE.fault((option,), option=option, time=time, deadline=deadline)
