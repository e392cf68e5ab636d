"""Dump a built flow as YAML, without options that have their default values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from copy import deepcopy
from functools import cache
from typing import Any

from msgspec.structs import replace

from perdure.flows.analysis import Exclusion, Place, gathering_nodes, places_before
from perdure.flows.assembly import open_exits
from perdure.flows.built import BuiltFlow
from perdure.flows.check import with_run_input
from perdure.flows.options import (
    APPROVAL,
    CALL_SETTINGS,
    CHILD_SETTINGS,
    DELAY,
    FLOW,
    LOOP,
    MAP,
    NODE_TYPE,
    ROUTE,
    SIGNAL,
    TASK,
    Option,
)
from perdure.flows.yaml.load import TIMEOUT, key_of_port
from perdure.flows.yaml.parse import BOOLEANS, FLOATS, INTEGERS, NULLS
from perdure.model.graph import (
    APPROVE,
    DEFAULT_PORT,
    FAIL,
    ORDINARY,
    REJECT,
    ApprovalNode,
    Call,
    DelayNode,
    Edge,
    FlowNode,
    FlowRef,
    Graph,
    Input,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
    ports_of,
)
from perdure.model.retry import Retry, decode_policy
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.times import duration_text, ms_text
from perdure.nodes.registry import NodeTypes
from perdure.tasks.task import PlainFunction

_Data = dict[str, Any]


class _Calls:
    def __init__(self, flow: BuiltFlow) -> None:
        self._tasks = flow.tasks
        self._places = places_before(flow.graph)
        self._settings = flow.settings

    def settings_of(self, node: Node) -> dict[str, Any]:
        call = node.call if isinstance(node, TaskNode | RouteNode) else getattr(node, "body", None)
        if isinstance(call, FlowRef):
            return _settings(self._settings.children.get(node.id, NO_SETTINGS))
        if not isinstance(call, Call):
            return {}
        written = _policy(call)
        priority, queue = self._own_place(node, call)
        if call.priority != priority:
            written["priority"] = call.priority
        if call.queue != queue or node.id in self._settings.default_queue:
            written["queue"] = call.queue
        if call.tags != self._tasks[call.task].tags:
            written["tags"] = list(call.tags)
        return written

    def _own_place(self, node: Node, call: Call) -> Place:
        """Priority and queue of the node by default."""
        task = self._tasks[call.task]
        is_typed = isinstance(node, TaskNode) and bool(node.type)
        if is_typed or isinstance(task, PlainFunction):
            return self._places[node.id]
        return task.priority, task.queue


def _policy(call: Call) -> dict[str, Any]:
    if call.policy is None:
        return {}
    policy = decode_policy(call.policy.encode())
    written: dict[str, Any] = {}
    if policy.retry is not None:
        written["retries"] = _retry(policy.retry)
    if policy.timeout is not None:
        written["timeout"] = duration_text(policy.timeout)
    return written


def _retry(retry: Retry) -> int | dict[str, Any]:
    usual = Retry(retry.retries)
    changed: dict[str, Any] = {
        "first": duration_text(retry.first_delay) if retry.first != usual.first else None,
        "factor": retry.factor if retry.factor != usual.factor else None,
        "max": duration_text(retry.delay_max) if retry.max != usual.max else None,
        "jitter": retry.jitter if retry.jitter != usual.jitter else None,
        "on": list(retry.retried_names) or None,
        "never_on": list(retry.refused_names) or None,
    }
    given = {key: value for key, value in changed.items() if value is not None}
    return {"retries": retry.retries, **given} if given else retry.retries


class _Edges:
    """``with_inputs`` are the nodes with named inputs."""

    def __init__(self, graph: Graph, with_inputs: Collection[str]) -> None:
        self._graph = graph
        self._with_inputs = with_inputs
        self._by_after = {id for id in graph.nodes if self._needs_after(id)}
        self._gathering = gathering_nodes(graph, graph.nodes)
        self._next = {id: self._followers(id) for id in graph.nodes}

    @property
    def gathers_by_default(self) -> bool:
        """Whether the flow's result is an object by node by default."""
        return not Exclusion(self._graph).are_exclusive(open_exits(self._graph))

    def of(self, node: Node) -> _Data:
        """The ``next``, ``after`` and ``gathers`` of a node that are needed."""
        written: _Data = {}
        is_typed = isinstance(node, TaskNode) and bool(node.type)
        if any(self._next[node.id].values()) or (self._next[node.id] and not is_typed):
            written["next"] = _shortest(node, self._next[node.id])
        if node.id in self._by_after:
            written["after"] = self._sources(node)
        if isinstance(node, TaskNode) and node.gathers != self._gathers_by_default(node):
            written["gathers"] = node.gathers
        return written

    def ports_of(self, node: Node) -> list[str] | None:
        """``ports``, unless ``next`` implies them."""
        if not isinstance(node, TaskNode | RouteNode):
            return None
        if isinstance(node, TaskNode) and node.type:
            node_types = NodeTypes()  # the ports of other node types are unknown here
            own = node_types[node.type].ports_of(node.config) if node.type in node_types else ()
            is_implied = set(node.ports) == set(own)
        else:
            is_implied = all(key_of_port(node, port) in self._next[node.id] for port in node.ports)
        return None if is_implied else list(node.ports)

    def implied_by_next(self, node: ApprovalNode) -> dict[str, str]:
        """Options of an approval that follow from the keys of its ``next``."""
        followed = self._next[node.id]
        implied = {"on_reject": REJECT} if REJECT in followed else {}
        return {**implied, "on_timeout": TIMEOUT} if TIMEOUT in followed else implied

    def _needs_after(self, id: str) -> bool:
        """Whether ``next`` cannot express an edge: it has a name, or its port a reserved key."""
        return any(
            edge.name or _is_hidden(self._graph.nodes[edge.source], edge.port)
            for edge in self._graph.incoming[id]
        )

    def _followers(self, id: str) -> dict[str, list[str]]:
        """The targets of a node by the keys of its ports in ``next``."""
        node, edges = self._graph.nodes[id], self._graph.outgoing[id]
        elsewhere = {e.port for e in edges if e.target in self._by_after}
        declared = node.ports if isinstance(node, TaskNode | RouteNode) else ()
        found: dict[str, list[str]] = {}
        for port in dict.fromkeys((ORDINARY, *declared, *ports_of(node))):
            if _is_hidden(node, port):
                continue
            targets = [e.target for e in edges if e.port == port and e.target not in self._by_after]
            is_open = port != ORDINARY and port not in elsewhere
            if targets or is_open:
                found[key_of_port(node, port)] = targets
        return found

    def _sources(self, node: Node) -> Any:
        incoming = self._graph.incoming[node.id]
        if not any(edge.name for edge in incoming):
            sources = [_edge_source(edge) for edge in incoming]
            return sources[0] if len(sources) == 1 else sources
        by_name: dict[str, list[str]] = {}
        for edge in incoming:
            by_name.setdefault(edge.name or edge.source, []).append(_edge_source(edge))
        return {name: _one_or_all(sources) for name, sources in by_name.items()}

    def _gathers_by_default(self, node: TaskNode) -> bool:
        if node.id in self._with_inputs:
            return False
        if node.id in self._by_after:
            return not isinstance(self._sources(node), str)
        return node.id in self._gathering


def _is_hidden(node: Node, port: str) -> bool:
    """Whether the key of this port in ``next`` means the ordinary port."""
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


def _edge_source(edge: Edge) -> str:
    return f"{edge.source}:{edge.port}" if edge.port else edge.source


_ORDER = (
    "id", "task", "type", "config", "inputs", "next", "after", "gathers", "retry", "delay",
    "timeout", "priority", "queue", "tags", "on_error", "on_missing", "on_timeout", "input_schema",
    "output_schema", "check", "undo", "ports",
)  # fmt: skip
"""The order of the keys of a node."""


def flow_data(flow: BuiltFlow) -> _Data:
    """The flow as data for ``Flow.from_dict``, which builds the same version."""
    definition = flow.graph.definition
    dumping = _Dumping(flow)
    written: _Data = {"flow": flow.name}
    if definition.on_failure != "stop":
        written["on_failure"] = definition.on_failure
    if definition.cooldown_ms:
        written["cooldown"] = ms_text(definition.cooldown_ms)
    written |= _settings(flow.settings)
    if dumping.edges.gathers_by_default != definition.gathers:
        written["gathers"] = definition.gathers
    written["nodes"] = [dumping.node(node) for node in definition.nodes]
    return deepcopy(written)  # so that callers cannot change the flow


def _settings(settings: RunSettings) -> _Data:
    """The defaults of its runs that are set."""
    timeout = None if settings.timeout_ms is None else ms_text(settings.timeout_ms)
    given = {
        "priority": settings.priority,
        "queue": settings.queue,
        "tags": list(settings.tags) or None,
        "delay": None if settings.delay_ms is None else ms_text(settings.delay_ms),
        "timeout": timeout,
        "timeout_counts_waiting": None if settings.timeout_counts_waiting else False,
        "max_attempts": settings.max_attempts,
        "max_running": {"count": settings.max_running, "key": settings.running_key}
        if settings.running_key
        else settings.max_running,
        "sticky": None if settings.sticky_ms is None else ms_text(settings.sticky_ms),
    }
    return {name: value for name, value in given.items() if value is not None}


class _Dumping:
    def __init__(self, flow: BuiltFlow) -> None:
        self._flow = flow
        self._calls = _Calls(flow)
        self.edges = _Edges(flow.graph, {n.id for n in flow.graph.nodes.values() if _inputs(n)})

    def node(self, node: Node) -> _Data:
        """All options of a node that differ from their defaults."""
        form = NODE_TYPE if isinstance(node, TaskNode) and node.type else _FORMS_OF[type(node)]
        config: _Data = {}
        written: _Data = {"id": node.id, **self.edges.of(node)}
        if form is not TASK:
            written["type"] = node.type if isinstance(node, TaskNode) else form.type
        own = self._own(node)
        for option in form.options:
            if option.name in own:
                value = own[option.name]
            else:
                value = _value(node, option)
            if value is not None:
                (written if len(option.yaml) == 1 else config)[str(option.yaml[-1])] = value
        if config:
            written["config"] = config
        return {key: written[key] for key in _ORDER if key in written}

    def _own(self, node: Node) -> _Data:
        """Options that are not plain fields of the node; None if omitted."""
        inputs = {each.name: _input_source(each) for each in _inputs(node)} or None
        own: _Data = {"inputs": inputs, "gathers": self.edges.of(node).get("gathers")}
        own |= dict.fromkeys(CALL_SETTINGS | CHILD_SETTINGS) | self._calls.settings_of(node)
        own["ports"] = self.edges.ports_of(node)
        match node:
            case TaskNode(type=""):
                own["task"] = node.call.task
            case TaskNode():
                own["config"] = node.config or None
            case RouteNode():
                own["key"] = node.key or None
                own["task"] = None if node.key else node.call.task
            case LoopNode():
                own["until"] = {"task": node.check.task} if node.until is None else node.until
            case DelayNode():
                own["delay"] = None if node.until else ms_text(node.delay_ms)
            case SignalNode():
                own["signal"] = None if node.signal == node.id else node.signal
                if node.default_payload is not None:
                    own["on_timeout"] = {"default": node.default_payload.value}
                del own["timeout"]
            case ApprovalNode():
                own |= self._approval_ports(node)
        if isinstance(node, MapNode | LoopNode | FlowNode):
            is_flow = isinstance(node.body, FlowRef)
            own["task"] = None if is_flow else node.body.task  # type: ignore[union-attr]
            own["flow"] = self._child(node.body) if isinstance(node.body, FlowRef) else None
        return own

    def _child(self, body: FlowRef) -> str:
        named = [each for each in self._flow.graph.children if each.name == body.name]
        return body.name if len(named) == 1 else body.text

    def _approval_ports(self, node: ApprovalNode) -> _Data:
        """``on_timeout`` and ``on_reject``, unless ``next`` implies them."""
        implied = self.edges.implied_by_next(node)
        on_timeout: Any = node.on_timeout
        if node.default_answer is not None:
            answer = node.default_answer
            data = {} if answer.data is None else {"data": answer.data}
            on_timeout = {"decision": answer.decision, **data}
        given = {"on_timeout": on_timeout, "on_reject": node.on_reject}
        return {
            name: None if value == implied.get(name, FAIL) else value
            for name, value in given.items()
        }


_FORMS_OF = {
    TaskNode: TASK,
    RouteNode: ROUTE,
    MapNode: MAP,
    LoopNode: LOOP,
    DelayNode: DELAY,
    SignalNode: SIGNAL,
    ApprovalNode: APPROVAL,
    FlowNode: FLOW,
}


def _value(node: Node, option: Option) -> Any:
    """The value of an option in a file; None if omitted."""
    stored = getattr(node, option.field or option.name)
    if stored == option.default:
        return None
    if option.to_yaml is not None:
        return option.to_yaml(stored)
    return list(stored) if isinstance(stored, tuple) else stored


def _inputs(node: Node) -> tuple[Input, ...]:
    """The explicit inputs, without the run's input if a template added it."""
    if isinstance(node, RouteNode):
        return ()
    explicit = tuple(each for each in node.inputs if each != Input(name="input"))
    is_added = with_run_input(replace(node, inputs=explicit)) == node
    return explicit if is_added else node.inputs


def _input_source(input: Input) -> Any:
    if input.secret:
        return f"secret.{input.secret}"
    source = ".".join([f"{input.source}.output" if input.source else "input", *input.path])
    return source if input.default is None else {"from": source, "default": input.default}


WIDTH = 100
_UNPRINTABLE = re.compile(
    "[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that some parsers take for line breaks or drop, unless escaped."""
_NO_TEXT = "tag:yaml.org,2002:other"


def dumped(data: Any) -> str:
    import yaml

    return yaml.dump(
        data,
        Dumper=_dumper(),
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=WIDTH,
    )


@cache
def _dumper() -> type[Any]:
    import yaml

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)  # indent list items below their key

        def ignore_aliases(self, data: Any) -> bool:
            return True

    # PyYAML quotes strings that are ambiguous in YAML 1.1; add those of YAML 1.2.
    for pattern in (NULLS, BOOLEANS, INTEGERS, FLOATS):
        whole = re.compile(rf"(?:{pattern.pattern})\Z")
        Dumper.add_implicit_resolver(_NO_TEXT, whole, None)
    Dumper.add_representer(str, _text)
    return Dumper


def _text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text.strip("\n") else None
    if _UNPRINTABLE.search(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
