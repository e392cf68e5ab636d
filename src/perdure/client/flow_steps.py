"""What a builder was told, one value for each call, and how it becomes nodes and edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.client.flow_assembly import NESTING_MAX, After, Assembly, Cursor
from perdure.client.flow_inputs import Inputs
from perdure.client.flow_options import (
    CALL_SETTINGS,
    TASK_SETTINGS,
    AnyTask,
    Function,
    NodeOptions,
    TaskOptions,
)
from perdure.client.flow_settings import (
    check_options,
    config_told,
    on_error,
    task_settings,
    told_inputs,
    undo_call,
)
from perdure.model.flow import BuiltFlow
from perdure.model.graph import Call, FlowNode, FlowRef, TaskNode
from perdure.model.task import Task
from perdure.nodes.kind import Kind


class Step(ABC):
    """One call of the builder."""

    @abstractmethod
    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        """Add its nodes behind ``cursor``; where the next one is attached."""


class Steps:
    """Calls of a builder in their order."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, Step]] = []


def add_steps(steps: Steps, assembly: Assembly, cursor: Cursor, place: str = "") -> Cursor:
    """Add the nodes of all steps; ``place`` is where they stand in another flow."""
    counts: Counter[str] = Counter()
    for method, step in steps._steps:
        counts[method] += 1
        where = f".{method} number {counts[method]}"
        cursor = step.add(assembly, cursor, f"{place}, {where}" if place else where)
    return cursor


def inline(steps: Steps, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
    """Add the nodes of a flow that is a part of another one."""
    if any(each is steps for each in assembly.nesting):
        assembly.fault(place, "a flow cannot be a part of itself; use .loop(...) to repeat work")
        return cursor
    if len(assembly.nesting) >= NESTING_MAX:
        assembly.fault(place, f"flows are nested more than {NESTING_MAX} deep")
        return cursor
    if not steps._steps:
        assembly.fault(place, "this flow has no nodes; use None to go straight on")
    assembly.nesting.append(steps)
    try:
        return add_steps(steps, assembly, cursor, place)
    finally:
        assembly.nesting.pop()


Body = AnyTask | Function | BuiltFlow


@dataclass(frozen=True, slots=True)
class Named:
    """What all nodes may be given."""

    name: str | None
    after: After | None


@dataclass(frozen=True, slots=True)
class ThenStep(Step):
    """A task, a child flow, or the nodes of a flow that is not built."""

    body: Body | Steps
    named: Named
    gathers: bool | None
    options: Mapping[str, Any]
    """As ``TaskOptions`` has them."""
    is_start: bool = False
    """Without ``after`` it is a first node, and does not follow the cursor."""

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        if self.is_start and self.named.after is None:
            cursor = Cursor()
        if isinstance(self.body, Steps):
            return self._inlined(assembly, cursor, place, self.body)
        id = id_of(assembly, self.named.name, self.body, place)
        label = assembly.label(id)
        entry, is_several = assembly.entry(cursor, self.named.after, label)
        if isinstance(self.body, BuiltFlow):
            if self.gathers:
                assembly.fault(label, "a child flow cannot gather; .join(task) before it can")
            inputs = told_inputs(assembly, id, self.options)
            if is_several and not inputs.references:
                assembly.merge(id)
            return assembly.add(child_node(assembly, id, self.body, self.options, inputs), entry)
        gathers = is_several if self.gathers is None else self.gathers
        node = task_node(assembly, id, self.body, self.options, gathers)
        return assembly.add(node, entry, gathers=node.gathers)

    def _inlined(self, assembly: Assembly, cursor: Cursor, place: str, steps: Steps) -> Cursor:
        if self.named.name is not None or self.options or self.gathers is not None:
            assembly.fault(
                place,
                "a flow that is not built gives its nodes, and takes no name or options; build it "
                "to have it as a child flow",
            )
        entry, is_several = assembly.entry(cursor, self.named.after, place)
        if is_several:
            assembly.fault(place, "after=... must be one node here; begin with a task that gathers")
        return inline(steps, assembly, entry, place)


@dataclass(frozen=True, slots=True)
class FlowStep(Step):
    flow: BuiltFlow
    named: Named
    options: Mapping[str, Any]
    """As ``InputOptions`` has them, with ``on_error`` and ``undo``."""

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        flow: Any = self.flow
        if isinstance(flow, BuiltFlow):
            return ThenStep(flow, self.named, None, self.options).add(assembly, cursor, place)
        assembly.fault(place, f"{flow!r} is no flow that was built: .build()")
        return cursor


# What several steps need


def id_of(assembly: Assembly, name: str | None, body: Any, place: str) -> str:
    """The id of a node: what it was given, or the name of what it calls."""
    if name is not None:
        return given_id(assembly, name, place)
    if isinstance(body, Task | BuiltFlow):
        return assembly.own_id(body.name, place)
    id = assembly.made_up_id("unnamed", place)
    if getattr(body, "__name__", None) == "<lambda>":
        assembly.fault(place, "a lambda has no name of its own; give the node one: name=...")
    elif isinstance(body, Steps):
        assembly.fault(place, "a flow is called once it is built: .build()")
    elif callable(body):
        assembly.fault(
            place, f"{body!r} is a plain function; decorate it with @task, or give name=..."
        )
    return id


def id_or(assembly: Assembly, name: str | None, stem: str, place: str) -> str:
    return assembly.made_up_id(stem, place) if name is None else given_id(assembly, name, place)


def given_id(assembly: Assembly, name: Any, place: str) -> str:
    if isinstance(name, str):
        return assembly.own_id(name, place)
    assembly.fault(place, f"name={name!r} must be a text")
    return assembly.made_up_id("unnamed", place)


def one_entry(
    assembly: Assembly, id: str, cursor: Cursor, after: After | None, inputs: Inputs | None = None
) -> Cursor:
    """Where a node is attached that takes one value, or what its inputs name."""
    entry, is_several = assembly.entry(cursor, after, assembly.label(id))
    if is_several and not (inputs and inputs.references):
        assembly.merge(id)
    return entry


def task_node(
    assembly: Assembly, id: str, body: Any, options: Mapping[str, Any], gathers: bool
) -> TaskNode:
    label = assembly.label(id)
    check_options(assembly, label, options, TaskOptions)
    if isinstance(body, Kind) or (isinstance(body, type) and issubclass(body, Kind)):
        assembly.fault(label, f"{body!r} is a kind; add it with .use(kind, config)")
        body = _nothing
    inputs = told_inputs(assembly, id, options)
    config = config_told(assembly, label, options.get("config"))
    arguments = inputs.names if config is None else list(config)
    is_called_by_name = config is not None or bool(inputs.references)
    return TaskNode(
        id=id,
        call=assembly.call(body, id, options, label, arguments if is_called_by_name else None),
        gathers=gathers and not inputs.references,
        on_error=on_error(assembly, label, options),
        undo=undo_call(assembly, id, options),
        config=config,
        on_missing=inputs.on_missing,
        **task_settings(assembly, label, options),
    )


def child_node(
    assembly: Assembly, id: str, flow: BuiltFlow, options: Mapping[str, Any], inputs: Inputs
) -> FlowNode:
    label = assembly.label(id)
    for option in sorted(TASK_SETTINGS.intersection(options)):
        assembly.fault(label, f"{option}= is for tasks; a child flow has its own nodes")
    rest = {name: value for name, value in options.items() if name not in TASK_SETTINGS}
    body = body_of(assembly, id, flow, rest)
    assert isinstance(body, FlowRef)
    return FlowNode(
        id=id,
        body=body,
        on_error=on_error(assembly, label, options),
        undo=undo_call(assembly, id, options),
        on_missing=inputs.on_missing,
    )


def body_of(assembly: Assembly, id: str, body: Any, options: Mapping[str, Any]) -> Call | FlowRef:
    """What a map, a loop or a child calls."""
    label = assembly.label(id)
    check_options(assembly, label, options, NodeOptions)
    if not isinstance(body, BuiltFlow):
        return assembly.call(body, id, options, label)
    for option in sorted(CALL_SETTINGS.intersection(options)):
        if options[option] is not None:
            assembly.fault(label, f"{option}= is for tasks; a child flow has its own settings")
    return assembly.child(body)


def _nothing(**arguments: Any) -> None:
    """Stands in for what cannot be called."""
