"""Lineage: the values that each node of a run used, and their origin. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from perdure.expr.path import MISSING, value_at
from perdure.expr.template import template_names
from perdure.model.event import (
    NOTHING,
    ApprovalAnswered,
    Event,
    ItemCompleted,
    IterationCompleted,
    NodeCompleted,
    NodeFailed,
    NodeReported,
    OutputChanged,
    SignalReceived,
)
from perdure.model.graph import (
    Edge,
    FlowRef,
    Graph,
    Input,
    LoopNode,
    MapNode,
    Node,
    SignalNode,
    TaskNode,
    inputs_of,
    type_of,
)
from perdure.model.ids import Key, RunId
from perdure.model.run import NodeStatus, RunState
from perdure.model.value import Value


class UseOrigin(StrEnum):
    INPUT = "input"
    """The run's input."""
    NODE = "node"
    """A node's output; for a loop, that of one iteration."""
    SIGNAL = "signal"
    ANSWER = "answer"
    """A decider's answer to an approval."""
    REPORT = "report"
    """A report on external work."""
    SECRET = "secret"
    """Only the name is known: the value exists only on the worker that used it."""


class Use(Value):
    """A value that a node used."""

    origin: UseOrigin
    name: str = ""
    """The name of the input; empty if it is the whole input."""
    source: str = ""
    """The node, signal or secret that it came from."""
    port: str = ""
    """The port on which that node completed, if it has several."""
    path: tuple[str, ...] = ()
    """The path within it that was used; empty for all of it."""
    number: int = 0
    """The event that stores it; 0 if none, as for a secret."""
    by: str | None = None
    """Who sent the signal, answer or report."""
    is_default: bool = False
    """It was missing, and the input's default was used."""
    value: Any = None
    """As plain values; empty for a secret."""

    @property
    def text(self) -> str:
        """Its origin in the notation of inputs: ``fetch.output.total``, ``input.id``."""
        match self.origin:
            case UseOrigin.INPUT:
                first = "input"
            case UseOrigin.NODE:
                first = f"{self.source}{f':{self.port}' if self.port else ''}.output"
            case UseOrigin.SECRET:
                first = f"secret.{self.source}"
            case _:
                first = f"{self.origin.value} {self.source}".rstrip()
        by = f" by {self.by}" if self.by is not None else ""
        return ".".join([first, *self.path]) + by


class PartLineage(Value):
    """An item of a map or an iteration of a loop."""

    key: str
    uses: tuple[Use, ...] = ()
    output: int = 0
    """The event that its output was kept with; 0: it has none yet."""


class NodeLineage(Value):
    """A node that the run has reached."""

    id: str
    type: str
    status: NodeStatus
    uses: tuple[Use, ...] = ()
    output: int = 0
    """The event that its output was kept with; 0: it has none yet."""
    parts: tuple[PartLineage, ...] = ()
    child: RunId | None = None
    """The child run that it started, if any."""


class Lineage(Value):
    """The nodes of a run in flow order, each with the values it used."""

    run: RunId
    flow: str
    version: str
    nodes: tuple[NodeLineage, ...]

    def __getitem__(self, node: str) -> NodeLineage:
        for each in self.nodes:
            if each.id == node:
                return each
        raise KeyError(node)


_REACHED = frozenset(
    {NodeStatus.LIVE, NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.CANCELLED}
)
_INPUT_NUMBER = 1
"""The event whose value is the run's input."""
_SECRET = "secret"

Numbered = tuple[int, Event]


def trace(graph: Graph, state: RunState, events: Iterable[Numbered]) -> list[NodeLineage]:
    """The origin of what each reached node used, without the values themselves."""
    log = _Log(events)
    return [
        _Tracing(graph, state, log).node(node)
        for id, node in graph.nodes.items()
        if (reached := state.nodes.get(id)) is not None and reached.status in _REACHED
    ]


def with_values(
    graph: Graph, nodes: Iterable[NodeLineage], value_of: Callable[[int], Any]
) -> tuple[NodeLineage, ...]:
    """Add the used values; ``value_of`` returns the value of an event."""
    found: dict[int, Any] = {}  # each decoded once, though many nodes may use it

    def read(number: int) -> Any:
        if number not in found:
            found[number] = value_of(number)
        return found[number]

    def used(uses: Iterable[Use], defaults: Mapping[str, Any]) -> tuple[Use, ...]:
        return tuple(_with_value(use, read, defaults) for use in uses)

    def of_node(node: NodeLineage) -> NodeLineage:
        defaults = {each.name: each.default for each in inputs_of(graph.nodes[node.id])}
        parts = tuple(replace(part, uses=used(part.uses, defaults)) for part in node.parts)
        return replace(node, uses=used(node.uses, defaults), parts=parts)

    return tuple(map(of_node, nodes))


def _with_value(use: Use, read: Callable[[int], Any], defaults: Mapping[str, Any]) -> Use:
    if use.origin is UseOrigin.SECRET:
        return use
    found = value_at(read(use.number), use.path) if use.number else MISSING
    if found is not MISSING:
        return replace(use, value=found)
    return replace(use, value=defaults.get(use.name), is_default=True)


class _Log:
    """Facts that only the log has: answers and reports, and where parts of nodes ended."""

    def __init__(self, events: Iterable[Numbered]) -> None:
        self.by: dict[int, str | None] = {}
        self.answers: dict[str, list[int]] = {}
        self.reports: dict[str, list[int]] = {}
        self.ended: dict[str, int] = {}
        """Completed items and iterations."""
        self.mapped: dict[str, int] = {}
        """How many items the maps have."""
        for number, event in events:
            self._take(number, event)

    def _take(self, number: int, event: Event) -> None:
        effects = getattr(event, "effects", NOTHING)
        for key in effects.waiting:
            self.answers.pop(key, None)  # it opened again: earlier answers do not count
        for key in (*effects.started, *(key for key, _ in effects.children)):
            self._forget_after(Key.parse(key))
        for id, _ in effects.mapped:  # it starts from the beginning
            for item in range(self.mapped.get(id, 0)):
                self._forget(Key(node=id, item=item))
        self.mapped.update(effects.mapped)
        match event:
            case SignalReceived():
                self.by[number] = event.by
            case ApprovalAnswered():
                self.by[number] = event.by
                self.answers.setdefault(event.node, []).append(number)
            case NodeReported():
                self.by[number] = event.by
                self.reports.setdefault(event.key, []).append(number)
            case ItemCompleted() | IterationCompleted():
                self.ended[event.key] = number
            case NodeFailed(handled=handled) if handled and "[" in event.key:
                self.ended[event.key] = number
            case NodeCompleted(iteration=iteration) if iteration:
                key = Key(node=event.node, iteration=iteration).text
                self.ended.setdefault(key, event.ref or number)
            case OutputChanged(iteration=iteration) if iteration:
                self.ended[Key(node=event.node, iteration=iteration).text] = number

    def _forget_after(self, key: Key) -> None:
        """A loop starts an iteration: a fork or retry discarded those that ended after it."""
        if not key.iteration or key.part not in ("", "check"):
            return
        if not key.part:
            self.ended.pop(key.text, None)  # its reports stay: it may resume after a pause
        iteration = key.iteration + 1
        while self._forget(Key(node=key.node, iteration=iteration)):
            iteration += 1

    def _forget(self, key: Key) -> bool:
        reports, ended = self.reports.pop(key.text, None), self.ended.pop(key.text, None)
        return reports is not None or ended is not None


class _Tracing:
    def __init__(self, graph: Graph, state: RunState, log: _Log) -> None:
        self._graph = graph
        self._state = state
        self._log = log

    def node(self, node: Node) -> NodeLineage:
        state = self._state.nodes[node.id]
        is_completed = state.status is NodeStatus.COMPLETED
        taken = tuple(self._taken(node))
        return NodeLineage(
            id=node.id,
            type=type_of(node),
            status=state.status,
            uses=(*taken, *self._external_uses(node)),
            output=state.ref if is_completed else 0,
            parts=tuple(self._parts(node, taken)),
            child=self._state.children.get(node.id),
        )

    def _taken(self, node: Node) -> Iterator[Use]:
        """Values from upstream: its named inputs, or the values of its edges."""
        if inputs := inputs_of(node):
            yield from map(self._named, inputs)
        elif not isinstance(node, SignalNode) and _takes_input(node):
            yield from self._handed_on(node)
        config = node.config if isinstance(node, TaskNode) else None
        known = {each.secret for each in inputs}
        names = [use.path[0] for use in template_names(config) if use.name == _SECRET and use.path]
        for name in dict.fromkeys(names):
            if name not in known:
                yield Use(origin=UseOrigin.SECRET, name=name, source=name)

    def _named(self, input: Input) -> Use:
        if input.secret:
            return Use(origin=UseOrigin.SECRET, name=input.name, source=input.secret)
        if not input.source:
            use = Use(origin=UseOrigin.INPUT, number=_INPUT_NUMBER)
            return replace(use, name=input.name, path=input.path)
        source = self._state.nodes.get(input.source)
        is_there = source is not None and source.status is NodeStatus.COMPLETED
        return Use(
            origin=UseOrigin.NODE,
            name=input.name,
            source=input.source,
            path=input.path,
            port=source.port if source is not None and is_there else "",
            number=source.ref if source is not None and is_there else 0,
            is_default=not is_there,
        )

    def _handed_on(self, node: Node) -> Iterator[Use]:
        edges = self._graph.incoming[node.id]
        if not edges:
            yield Use(origin=UseOrigin.INPUT, number=_INPUT_NUMBER)
        gathers = isinstance(node, TaskNode) and node.gathers
        taken = [edge for edge in edges if self._is_taken(edge)]
        for edge in taken if gathers else taken[:1]:
            yield Use(
                origin=UseOrigin.NODE,
                name=(edge.name or edge.source) if gathers else "",
                source=edge.source,
                port=edge.port,
                number=self._state.nodes[edge.source].ref,
            )

    def _is_taken(self, edge: Edge) -> bool:
        source = self._state.nodes.get(edge.source)
        return (
            source is not None
            and source.status is NodeStatus.COMPLETED
            and source.port == edge.port
        )

    def _external_uses(self, node: Node) -> Iterator[Use]:
        """External values: the signal it received, answers, reports."""
        state = self._state.nodes[node.id]
        if isinstance(node, SignalNode):
            if state.ref in self._log.by:
                yield self._external_use(UseOrigin.SIGNAL, node.signal, state.ref)
            return
        for number in self._log.answers.get(node.id, ()):
            yield self._external_use(UseOrigin.ANSWER, "", number)
        for number in self._log.reports.get(node.id, ()):
            yield self._external_use(UseOrigin.REPORT, "", number)

    def _external_use(self, origin: UseOrigin, source: str, number: int) -> Use:
        return Use(origin=origin, source=source, number=number, by=self._log.by[number])

    def _parts(self, node: Node, taken: Sequence[Use]) -> Iterator[PartLineage]:
        if isinstance(node, MapNode):
            for item in range(self._items(node.id)):
                key = Key(node=node.id, item=item).text
                yield self._part(key, _of_item(node, taken, item), self._log.ended.get(key, 0))
        elif isinstance(node, LoopNode):
            uses = tuple(taken)
            for iteration in range(1, self._state.nodes[node.id].iteration + 1):
                key = Key(node=node.id, iteration=iteration).text
                output = self._log.ended.get(key, 0)
                yield self._part(key, uses, output)
                uses = (Use(origin=UseOrigin.NODE, source=key, number=output),)

    def _items(self, id: str) -> int:
        """How many items of a map have started; all if it has completed."""
        progress = self._state.maps.get(id)
        return self._log.mapped.get(id, 0) if progress is None else progress.launched

    def _part(self, key: str, uses: Sequence[Use], output: int) -> PartLineage:
        reports = [
            self._external_use(UseOrigin.REPORT, "", number)
            for number in self._log.reports.get(key, ())
        ]
        return PartLineage(key=key, uses=(*uses, *reports), output=output)


def _takes_input(node: Node) -> bool:
    """Whether it uses its input: a task without parameters does not."""
    call = getattr(node, "call", None) or getattr(node, "body", None)
    return call is None or isinstance(call, FlowRef) or bool(call.takes_input)


def _of_item(node: MapNode, taken: Sequence[Use], item: int) -> tuple[Use, ...]:
    """The origin of an item: an element of the list that the map iterates over."""
    over = node.over
    if node.inputs:
        found = [use for use in taken if use.name == over]
        return tuple(replace(use, name="", path=(*use.path, str(item))) for use in found)
    inside = () if over is None else (over,)
    return tuple(replace(use, path=(*use.path, *inside, str(item))) for use in taken)
