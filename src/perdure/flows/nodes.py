"""From each call of the builder to nodes and edges, one function per node type."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.diagnostics import declare, render
from perdure.errors import FaultText, InvalidInput
from perdure.expr.condition import condition_faults
from perdure.expr.path import path_text
from perdure.flows.assembly import NESTING_MAX, After, Assembly, Cursor, End
from perdure.flows.built import BuiltFlow
from perdure.flows.calls import Inputs, condition_function, key_function, plain, truth_of
from perdure.flows.check import NODE_ID, nearest
from perdure.flows.options import (
    CALL_SETTINGS,
    TASK_SETTINGS,
    AnyTask,
    ApprovalOptions,
    Function,
    InputOptions,
    KindOptions,
    NodeOptions,
    RouteOptions,
    TaskOptions,
)
from perdure.flows.settings import (
    check_options,
    checked_port,
    config_told,
    data,
    names,
    on_error,
    schema,
    task_settings,
    text,
    told_inputs,
    undo_call,
    whole,
)
from perdure.model import check
from perdure.model.graph import (
    APPROVE,
    DEFAULT_PORT,
    FAIL,
    REJECT,
    ApprovalNode,
    Call,
    DefaultAnswer,
    DelayNode,
    Escalation,
    FlowNode,
    FlowRef,
    LoopNode,
    MapNode,
    RouteNode,
    SignalNode,
    TaskNode,
)
from perdure.model.payload import to_json
from perdure.model.times import Duration
from perdure.nodes.config import config_faults
from perdure.nodes.registry import STRUCTURAL, Kinds
from perdure.tasks.node_type import Kind
from perdure.tasks.task import Task


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


Part = AnyTask | BuiltFlow | Steps
Branch = Part | Sequence[Part] | None
"""A task, a built flow (a child), a flow that is not built (its nodes), a list of those; or None
to go straight on."""

RouteKey = str | int | bool


@dataclass(frozen=True, slots=True)
class ForkStep(Step):
    branches: Mapping[Any, Branch]

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        entry, _ = assembly.entry(cursor, None, place)
        if not self.branches:
            assembly.fault(place, "a fork needs at least one branch: .fork(a=task, b=[task, task])")
        ends: dict[str, Cursor] = {}
        for name in sorted(self.branches, key=str):
            where = f"{place}, branch {name!r}"
            branch = self.branches[name]
            if not isinstance(name, str) or not name:
                assembly.fault(where, "the name of a branch must be a text")
            elif branch is None and not entry.ends:
                assembly.fault(where, "nothing comes before the fork whose output it could hand on")
            else:
                ends[name] = add_branch(assembly, entry, branch, where)
        every = tuple(end for each in ends.values() for end in each.ends)
        return Cursor(ends=every, branches=ends, fork=place)


@dataclass(frozen=True, slots=True)
class JoinStep(Step):
    body: AnyTask | Function | BuiltFlow
    name: str | None
    options: TaskOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_of(assembly, self.name, self.body, place)
        label = assembly.label(id)
        if isinstance(self.body, BuiltFlow):
            assembly.fault(label, "a child flow cannot join; join with a task, and then .flow(...)")
        if not cursor.branches:
            assembly.fault(label, "it joins nothing: a .join(...) follows a .fork(...)")
        for name, branch in cursor.branches.items():
            if branch.fork:
                assembly.fault(label, f"branch {name!r} ends in a fork ({branch.fork}) of its own")
        ends = tuple(
            End(end.source, end.port, name)
            for name, branch in cursor.branches.items()
            for end in branch.ends
        )
        node = task_node(assembly, id, self.body, self.options, gathers=bool(ends))
        return assembly.add(node, Cursor(ends=ends), gathers=node.gathers)


@dataclass(frozen=True, slots=True)
class RouteStep(Step):
    key: AnyTask | Function | str
    branches: Mapping[Any, Branch]
    default: Branch
    named: Named
    keys: Sequence[RouteKey] | None
    options: RouteOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_or(assembly, self.named.name, "route", place)
        label = assembly.label(id)
        branches = self._by_port(assembly, label)
        self._check_keys(assembly, label, branches)
        check_options(assembly, label, self.options, RouteOptions)
        node = RouteNode(
            id=id,
            call=self._call(assembly, id, label),
            ports=tuple(branches),
            on_error=on_error(assembly, label, self.options),
            key=self.key if isinstance(self.key, str) else "",
        )
        assembly.add(node, one_entry(assembly, id, cursor, self.named.after))
        ends: list[End] = []
        fork = ""
        for port, branch in branches.items():
            entry = Cursor(ends=(End(id, port),))
            after = add_branch(assembly, entry, branch, f"{place}, branch {port!r}")
            ends.extend(after.ends)
            fork = fork or after.fork
        return Cursor(ends=tuple(ends), fork=fork)

    def _by_port(self, assembly: Assembly, label: str) -> dict[str, Branch]:
        """The branches by their ports, in an order that is not that of their telling."""
        found: dict[str, Branch] = {}
        told: Any = self.branches
        if not isinstance(told, Mapping):
            assembly.fault(label, f"branches={told!r} must be an object: {{key: branch}}")
            return found
        for key, branch in told.items():
            port = port_of(key)
            if port is None:
                assembly.fault(label, f"the key {key!r} of a branch must be a text or whole number")
            elif port in found:
                assembly.fault(label, f"two branches have the key {port!r}")
            else:
                found[port] = branch
        if self.default is not None:
            if DEFAULT_PORT in found:
                assembly.fault(label, f"the branch {DEFAULT_PORT!r} and default= are the same")
            found[DEFAULT_PORT] = self.default
        return {port: found[port] for port in sorted(found, key=lambda p: (p == DEFAULT_PORT, p))}

    def _check_keys(self, assembly: Assembly, label: str, branches: Mapping[str, Branch]) -> None:
        if self.keys is None:
            return
        keys = assembly.attempt(label, lambda: check.listed(self.keys, "keys", "keys"), None)
        if keys is None:
            return
        declared = {port_of(key) for key in keys}
        for port in sorted(str(port) for port in declared.difference(branches)):
            if DEFAULT_PORT not in branches:
                assembly.fault(label, f"no branch for the declared key {port!r}, and no default=")
        for port in branches:
            if port not in declared and port != DEFAULT_PORT:
                near = nearest(port, [str(each) for each in declared])
                assembly.fault(label, f"branch {port!r} is for no declared key{near}")

    def _call(self, assembly: Assembly, id: str, label: str) -> Call:
        key, name = self.key, id
        if isinstance(key, str):
            # So a worker that has two versions of a flow has the function of each.
            key, name = key_function(key), f"{id}:{key}"
        return assembly.call(key, name, self.options, f"{label}, key")


def port_of(key: Any) -> str | None:
    """The port that a key leads to, as the engine reads what a key function returns."""
    if isinstance(key, bool):
        return str(key).lower()
    return str(key) if isinstance(key, str | int) else None


def add_branch(assembly: Assembly, cursor: Cursor, branch: Any, place: str) -> Cursor:
    """Add the nodes of a branch behind ``cursor``; where it ends."""
    if branch is None:
        return cursor
    if isinstance(branch, Steps):
        return inline(branch, assembly, cursor, place)
    if not isinstance(branch, Sequence):
        return _add_part(assembly, cursor, branch, place)
    if isinstance(branch, str) or not branch:
        assembly.fault(place, f"{branch!r} is no branch: give tasks, flows or a list of them")
    else:
        for number, part in enumerate(branch, 1):
            cursor = _add_part(assembly, cursor, part, f"{place}, item {number}")
    return cursor


def _add_part(assembly: Assembly, cursor: Cursor, part: Any, place: str) -> Cursor:
    if not isinstance(part, Steps | BuiltFlow) and not callable(part):
        assembly.fault(place, f"{part!r} is neither a task nor a flow")
        return cursor
    return ThenStep(part, Named(None, None), None, {}).add(assembly, cursor, place)


Until = AnyTask | Function | str | Mapping[str, Any] | Sequence[Any]
"""What tells that a loop is done: asks about its output, reads a key of it, or is a condition."""


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
            assembly.attempt(label, lambda: check.name(self.over, "over"), "")
        inputs = told_inputs(assembly, id, self.options)
        node = MapNode(
            id=id,
            body=body_of(assembly, id, self.body, self.options),
            over=self.over,
            concurrency=whole(assembly, label, "concurrency", self.concurrency),
            on_error=on_error(assembly, label, self.options),
            undo=undo_call(assembly, id, self.options),
            on_missing=inputs.on_missing,
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after, inputs))


@dataclass(frozen=True, slots=True)
class LoopStep(Step):
    body: Body
    named: Named
    until: Until
    max_iterations: int | None
    on_max: str
    options: NodeOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_of(assembly, self.named.name, self.body, place)
        label = assembly.label(id)
        most = whole(assembly, label, "max_iterations", self.max_iterations)
        if most is None:
            assembly.fault(label, "max_iterations=None must be a whole number: no loop is endless")
        inputs = told_inputs(assembly, id, self.options)
        until: Any = self.until
        is_data = isinstance(until, str | Mapping | list | tuple)
        if is_data:
            until = data(assembly, label, "until", until)
        node = LoopNode(
            id=id,
            body=body_of(assembly, id, self.body, self.options),
            check=_check(assembly, id, until),
            until=until if is_data else None,
            iterations_max=1 if most is None else most,
            on_max=checked_port(assembly, label, "on_max", self.on_max),
            on_error=on_error(assembly, label, self.options),
            undo=undo_call(assembly, id, self.options),
            on_missing=inputs.on_missing,
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after, inputs))


def _check(assembly: Assembly, id: str, until: Any) -> Call:
    """What is asked about each output. What it is made from is part of its name.

    So a worker that has two versions of a flow has the function of each.
    """
    name = f"{id}.until"
    if isinstance(until, str):
        until, name = key_function(until), f"{name}:{until}"
    elif isinstance(until, dict | list):
        is_sound = not condition_faults(until)  # else that is for the check of the graph to say
        until, name = condition_function(until if is_sound else []), f"{name}:{_digest(until)}"
    if callable(until) and not isinstance(until, Task):
        until = truth_of(until)
    return assembly.call(until, name, {}, f"{assembly.label(id)}, until=")


def _digest(condition: Any) -> str:
    return hashlib.sha256(to_json(condition, "until", is_input=True)).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class DelayStep(Step):
    delay: Duration | None
    until: str | datetime | None
    named: Named
    options: InputOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_or(assembly, self.named.name, "delay", place)
        label = assembly.label(id)
        check_options(assembly, label, self.options, InputOptions)
        inputs = told_inputs(assembly, id, self.options)
        if (self.delay is None) is (self.until is None):
            assembly.fault(label, "give either how long to wait, or until=... when")
        node = DelayNode(
            id=id,
            delay_ms=assembly.attempt(label, self._delay_ms, 0),
            until=assembly.attempt(label, lambda: _time(self.until), ""),
            on_missing=inputs.on_missing,
        )
        # It hands on what comes before it, and that is one value; inputs are for its time alone.
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after))

    def _delay_ms(self) -> int:
        if self.delay is None:
            return 0
        return check.span(self.delay, "delay") // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class SignalStep(Step):
    signal: str
    named: Named
    timeout: Duration | None
    on_timeout: str
    where: Any
    options: InputOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        signal: Any = self.signal
        is_usable = isinstance(signal, str) and NODE_ID.fullmatch(signal)
        id = id_or(assembly, self.named.name, signal if is_usable else "signal", place)
        label = assembly.label(id)
        check_options(assembly, label, self.options, InputOptions)
        inputs = told_inputs(assembly, id, self.options)
        node = SignalNode(
            id=id,
            signal=assembly.attempt(label, lambda: check.name(signal, "signal"), ""),
            timeout_ms=self._timeout_ms(assembly, label),
            on_timeout=checked_port(assembly, label, "on_timeout", self.on_timeout),
            where=data(assembly, label, "where", self.where),
            on_missing=inputs.on_missing,
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after, inputs))

    def _timeout_ms(self, assembly: Assembly, label: str) -> int | None:
        timeout = self.timeout
        if timeout is not None:
            return assembly.attempt(label, lambda: check.milliseconds(timeout, "timeout"), None)
        if self.on_timeout != FAIL:
            assembly.fault(label, f"on_timeout={self.on_timeout!r} needs a timeout=...")
        return None


def _time(until: Any) -> str:
    """A template, or a time as text."""
    if until is None:
        return ""
    if isinstance(until, str) and "{{" in until:
        return until
    try:
        moment = datetime.fromisoformat(until) if isinstance(until, str) else until
    except ValueError as error:
        expected = "a time such as 2030-01-31T08:00:00+00:00, or a template"
        raise check.wrong_type(until, "until", expected) from error
    return check.moment(moment, "until").isoformat()


_POLICIES = {"any": 1, "all": 0}
_ANSWER_FIELDS = ("decision", "data")


@dataclass(frozen=True, slots=True)
class ApproveStep(Step):
    title: str
    named: Named
    options: ApprovalOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_or(assembly, self.named.name, "approve", place)
        label = assembly.label(id)
        options: Mapping[str, Any] = self.options
        check_options(assembly, label, options, ApprovalOptions)
        inputs = told_inputs(assembly, id, options)
        deciders = names(assembly, label, "deciders", options.get("deciders", ()))
        answers, show = options.get("answers"), options.get("show")
        node = ApprovalNode(
            id=id,
            title=text(assembly, label, "title", self.title),
            message=text(assembly, label, "message", options.get("message", "")),
            form=schema(assembly, label, "form", options.get("form")),
            shows=None if show is None else names(assembly, label, "show", show),
            data=data(assembly, label, "data", options.get("data")),
            deciders=deciders,
            quorum=assembly.attempt(label, lambda: _quorum(options.get("policy", "any")), 1),
            answers=(APPROVE, REJECT)
            if answers is None
            else names(assembly, label, "answers", answers),
            on_reject=checked_port(assembly, label, "on_reject", options.get("on_reject", FAIL)),
            notify=self._notify(assembly, id, label),
            on_missing=inputs.on_missing,
            **_times(assembly, label, options),
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after, inputs))

    def _notify(self, assembly: Assembly, id: str, label: str) -> Call | None:
        notify = self.options.get("notify")
        if notify is None:
            return None
        return assembly.call(notify, f"{id}.notify", {}, f"{label}, notify=")


def _times(assembly: Assembly, label: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an approval that say what happens when."""
    deadline, on_timeout = options.get("deadline"), options.get("on_timeout", FAIL)
    timeout_ms = None
    if deadline is not None:
        timeout_ms = assembly.attempt(label, lambda: check.milliseconds(deadline, "deadline"), None)
    elif on_timeout != FAIL:
        assembly.fault(label, f"on_timeout={on_timeout!r} needs a deadline=...")
    default = None
    if isinstance(on_timeout, Mapping):
        default = assembly.attempt(label, lambda: _default_answer(on_timeout), None)
        on_timeout = FAIL
    reminders: tuple[int, ...] = ()
    reminders = assembly.attempt(label, lambda: _reminders(options.get("reminders")), reminders)
    escalations: tuple[Escalation, ...] = ()
    escalations = assembly.attempt(
        label, lambda: _escalations(options.get("escalate")), escalations
    )
    return {
        "timeout_ms": timeout_ms,
        "on_timeout": checked_port(assembly, label, "on_timeout", on_timeout),
        "default_answer": default,
        "reminders_ms": reminders,
        "escalations": escalations,
    }


def _quorum(policy: Any) -> int:
    """How many must agree; 0: all."""
    if isinstance(policy, Mapping) and list(policy) == ["at_least"]:
        policy = policy["at_least"]
    if isinstance(policy, str) and policy in _POLICIES:
        return _POLICIES[policy]
    if isinstance(policy, bool) or not isinstance(policy, int) or policy < 1:
        expected = '"any", "all" or how many must agree: {"at_least": 2}'
        raise check.wrong_type(policy, "policy", expected)
    return policy


def _default_answer(told: Mapping[str, Any]) -> DefaultAnswer:
    for field in told:
        check.known(str(field), "field", _ANSWER_FIELDS, "on_timeout")
    return DefaultAnswer(
        decision=check.name(told.get("decision"), "on_timeout.decision"),
        data=plain(told.get("data"), "data of on_timeout"),
    )


def _reminders(told: Any) -> tuple[int, ...]:
    if told is None:
        return ()
    listed = check.listed(told, "reminders", "durations")
    return tuple(sorted(check.milliseconds(each, "reminders") for each in listed))


def _escalations(told: Any) -> tuple[Escalation, ...]:
    if told is None:
        return ()
    pairs = (
        list(told.items()) if isinstance(told, Mapping) else check.listed(told, "escalate", "pairs")
    )
    found: list[Escalation] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            expected = 'pairs of when and to whom: {"1d": ["cfo"]}'
            raise check.wrong_type(pair, "escalate", expected)
        after, deciders = pair
        listed = check.listed(deciders, "escalate", "names or roles")
        found.append(
            Escalation(
                after_ms=check.milliseconds(after, "escalate"),
                deciders=tuple(check.name(each, "escalate") for each in listed),
            )
        )
    return tuple(sorted(found, key=lambda each: each.after_ms))


AnyKind = Kind | type[Kind] | str
"""A kind, its class, or the name of one that comes with it."""

STRUCTURAL_KIND = declare(
    "flow.structural_kind",
    "kind {kind!r} cannot be added with .use()",
    "It has a method of its own",
)


@dataclass(frozen=True, slots=True)
class UseStep(Step):
    kind: AnyKind
    config: Any
    named: Named
    gathers: bool | None
    options: KindOptions
    is_start: bool = False
    """Without ``after`` it is a first node, and does not follow the cursor."""

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        if self.is_start and self.named.after is None:
            cursor = Cursor()
        kind = assembly.attempt(place, self._kind, None)
        name = kind.name if kind is not None else "unnamed"
        id = id_or(assembly, self.named.name, name, place)
        entry, is_several = assembly.entry(cursor, self.named.after, assembly.label(id))
        gathers = is_several if self.gathers is None else self.gathers
        node = self._node(assembly, id, kind or _UNKNOWN, gathers)
        return assembly.add(node, entry, gathers=node.gathers)

    def _kind(self) -> Kind:
        if isinstance(self.kind, str):
            if self.kind in STRUCTURAL:
                raise InvalidInput(STRUCTURAL_KIND.fault(kind=self.kind))
            return Kinds()[self.kind]
        return Kinds([self.kind])[self.kind.name]

    def _node(self, assembly: Assembly, id: str, kind: Kind, gathers: bool) -> TaskNode:
        label = assembly.label(id)
        check_options(assembly, label, self.options, KindOptions)
        inputs = told_inputs(assembly, id, self.options)
        config = config_told(assembly, label, self.config) or {}
        faults = [] if kind is _UNKNOWN else config_faults(kind, config)
        for fault in faults:
            place = f" {path_text(fault.where)!r}" if fault.where else ""
            text = f"config{place}: {render(fault)}"
            assembly.fault(label, FaultText(text, fault.under("config")))
        settings = task_settings(assembly, label, self.options)
        if faults:
            assembly.unread(id, inputs.names)
        else:
            settings["ports"] = (*kind.ports_of(config), *settings["ports"])
            assembly.reads(id, _read(kind, config, inputs))
        return TaskNode(
            id=id,
            call=assembly.call(kind, id, self.options, label),
            gathers=gathers and not inputs.references,
            on_error=on_error(assembly, label, self.options),
            undo=undo_call(assembly, id, self.options),
            kind=kind.name,
            config=config,
            on_missing=inputs.on_missing,
            **settings,
        )


def _read(kind: Kind, config: Any, inputs: Inputs) -> set[str]:
    paths = kind.reads_of(config)
    everything = set(inputs.names) if () in paths else set()
    return everything | {path[0] for path in paths if path}


class _Unknown(Kind):
    """Stands in for a kind that there is not, while other faults are looked for."""

    name = "unknown"

    def execute(self, config: Any, ctx: Any) -> None: ...


_UNKNOWN = _Unknown()
