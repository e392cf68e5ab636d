"""What a builder was told, one value for each call, and how it becomes nodes and edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from perdure.client.flow_assembly import NESTING_MAX, After, Assembly, Cursor
from perdure.client.flow_calls import (
    CALL_SETTINGS,
    AnyTask,
    Function,
    NodeOptions,
    key_function,
    positive_ms,
    truth_of,
)
from perdure.model.duration import Duration, as_duration
from perdure.model.flow import BuiltFlow
from perdure.model.graph import (
    FAIL,
    Call,
    DelayNode,
    FlowNode,
    FlowRef,
    LoopNode,
    MapNode,
    SignalNode,
    TaskNode,
)
from perdure.model.task import Task, checked_name
from perdure.rules.enqueueing import check_option_names
from perdure.rules.graph_check import NODE_ID


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
    options: NodeOptions
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
            if is_several:
                assembly.merge(id)
            return assembly.add(child_node(assembly, id, self.body, self.options), entry)
        gathers = is_several if self.gathers is None else self.gathers
        node = task_node(assembly, id, self.body, self.options, gathers)
        return assembly.add(node, entry, gathers=gathers)

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
    options: NodeOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        flow: Any = self.flow
        if isinstance(flow, BuiltFlow):
            return ThenStep(flow, self.named, None, self.options).add(assembly, cursor, place)
        assembly.fault(place, f"{flow!r} is no flow that was built: .build()")
        return cursor


@dataclass(frozen=True, slots=True)
class MapStep(Step):
    body: Body
    named: Named
    over: str | None
    concurrency: int | None
    options: NodeOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_of(assembly, self.named.name, self.body, place)
        label = assembly.label(id)
        if self.over is not None:
            assembly.attempt(label, lambda: checked_name(self.over, "over"), "")
        node = MapNode(
            id=id,
            body=body_of(assembly, id, self.body, self.options),
            over=self.over,
            concurrency=whole(assembly, label, "concurrency", self.concurrency),
            on_error=on_error(assembly, label, self.options),
            undo=undo_call(assembly, id, self.options),
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after))


@dataclass(frozen=True, slots=True)
class LoopStep(Step):
    body: Body
    named: Named
    until: AnyTask | Function | str
    max_iterations: int | None
    on_max: str
    options: NodeOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_of(assembly, self.named.name, self.body, place)
        label = assembly.label(id)
        most = whole(assembly, label, "max_iterations", self.max_iterations)
        if most is None:
            assembly.fault(label, "max_iterations=None must be a whole number: no loop is endless")
        node = LoopNode(
            id=id,
            body=body_of(assembly, id, self.body, self.options),
            check=self._check(assembly, id, label),
            iterations_max=1 if most is None else most,
            on_max=checked_port(assembly, label, "on_max", self.on_max),
            on_error=on_error(assembly, label, self.options),
            undo=undo_call(assembly, id, self.options),
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after))

    def _check(self, assembly: Assembly, id: str, label: str) -> Call:
        until: Any = self.until
        name = f"{id}.until"
        if isinstance(until, str):
            # The key is part of the name, so that another key makes another version.
            until, name = key_function(until), f"{name}:{until}"
        if callable(until) and not isinstance(until, Task):
            until = truth_of(until)
        return assembly.call(until, name, {}, f"{label}, until=")


@dataclass(frozen=True, slots=True)
class DelayStep(Step):
    delay: Duration
    named: Named

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_or(assembly, self.named.name, "delay", place)
        delay = assembly.attempt(
            assembly.label(id), lambda: as_duration(self.delay, "delay"), timedelta(0)
        )
        entry = one_entry(assembly, id, cursor, self.named.after)
        return assembly.add(DelayNode(id=id, delay_ms=delay // timedelta(milliseconds=1)), entry)


@dataclass(frozen=True, slots=True)
class SignalStep(Step):
    signal: str
    named: Named
    timeout: Duration | None
    on_timeout: str

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        signal: Any = self.signal
        is_usable = isinstance(signal, str) and NODE_ID.fullmatch(signal)
        id = id_or(assembly, self.named.name, signal if is_usable else "signal", place)
        label = assembly.label(id)
        node = SignalNode(
            id=id,
            signal=assembly.attempt(label, lambda: checked_name(signal, "signal"), ""),
            timeout_ms=self._timeout_ms(assembly, label),
            on_timeout=checked_port(assembly, label, "on_timeout", self.on_timeout),
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after))

    def _timeout_ms(self, assembly: Assembly, label: str) -> int | None:
        timeout = self.timeout
        if timeout is not None:
            return assembly.attempt(label, lambda: positive_ms(timeout, "timeout"), None)
        if self.on_timeout != FAIL:
            assembly.fault(label, f"on_timeout={self.on_timeout!r} needs a timeout=...")
        return None


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


def one_entry(assembly: Assembly, id: str, cursor: Cursor, after: After | None) -> Cursor:
    """Where a node is attached that takes one value."""
    entry, is_several = assembly.entry(cursor, after, assembly.label(id))
    if is_several:
        assembly.merge(id)
    return entry


def task_node(
    assembly: Assembly, id: str, body: Any, options: Mapping[str, Any], gathers: bool
) -> TaskNode:
    label = assembly.label(id)
    check_options(assembly, label, options, NodeOptions)
    return TaskNode(
        id=id,
        call=assembly.call(body, id, options, label),
        gathers=gathers,
        on_error=on_error(assembly, label, options),
        undo=undo_call(assembly, id, options),
    )


def child_node(
    assembly: Assembly, id: str, flow: BuiltFlow, options: Mapping[str, Any]
) -> FlowNode:
    body = body_of(assembly, id, flow, options)
    assert isinstance(body, FlowRef)
    return FlowNode(
        id=id,
        body=body,
        on_error=on_error(assembly, assembly.label(id), options),
        undo=undo_call(assembly, id, options),
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


def undo_call(assembly: Assembly, id: str, options: Mapping[str, Any]) -> Call | None:
    undo = options.get("undo")
    if undo is None:
        return None
    return assembly.call(undo, f"{id}.undo", {}, f"{assembly.label(id)}, undo=")


def on_error(assembly: Assembly, label: str, options: Mapping[str, Any]) -> str:
    return checked_port(assembly, label, "on_error", options.get("on_error", FAIL))


def checked_port(assembly: Assembly, label: str, option: str, port: Any) -> str:
    """``"fail"``, ``"continue"`` or a port."""
    return assembly.attempt(label, lambda: checked_name(port, option), FAIL)


def check_options(assembly: Assembly, label: str, options: Mapping[str, Any], known: Any) -> None:
    for name, value in options.items():
        assembly.attempt(label, partial(check_option_names, {name: value}, known), None)


def whole(assembly: Assembly, label: str, option: str, value: Any) -> int | None:
    """Whether it is large enough is for the check of the graph to say."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    assembly.fault(label, f"{option}={value!r} must be a whole number")
    return 1
