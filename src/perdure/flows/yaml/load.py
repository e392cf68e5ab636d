"""Load flows from YAML, JSON or plain data, with the same drafts as the builder."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import Fault, Path, declare, near
from perdure.errors import InvalidFlow, InvalidInput, node_of
from perdure.flows.analysis import gathering_nodes, in_order
from perdure.flows.assembly import Assembly, End, FlowCursor
from perdure.flows.builder import NAME_RESERVED, cooldown_ms
from perdure.flows.built import BuiltFlow
from perdure.flows.check import (
    DUPLICATE_EDGE,
    DUPLICATE_NODE,
    EMPTY,
    NODE_ID,
    NODE_NAME,
    RESERVED_PORTS,
    NearNodes,
    check_graph,
    port_fault,
)
from perdure.flows.nodes import UNNAMED, BuilderStep, Draft, RouteStep, anything
from perdure.flows.options import (
    APPROVAL,
    FORMS,
    LOOP,
    MAP,
    NODE_TYPE,
    ONE_OF,
    ROUTE,
    SIGNAL,
    TASK,
    NodeForm,
    Option,
    at_option,
    read_options,
)
from perdure.flows.settings import FlowOptions, run_settings
from perdure.flows.yaml.library import AnyNodeTypes, Files, Library, LoadFile, Tasks
from perdure.flows.yaml.parse import (
    Document,
    Faults,
    invalid,
    plain_document,
    read_yaml,
)
from perdure.flows.yaml.schema import (
    MISSING_KEY,
    NODE_KEYS,
    UNKNOWN_KEY,
    WRONG_TYPE,
    flow_faults,
    node_faults,
)
from perdure.model import check
from perdure.model.graph import (
    APPROVE,
    CONTINUE,
    DEFAULT_PORT,
    FAIL,
    ORDINARY,
    REJECT,
    ApprovalNode,
    Definition,
    Edge,
    Graph,
    Node,
    OnFailure,
    RouteNode,
    TaskNode,
    ports_of,
)
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.text import type_name
from perdure.nodes.config import config_faults
from perdure.tasks.node_type import NodeType

TIMEOUT = "timeout"
"""The key of ``next`` for an approval that times out."""

_PORT_OPTIONS = ("on_error", "on_timeout", "ports")

NO_ID = declare("flow.no_id", "a node needs an id[; it has {nearest!r}]")
TWO_IDS = declare("flow.two_ids", "the id is already {id!r}", "Remove this one")
NO_TYPE = declare("flow.no_type", "a node needs a task or a node type[; it has {nearest!r}]")
NO_CONFIG = declare("flow.no_config", "needs a config with {settings}")
INVALID_CHILD = declare("flow.invalid_child", "flow {flow!r} cannot be built")
PORT_UNMENTIONED = declare(
    "flow.port_unmentioned",
    "next does not mention port {port!r}",
    "Write {port}: null to end the branch there",
)
INPUTS_GATHER = declare(
    "flow.inputs_gather",
    "has named inputs, so it cannot gather",
    "Remove `gathers`",
)
MUST_GATHER = declare(
    "flow.must_gather",
    "gathers is false, but several last nodes may have an output",
    "Remove `gathers`",
)


def load_flow(
    path: str | os.PathLike[str],
    *,
    tasks: Tasks = (),
    node_types: AnyNodeTypes = (),
    flows: Iterable[BuiltFlow] = (),
) -> BuiltFlow:
    """Load a flow from a YAML or JSON file.

    ``tasks`` are the tasks it may name, or flows whose tasks it may name; ``node_types`` are yours,
    in addition to the built-in ones; ``flows`` may be used as child flows. Raises ``InvalidFlow``
    with all faults, each with its line.
    """
    return load_with(path, Library(tasks, node_types, flows))


def flow_from_text(
    text: str, *, tasks: Tasks = (), node_types: AnyNodeTypes = (), flows: Iterable[BuiltFlow] = ()
) -> BuiltFlow:
    """Load a flow from a YAML or JSON string; otherwise like :func:`load_flow`."""
    document = read_yaml(check.instance(text, "text", str, "a string"))
    return compiled(document, Library(tasks, node_types, flows))


def flow_from_dict(
    data: Any, *, tasks: Tasks = (), node_types: AnyNodeTypes = (), flows: Iterable[BuiltFlow] = ()
) -> BuiltFlow:
    """Load a flow from plain data; otherwise like :func:`load_flow`."""
    return compiled(plain_document(data), Library(tasks, node_types, flows))


def load_with(path: str | os.PathLike[str], library: Library) -> BuiltFlow:
    try:
        file = FilePath(path)
    except TypeError as error:
        raise check.wrong_type(path, "path", "the path of a file") from error
    return Files(file, library, compiled).flow(file)


def compiled(document: Document, library: Library, load: LoadFile | None = None) -> BuiltFlow:
    """Build the flow in a document; ``load`` reads the files it refers to."""
    if not isinstance(document.data, Mapping):
        expected = "an object with flow: NAME and nodes: [...]"
        fault = WRONG_TYPE.fault(expected=expected, found=type_name(document.data))
        raise invalid(document.file, [document.located(fault, ())])
    return _Loading(document, library, load).flow()


# Edges


@dataclass(frozen=True, slots=True)
class _Edge:
    """An edge, with its path in the file."""

    source: str
    port: str
    target: str
    path: Path
    name: str = ""


def port_of_key(type: str, key: str) -> str:
    """The port for a key of ``next``, at a node of this type."""
    if type == ROUTE.type:
        return key
    is_ordinary = key == DEFAULT_PORT or (type == APPROVAL.type and key == APPROVE)
    return ORDINARY if is_ordinary else key


def key_of_port(node: Node, port: str) -> str:
    """The key of ``next`` for a port."""
    if port == ORDINARY:
        return APPROVE if isinstance(node, ApprovalNode) else DEFAULT_PORT
    return port


def _keys_of_next(given: Any) -> list[str]:
    return list(given) if isinstance(given, Mapping) else []


def _names_in(given: Any, path: Path) -> Iterator[tuple[str, Path]]:
    """A name or a list of names, each with its path."""
    if isinstance(given, str):
        yield given, path
    elif isinstance(given, list):
        for at, each in enumerate(given):
            if isinstance(each, str):
                yield each, (*path, at)


# Nodes


@dataclass(frozen=True, slots=True)
class _Node:
    id: str
    type: str
    """Empty if missing or invalid."""
    data: Mapping[str, Any]
    """Without keys of the wrong shape."""
    path: Path
    wrong: Collection[str]
    """Parameters of the builder with the wrong shape."""
    is_usable: bool
    """Whether its valid options suffice for a node."""
    is_whole: bool
    """Whether its ports and inputs are known."""

    @property
    def form(self) -> NodeForm:
        return FORMS.get(self.type, NODE_TYPE)

    def edges(self) -> Iterator[_Edge]:
        given, path = self.data.get("next"), (*self.path, "next")
        by_key = given if isinstance(given, Mapping) else {ORDINARY: given}
        for key, targets in by_key.items():
            place = (*path, key) if given is by_key else path
            for target, where in _names_in(targets, place):
                yield _Edge(self.id, port_of_key(self.type, key), target, where)
        given, path = self.data.get("after"), (*self.path, "after")
        by_name = given if isinstance(given, Mapping) else {"": given}
        for name, sources in by_name.items():
            place = (*path, name) if given is by_name else path
            for text, where in _names_in(sources, place):
                source, _, port = text.partition(":")
                yield _Edge(source, port, self.id, where, name)

    def path_of(self, where: Path) -> Path:
        """The path in the file of ``where``, which starts with a builder parameter; its existing
        part if the rest is missing."""
        if not where:
            return ()
        places = [each.yaml for each in self.form.options if each.parameter == where[0]]
        if where[0] == "name":
            places = [("id",)]
        found = [_existing((*place, *where[1:]), self.data) for place in places or [where]]
        return max(found, key=len)


def _existing(path: Path, data: Any) -> Path:
    reached: list[str | int] = []
    for part in path:
        if isinstance(data, list) and str(part).isdigit() and int(part) < len(data):
            part = int(part)
        elif not isinstance(data, Mapping) or part not in data:
            break
        reached.append(part)
        data = data[part]
    return tuple(reached)


class _Loading:
    def __init__(self, document: Document, library: Library, load: LoadFile | None) -> None:
        self._document = document
        self._library = library
        self._load = load
        self._data: Mapping[str, Any] = document.data
        name = self._data.get("flow")
        self._name = name if isinstance(name, str) and name else UNNAMED
        self._faults = Faults(self._name)
        self._assembly = Assembly(self._name, is_yaml=True)
        self._nodes: dict[str, _Node] = {}
        self._ids: dict[Path, str] = {}
        """Ids of nodes by path."""
        self._edges: list[_Edge] = []
        self._used_ports: dict[str, list[str]] = {}

    def flow(self) -> BuiltFlow:
        for fault in flow_faults(self._data):
            self._fault(fault, fault.where)
        if control := check.control_fault(self._name, "flow", label="flow name"):
            self._fault(control, ("flow",))
        if "@" in self._name:
            self._fault(NAME_RESERVED.fault(flow=self._name), ("flow",))
        for node in self._read():
            self._nodes[node.id] = node
            self._ids[node.path] = node.id
        if not self._nodes:
            raise self._faults.error()
        self._edges = [edge for node in self._nodes.values() for edge in node.edges()]
        for edge in self._edges:
            self._used_ports.setdefault(edge.source, []).append(edge.port)
        for node in self._nodes.values():
            self._add(node)
        ended = set(self._ended())
        for id, port in ended:
            self._assembly.end(id, port)
        self._assembly.follow((edge.source, edge.port) for edge in self._edges)
        ends = self._ends()
        self._check_unmentioned_ports()
        gathering = self._gathering(ends, ended)
        for node in self._nodes.values():
            self._attach(node, ends[node.id], is_gathering=node.id in gathering)
        return self._built()

    def _fault(self, fault: Fault, path: Path, node: str = "") -> None:
        """Add a fault at a path; ``node`` is the id of the node it is about."""
        where = ("nodes", node, *path[2:]) if node else path
        self._faults.add(self._document.located(with_changes(fault, where=where), path))

    # Reading nodes

    def _read(self) -> Iterator[_Node]:
        if "nodes" not in self._data:
            self._fault(MISSING_KEY.fault(key="nodes"), ())
            return
        given = self._data["nodes"]
        listed: Iterable[tuple[Path, str | None, Any]]
        if isinstance(given, Mapping):
            listed = [(("nodes", id), id, data) for id, data in given.items()]
        elif isinstance(given, list):
            listed = [(("nodes", at), None, data) for at, data in enumerate(given)]
        else:
            found = type_name(given)
            self._fault(WRONG_TYPE.fault(expected="a list or an object", found=found), ("nodes",))
            return
        if not given:
            self._fault(EMPTY.fault(), ("nodes",))
        paths: dict[str, Path] = {}
        for path, key, data in listed:
            if not isinstance(data, Mapping):
                fault = WRONG_TYPE.fault(expected="an object", found=type_name(data))
                self._fault(fault, path, key or "")
                continue
            id = self._id(key, data, path, len(paths))
            if id in paths:
                there = self._document.line_of(paths[id])
                self._fault(DUPLICATE_NODE.fault(there=there), (*path, "id"), id)
                continue
            paths[id] = path
            yield self._node(id, data, path)

    def _id(self, key: str | None, data: Mapping[str, Any], path: Path, count: int) -> str:
        given = data.get("id", key)
        if key is not None and given != key:
            self._fault(TWO_IDS.fault(id=key), (*path, "id"), key)
            return key
        if given is None:
            self._fault(NO_ID.fault(nearest=_meant_key(data)), path)
        elif not isinstance(given, str):
            fault = WRONG_TYPE.fault(expected="a string", found=type_name(given))
            self._fault(fault, (*path, "id"))
        elif not NODE_ID.fullmatch(given):
            self._fault(NODE_NAME.fault(id=given[:200]), (*path, "id"))
        else:
            return given
        return f"{UNNAMED}-{count + 1}"

    def _node(self, id: str, data: Mapping[str, Any], path: Path) -> _Node:
        type = self._type(id, data, path)
        if not type:
            return _Node(id, "", data, path, (), is_usable=False, is_whole=True)
        form = FORMS.get(type, NODE_TYPE)
        shape = node_faults({key: each for key, each in data.items() if key != "id"}, form, type)
        for fault in shape:
            self._fault(fault, (*path, *fault.where), id)
        # An invalid input stays declared, so that templates naming it are not faults too.
        inputs = {str(each.where[1]) for each in shape if _is_one_input(each)}
        others = [each for each in shape if not _is_one_input(each)]
        options = {option for each in others for option in _options_at(form, data, each)}
        inside = [each for each in others if form.settings and each.where[:1] == ("config",)]
        keys = {
            each.where[0]
            for each in others
            if each.where
            and (each not in inside or (len(each.where) == 1 and each.code != MISSING_KEY.name))
        }
        left = {key: value for key, value in data.items() if key not in keys}
        if inputs and "inputs" in left:
            left["inputs"] = {**left["inputs"], **dict.fromkeys(inputs, "input")}
        is_config_lost = bool(form.settings) and "config" in data and "config" not in left
        missing = None if is_config_lost else _missing(form, data, options)
        if missing:
            self._fault(missing, path, id)
        lost = form.settings.values() if missing or is_config_lost else ()
        return _Node(
            id,
            type,
            left,
            path,
            wrong={each.parameter for each in (*options, *lost)},
            is_usable=not missing
            and not is_config_lost
            and all(each.where for each in others)
            # A placeholder can replace a task in the search for further faults.
            and not any(option.is_needed and option.names != "task" for option in options),
            is_whole=not inside and not any(option.name in _PORT_OPTIONS for option in options),
        )

    def _type(self, id: str, data: Mapping[str, Any], path: Path) -> str:
        type = data.get("type", TASK.type if "task" in data else None)
        if isinstance(type, str) and type:
            return type
        if type is None:
            self._fault(NO_TYPE.fault(nearest=_meant_key(data)), path, id)
        else:
            fault = WRONG_TYPE.fault(expected="a string", found=type_name(type))
            self._fault(fault, (*path, "type"), id)
        return ""

    # Adding nodes

    def _add(self, node: _Node) -> None:
        step = self._step(node) if node.type else None
        place = self._document.line_of(node.path)
        (step or self._placeholder(node)).add(self._assembly, FlowCursor(), place)
        if step is None or not node.is_whole:
            inputs = node.data.get("inputs")
            self._assembly.unread(node.id, inputs if isinstance(inputs, Mapping) else ())

    def _step(self, node: _Node) -> BuilderStep | None:
        """The builder step for a node. None if it is unusable; its option faults are then added
        here, because nothing else reads them."""
        form, is_usable = node.form, node.is_usable
        wrong = set(node.wrong)
        given: dict[str, Any] = {}
        for option in form.options:
            holder = node.data.get("config") if len(option.yaml) > 1 else node.data
            key = str(option.yaml[-1])
            if not isinstance(holder, Mapping) or key not in holder or option.parameter in wrong:
                continue
            value = holder[key]
            try:
                if option.names == "flow":
                    value = self._library.flow(value, self._load)
                elif option.names == "task":
                    value = self._body(node, value, option.suffix)
                elif option.from_yaml is not None:
                    value = option.from_yaml(value)
            except InvalidInput as error:
                self._refuse(node, option.yaml, error)
                is_usable = is_usable and (option.names == "task" or not option.is_needed)
                value = anything
                if option.names != "task":
                    wrong.add(option.parameter)
            given[option.parameter] = value
        node_type = self._node_type(node) if form is NODE_TYPE else None
        if not is_usable or (form is NODE_TYPE and node_type is None):
            found: list[Fault] = []
            read_options(form, given, found, wrong=wrong, is_yaml=True)
            for fault in found:
                self._note(fault.under("nodes", node.id))
            return None
        for option in form.options:
            if option.is_needed and option.parameter in wrong:  # can only be a task
                given[option.parameter] = anything
                wrong.discard(option.parameter)
        followed = _keys_of_next(node.data.get("next"))
        if node_type is not None:
            return self._node_type_step(node, node_type, given, wrong)
        if form is ROUTE:
            keys = dict.fromkeys((*followed, *given.pop("branches", ())))
            branches = {port: None for port in keys if port != given.get("on_error")}
            return RouteStep(Draft(form, given, node.id, wrong=wrong), branches)
        if form is TASK and (ports := _given_ports(node, given)):
            given["ports"] = ports
        elif form is SIGNAL:
            given.setdefault("signal", node.id)
        elif form is LOOP and isinstance(given.get("until"), Mapping):
            given["until"] = self._until(node, given["until"])
        elif form is APPROVAL:
            if REJECT in followed:
                given.setdefault("on_reject", REJECT)
            if TIMEOUT in followed:
                given.setdefault("on_timeout", TIMEOUT)
        elif form is MAP and "over" in wrong and given.get("inputs"):
            given["over"] = next(iter(given["inputs"]))
            wrong.discard("over")
        return Draft(form, given, node.id, wrong=wrong)

    def _node_type(self, node: _Node) -> NodeType | None:
        try:
            return self._library.node_types[node.type]
        except InvalidInput as error:
            self._library.missing.add(node.type)
            self._refuse(node, ("type",), error)
            return None

    def _node_type_step(
        self, node: _Node, node_type: NodeType, given: dict[str, Any], wrong: set[str]
    ) -> BuilderStep:
        named = {given.get("on_error"), given.get("on_timeout")}
        followed = [key for key in _keys_of_next(node.data.get("next")) if key not in named]
        config = node_type.followed_by(given.get("config"), followed)
        ports = _given_ports(node, given) if node_type.takes_ports else given.get("ports", ())
        own = () if config_faults(node_type, config or {}) else node_type.ports_of(config or {})
        given = {**given, "type": node_type, "config": config}
        given["ports"] = [each for each in ports if each not in own]
        return Draft(NODE_TYPE, given, node.id, wrong=wrong)

    def _until(self, node: _Node, until: Mapping[str, Any]) -> Any:
        if list(until) != ["task"]:
            return until
        try:
            return self._body(node, str(until["task"]), LOOP.by_name["until"].suffix)
        except InvalidInput as error:
            self._refuse(node, ("config", "until", "task"), error)
            return anything

    def _body(self, node: _Node, name: str, suffix: str) -> Any:
        return self._library.body(name, f"{self._name}.{node.id}{suffix}")

    def _refuse(self, node: _Node, place: Path, error: InvalidInput) -> None:
        if isinstance(error, InvalidFlow):  # of a child flow in another file
            self._fault(INVALID_CHILD.fault(flow=error.flow), (*node.path, *place), node.id)
            self._faults.add(*error.faults)
            return
        for fault in error.faults:
            path = (*node.path, *place, *at_option(fault, "", str(place[-1])).where[1:])
            self._fault(fault, path, node.id)

    def _placeholder(self, node: _Node) -> BuilderStep:
        """A step with all ports that edges refer to."""
        used = dict.fromkeys(self._used_ports.get(node.id, ()))
        if node.type == ROUTE.type:
            draft = Draft(ROUTE, {"key": "key"}, node.id)
            return RouteStep(draft, {**used, "placeholder": None})
        ports = [port for port in used if port not in RESERVED_PORTS]
        given: dict[str, Any] = {"body": anything, "ports": ports}
        if "inputs" in node.data and "inputs" in node.form.parameters:
            given |= {"inputs": node.data["inputs"], "on_missing": "default"}
        return Draft(TASK, given, node.id)

    # Edges

    def _ends(self) -> dict[str, list[End]]:
        """The existing ports that each node follows."""
        found: dict[str, list[End]] = {id: [] for id in self._nodes}
        first: dict[tuple[str, str, str], _Edge] = {}
        ports = {id: set(ports_of(node)) for id, node in self._assembly.nodes.items()}
        nodes = NearNodes(self._nodes)
        for edge in self._edges:
            owner = self._ids[edge.path[:2]]
            unknown = [end for end in (edge.source, edge.target) if end not in self._nodes]
            if unknown:
                self._fault(nodes.unknown(unknown[0], ""), edge.path, owner)
            elif edge.port not in ports[edge.source]:
                if self._nodes[edge.source].is_usable:
                    fault = port_fault(self._assembly.nodes[edge.source], edge.port)
                    self._fault(fault, edge.path, owner)
            elif (same := first.setdefault((edge.source, edge.port, edge.target), edge)) is edge:
                found[edge.target].append(End(edge.source, edge.port, edge.name))
            else:
                there = self._document.line_of(same.path)
                fault = DUPLICATE_EDGE.fault(source=edge.source, there=there)
                self._fault(fault, edge.path, owner)
        return found

    def _check_unmentioned_ports(self) -> None:
        followed = {(edge.source, edge.port) for edge in self._edges}
        for node in self._nodes.values():
            given = node.data.get("next")
            if not isinstance(given, Mapping) or not node.is_usable:
                continue
            match self._assembly.nodes[node.id]:
                case TaskNode(ports=ports) | RouteNode(ports=ports):
                    declared = ports
                case ApprovalNode(answers=answers):
                    declared = tuple(each for each in answers if each not in (APPROVE, REJECT))
                case _:
                    declared = ()
            for port in declared:
                if (node.id, port) not in followed and port not in given:
                    path = (*node.path, "next")
                    self._fault(PORT_UNMENTIONED.fault(port=port), path, node.id)

    def _ended(self) -> Iterator[tuple[str, str]]:
        """Ports that are null in ``next``."""
        for node in self._nodes.values():
            given = node.data.get("next")
            if isinstance(given, Mapping):
                for key, target in given.items():
                    if target is None:
                        yield node.id, port_of_key(node.type, key)

    def _gathering(
        self, ends: Mapping[str, list[End]], ended: set[tuple[str, str]]
    ) -> Collection[str]:
        """The nodes that gather by default."""
        candidates = [
            node.id
            for node in self._nodes.values()
            if len(ends[node.id]) > 1
            and isinstance(self._assembly.nodes[node.id], TaskNode)
            and "gathers" not in node.data
            and not node.data.get("inputs")
            and not _is_several(node.data.get("after"))
        ]
        if not candidates:
            return ()
        definition = Definition(
            name=self._name,
            nodes=tuple(self._assembly.nodes.values()),
            edges=tuple(
                Edge(source=end.source, target=id, port=end.port)
                for id, each in ends.items()
                for end in each
            ),
        )
        if check_graph(definition, ended=ended):
            return ()
        return gathering_nodes(Graph(in_order(definition)), candidates)

    def _attach(self, node: _Node, ends: list[End], *, is_gathering: bool) -> None:
        made = self._assembly.nodes[node.id]
        if isinstance(made, TaskNode):
            is_asked = node.data.get("gathers", is_gathering or _is_several(node.data.get("after")))
            gathers = bool(is_asked) and not node.data.get("inputs")
            if node.data.get("gathers") and not gathers:
                self._fault(INPUTS_GATHER.fault(), (*node.path, "gathers"), node.id)
            made = replace(made, gathers=gathers)
            self._assembly.add(made, FlowCursor(tuple(ends)), gathers=gathers)
            return
        if len(ends) > 1 and not node.data.get("inputs"):
            self._assembly.merge(node.id)
        self._assembly.add(made, FlowCursor(tuple(ends)))

    # The result

    def _built(self) -> BuiltFlow:
        gathers = self._data.get("gathers")
        cursor = FlowCursor(fork="the flow" if gathers is True else "")
        on_failure: OnFailure = "finish" if self._data.get("on_failure") == "finish" else "stop"
        flow = self._assembly.build(cursor, on_failure, self._cooldown_ms(), self._settings())
        for fault in self._assembly.faults:
            self._note(fault)
        if flow is not None and gathers is False and flow.graph.definition.gathers:
            self._fault(MUST_GATHER.fault(), ("gathers",))
        if flow is None or self._faults:
            raise self._faults.error()
        return flow

    def _note(self, fault: Fault) -> None:
        """Add a fault of the builder at its place in the file."""
        node = self._nodes.get(node_of(fault))
        if node is not None:
            self._fault(fault, (*node.path, *node.path_of(fault.where[2:])), node.id)
        else:  # about several nodes; use the place of the first
            several: Sequence[str] = fault.args.get("ids", ())
            path = self._nodes[several[0]].path if several else fault.where
            self._faults.add(self._document.located(fault, path))

    def _settings(self) -> RunSettings:
        options = {
            name: self._data[name] for name in FlowOptions.__optional_keys__ if name in self._data
        }
        try:
            return run_settings(options, FlowOptions)
        except InvalidInput as error:
            for fault in error.faults:
                self._fault(fault, fault.where[:1])
            return NO_SETTINGS

    def _cooldown_ms(self) -> int:
        given = self._data.get("cooldown")
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            return 0
        try:
            return cooldown_ms(given)
        except InvalidInput as error:
            for fault in error.faults:
                self._fault(fault, ("cooldown",))
            return 0


def _is_one_input(fault: Fault) -> bool:
    return len(fault.where) > 1 and fault.where[0] == "inputs"


def _options_at(form: NodeForm, data: Mapping[str, Any], fault: Fault) -> Iterator[Option]:
    """The options that a fault makes unusable."""
    config = data.get("config")
    match fault.where:
        case ("config",) if fault.code == MISSING_KEY.name:
            yield form.settings[fault.args["key"]]
        case ("config", str(key)) if fault.code == UNKNOWN_KEY.name and form.settings:
            free = [each for each in form.settings if each not in (config or {})]
            for meant in get_close_matches(key, free, n=1):  # probably misspelled
                yield form.settings[meant]
        case ("config", str(key), *_) if form.settings:
            yield form.settings[key]
        case (str(key), *_) if key in form.keys:
            yield form.keys[key]


def _missing(form: NodeForm, data: Mapping[str, Any], wrong: Collection[Option]) -> Fault | None:
    """The fault for a missing option that the JSON Schema does not require."""
    if form is TASK:
        return None if "task" in data else MISSING_KEY.fault(key="task")
    choices = [str(form.by_name[each].yaml[-1]) for each in form.one_of]
    config = data.get("config")
    if not isinstance(config, Mapping):
        needed = [key for key, option in form.settings.items() if option.is_required]
        settings = [*([" or ".join(map(repr, choices))] if choices else []), *map(repr, needed)]
        return NO_CONFIG.fault(settings=" and ".join(settings)) if settings else None
    given = tuple(key for key in choices if key in config)
    lost = {option.yaml[-1] for option in wrong}
    if choices and len(given) != 1 and (given or lost.isdisjoint(choices)):
        return ONE_OF.fault(names=tuple(choices), given=given)
    return None


def _meant_key(data: Mapping[str, Any]) -> str:
    """An unknown key that may be a misspelled one."""
    unknown = [key for key in data if key not in NODE_KEYS]
    for wanted in ("task", "type", "id"):
        if wanted not in data and (nearest := near(wanted, unknown, 1)):
            return nearest[0]
    return ""


def _given_ports(node: _Node, given: Mapping[str, Any]) -> list[str]:
    """``ports`` if given, else the keys of ``next`` that no option names."""
    if "ports" in given:
        return list(given["ports"])
    named = {given.get("on_error"), given.get("on_timeout")} - {FAIL, CONTINUE}
    keys = (port_of_key(TASK.type, key) for key in _keys_of_next(node.data.get("next")))
    return [port for port in keys if port != ORDINARY and port not in named]


def _is_several(after: Any) -> bool:
    """Whether ``after`` names several nodes, so that a task gathers them."""
    return isinstance(after, Mapping | list)
