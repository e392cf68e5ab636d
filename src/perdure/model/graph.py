"""A flow as data: nodes, edges, and the calls of nodes, without code.

Everything that affects a run is part of the version; descriptions are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec

from perdure.diagnostics import declare
from perdure.errors import DefinitionCorrupt, InvalidInput
from perdure.model.partition import Partition
from perdure.model.value import Value

FAIL, CONTINUE = "fail", "continue"
"""What follows an error or timeout; any other string is a port to continue on."""
DEFAULT_PORT = "default"
"""The port of a route for all keys without a branch."""
ORDINARY = ""
"""The default port of a node."""

UNKNOWN_PORT = declare("node.unknown_port", "node {node!r} has no port {port!r}[; it has {known}]")

APPROVE, REJECT = "approve", "reject"
"""The default answers of an approval."""

OnFailure = Literal["stop", "finish"]
OnMissing = Literal["error", "default", "skip"]
"""What a node does if an input or a value in a template is missing."""
JsonSchema = dict[str, Any] | bool


class Input(Value, omit_defaults=True):
    """A named input, which replaces the outputs of preceding nodes."""

    name: str
    source: str = ""
    """The node whose output is used; empty for the run's input."""
    path: tuple[str, ...] = ()
    default: Any = None
    """Used if the value is missing, with ``on_missing="default"``."""
    secret: str = ""
    """The name of a secret, which the worker that executes the node resolves."""


class OutputCheck(Value, omit_defaults=True):
    """A check of a node's output, made by the worker after success."""

    schema: JsonSchema | None = None
    condition: Any = None
    """A condition (``expr.condition``) on the output."""
    is_advisory: bool = False
    """Violations are only logged."""


class Edge(Value, omit_defaults=True):
    """``target`` follows ``source``, if ``source`` ends on ``port``."""

    source: str
    target: str
    port: str = ORDINARY
    name: str = ""
    """The key of this output at a target that gathers; empty for the source's id."""


class Call(Value, omit_defaults=True, tag="task", cache_hash=True):
    """A node's call of a registered task."""

    task: str
    queue: str
    priority: int
    tags: tuple[str, ...] = ()
    takes_input: bool = True
    policy: str | None = None
    """Overrides of the task's retries and timeout, encoded by ``model.retry``."""
    keys: tuple[str, ...] = ()
    """Templates of the task's limit keys, over the names of inputs; ``input`` if it has none."""


class FlowRef(Value, tag="flow"):
    """A child flow, in the version at build time."""

    name: str
    version: str

    @property
    def text(self) -> str:
        return f"{self.name}@{self.version}"


class TaskNode(Value, omit_defaults=True, tag="task"):
    id: str
    call: Call
    gathers: bool = False
    """Takes all previous outputs in one object by name, instead of the one that is present."""
    on_error: str = FAIL
    undo: Call | None = None
    type: str = msgspec.field(default="", name="kind")
    """The node type that ``call`` executes; empty for a task."""
    config: Any = None
    """The settings of a node type or the arguments of a task, with templates over the inputs."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"
    ports: tuple[str, ...] = ()
    """Ports that a result may choose, besides the ordinary one."""
    on_timeout: str = FAIL
    """Applies if an external wait reaches its deadline."""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    check: OutputCheck | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the node only calls its task with the node's input."""
        return self.config is None and not self.inputs and not self.type


class RouteNode(Value, omit_defaults=True, tag="route"):
    """Calls a function for a key, and continues on the port of that name with its own input."""

    id: str
    call: Call
    ports: tuple[str, ...]
    on_error: str = FAIL
    key: str = ""
    """The property of the input, if the function only returns that."""


MAP_ITEMS_MAX = 100_000
"""How many items a map may have, unless its ``items_max`` says otherwise."""
MAP_ITEMS_LIMIT = 1_000_000
"""The largest ``items_max``."""


class MapNode(Value, omit_defaults=True, tag="map"):
    """Calls its body for each item; outputs a list in the order of the items."""

    id: str
    body: Call | FlowRef
    over: str | None = None
    """The property of the input that has the list; None if the input is the list."""
    concurrency: int | None = None
    on_error: str = FAIL
    undo: Call | None = None
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"
    items_max: int | None = None
    """None: ``MAP_ITEMS_MAX``, which is not stored, so that flows keep their version."""


class LoopNode(Value, omit_defaults=True, tag="loop"):
    """Calls its body repeatedly on its own output until ``check`` returns true."""

    id: str
    body: Call | FlowRef
    check: Call
    """Called with each output; derived from ``until`` if that is set."""
    iterations_max: int
    on_max: str = FAIL
    on_error: str = FAIL
    undo: Call | None = None
    until: Any = None
    """A property of the output that is true when done, or a condition on the output."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


class DelayNode(Value, omit_defaults=True, tag="delay"):
    """Waits, and passes its input on."""

    id: str
    delay_ms: int
    until: str = ""
    """A time to wait for, instead of a delay; may be a template."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


class DefaultPayload(Value, omit_defaults=True):
    """The output of a wait whose signal did not arrive in time."""

    value: Any = None


class SignalNode(Value, omit_defaults=True, tag="signal"):
    """Waits for a signal; outputs its payload."""

    id: str
    signal: str
    timeout_ms: int | None = None
    on_timeout: str = FAIL
    where: Any = None
    """A condition (``expr.condition``) on the payload; values may be templates."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"
    default_payload: DefaultPayload | None = None
    """If given, a timeout completes the node with it."""


class Escalation(Value):
    """Additional deciders once an approval has been open for ``after_ms``."""

    after_ms: int
    deciders: tuple[str, ...]


class DefaultAnswer(Value, omit_defaults=True):
    """The answer that applies if none arrives in time."""

    decision: str
    data: Any = None


class ApprovalNode(Value, omit_defaults=True, tag="approval"):
    """Waits for people to decide; outputs the decision, the deciders and the data.

    ``approve`` continues on the ordinary port, ``reject`` applies ``on_reject``, and any other
    answer continues on the port of its name.
    """

    id: str
    title: str
    """Title and message are templates over the inputs."""
    message: str = ""
    form: JsonSchema | None = None
    """The schema of an answer's data."""
    shows: tuple[str, ...] | None = None
    """The inputs that deciders see; None for all."""
    data: Any = None
    """A template for the data that an answer may change; None for the node's input."""
    deciders: tuple[str, ...] = ()
    """Users, and roles as ``role:NAME``; if empty, anyone may decide."""
    quorum: int = 1
    """How many must agree; 0: all deciders must approve, and one may reject."""
    answers: tuple[str, ...] = (APPROVE, REJECT)
    timeout_ms: int | None = None
    on_timeout: str = FAIL
    default_answer: DefaultAnswer | None = None
    on_reject: str = FAIL
    reminders_ms: tuple[int, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    notify: Call | None = None
    """Called when the approval opens, and at each reminder and escalation."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


class FlowNode(Value, omit_defaults=True, tag="child"):
    """Runs a child flow as a separate run."""

    id: str
    body: FlowRef
    on_error: str = FAIL
    undo: Call | None = None
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


Node = TaskNode | RouteNode | MapNode | LoopNode | DelayNode | SignalNode | ApprovalNode | FlowNode

PORT_OPTIONS = ("on_error", "on_timeout", "on_max", "on_reject")
"""Fields of nodes that may name a port."""


def type_of(node: Node) -> str:
    """The type of a node for people."""
    if isinstance(node, TaskNode) and node.type:
        return node.type
    return str(type(node).__struct_config__.tag)


def inputs_of(node: Node) -> tuple[Input, ...]:
    """The named inputs of a node; if empty, it takes the previous output."""
    return () if isinstance(node, RouteNode) else node.inputs


def ports_of(node: Node) -> tuple[str, ...]:
    """All ports of a node, without duplicates."""
    ports = list(node.ports) if isinstance(node, RouteNode) else [ORDINARY]
    if isinstance(node, TaskNode):
        ports.extend(node.ports)
    elif isinstance(node, ApprovalNode):
        ports.extend(each for each in node.answers if each not in (APPROVE, REJECT))
    for name in PORT_OPTIONS:
        follows = getattr(node, name, FAIL)
        if follows not in (FAIL, CONTINUE):
            ports.append(follows)
    return tuple(dict.fromkeys(ports))


class Definition(Value, omit_defaults=True):
    """The stored form of a flow."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    gathers: bool = False
    """The result is an object of the outputs of its last nodes, instead of the one reached."""
    on_failure: OnFailure = "stop"
    """Whether branches that do not depend on a failed node finish before the run fails."""
    cooldown_ms: int = 0
    """A run submitted within this time after the previous one is skipped."""


_STORED_TYPES = {"external": "outside"}
"""Earlier names of node types, under which they are stored: versions hash the stored form."""
FORMER_TYPES = frozenset(_STORED_TYPES.values())


def _stored(definition: Definition) -> Definition:
    return _with_types(definition, _STORED_TYPES)


def _current(definition: Definition) -> Definition:
    return _with_types(definition, {stored: name for name, stored in _STORED_TYPES.items()})


def _with_types(definition: Definition, names: Mapping[str, str]) -> Definition:
    nodes = definition.nodes
    if not any(isinstance(node, TaskNode) and node.type in names for node in nodes):
        return definition
    renamed = tuple(
        msgspec.structs.replace(node, type=names.get(node.type, node.type))
        if isinstance(node, TaskNode)
        else node
        for node in nodes
    )
    return msgspec.structs.replace(definition, nodes=renamed)


def version_of(data: bytes) -> str:
    """The version of a flow: a hash of its definition as it is stored."""
    return hashlib.sha256(data).hexdigest()[:16]


def children_in(data: bytes) -> list[str] | None:
    """The child flows of a stored definition, as ``name@version``; None if it is unreadable."""
    try:
        return [child.text for child in Graph.parse(data).children]
    except (msgspec.DecodeError, RecursionError, InvalidInput, KeyError):
        return None


class Graph:
    """An immutable, indexed definition."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.name = definition.name
        self.on_failure = definition.on_failure
        self.nodes: Mapping[str, Node] = {node.id: node for node in definition.nodes}
        self.outgoing: Mapping[str, list[Edge]] = {id: [] for id in self.nodes}
        self.incoming: Mapping[str, list[Edge]] = {id: [] for id in self.nodes}
        for edge in definition.edges:
            self.outgoing[edge.source].append(edge)
            self.incoming[edge.target].append(edge)
        self._partitions: dict[Call, Partition] = {}

    def __repr__(self) -> str:
        return f"<Graph {self.text}, {len(self.nodes)} nodes>"

    @cached_property
    def data(self) -> bytes:
        """The stored form, the same for equal definitions."""
        return msgspec.json.encode(_stored(self.definition), order="deterministic")

    @cached_property
    def version(self) -> str:
        return version_of(self.data)

    @cached_property
    def text(self) -> str:
        return f"{self.name}@{self.version}"

    def partition_of(self, call: Call) -> Partition:
        """The partition for the jobs of a call; cached."""
        partition = self._partitions.get(call)
        if partition is None:
            partition = Partition(queue=call.queue, task=call.task, tags=call.tags, flow=self.text)
            self._partitions[call] = partition
        return partition

    @property
    def ref(self) -> FlowRef:
        return FlowRef(name=self.name, version=self.version)

    @cached_property
    def starts(self) -> list[str]:
        """The nodes without predecessors, which get the run's input."""
        return [id for id, edges in self.incoming.items() if not edges]

    @cached_property
    def ends(self) -> list[str]:
        """The nodes with a port that nothing follows; the run's result is their output."""
        return [id for id, node in self.nodes.items() if not self._is_followed(id, node)]

    def _is_followed(self, id: str, node: Node) -> bool:
        followed = {edge.port for edge in self.outgoing[id]}
        return followed.issuperset(ports_of(node))

    @cached_property
    def signals(self) -> Mapping[str, list[str]]:
        """The nodes that wait for each signal."""
        found: dict[str, list[str]] = {}
        for node in self.nodes.values():
            if isinstance(node, SignalNode):
                found.setdefault(node.signal, []).append(node.id)
        return found

    @cached_property
    def children(self) -> list[FlowRef]:
        """The child flows."""
        bodies = [getattr(node, "body", None) for node in self.nodes.values()]
        return list(dict.fromkeys(body for body in bodies if isinstance(body, FlowRef)))

    @staticmethod
    def parse(data: bytes) -> Graph:
        return Graph(_current(msgspec.json.decode(data, type=Definition)))

    @staticmethod
    def parse_stored(data: bytes, text: str) -> Graph:
        """Parse the stored definition of ``name@version``.

        Raises ``DefinitionCorrupt`` if the bytes do not have that version. A re-encoding is not
        compared: it would hide changes that decoding ignores.
        """
        name, _, version = text.rpartition("@")
        if version_of(data) != version:
            raise DefinitionCorrupt(flow=text, found=version_of(data))
        graph = Graph.parse(data)
        if graph.name != name:
            raise DefinitionCorrupt(flow=text, found=graph.text)
        return graph
