"""A flow as data: nodes, edges between them, and what each node calls. No code is in here.

Everything that decides what a run does is part of the version; descriptions are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec

from perdure.diagnostics import declare
from perdure.model.partition import Partition
from perdure.model.value import Value

FAIL, CONTINUE = "fail", "continue"
"""What may follow an error or a timeout; any other text is a port to go on from."""
DEFAULT_PORT = "default"
"""The port of a route that takes every key without a branch of its own."""
ORDINARY = ""
"""The port on which a node ends that has nothing to choose."""

UNKNOWN_PORT = declare("node.unknown_port", "node {node!r} has no port {port!r}[; it has {known}]")

APPROVE, REJECT = "approve", "reject"
"""The answers to an approval that are there unless it names others."""

OnFailure = Literal["stop", "finish"]
OnMissing = Literal["error", "default", "skip"]
"""What follows where an input or the key of a template is missing."""
JsonSchema = dict[str, Any] | bool


class Input(Value, omit_defaults=True):
    """A value that a node takes by name, instead of what its edges hand on."""

    name: str
    source: str = ""
    """The node whose output it is from; empty: the run's input."""
    path: tuple[str, ...] = ()
    default: Any = None
    """Where it is missing, and the node says ``default``."""
    secret: str = ""
    """A secret of this name instead, which only the worker that executes the node resolves."""


class OutputCheck(Value, omit_defaults=True):
    """What an output must be like; looked at by the worker, after success."""

    schema: JsonSchema | None = None
    condition: Any = None
    """As ``expr.condition`` reads it; its properties are those of the output."""
    is_advisory: bool = False
    """Only noted in the log where it does not hold."""


class Edge(Value, omit_defaults=True):
    """``target`` follows ``source``, if ``source`` ends on ``port``."""

    source: str
    target: str
    port: str = ORDINARY
    name: str = ""
    """What the target calls this input where it gathers several; the source's id if empty."""


class Call(Value, omit_defaults=True, tag="task", cache_hash=True):
    """A registered task as a node calls it."""

    task: str
    queue: str
    priority: int
    tags: tuple[str, ...] = ()
    takes_input: bool = True
    policy: str | None = None
    """Retries and timeout that override the task's own, as ``model.policy`` writes them."""


class FlowRef(Value, tag="flow"):
    """Another flow, in the version that was meant when this one was built."""

    name: str
    version: str

    @property
    def text(self) -> str:
        return f"{self.name}@{self.version}"


class TaskNode(Value, omit_defaults=True, tag="task"):
    id: str
    call: Call
    gathers: bool = False
    """Takes all its inputs in one object, by name; else the one that is there."""
    on_error: str = FAIL
    undo: Call | None = None
    type: str = msgspec.field(default="", name="kind")
    """The node type that ``call`` executes; empty: a task."""
    config: Any = None
    """Templates over the inputs. Of a kind, its settings; of a task, its arguments by name."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"
    ports: tuple[str, ...] = ()
    """The ports that a result may choose, besides the ordinary one."""
    on_timeout: str = FAIL
    """What follows when a pause comes to its deadline."""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    check: OutputCheck | None = None

    @property
    def is_plain(self) -> bool:
        """Its task is called with the node's input, and that is all."""
        return self.config is None and not self.inputs and not self.type


class RouteNode(Value, omit_defaults=True, tag="route"):
    """Calls a function for a key, and goes on from the port of that name with its own input."""

    id: str
    call: Call
    ports: tuple[str, ...]
    on_error: str = FAIL
    key: str = ""
    """The key of the input that is returned, where the function does nothing else."""


class MapNode(Value, omit_defaults=True, tag="map"):
    """Calls its body for every item; its output is the list of outputs, in the items' order."""

    id: str
    body: Call | FlowRef
    over: str | None = None
    """The key of the input under which the list is; None: the input is the list."""
    concurrency: int | None = None
    on_error: str = FAIL
    undo: Call | None = None
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


class LoopNode(Value, omit_defaults=True, tag="loop"):
    """Calls its body again on its own output until the check says that it is done."""

    id: str
    body: Call | FlowRef
    check: Call
    """Asked about each output; made from ``until`` where that is given."""
    iterations_max: int
    on_max: str = FAIL
    on_error: str = FAIL
    undo: Call | None = None
    until: Any = None
    """The key of the output that tells whether it is done, or a condition on the output."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


class DelayNode(Value, omit_defaults=True, tag="delay"):
    """Waits, and hands its input on."""

    id: str
    delay_ms: int
    until: str = ""
    """A template that gives the time to wait for, instead of a delay."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


class SignalNode(Value, omit_defaults=True, tag="signal"):
    """Waits for a signal; its output is what came with it."""

    id: str
    signal: str
    timeout_ms: int | None = None
    on_timeout: str = FAIL
    where: Any = None
    """A condition on the payload, as ``expr.condition`` reads it; values may be templates."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


class Escalation(Value):
    """Who may decide too, once an approval has been open for so long."""

    after_ms: int
    deciders: tuple[str, ...]


class DefaultAnswer(Value, omit_defaults=True):
    """What counts as the answer when nobody gave one in time."""

    decision: str
    data: Any = None


class ApprovalNode(Value, omit_defaults=True, tag="approval"):
    """Waits for people to decide; its output says who decided what, with the data as they left it.

    ``approve`` goes on from the ordinary port, ``reject`` as ``on_reject`` says, any other answer
    from the port of its name.
    """

    id: str
    title: str
    """Title and message are templates over the inputs."""
    message: str = ""
    form: JsonSchema | None = None
    """What the data of an answer must be like."""
    shows: tuple[str, ...] | None = None
    """The inputs that deciders see; None: all of them."""
    data: Any = None
    """A template of what the answer may change; None: the node's input."""
    deciders: tuple[str, ...] = ()
    """Names or roles; none: whoever comes."""
    quorum: int = 1
    """How many must agree on an answer; 0: all deciders on approving, while one may reject."""
    answers: tuple[str, ...] = (APPROVE, REJECT)
    timeout_ms: int | None = None
    on_timeout: str = FAIL
    default_answer: DefaultAnswer | None = None
    on_reject: str = FAIL
    reminders_ms: tuple[int, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    notify: Call | None = None
    """Called when it is opened, at each reminder and each escalation."""
    inputs: tuple[Input, ...] = ()
    on_missing: OnMissing = "error"


class FlowNode(Value, omit_defaults=True, tag="child"):
    """Runs another flow as a run of its own."""

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
    """What a node is called after what it does."""
    if isinstance(node, TaskNode) and node.type:
        return node.type
    return str(type(node).__struct_config__.tag)


def inputs_of(node: Node) -> tuple[Input, ...]:
    """The inputs that a node names; none: it takes what its edges hand on."""
    return () if isinstance(node, RouteNode) else node.inputs


def ports_of(node: Node) -> tuple[str, ...]:
    """The ports that a node may end on, each once."""
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
    """What is stored of a flow."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    gathers: bool = False
    """Its output is an object of the outputs of its last nodes; else that of the one reached."""
    on_failure: OnFailure = "stop"
    """Whether branches that have nothing to do with a failed node are finished first."""
    cooldown_ms: int = 0
    """A run that is submitted within this time of the last one is skipped."""


_STORED_TYPES = {"external": "outside"}
"""Node types that are stored under an earlier name: a version is a hash over what is stored."""
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


class Graph:
    """A definition, indexed. Does not change."""

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
        """The definition as it is stored, the same for equal definitions."""
        return msgspec.json.encode(_stored(self.definition), order="deterministic")

    @cached_property
    def version(self) -> str:
        return hashlib.sha256(self.data).hexdigest()[:16]

    @cached_property
    def text(self) -> str:
        return f"{self.name}@{self.version}"

    def partition_of(self, call: Call) -> Partition:
        """Where jobs of a run go for one of its calls; each time the same object."""
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
        """The nodes that nothing comes before: they get the run's input."""
        return [id for id, edges in self.incoming.items() if not edges]

    @cached_property
    def ends(self) -> list[str]:
        """The nodes that may end on a port that nothing follows: their outputs are the run's."""
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
        """The flows that its nodes start."""
        bodies = [getattr(node, "body", None) for node in self.nodes.values()]
        return list(dict.fromkeys(body for body in bodies if isinstance(body, FlowRef)))

    @staticmethod
    def parse(data: bytes) -> Graph:
        return Graph(_current(msgspec.json.decode(data, type=Definition)))
