"""A flow while it is put together: nodes, edges, the code behind them, and everything wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.diagnostics import declare, safe_repr
from perdure.errors import FaultText, InvalidFlow, InvalidInput
from perdure.flows.analysis import Exclusion, Exit, in_order, place_functions
from perdure.flows.built import BuiltFlow
from perdure.flows.calls import Inputs, call_of, named_task, resolved
from perdure.flows.check import RESERVED_PORTS, check_definition, flow_fault, with_run_input
from perdure.flows.options import AnyTask
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
from perdure.nodes.call import kind_task
from perdure.tasks.node_type import Kind, without_options
from perdure.tasks.task import Task

After = str | Sequence[str] | Mapping[str, str]
"""``"a"``; ``"a:port"``; a list of those; or a name for the input of each: ``{"x": "a"}``."""

NESTING_MAX = 50

DUPLICATE_TASK = declare(
    "flow.duplicate_task", "another task is also named {task!r} ({where})", "Rename one"
)
NOT_CALLABLE = declare("flow.not_callable", "{value} is neither a task nor a function")

T = TypeVar("T")
_NO_TASK = named_task(lambda value: value, "none")
"""Stands in for a task that cannot be called, while other faults are looked for."""


@dataclass(frozen=True, slots=True)
class End:
    """A port of a node that the next node is to follow."""

    source: str
    port: str = ORDINARY
    name: str = ""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next node is attached. Without ends it is a first one: it gets the run's input."""

    ends: tuple[End, ...] = ()
    branches: Mapping[str, Cursor] = field(default_factory=dict)
    """Of a fork that may be joined here."""
    fork: str = ""
    """The place of a fork in here that is not joined."""


class Assembly:
    """Collects nodes and faults, so that all of them can be told at once."""

    def __init__(self, flow: str) -> None:
        self.flow = flow
        self.faults: list[FaultText] = []
        self.nesting: list[object] = []
        """The flows that are being inlined, the outermost first."""
        self.nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._labels: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        """Of nodes, by their labels."""
        self._places: dict[str, str] = {}
        self._tasks: dict[str, tuple[AnyTask, str]] = {}
        self._functions: dict[str, frozenset[str]] = {}
        """Plain functions by their names as tasks, with the settings that were given for them."""
        self._flows: dict[str, BuiltFlow] = {}
        self._merges: list[str] = []
        self._ended: set[Exit] = set()
        self._inputs: dict[str, Inputs] = {}
        self._reads: dict[str, Set[str]] = {}
        self._unread: set[str] = set()

    # Faults

    def fault(self, label: str, problem: str | InvalidInput) -> None:
        self.faults.append(flow_fault(label, problem, self._ids.get(label, "")))

    def attempt(self, label: str, make: Callable[[], T], instead: T) -> T:
        """What ``make`` gives; if it refuses, that is noted, and the search for faults goes on."""
        try:
            return make()
        except InvalidInput as error:
            self.fault(label, error)
            return instead

    def label(self, id: str) -> str:
        return self._labels[id]

    # Ids

    def own_id(self, id: str, place: str) -> str:
        """An id that was given, or follows from a task. May be there once."""
        if id not in self._places:
            return self._claim(id, id, place)
        problem = (
            f"there is a node of this id already ({self._places[id]}); "
            "give one of them another name=..."
        )
        self.faults.append(flow_fault(f"node {id!r} ({place})", problem, id))
        return self._claim(self._free(id), id, place)

    def made_up_id(self, stem: str, place: str) -> str:
        """An id for what needs none of its own: the first free of x, x-2, x-3 …"""
        id = self._free(stem)
        return self._claim(id, id, place)

    def _free(self, stem: str) -> str:
        id, number = stem, 1
        while id in self._places:
            number += 1
            id = f"{stem}-{number}"
        return id

    def _claim(self, id: str, shown: str, place: str) -> str:
        self._places[id] = place
        self._labels[id] = label = f"node {shown!r} ({place})"
        self._ids[label] = id
        return id

    # Code

    def call(
        self,
        body: Any,
        name: str,
        settings: Mapping[str, Any],
        label: str,
        arguments: Collection[str] | None = None,
    ) -> Call:
        """How a node calls a task, or a plain function or kind as the task ``flow.name``.

        ``arguments`` are the names of those that it gets; None: it gets one value.
        """
        task = self.attempt(label, lambda: self._task(body, name, settings, label), _NO_TASK)
        if task is _NO_TASK:
            arguments = None
        return call_of(task, settings, partial(self.fault, label), arguments)

    def _task(self, body: Any, name: str, settings: Mapping[str, Any], label: str) -> AnyTask:
        if isinstance(body, Task):
            task = without_options(body)
        else:
            task = self._task_of(body, name, settings)
        known, where = self._tasks.setdefault(task.name, (task, label))
        if known is not task:
            raise InvalidInput(DUPLICATE_TASK.fault(task=task.name, where=where))
        return task

    def _task_of(self, body: Any, name: str, settings: Mapping[str, Any]) -> AnyTask:
        if isinstance(body, Kind):
            task = kind_task(body, f"{self.flow}.{name}")
        elif callable(body):
            task = named_task(body, f"{self.flow}.{name}")
        else:
            raise InvalidInput(NOT_CALLABLE.fault(value=safe_repr(body)))
        given = (setting for setting, value in settings.items() if value is not None)
        self._functions[task.name] = frozenset(given)
        return task

    def child(self, flow: BuiltFlow) -> FlowRef:
        self._flows.setdefault(flow.graph.text, flow)
        return flow.graph.ref

    # Nodes and edges

    def entry(self, cursor: Cursor, after: After | None, label: str) -> tuple[Cursor, bool]:
        """Where a node is attached, and whether it names several to follow."""
        if after is not None:
            ends = self._ends(after, label)
            return Cursor(ends=ends), bool(ends) and not isinstance(after, str)
        if cursor.fork:
            self.fault(
                label,
                f"follows a fork ({cursor.fork}) that is not joined; join it first with "
                ".join(task), or attach this to one node with after=...",
            )
        return Cursor(ends=cursor.ends), False

    def _ends(self, after: Any, label: str) -> tuple[End, ...]:
        if isinstance(after, Mapping):
            named = [(source, name) for name, source in after.items()]
        else:
            is_list = isinstance(after, Iterable) and not isinstance(after, str)
            named = [(source, "") for source in (after if is_list else [after])]
        wrong = [each for pair in named for each in pair if not isinstance(each, str)]
        if wrong:
            self.fault(label, f"after={after!r} must name nodes by their ids; {wrong[0]!r} is none")
            return ()
        if not named:
            self.fault(label, f"after={after!r} joins nothing; name the nodes that it follows")
        return tuple(_end(source, name) for source, name in named)

    def add(self, node: Node, entry: Cursor, *, gathers: bool = False) -> Cursor:
        """Add a node where ``entry`` says; where the next one is attached."""
        self.nodes[node.id] = node
        for end in entry.ends:
            name = end.name if gathers and end.name != end.source else ""
            self._edges.append(Edge(source=end.source, target=node.id, port=end.port, name=name))
        return Cursor(ends=(End(node.id),))

    def merge(self, id: str) -> None:
        """This node takes one of several values: only one of them may ever be there."""
        self._merges.append(id)

    def end(self, id: str, port: str) -> None:
        """Nothing follows this port, and that is meant: the run may end there."""
        self._ended.add((id, port))

    def declare(self, id: str, inputs: Inputs) -> None:
        """This node takes its input by name. Which nodes that is from, is read when all are known.

        Then it takes what it names, and nothing along its edges.
        """
        self._inputs[id] = inputs

    def reads(self, id: str, names: Set[str]) -> None:
        """The kind of this node looks at inputs of these names, besides its templates."""
        self._reads[id] = names

    def unread(self, id: str, inputs: Iterable[str]) -> None:
        """There are faults in what this node is told, so it is not known what it makes of its
        inputs, nor which ports it has: those that are named are taken to be right."""
        self._unread.add(id)
        self._reads[id] = set(inputs)

    def follow(self, exits: Iterable[Exit]) -> None:
        """Nodes follow these ports."""
        for id, port in exits:
            node = self.nodes.get(id)
            if id not in self._unread or not isinstance(node, TaskNode):
                continue
            if port not in (*ports_of(node), *RESERVED_PORTS):
                self.nodes[id] = replace(node, ports=(*node.ports, port))

    # The result

    def build(self, cursor: Cursor, on_failure: OnFailure, cooldown_ms: int = 0) -> BuiltFlow:
        self.follow((edge.source, edge.port) for edge in self._edges)
        definition = Definition(
            name=self.flow,
            nodes=tuple(self._with_inputs(node) for node in self.nodes.values()),
            edges=tuple(self._edges),
            on_failure=on_failure,
            cooldown_ms=cooldown_ms,
        )
        faults = check_definition(definition, self._labels, self._reads, self._ended)
        if not faults:
            definition = place_functions(in_order(definition), self._functions)
            graph = Graph(definition)
            exclusion = Exclusion(graph)
            exits = set(open_exits(graph))
            faults = list(self._merge_faults(graph, exclusion))
            if not self.faults:  # of which an empty branch may be one
                faults.extend(_lost_branches(cursor, exits))
            gathers = bool(cursor.fork) or not exclusion.are_exclusive(exits)
            definition = replace(definition, gathers=gathers)
        if self.faults or faults:
            raise InvalidFlow(*self.faults, *faults, flow=self.flow)
        tasks = {name: task for name, (task, _) in self._tasks.items()}
        return BuiltFlow(definition, tasks, dict(self._flows))

    def _with_inputs(self, node: Node) -> Node:
        told = self._inputs.get(node.id)
        if told is not None and told.references:
            label = self._labels[node.id]
            found = (
                self.attempt(label, partial(resolved, each, self.nodes), Input(name=each.name))
                for each in told.references
            )
            node = replace(node, inputs=tuple(found))
        return with_run_input(node, self._reads.get(node.id, frozenset()))

    def _merge_faults(self, graph: Graph, exclusion: Exclusion) -> Iterator[FaultText]:
        for id in self._merges:
            before = [(edge.source, edge.port) for edge in graph.incoming[id]]
            if not exclusion.are_exclusive(before):
                problem = (
                    "takes one value, but more than one of those that it follows may be there; "
                    "put a task before it that gathers them"
                )
                yield flow_fault(self._labels[id], problem, id)


def _end(text: str, name: str) -> End:
    source, _, port = text.partition(":")
    return End(source, port, name)


def _lost_branches(cursor: Cursor, exits: set[Exit]) -> Iterator[FaultText]:
    """Branches of a fork at the end that hand on a value which nobody takes."""
    for name, branch in cursor.branches.items():
        if any((end.source, end.port) not in exits for end in branch.ends):
            problem = "nothing joins the fork and takes its value"
            yield flow_fault(f"{cursor.fork}, branch {name!r}", problem)


def open_exits(graph: Graph) -> Iterator[Exit]:
    """Where a run may end."""
    for id in graph.ends:
        followed = {edge.port for edge in graph.outgoing[id]}
        for port in ports_of(graph.nodes[id]):
            if port not in followed:
                yield id, port
