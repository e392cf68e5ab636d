"""What a decision can look up: the values of a run's events, and from them the inputs of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perdure.diagnostics import declare, message
from perdure.engine.decision import NULL, Decision, Skips, Unusable, Values
from perdure.engine.fold import fold
from perdure.errors import InvalidInput, ValueMissing
from perdure.expr.condition import holds, parse_condition
from perdure.expr.path import MissingKey, look_up
from perdure.expr.template import TemplateSkips, render, template_names
from perdure.model.event import Event
from perdure.model.graph import Edge, Graph, Input, Node, RouteNode, TaskNode, inputs_of
from perdure.model.ids import RunId
from perdure.model.run import MapState, NodeStatus, RunState

TEMPLATE_FAILED = declare("node.invalid_template", "node {node!r}: {reason}")
INPUT_MISSING = declare(
    "node.input_missing", "node {node!r}: its input {input!r} is missing: {reason}"
)


class Reading:
    """One run as a decision sees it; ``state`` is always what its events add up to."""

    def __init__(self, graph: Graph, run: RunId, state: RunState, values: Values) -> None:
        self.graph = graph
        self.run = run
        self.state = state
        self.decision = Decision()
        self.instant: list[tuple[str, int]] = []
        """Waits for a signal that is there already: node and the event it came with."""
        self.full: list[str] = []
        """Maps that have been started with no item left to do."""
        self.unusable: list[Unusable] = []
        """Nodes that were reached with an input they cannot take."""
        self.skipping: list[Skips] = []
        """Nodes that were reached, lack an input, and rather do not run."""
        self._values = values
        self._fresh: dict[int, bytes] = {}
        self._ending: tuple[str, str, int] | None = None
        """The node that the event to come completes, its port, and the event of its output."""
        self._taken: set[int] = set()

    @property
    def next_number(self) -> int:
        return self.state.number + 1

    def emit(self, event: Event, value: bytes | None = None) -> None:
        self.state = fold(self.state, event)
        self.decision.events.append((event, value))
        if value is not None:
            self._fresh[self.state.number] = value
        self._ending = None

    def json(self, number: int) -> bytes:
        """The value of an event, old or new."""
        fresh = self._fresh.get(number)
        return self._values.json(number) if fresh is None else fresh

    def json_of(self, numbers: Iterable[int]) -> list[msgspec.Raw]:
        """The values of several events; asks for all that are not at hand at once."""
        found: list[msgspec.Raw] = []
        missing: list[int] = []
        for number in numbers:
            try:
                found.append(msgspec.Raw(self.json(number)))
            except ValueMissing as error:
                missing.extend(error.numbers)
        if missing:
            raise ValueMissing(numbers=tuple(missing))
        return found

    def provide(self, value: bytes) -> None:
        """Let the value of the event to come be used before it is emitted."""
        self._fresh[self.next_number] = value

    # Signals

    def unread(self, signal: str) -> list[int]:
        """The signals of a name that nobody takes, oldest first."""
        return [number for number in self.state.mail.get(signal, ()) if number not in self._taken]

    def take(self, number: int) -> int:
        """Keep a signal from being taken twice before the event that takes it is emitted."""
        self._taken.add(number)
        return number

    def accepts(self, where: Any, number: int) -> bool:
        """Whether the signal of this event is one that a wait with this condition is for."""
        if where is None:
            return True
        payload = msgspec.json.decode(self.json(number))
        return holds(parse_condition(where), payload if isinstance(payload, dict) else {})

    # Inputs and outputs

    def rendered(self, node: Node, config: Any, input: bytes | None = None) -> Any:
        """Templates of a node filled in, where no worker does that."""
        if input is None:
            input = self.input_of(node.id)
        scope = scope_of(self.run, self.graph, node, input)
        on_missing = "error" if isinstance(node, RouteNode) else node.on_missing
        try:
            if any(use.name == "input" for use in template_names(config)):
                scope["input"] = msgspec.json.decode(self.json(1))
            return render(config, scope, on_missing)
        except TemplateSkips as error:
            raise Skips(node.id, str(error)) from None
        except InvalidInput as error:
            fault = TEMPLATE_FAILED.fault(("nodes", node.id), node=node.id, reason=str(error))
            raise Unusable(node.id, fault) from None

    def input_of(self, id: str) -> bytes:
        """The input of a node whose incoming edges are all decided."""
        node = self.graph.nodes[id]
        if inputs := inputs_of(node):
            return self._named_inputs(node, inputs)
        if not isinstance(node, TaskNode) or not node.gathers:
            return self.json(self.input_ref(id))
        taken = [
            (edge.name or edge.source, ref)
            for edge in self.graph.incoming[id]
            if (ref := self._ref_along(edge)) is not None
        ]
        return self._object(taken)

    def _named_inputs(self, node: Node, inputs: Sequence[Input]) -> bytes:
        refs = {each.source: self._output_ref(each.source) for each in inputs if not each.secret}
        there = [ref for ref in refs.values() if ref is not None]
        outputs = dict(zip(there, self.json_of(there), strict=True))
        assert not isinstance(node, RouteNode)
        taken: dict[str, Any] = {}
        for each in inputs:
            if each.secret:
                continue
            ref = refs[each.source]
            try:
                if ref is None:
                    raise InputMissing(f"node {each.source!r} has no output in this run")
                taken[each.name] = taken_from(outputs[ref], each.path)
            except InputMissing as error:
                place = ("nodes", node.id, "inputs", each.name)
                fault = INPUT_MISSING.fault(place, node=node.id, input=each.name, reason=str(error))
                if node.on_missing == "error":
                    raise Unusable(node.id, fault) from None
                if node.on_missing == "skip":
                    raise Skips(node.id, message(fault)) from None
                taken[each.name] = each.default
        return msgspec.json.encode(taken)

    def _output_ref(self, id: str) -> int | None:
        """The event whose value is the output of a node, or the run's input; None if not there."""
        if not id:
            return 1
        if self._ending is not None and self._ending[0] == id:
            return self._ending[2]
        node = self.state.nodes.get(id)
        return node.ref if node is not None and node.status is NodeStatus.COMPLETED else None

    def input_ref(self, id: str) -> int:
        """The event whose value is the one input of a node that does not gather several."""
        edges = self.graph.incoming[id]
        if not edges:
            return 1
        for edge in edges:
            ref = self._ref_along(edge)
            if ref is not None:
                return ref
        raise AssertionError(f"node {id!r} was started though no edge to it was taken")

    def gathered_items(self, progress: MapState) -> bytes:
        """The outputs of all items in their order."""
        refs = progress.refs
        return msgspec.json.encode(self.json_of(refs[n] for n in range(progress.count)))

    def result(self) -> tuple[int, bytes | None]:
        """The run's output: that of the one node at its end, or of several by name."""
        reached = [
            (id, node.ref)
            for id in self.graph.ends
            if (node := self.state.nodes.get(id)) is not None
            and node.status is NodeStatus.COMPLETED
            and not any(edge.port == node.port for edge in self.graph.outgoing[id])
        ]
        if self.graph.definition.gathers:
            return 0, self._object(reached)
        if not reached:
            return 0, NULL
        return reached[0][1], None

    def _object(self, refs: list[tuple[str, int]]) -> bytes:
        values = self.json_of(ref for _, ref in refs)
        return msgspec.json.encode(dict(zip((name for name, _ in refs), values, strict=True)))

    def _ref_along(self, edge: Edge) -> int | None:
        """The event whose value an edge hands on, if the edge was taken."""
        ending = self._ending
        if ending is not None and ending[0] == edge.source:
            return ending[2] if ending[1] == edge.port else None
        node = self.state.nodes.get(edge.source)
        if node is None or node.status is not NodeStatus.COMPLETED or node.port != edge.port:
            return None
        return node.ref


class InputMissing(Exception):
    """What a node wants to take is not there."""


def taken_from(output: bytes, path: tuple[str, ...]) -> Any:
    """The part of an output that a path leads to."""
    if not path:
        return msgspec.Raw(output)
    try:
        return look_up(msgspec.json.decode(output), path)
    except MissingKey as error:
        raise InputMissing(str(error)) from None


def scope_of(run: RunId, graph: Graph, node: Node, input: bytes) -> dict[str, Any]:
    """What templates of a node may name: its inputs, or else its one value; and the built-ins."""
    value = msgspec.json.decode(input)
    return {
        **(value if inputs_of(node) else {"value": value}),
        "run": {"id": run, "flow": graph.name, "version": graph.version},
        "node": {"id": node.id},
    }
