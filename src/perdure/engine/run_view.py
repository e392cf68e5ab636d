"""``RunView``: a run as a decision sees it: its state, values of events, inputs of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from perdure.diagnostics import Fault, declare, message
from perdure.engine.fold import fold
from perdure.errors import InvalidInput, ValueMissing, record_text
from perdure.expr.budget import CostBudget
from perdure.expr.condition import Condition, holds, parse_condition
from perdure.expr.path import MissingKey, look_up, nested, parse_path, value_at
from perdure.expr.template import TemplateSkips, render, template_names
from perdure.model.event import Event
from perdure.model.failure import failure_of
from perdure.model.graph import (
    ApprovalNode,
    Edge,
    Graph,
    Input,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
    inputs_of,
)
from perdure.model.ids import RunId
from perdure.model.payload import weight
from perdure.model.run import MapState, NodeStatus, RunState
from perdure.model.value import Value
from perdure.model.wait import (
    MESSAGE_MAX,
    TITLE_MAX,
    ApprovalRequest,
    PastPause,
    Report,
    ReportStatus,
    Resumption,
    bounded,
)

TEMPLATE_FAILED = declare("node.invalid_template", "node {node!r}: {reason}")
INPUT_MISSING = declare(
    "node.input_missing", "node {node!r}: its input {input!r} is missing: {reason}"
)
NOT_AN_OBJECT = declare(
    "node.input_not_an_object", "map {node!r}: its input must be an object with the key {key!r}"
)
NO_SUCH_KEY = declare(
    "node.no_such_key", "map {node!r}: its input has no key {key!r}[; it has {known}]"
)
NOT_A_LIST = declare("node.not_a_list", "map {node!r}: {what} must be a list")
TOO_MANY_ITEMS = declare(
    "node.too_many_items",
    "map {node!r}: its list has {count} items, more than the {most} allowed",
    "Raise its items_max, or split the list",
)
INPUTS_TOO_LARGE = declare(
    "node.inputs_too_large",
    "node {node!r}: its inputs total more than {most} bytes",
    "Store large values elsewhere and pass references",
)

NULL = b"null"
_NULL = msgspec.Raw(NULL)


class Values(Protocol):
    """The values of a run's events, as JSON."""

    lists: dict[str, list[bytes]]
    """Items of live maps by node, cached so that a long list is not decoded for each item."""

    def json(self, number: int) -> bytes:
        """The value of an event; raises ``ValueMissing`` if it has to be read first."""


class UnusableInput(Exception):
    """The input of a node is invalid; ``failure`` is the node's failure."""

    def __init__(self, node: str, fault: Fault) -> None:
        super().__init__(fault)
        self.node = node
        self.failure = failure_of(fault)


class ValuesTooLarge(Exception):
    """Several values have more bytes together than the run allows."""


class SkipsNode(Exception):
    """A node with ``on_missing="skip"`` lacks an input."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


class Where(Value):
    """The condition of a wait for a signal, rendered."""

    data: Any
    condition: Condition


class RunView:
    """One run during a decision; ``state`` always includes the events emitted so far."""

    def __init__(self, graph: Graph, run: RunId, state: RunState, values: Values) -> None:
        self.graph = graph
        self.run = run
        self.state = state
        self._values = values
        self._fresh: dict[int, bytes] = {}
        self._completing: tuple[str, str, int] | None = None
        """The node that the next event completes, its port, and the event of its output."""
        self._taken: set[int] = set()

    @property
    def next_number(self) -> int:
        return self.state.number + 1

    def apply(self, event: Event, value: bytes | None = None) -> None:
        """Fold the next event; later reads see its state and value."""
        self.state = fold(self.state, event)
        if value is not None:
            self._fresh[self.state.number] = value
        self._completing = None

    def completing(self, node: str, port: str, value: bytes | None, ref: int) -> None:
        """Make the output of a node readable that the next event completes."""
        if value is not None:
            self.provide(value)
        self._completing = (node, port, ref or self.next_number)

    def provide(self, value: bytes) -> None:
        """Make the value of the next event readable before the event is emitted."""
        self._fresh[self.next_number] = value

    def json(self, number: int) -> bytes:
        """The value of an event, old or new."""
        fresh = self._fresh.get(number)
        return self._values.json(number) if fresh is None else fresh

    def json_of(self, numbers: Iterable[int]) -> list[msgspec.Raw]:
        """The values of several events; raises one ``ValueMissing`` for all that are not loaded."""
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

    # Signals

    def unread(self, signal: str) -> list[int]:
        """The pending signals of a name, oldest first."""
        return [
            number for number in self.state.signals.get(signal, ()) if number not in self._taken
        ]

    def where_of(self, node: SignalNode, budget: CostBudget) -> Where | None:
        """The condition that a node has for its signal."""
        if node.where is None:
            return None
        data = self.rendered(node, node.where)
        try:
            return Where(data=data, condition=parse_condition(data, budget=budget))
        except InvalidInput as error:
            raise unusable(node, "where", error) from None

    def take_first(self, where: Where | None, unread: Sequence[int], budget: CostBudget) -> int:
        """Take the first of these signals that is accepted; 0 if there is none.

        It is reserved, so that it is not taken twice before the event that takes it. Raises
        ``InvalidInput`` if comparing them all costs too much.
        """
        if where is not None:
            self.json_of(unread)  # all that are not loaded, in one read
        for number in unread:
            if self.accepts(where, number, budget):
                self._taken.add(number)
                return number
        return 0

    def accepts(self, where: Where | None, number: int, budget: CostBudget) -> bool:
        """Whether the signal of this event meets the condition of a wait."""
        if where is None:
            return True
        data = self.json(number)
        budget.spend_on_json(data)
        payload = msgspec.json.decode(data)
        return holds(where.condition, payload if isinstance(payload, dict) else {}, budget)

    # Inputs and outputs

    def rendered(self, node: Node, config: Any, input: bytes | None = None) -> Any:
        """Render templates of a node that no worker executes."""
        if input is None:
            input = self.input_of(node.id)
        scope = scope_of(self.run, self.graph, node, input)
        on_missing = "error" if isinstance(node, RouteNode) else node.on_missing
        try:
            if any(use.name == "input" for use in template_names(config)):
                scope["input"] = msgspec.json.decode(self.json(1))
            return render(config, scope, on_missing)
        except TemplateSkips as error:
            raise SkipsNode(node.id, record_text(error)) from None
        except InvalidInput as error:
            raise unusable(node, "", error) from None

    def input_of(self, id: str) -> bytes:
        """The input of a node whose incoming edges are all decided."""
        node = self.graph.nodes[id]
        inputs = inputs_of(node)
        if not inputs and not (isinstance(node, TaskNode) and node.gathers):
            return self.json(self.input_ref(id))
        try:
            if inputs:
                return self._named_inputs(node, inputs)
            taken = [
                (edge.name or edge.source, ref)
                for edge in self.graph.incoming[id]
                if (ref := self._ref_along(edge)) is not None
            ]
            return self._object(taken)
        except ValuesTooLarge:
            fault = INPUTS_TOO_LARGE.fault(
                ("nodes", id), node=id, most=self.state.gathered_max_bytes
            )
            raise UnusableInput(id, fault) from None

    def check_together(self, size: int) -> None:
        """Raise ``ValuesTooLarge`` if values of this many bytes are too large together.

        One alone never is: it is a payload, or the output of a map.
        """
        if 0 < self.state.gathered_max_bytes < size:
            raise ValuesTooLarge

    def _named_inputs(self, node: Node, inputs: Sequence[Input]) -> bytes:
        refs = {each.source: self._output_ref(each.source) for each in inputs if not each.secret}
        there = [ref for ref in refs.values() if ref is not None]
        outputs = dict(zip(there, self.json_of(there), strict=True))
        assert not isinstance(node, RouteNode)
        taken: dict[str, msgspec.Raw] = {}
        size = 0
        for each in inputs:
            if each.secret:
                continue
            ref = refs[each.source]
            reason, value = "", _NULL
            if ref is None:
                reason = f"node {each.source!r} has no output in this run"
            elif not each.path:
                value = outputs[ref]
            else:
                try:
                    value = _raw(look_up(msgspec.json.decode(outputs[ref]), each.path))
                except MissingKey as error:
                    reason = record_text(error)
            if reason:
                place = ("nodes", node.id, "inputs", each.name)
                fault = INPUT_MISSING.fault(place, node=node.id, input=each.name, reason=reason)
                if node.on_missing == "error":
                    raise UnusableInput(node.id, fault)
                if node.on_missing == "skip":
                    raise SkipsNode(node.id, message(fault))
                value = _raw(each.default)
            size += weight(bytes(value))
            if taken:
                self.check_together(size)
            taken[each.name] = value
        return msgspec.json.encode(taken)

    def _output_ref(self, id: str) -> int | None:
        """The event whose value is the output of a node, or the run's input; None if missing."""
        if not id:
            return 1
        if self._completing is not None and self._completing[0] == id:
            return self._completing[2]
        node = self.state.nodes.get(id)
        return node.ref if node is not None and node.status is NodeStatus.COMPLETED else None

    def input_ref(self, id: str) -> int:
        """The event whose value is the single input of a node that does not gather inputs."""
        edges = self.graph.incoming[id]
        if not edges:
            return 1
        for edge in edges:
            ref = self._ref_along(edge)
            if ref is not None:
                return ref
        raise AssertionError(f"node {id!r} was started though no edge to it was taken")

    def items_of(self, node: MapNode) -> list[bytes]:
        """The items of a running map."""
        # Cached only now that the input is in the log: a decision that was discarded may have
        # read other items.
        lists = self._values.lists
        if node.id not in lists:
            lists[node.id] = items_in(node, self.input_of(node.id))
        return lists[node.id]

    def forget_items(self, id: str) -> None:
        self._values.lists.pop(id, None)

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

    def resumption_of(self, text: str) -> bytes | None:
        """The pauses and the progress of a key; None if it has neither."""
        pauses = self.state.pauses.get(text, ())
        progress = self.state.progress.get(text)
        failures = self.state.external_failures.get(text, 0)
        if not pauses and progress is None and not failures:
            return None
        partial = None if progress is None else self._report(progress).progress
        past = tuple(
            PastPause(
                name=pause.name,
                checkpoint=msgspec.Raw(self.json(pause.checkpoint)),
                report=self._report(pause.report or self.state.early_reports.get(text, 0)),
            )
            for pause in pauses
        )
        attempt = pauses[-1].attempt if pauses else 1
        return msgspec.json.encode(
            Resumption(pauses=past, progress=partial, failures=failures, attempt=attempt)
        )

    def _report(self, number: int) -> Report:
        if not number:  # a poll, before any report
            return Report(status=ReportStatus.PROGRESS)
        return msgspec.json.decode(self.json(number), type=Report)

    def approval_request(self, node: ApprovalNode) -> ApprovalRequest:
        """The request to the deciders, with all templates rendered."""
        input = self.input_of(node.id)
        texts = {"title": node.title, "message": node.message, "data": node.data}
        rendered = self.rendered(node, texts, input)
        scope = scope_of(self.run, self.graph, node, input)
        given = msgspec.json.decode(input)
        return ApprovalRequest(
            node=node.id,
            flow=self.graph.name,
            title=bounded(str(rendered["title"]), TITLE_MAX),
            message=bounded(str(rendered["message"]), MESSAGE_MAX),
            form=node.form,
            show=given
            if node.shows is None
            else {name: value_at(scope, parse_path(name), None) for name in node.shows},
            data=given if node.data is None else rendered["data"],
            answers=node.answers,
            quorum=node.quorum,
        )

    def _object(self, refs: list[tuple[str, int]]) -> bytes:
        values = self.json_of(ref for _, ref in refs)
        if len(values) > 1:
            self.check_together(sum(weight(bytes(value)) for value in values))
        return msgspec.json.encode(dict(zip((name for name, _ in refs), values, strict=True)))

    def _ref_along(self, edge: Edge) -> int | None:
        """The event whose value an edge passes on, if the edge was taken."""
        completing = self._completing
        if completing is not None and completing[0] == edge.source:
            return completing[2] if completing[1] == edge.port else None
        node = self.state.nodes.get(edge.source)
        if node is None or node.status is not NodeStatus.COMPLETED or node.port != edge.port:
            return None
        return node.ref


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def unusable(node: Node, field: str, error: InvalidInput) -> UnusableInput:
    """The failure of a node whose config, or the field of it, cannot be used."""
    place = ("nodes", node.id, field) if field else ("nodes", node.id)
    fault = TEMPLATE_FAILED.fault(place, node=node.id, reason=record_text(error))
    return UnusableInput(node.id, fault)


def scope_of(run: RunId, graph: Graph, node: Node, input: bytes) -> dict[str, Any]:
    """The names available to a node's templates: its inputs or single value, and built-ins."""
    value = msgspec.json.decode(input)
    return {
        **(nested(value) if inputs_of(node) else {"value": value}),
        "run": {"id": run, "flow": graph.name, "version": graph.version},
        "node": {"id": node.id},
    }


def items_in(node: MapNode, input: bytes, most: int | None = None) -> list[bytes]:
    """The items in the input of a map; ``most`` is how many it may have."""
    found: bytes = input
    if node.over is not None:
        try:
            fields = msgspec.json.decode(input, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            fault = NOT_AN_OBJECT.fault(("nodes", node.id), node=node.id, key=node.over)
            raise UnusableInput(node.id, fault) from None
        if node.over not in fields:
            fault = NO_SUCH_KEY.fault(
                ("nodes", node.id), node=node.id, key=node.over, known=tuple(fields)
            )
            raise UnusableInput(node.id, fault)
        found = bytes(fields[node.over])
    try:
        items = msgspec.json.decode(found, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        what = "its input" if node.over is None else f"{node.over!r} of its input"
        fault = NOT_A_LIST.fault(("nodes", node.id), node=node.id, what=what)
        raise UnusableInput(node.id, fault) from None
    if most is not None and len(items) > most:
        raise UnusableInput(node.id, too_many_items(node.id, len(items), most))
    return [bytes(item) for item in items]


def too_many_items(node: str, count: int, most: int) -> Fault:
    return TOO_MANY_ITEMS.fault(("nodes", node), node=node, count=count, most=most)
