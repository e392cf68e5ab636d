"""From a document to the same steps that the builder records, and to a built flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import Fault
from perdure.errors import InvalidFlow, InvalidInput
from perdure.expr.path import Path
from perdure.flows.analysis import in_order
from perdure.flows.assembly import Assembly, Cursor, End
from perdure.flows.builder import cooldown_ms
from perdure.flows.built import BuiltFlow
from perdure.flows.check import RESERVED_PORTS, check_graph, nearest, whole_fault
from perdure.flows.nodes import (
    ApproveStep,
    DelayStep,
    FlowStep,
    LoopStep,
    MapStep,
    Named,
    RouteStep,
    SignalStep,
    Step,
    ThenStep,
    UseStep,
)
from perdure.flows.yaml.builder_faults import BuilderFaults, place_of
from perdure.flows.yaml.library import Library, LoadFile
from perdure.flows.yaml.parse import Document, Faults, FlowFault, invalid
from perdure.flows.yaml.shape import flow_faults
from perdure.flows.yaml.told_nodes import (
    TIMEOUT,
    ToldEdge,
    ToldNode,
    ToldNodes,
    gathering_nodes,
    is_several,
    keys_of_next,
    port_of_key,
)
from perdure.model.graph import (
    APPROVE,
    CONTINUE,
    FAIL,
    ORDINARY,
    REJECT,
    ApprovalNode,
    Definition,
    Edge,
    Graph,
    RouteNode,
    TaskNode,
    ports_of,
)
from perdure.model.retry import Retry
from perdure.model.text import type_name

_Data = Mapping[str, Any]
_OPTIONS = (
    "timeout", "priority", "queue", "tags", "on_error", "inputs", "on_missing", "on_timeout",
    "input_schema", "output_schema", "check",
)  # fmt: skip


class NodeRefused(InvalidInput):
    """A node cannot be made; ``path`` is the place within it that says why."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class StepMaker:
    """Makes steps of one flow. Data comes in the right shape; what it names may be wrong."""

    def __init__(self, flow: str, library: Library, load: LoadFile | None) -> None:
        self._flow = flow
        self._library = library
        self._load = load
        self._refused: list[NodeRefused] = []

    def refused(self) -> list[NodeRefused]:
        """What was wrong with the last step, though it could be made; told once."""
        refused, self._refused = self._refused, []
        return refused

    def step(self, id: str, kind: str, node: _Data) -> Step:
        """Raises ``NodeRefused``."""
        make = _MAKERS.get(kind)
        if make is not None:
            return make(self, id, node)
        if kind not in self._library.kinds:
            self._library.missing.add(kind)
            raise NodeRefused(("kind",), self._unknown_kind(kind))
        found = self._library.kinds[kind]
        options = self._options(id, node)
        named = {options.get("on_error"), options.get("on_timeout")}
        followed = [key for key in keys_of_next(node.get("next")) if key not in named]
        config = found.followed_by(node.get("config"), followed)
        told = _told_ports(node, options) if found.takes_ports else node.get("ports", ())
        extra = [each for each in told if each not in self._own(found, config)]
        if extra:
            options["ports"] = extra
        return UseStep(found, config, _named(id), None, options)  # type: ignore[arg-type]

    def _own(self, kind: Any, told: Any) -> tuple[str, ...]:
        from perdure.nodes.config import config_faults

        config = told or {}
        return () if config_faults(kind, config) else tuple(kind.ports_of(config))

    def _unknown_kind(self, kind: str) -> str:
        try:
            self._library.kinds[kind]
        except InvalidInput as error:
            return str(error)
        raise AssertionError(kind)

    def task(self, id: str, node: _Data) -> Step:
        body = self._body(node["task"], id, ("task",))
        options = self._options(id, node)
        ports = _told_ports(node, options)
        if ports:
            options["ports"] = ports
        if "config" in node:
            options["config"] = node["config"]
        return ThenStep(body, _named(id), None, options)

    def route(self, id: str, node: _Data) -> Step:
        config = node["config"]
        if "task" in config:
            key = self._body(config["task"], id, ("config", "task"))
        else:
            key = config["key"]
        options = self._options(id, node)
        told = dict.fromkeys((*keys_of_next(node.get("next")), *node.get("ports", ())))
        branches = {port: None for port in told if port != options.get("on_error")}
        return RouteStep(key, branches, None, _named(id), None, options)  # type: ignore[arg-type]

    def map(self, id: str, node: _Data) -> Step:
        config = node["config"]
        over, concurrency = config.get("over"), config.get("concurrency")
        options = self._options(id, node)
        body = self._body_in(id, config)
        return MapStep(body, _named(id), over, concurrency, options)  # type: ignore[arg-type]

    def loop(self, id: str, node: _Data) -> Step:
        config = node["config"]
        until = config["until"]
        if isinstance(until, Mapping) and list(until) == ["task"]:
            until = self._body(str(until["task"]), f"{id}.until", ("config", "until", "task"))
        return LoopStep(
            self._body_in(id, config),
            _named(id),
            until,
            config.get("max_iterations", 50),
            config.get("on_max", FAIL),
            self._options(id, node),  # type: ignore[arg-type]
        )

    def delay(self, id: str, node: _Data) -> Step:
        config = node["config"]
        options = self._options(id, node)
        return DelayStep(config.get("for"), config.get("until"), _named(id), options)  # type: ignore[arg-type]

    def signal(self, id: str, node: _Data) -> Step:
        config = node.get("config", {})
        return SignalStep(
            config.get("name", id),
            _named(id),
            config.get("timeout"),
            config.get("on_timeout", FAIL),
            config.get("where"),
            self._options(id, node),  # type: ignore[arg-type]
        )

    def approval(self, id: str, node: _Data) -> Step:
        config = dict(node["config"])
        title = config.pop("title")
        followed = keys_of_next(node.get("next"))
        if REJECT in followed:
            config.setdefault("on_reject", REJECT)
        if TIMEOUT in followed:
            config.setdefault("on_timeout", TIMEOUT)
        if "notify" in config:
            config["notify"] = self._body(config["notify"], f"{id}.notify", ("config", "notify"))
        if "escalate" in config:
            config["escalate"] = [(each["after"], each["to"]) for each in config["escalate"]]
        return ApproveStep(title, _named(id), {**config, **self._options(id, node)})  # type: ignore[typeddict-item]

    def flow(self, id: str, node: _Data) -> Step:
        flow = self._child(node["config"]["flow"])
        return FlowStep(flow, _named(id), self._options(id, node))

    def _options(self, id: str, node: _Data) -> dict[str, Any]:
        options = {key: node[key] for key in _OPTIONS if key in node}
        if "retry" in node:
            options["retries"] = self._retry(node["retry"])
        if "undo" in node:
            options["undo"] = self._body(node["undo"], f"{id}.undo", ("undo",))
        return options

    def _body_in(self, id: str, config: _Data) -> Any:
        if "flow" in config:
            return self._child(config["flow"])
        return self._body(config["task"], id, ("config", "task"))

    def _body(self, name: str, own_name: str, path: Path) -> Any:
        try:
            return self._library.body(name, f"{self._flow}.{own_name}")
        except InvalidInput as error:
            self._refused.append(NodeRefused(path, str(error)))
            return anything

    def _retry(self, told: Any) -> Retry:
        try:
            if isinstance(told, int):
                return Retry(told)
            names = {key: tuple(told[key]) for key in ("on", "never_on") if key in told}
            return Retry(**{**told, **names})
        except InvalidInput as error:
            self._refused.append(NodeRefused(("retry",), str(error)))
            return Retry(0)

    def _child(self, name: str) -> Any:
        try:
            return self._library.flow(name, self._load)
        except InvalidInput as error:
            raise NodeRefused(("config", "flow"), str(error)) from error


_MAKERS: dict[str, Callable[[StepMaker, str, _Data], Step]] = {
    "task": StepMaker.task,
    "route": StepMaker.route,
    "map": StepMaker.map,
    "loop": StepMaker.loop,
    "delay": StepMaker.delay,
    "signal": StepMaker.signal,
    "approval": StepMaker.approval,
    "flow": StepMaker.flow,
}


def _named(id: str) -> Named:
    return Named(id, None)


def _told_ports(node: _Data, options: _Data) -> list[str]:
    """Those of ``ports``, else the keys of ``next`` that no option names."""
    if "ports" in node:
        return list(node["ports"])
    named = {options.get("on_error"), options.get("on_timeout")} - {FAIL, CONTINUE}
    keys = (port_of_key("task", key) for key in keys_of_next(node.get("next")))
    return [port for port in keys if port != ORDINARY and port not in named]


def anything(*args: Any, **kwargs: Any) -> None:
    """Stands in for what cannot be called."""


UNNAMED = "unnamed"

_COMPARED_MAX = 10
"""How many unknown nodes are compared with all known ones for a suggestion."""
_NAMED_MAX = 12
"""How many nodes or ports a message names."""


def compiled(document: Document, library: Library, load: LoadFile | None = None) -> BuiltFlow:
    """The flow that a document tells; ``load`` reads the files that it names."""
    data = document.data
    if not isinstance(data, Mapping):
        message = f"a flow is an object with flow: NAME and nodes: [...], not {type_name(data)}"
        raise invalid(document.file, [document.fault((), message)])
    return _Compiling(document, library, load).flow()


class _Compiling:
    def __init__(self, document: Document, library: Library, load: LoadFile | None) -> None:
        self._document = document
        self._data: Mapping[str, Any] = document.data
        name = self._data.get("flow")
        self._name = name if isinstance(name, str) and name else UNNAMED
        self._faults = Faults(self._name)
        self._maker = StepMaker(self._name, library, load)
        self._assembly = Assembly(self._name)
        self._nodes: list[ToldNode] = []
        self._by_id: dict[str, ToldNode] = {}
        self._by_path: dict[Path, str] = {}
        self._edges: list[ToldEdge] = []
        self._used_ports: dict[str, list[str]] = {}
        self._ended: set[tuple[str, str]] = set()
        self._compared = 0

    def flow(self) -> BuiltFlow:
        self._read()
        if not self._nodes:
            raise self._faults.error()
        for index, node in enumerate(self._nodes):
            self._add(node, place_of(index))
        self._end_branches()
        self._assembly.follow((edge.source, edge.port) for edge in self._edges)
        ends = self._ends()
        self._check_unused_ports()
        gathering = self._gathering(ends)
        for node in self._nodes:
            self._attach(node, ends[node.id], is_gathering=node.id in gathering)
        return self._built()

    def _read(self) -> None:
        for path, message in flow_faults(self._data):
            self._faults.add(self._document.fault(path, message))
        if "@" in self._name:
            self._fault(("flow",), f"the name {self._name!r} must not contain '@'")
        reading = ToldNodes(self._document, self._faults)
        if "nodes" in self._data:
            self._nodes = reading.read(self._data["nodes"])
        else:
            self._fault((), "it needs 'nodes'")
        self._by_id = {node.id: node for node in self._nodes}
        self._by_path = {node.path: node.id for node in self._nodes}
        self._edges = [edge for node in self._nodes for edge in node.edges()]
        for edge in self._edges:
            self._used_ports.setdefault(edge.source, []).append(edge.port)

    def _fault(self, path: Path, message: str, node: str = "", found: Fault | None = None) -> None:
        self._faults.add(self._document.fault(path, message, node, found))

    # Nodes

    def _add(self, node: ToldNode, place: str) -> None:
        step: Step | None = None
        if node.is_usable:
            try:
                step = self._maker.step(node.id, node.kind, node.data)
            except NodeRefused as error:
                self._refuse(node, error)
            for each in self._maker.refused():
                self._refuse(node, each)
        (step or self._stand_in(node)).add(self._assembly, Cursor(), place)
        if step is not None and not node.is_whole:
            self._assembly.unread(node.id, node.data.get("inputs", ()))

    def _refuse(self, node: ToldNode, error: NodeRefused) -> None:
        cause = error.__cause__
        found = whole_fault(cause) if isinstance(cause, InvalidInput) else None
        self._fault((*node.path, *error.path), str(error).split("\n")[0], node.id, found)
        if isinstance(cause, InvalidFlow):
            self._faults.add(*(each for each in cause.errors if isinstance(each, FlowFault)))

    def _stand_in(self, node: ToldNode) -> Step:
        """Something with all ports that anybody speaks of."""
        used = dict.fromkeys(self._used_ports.get(node.id, ()))
        named = Named(node.id, None)
        if node.kind == "route":
            return RouteStep("key", {**used, "stand-in": None}, None, named, None, {})
        ports = [port for port in used if port not in RESERVED_PORTS]
        return ThenStep(anything, named, None, {"ports": ports})

    # Edges

    def _ends(self) -> dict[str, list[End]]:
        """What each node follows, where that is there."""
        found: dict[str, list[End]] = {node.id: [] for node in self._nodes}
        told: dict[ToldEdge, ToldEdge] = {}
        ports = {id: set(ports_of(node)) for id, node in self._assembly.nodes.items()}
        for edge in self._edges:
            if self._is_sound(edge, ports):
                plain = ToldEdge(edge.source, edge.port, edge.target, ())
                first = told.setdefault(plain, edge)
                if first is edge:
                    found[edge.target].append(End(edge.source, edge.port, edge.name))
                else:
                    self._fault_twice(edge, first)
        return found

    def _is_sound(self, edge: ToldEdge, ports: Mapping[str, set[str]]) -> bool:
        for end in (edge.source, edge.target):
            if end not in self._by_id:
                message = f"there is no node {end!r}{self._near_nodes(end)}"
                self._fault(edge.path, message, self._teller(edge))
                return False
        is_there = edge.port in ports[edge.source]
        if is_there or not self._by_id[edge.source].is_usable:
            return is_there
        self._fault(edge.path, self._port_fault(edge), self._teller(edge))
        return False

    def _port_fault(self, edge: ToldEdge) -> str:
        node = self._assembly.nodes[edge.source]
        ports = ports_of(node)
        named = [port for port in ports if port != ORDINARY][:_NAMED_MAX]
        if edge.port == ORDINARY:
            written = " or ".join(f"{edge.source}:{port}" for port in named)
            return f"{edge.source!r} is a route: say from which port, {written}"
        known = f"it has {', '.join(map(repr, named))}" if named else "it has none"
        hint = nearest(edge.port, named)
        if not hint and isinstance(node, TaskNode) and not node.ports:
            hint = f"; if its result is to choose that one, declare it: ports: [{edge.port}]"
        return f"{edge.source!r} has no port {edge.port!r}; {known}{hint}"

    def _teller(self, edge: ToldEdge) -> str:
        """The node whose data tells of the edge."""
        return self._by_path[edge.path[:2]]

    def _near_nodes(self, name: str) -> str:
        """What may have been meant; of many faults only the first are worth the comparisons."""
        self._compared += 1
        if self._compared > _COMPARED_MAX:
            return ""
        is_short = len(self._by_id) <= _NAMED_MAX
        known = f"; there are {', '.join(self._by_id)}" if is_short else ""
        return nearest(name, self._by_id) or known

    def _fault_twice(self, edge: ToldEdge, first: ToldEdge) -> None:
        mark = self._document.mark_of(first.path)
        line = f", in line {mark.line}" if mark else ""
        message = f"{edge.target!r} follows {edge.source!r} already{line}; say it once"
        self._fault(edge.path, message, self._teller(edge))

    def _check_unused_ports(self) -> None:
        followed = {(edge.source, edge.port) for edge in self._edges}
        for node in self._nodes:
            told = node.data.get("next")
            if not isinstance(told, Mapping) or not node.is_usable:
                continue
            for port in self._declared_ports(node.id):
                if (node.id, port) not in followed and port not in told:
                    message = (
                        f"next says nothing of port {port!r}; write {port}: null to end the branch "
                        "there"
                    )
                    self._fault((*node.path, "next"), message, node.id)

    def _end_branches(self) -> None:
        """Ports that ``next`` leads to nothing."""
        for node in self._nodes:
            told = node.data.get("next")
            for key in keys_of_next(told):
                if told is not None and told[key] is None:
                    self._ended.add((node.id, port_of_key(node.kind, key)))
        for id, port in self._ended:
            self._assembly.end(id, port)

    def _declared_ports(self, id: str) -> tuple[str, ...]:
        node = self._assembly.nodes[id]
        match node:
            case TaskNode() | RouteNode():
                return node.ports
            case ApprovalNode():
                return tuple(each for each in node.answers if each not in (APPROVE, REJECT))
        return ()

    def _gathering(self, ends: Mapping[str, list[End]]) -> set[str]:
        """The nodes that gather though nothing says so."""
        candidates = [
            node.id
            for node in self._nodes
            if len(ends[node.id]) > 1
            and isinstance(self._assembly.nodes[node.id], TaskNode)
            and "gathers" not in node.data
            and not node.data.get("inputs")
            and not is_several(node.data.get("after"))
        ]
        if not candidates:
            return set()
        definition = Definition(
            name=self._name,
            nodes=tuple(self._assembly.nodes.values()),
            edges=tuple(
                Edge(source=end.source, target=id, port=end.port)
                for id, each in ends.items()
                for end in each
            ),
        )
        if check_graph(definition, ended=self._ended):
            return set()
        return gathering_nodes(Graph(in_order(definition)), candidates)

    def _attach(self, told: ToldNode, ends: list[End], *, is_gathering: bool) -> None:
        node = self._assembly.nodes[told.id]
        if isinstance(node, TaskNode):
            is_asked = told.data.get("gathers", is_gathering or is_several(told.data.get("after")))
            gathers = bool(is_asked) and not told.data.get("inputs")
            if told.data.get("gathers") and not gathers:
                message = "it takes its inputs by name, so it gathers nothing; leave this out"
                self._fault((*told.path, "gathers"), message, told.id)
            self._assembly.add(replace(node, gathers=gathers), Cursor(tuple(ends)), gathers=gathers)
            return
        if len(ends) > 1 and not told.data.get("inputs"):
            self._assembly.merge(told.id)
        self._assembly.add(node, Cursor(tuple(ends)))

    # The result

    def _built(self) -> BuiltFlow:
        gathers = self._data.get("gathers")
        cursor = Cursor(fork="the flow" if gathers is True else "")
        flow: BuiltFlow | None = None
        try:
            flow = self._assembly.build(cursor, self._on_failure(), self._cooldown_ms())
        except InvalidFlow as error:
            builder = BuilderFaults(self._document, self._nodes, self._assembly)
            for text in error.errors:
                self._faults.add(builder.located(text))
        if flow is not None and gathers is False and flow.graph.definition.gathers:
            message = "gathers: false, but its last nodes may end together; leave it out"
            self._fault(("gathers",), message)
        if flow is None or self._faults:
            raise self._faults.error()
        return flow

    def _on_failure(self) -> Any:
        told = self._data.get("on_failure")
        return told if told in ("stop", "finish") else "stop"

    def _cooldown_ms(self) -> int:
        told = self._data.get("cooldown")
        if isinstance(told, bool) or not isinstance(told, str | int | float):
            return 0
        try:
            return cooldown_ms(told)
        except InvalidInput as error:
            self._fault(("cooldown",), str(error), found=whole_fault(error))
            return 0
