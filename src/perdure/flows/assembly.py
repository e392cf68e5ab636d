"""``Assembly`` collects the nodes, edges, code and faults of a flow that is being built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.diagnostics import Code, Fault, Path, Source, declare, safe_repr
from perdure.errors import InvalidInput
from perdure.flows.analysis import Exclusion, Exit, in_order, place_functions
from perdure.flows.built import BuiltFlow, start_faults
from perdure.flows.calls import Inputs, call_of, given_inputs, named_task, resolved
from perdure.flows.check import (
    DUPLICATE_NODE,
    JOINS_NOTHING,
    RESERVED_PORTS,
    check_definition,
    with_run_input,
)
from perdure.flows.options import CALL_SETTINGS, AnyTask
from perdure.model.graph import (
    ORDINARY,
    Call,
    Definition,
    Edge,
    FlowRef,
    Graph,
    Input,
    Node,
    OnFailure,
    TaskNode,
    ports_of,
)
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.nodes.call import node_type_task
from perdure.tasks.node_type import NodeType, without_options
from perdure.tasks.task import Task

After = str | Sequence[str] | Mapping[str, str]
"""``"a"``; ``"a:port"``; a list of those; or a name for the input of each: ``{"x": "a"}``."""

NESTING_MAX = 50

DUPLICATE_TASK = declare(
    "flow.duplicate_task", "[{option}: ]another task is also named {task!r} ({there})", "Rename one"
)
NOT_CALLABLE = declare("flow.not_callable", "[{option}: ]{value} is neither a task nor a function")
FORK_NOT_JOINED = declare(
    "flow.fork_not_joined",
    "follows a fork ({fork}) that is not joined",
    "Join it first with .join(task), or attach this to one node with `after`",
)
NOT_AN_ID = declare("flow.not_an_id", "`after` must name nodes by id (got {value})")
ONE_VALUE = declare(
    "flow.takes_one_value",
    "takes one value, but several of the outputs that it follows may be present",
    "Gather them with a task before it",
)
LOST_BRANCH = declare(
    "flow.lost_branch", "the output of this branch is not used: nothing joins the fork"
)

T = TypeVar("T")
_NO_TASK = named_task(lambda value: value, "none")
"""Placeholder for an invalid task, so that the search for faults can continue."""


@dataclass(frozen=True, slots=True)
class End:
    """A port of a node that the next node follows."""

    source: str
    port: str = ORDINARY
    name: str = ""


@dataclass(frozen=True, slots=True)
class FlowCursor:
    """Where the next node is attached; without ends, it is a first node (run input)."""

    ends: tuple[End, ...] = ()
    branches: Mapping[str, FlowCursor] = field(default_factory=dict)
    """The branches of a fork that may be joined here."""
    fork: str = ""
    """The builder call of an unjoined fork."""


class Assembly:
    """Collects nodes and faults, so that all faults are reported at once.

    Faults have the paths of nodes and options; ``places`` says where each node was defined.
    """

    def __init__(self, flow: str, *, is_yaml: bool = False) -> None:
        self.flow = flow
        self.is_yaml = is_yaml
        """Whether messages name options as in a YAML file."""
        self.faults: list[Fault] = []
        self.nesting: list[object] = []
        """The flows that are being inlined, the outermost first."""
        self.nodes: dict[str, Node] = {}
        self.places: dict[str, str] = {}
        """Where nodes were defined: a call of the builder, or a line."""
        self._edges: list[Edge] = []
        self._tasks: dict[str, tuple[AnyTask, str]] = {}
        self._functions: dict[str, frozenset[str]] = {}
        """Plain functions by task name, with their settings."""
        self._flows: dict[str, BuiltFlow] = {}
        self._children: dict[str, RunSettings] = {}
        """Settings of child runs, by node."""
        self._default_queue: list[str] = []
        self._merges: list[str] = []
        self._ended: set[Exit] = set()
        self._inputs: dict[str, Inputs] = {}
        self._reads: dict[str, Set[str]] = {}
        self._unread: set[str] = set()

    # Faults

    def fault(self, code: Code, where: Path, /, **args: Any) -> None:
        """Add a fault of a node or one of its options."""
        self.faults.append(code.fault(where, **args))

    def fault_at(self, place: str, *faults: Fault) -> None:
        """Add a fault of a builder call that made no node, or several."""
        self.faults += (dataclasses.replace(each, source=Source(call=place)) for each in faults)

    def attempt(self, where: Path, make: Callable[[], T], instead: T) -> T:
        """The result of ``make``; if it raises, add the faults and return the fallback."""
        try:
            return make()
        except InvalidInput as error:
            self.faults += (each.under(*where) for each in error.faults)
            return instead

    # Ids

    def own_id(self, id: str, place: str) -> str:
        """Reserve an explicit id or the name of a task; adds a fault if it is taken."""
        if id in self.places:
            duplicate = DUPLICATE_NODE.fault(("nodes", id), there=self.places[id])
            self.faults.append(dataclasses.replace(duplicate, source=Source(call=place)))
        return self.generated_id(id, place)

    def generated_id(self, stem: str, place: str) -> str:
        """Reserve the first free id of x, x-2, x-3, …"""
        id, number = stem, 1
        while id in self.places:
            number += 1
            id = f"{stem}-{number}"
        self.places[id] = place
        return id

    # Code

    def call(
        self,
        body: Any,
        name: str,
        settings: Mapping[str, Any],
        where: Path,
        arguments: Collection[str] | None = None,
        inputs: Collection[str] = (),
    ) -> Call:
        """The call of a task, or of a plain function or node type as the task ``flow.name``.

        ``settings`` are parsed options. ``arguments`` are the names of the arguments; if None, the
        task gets one value. ``inputs`` are those that are inputs as they are.
        """
        found: list[Fault] = []
        try:
            task = self._task(body, name, settings, where)
        except InvalidInput as error:
            found += error.faults
            task, arguments = _NO_TASK, None
        call = call_of(task, settings, found, arguments, inputs)
        option = where[2] if len(where) > 2 and where[2] != "body" else ""
        for fault in found:
            args = {**fault.args, "option": option}
            self.faults.append(dataclasses.replace(fault, args=args).under(*where))
        return call

    def _task(self, body: Any, name: str, settings: Mapping[str, Any], where: Path) -> AnyTask:
        if isinstance(body, Task):
            task = without_options(body)
        else:
            task = self._task_of(body, name, settings)
        node = str(where[1])
        known, owner = self._tasks.setdefault(task.name, (task, node))
        if known is not task:
            there = f"node {owner!r} ({self.places[owner]})"
            raise InvalidInput(DUPLICATE_TASK.fault(task=task.name, there=there))
        return task

    def _task_of(self, body: Any, name: str, settings: Mapping[str, Any]) -> AnyTask:
        if isinstance(body, NodeType):
            task = node_type_task(body, f"{self.flow}.{name}")
        elif callable(body):
            task = named_task(body, f"{self.flow}.{name}")
        else:
            raise InvalidInput(NOT_CALLABLE.fault(value=safe_repr(body)))
        given = (each for each in CALL_SETTINGS if settings.get(each) is not None)
        self._functions[task.name] = frozenset(given)
        return task

    def child(self, flow: BuiltFlow) -> FlowRef:
        self._flows.setdefault(flow.graph.text, flow)
        return flow.graph.ref

    def set_child(self, id: str, settings: RunSettings) -> None:
        """Set what the child runs of a node have instead of the settings of their flow."""
        if settings != NO_SETTINGS:
            self._children[id] = settings

    def keep_in_default_queue(self, id: str) -> None:
        """Note that the queue of a run does not apply to a node."""
        self._default_queue.append(id)

    # Nodes and edges

    def entry(
        self, cursor: FlowCursor, after: After | None, note: Callable[[Fault], None]
    ) -> tuple[FlowCursor, bool]:
        """Where a node is attached, and whether ``after`` names several nodes."""
        if after is not None:
            ends = self._ends(after, note)
            return FlowCursor(ends=ends), bool(ends) and not isinstance(after, str)
        if cursor.fork:
            note(FORK_NOT_JOINED.fault(fork=cursor.fork))
        return FlowCursor(ends=cursor.ends), False

    def _ends(self, after: Any, note: Callable[[Fault], None]) -> tuple[End, ...]:
        if isinstance(after, Mapping):
            named = [(source, name) for name, source in after.items()]
        else:
            is_list = isinstance(after, Iterable) and not isinstance(after, str)
            named = [(source, "") for source in (after if is_list else [after])]
        wrong = [each for pair in named for each in pair if not isinstance(each, str)]
        if wrong:
            note(NOT_AN_ID.fault(("after",), value=safe_repr(wrong[0])))
            return ()
        if not named:
            note(JOINS_NOTHING.fault(("after",)))
        ends = ((source.partition(":"), name) for source, name in named)
        return tuple(End(source, port, name) for (source, _, port), name in ends)

    def add(self, node: Node, entry: FlowCursor, *, gathers: bool = False) -> FlowCursor:
        """Add a node at ``entry``; returns where the next one is attached."""
        self.nodes[node.id] = node
        for end in entry.ends:
            name = end.name if gathers and end.name != end.source else ""
            self._edges.append(Edge(source=end.source, target=node.id, port=end.port, name=name))
        return FlowCursor(ends=(End(node.id),))

    def merge(self, id: str) -> None:
        """Mark a node that takes the one present output of several, which must be exclusive."""
        self._merges.append(id)

    def end(self, id: str, port: str) -> None:
        """Mark a port that intentionally has no successor: the run may end there."""
        self._ended.add((id, port))

    def inputs(self, id: str, values: Mapping[str, Any]) -> Inputs:
        """The named inputs of a node, whose sources are resolved in ``build``.

        A node with named inputs does not get the outputs of its predecessors.
        """
        found: list[Fault] = []
        inputs = given_inputs(values["inputs"] or {}, values["on_missing"], found)
        self.faults += (each.under("nodes", id, "inputs") for each in found)
        self._inputs[id] = inputs
        return inputs

    def reads(self, id: str, names: Set[str]) -> None:
        """Declare inputs that the node's type reads in addition to its templates."""
        self._reads[id] = names

    def unread(self, id: str, inputs: Iterable[str]) -> None:
        """Mark a node with invalid options: its inputs and ports are unknown, so any are valid."""
        self._unread.add(id)
        self._reads[id] = set(inputs)

    def follow(self, exits: Iterable[Exit]) -> None:
        """Mark ports that have successors."""
        for id, port in exits:
            node = self.nodes.get(id)
            if id not in self._unread or not isinstance(node, TaskNode):
                continue
            if port not in (*ports_of(node), *RESERVED_PORTS):
                self.nodes[id] = replace(node, ports=(*node.ports, port))

    # The result

    def build(
        self,
        cursor: FlowCursor,
        on_failure: OnFailure,
        cooldown_ms: int = 0,
        settings: RunSettings = NO_SETTINGS,
    ) -> BuiltFlow | None:
        """The flow, or None if there are faults."""
        self.follow((edge.source, edge.port) for edge in self._edges)
        definition = Definition(
            name=self.flow,
            nodes=tuple(self._with_inputs(node) for node in self.nodes.values()),
            edges=tuple(self._edges),
            on_failure=on_failure,
            cooldown_ms=cooldown_ms,
        )
        faults = check_definition(definition, self.places, self._reads, self._ended)
        faults += start_faults(definition, self._flows)
        if not faults:
            definition = place_functions(in_order(definition), self._functions)
            graph = Graph(definition)
            exclusion = Exclusion(graph)
            exits = set(open_exits(graph))
            faults = list(self._merge_faults(graph, exclusion))
            if not self.faults:  # an empty branch may already be a fault
                self._note_lost_branches(cursor, exits)
            gathers = bool(cursor.fork) or not exclusion.are_exclusive(exits)
            definition = replace(definition, gathers=gathers)
        self.faults += faults
        if self.faults:
            return None
        tasks = {name: task for name, (task, _) in self._tasks.items()}
        return BuiltFlow(
            definition,
            tasks,
            dict(self._flows),
            is_loaded=self.is_yaml,
            settings=replace(
                settings, children=self._children, default_queue=tuple(sorted(self._default_queue))
            ),
        )

    def _with_inputs(self, node: Node) -> Node:
        given = self._inputs.get(node.id)
        if given is not None and given.references:
            found = (
                self.attempt(
                    ("nodes", node.id, "inputs", each.name),
                    partial(resolved, each, self.nodes),
                    Input(name=each.name),
                )
                for each in given.references
            )
            node = replace(node, inputs=tuple(found))
        return with_run_input(node, self._reads.get(node.id, frozenset()))

    def _merge_faults(self, graph: Graph, exclusion: Exclusion) -> Iterator[Fault]:
        for id in self._merges:
            before = [(edge.source, edge.port) for edge in graph.incoming[id]]
            if not exclusion.are_exclusive(before):
                yield ONE_VALUE.fault(("nodes", id))

    def _note_lost_branches(self, cursor: FlowCursor, exits: set[Exit]) -> None:
        """Add faults for branches of a final fork whose output is not used."""
        for name, branch in cursor.branches.items():
            if any((end.source, end.port) not in exits for end in branch.ends):
                self.fault_at(f"{cursor.fork}, branch {name!r}", LOST_BRANCH.fault())


def open_exits(graph: Graph) -> Iterator[Exit]:
    """The ports on which a run may end."""
    for id in graph.ends:
        followed = {edge.port for edge in graph.outgoing[id]}
        for port in ports_of(graph.nodes[id]):
            if port not in followed:
                yield id, port
