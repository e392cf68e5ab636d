"""Turn builder calls and nodes of a YAML file into nodes and edges: one function per node type."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import Fault, declare, near, safe_repr
from perdure.errors import InvalidInput
from perdure.expr.condition import condition_faults
from perdure.flows.assembly import NESTING_MAX, After, Assembly, End, FlowCursor
from perdure.flows.built import NOT_BUILT, BuiltFlow
from perdure.flows.calls import Inputs, condition_function, key_function, truth_of
from perdure.flows.check import DUPLICATE_BRANCH, NODE_ID
from perdure.flows.options import (
    APPROVAL,
    CALL_SETTINGS,
    CHILD_OPTION,
    CHILD_SETTINGS,
    DELAY,
    FLOW,
    LOOP,
    MAP,
    NEEDS_TIMEOUT,
    NODE_TYPE,
    ROUTE,
    SIGNAL,
    TASK,
    TASK_OPTION,
    AnyTask,
    Function,
    NodeForm,
    json_value,
    read_options,
)
from perdure.flows.settings import child_settings
from perdure.model import check
from perdure.model.graph import (
    DEFAULT_PORT,
    FAIL,
    ApprovalNode,
    Call,
    DefaultAnswer,
    DefaultPayload,
    DelayNode,
    FlowNode,
    FlowRef,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)
from perdure.model.job import DEFAULT_QUEUE
from perdure.model.payload import to_json
from perdure.nodes.config import config_faults
from perdure.nodes.registry import STRUCTURAL, NodeTypes
from perdure.tasks.node_type import NodeType
from perdure.tasks.task import LAMBDA, Task

CONTAINS_ITSELF = declare(
    "flow.contains_itself", "a flow cannot be part of itself", "Repeat work with .loop(...)"
)
NESTED_TOO_DEEP = declare("flow.nested_too_deep", "flows are nested more than {most} deep")
EMPTY_PART = declare(
    "flow.empty_part", "this flow has no nodes", "Use None to pass the value on unchanged"
)
INLINED_OPTIONS = declare(
    "flow.inlined_options",
    "an unbuilt flow is inlined, and takes no name or options",
    "Build it to run it as a child flow",
)
INLINED_AFTER = declare(
    "flow.inlined_after",
    "`after` must name a single node here",
    "Start with a task that gathers",
)
CHILD_GATHERS = declare(
    "flow.child_gathers", "a child flow cannot gather", "Put .join(task) before it"
)
LAMBDA_NAME = declare("flow.lambda_name", "a lambda has no name", "Name the node with `name`")
FUNCTION_NAME = declare(
    "flow.function_name",
    "{function} is a plain function",
    "Decorate it with @task, or name the node with `name`",
)
NODE_TYPE_AS_TASK = declare(
    "flow.node_type_as_task", "{value} is a node type", "Add it with .use(type, config)"
)
EMPTY_FORK = declare(
    "flow.empty_fork",
    "a fork needs at least one branch",
    "Name them: .fork(a=task, b=[task, task])",
)
BRANCH_NAME = declare("flow.branch_name", "the name of a branch must be a string (got {name})")
NOTHING_BEFORE = declare(
    "flow.nothing_before",
    "no node precedes the fork, so this branch has no output to pass through",
)
CHILD_JOINS = declare(
    "flow.child_joins", "a child flow cannot join", "Join with a task, and then .flow(...)"
)
NO_FORK = declare("flow.no_fork", "joins nothing: a .join(...) follows a .fork(...)")
BRANCH_FORKS = declare("flow.branch_forks", "branch {branch!r} ends with an unjoined fork ({fork})")
BRANCH_KEY = declare(
    "flow.branch_key", "the key of a branch must be a string or an integer (got {key})"
)
TWO_DEFAULTS = declare(
    "flow.two_defaults", "the branch 'default' and `default` are mutually exclusive"
)
MISSING_BRANCH = declare(
    "flow.missing_branch", "no branch for the declared key {key!r}, and no `default`"
)
UNDECLARED_BRANCH = declare(
    "flow.undeclared_branch",
    "branch {key!r} is not a declared key[; did you mean {nearest:or}?]",
)
NOT_A_BRANCH = declare(
    "flow.not_a_branch", "{value} is not a branch", "Give tasks, flows or a list of them"
)
NOT_A_PART = declare("flow.not_a_part", "{value} is neither a task nor a flow")
STRUCTURAL_TYPE = declare(
    "flow.structural_type",
    "node type {type!r} cannot be added with .use()",
    "Use its own method",
)

UNNAMED = "unnamed"
_PORT_OPTIONS = (("on_error",), ("on_timeout",), ("ports",))
"""Options that determine the ports of a node."""


class BuilderStep(ABC):
    """One builder call."""

    @abstractmethod
    def add(self, assembly: Assembly, cursor: FlowCursor, place: str) -> FlowCursor:
        """Add its nodes after ``cursor``; returns where the next one is attached."""


class BuilderSteps:
    """The calls of one builder, in order."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, BuilderStep]] = []


Body = AnyTask | Function | BuiltFlow
Part = AnyTask | BuiltFlow | BuilderSteps
Branch = Part | Sequence[Part] | None
"""A task, a built flow (a child), an unbuilt flow (its nodes), a list of those, or None to skip
ahead."""

RouteKey = str | int | bool
Until = AnyTask | Function | str | Mapping[str, Any] | Sequence[Any]
"""Decides whether a loop is done: a function or task, a property of the output, or a condition."""
AnyNodeType = NodeType | type[NodeType] | str
"""A node type, its class, or the name of a built-in one."""


@dataclass(frozen=True, slots=True)
class Draft(BuilderStep):
    """The options of one node, from a builder call or a file."""

    form: NodeForm
    given: Mapping[str, Any]
    """Options by the parameters of the form; for a node type also ``type``."""
    name: Any = None
    after: After | None = None
    gathers: bool | None = None
    is_start: bool = False
    """Without ``after``, it is a first node instead of following the cursor."""
    wrong: Collection[str] = ()
    """Parameters of the wrong shape in a file, whose faults are already added."""

    def add(self, assembly: Assembly, cursor: FlowCursor, place: str) -> FlowCursor:
        form, given = self.form, dict(self.given)
        body = given.get("body")
        if self.is_start and self.after is None:
            cursor = FlowCursor()
        if form is TASK and isinstance(body, BuilderSteps):
            return self._inlined(assembly, cursor, place, body)
        if form is FLOW and not isinstance(body, BuiltFlow):
            assembly.fault_at(place, NOT_BUILT.fault(value=safe_repr(body)))
            return cursor
        if form is TASK and isinstance(body, BuiltFlow):
            form = FLOW
        if form is NODE_TYPE:
            node_type = _type_of(assembly, given.pop("type"), place)
            id = self.id(assembly, place, stem=node_type.name)
        else:
            node_type = _UNKNOWN
            id = self.id(assembly, place)
        found: list[Fault] = []
        entry, is_several = assembly.entry(cursor, self.after, found.append)
        if form is FLOW and self.gathers:
            found.append(CHILD_GATHERS.fault(("gathers",)))
        values = read_options(form, given, found, wrong=self.wrong, is_yaml=assembly.is_yaml)
        if form in (MAP, LOOP):
            code, unusable = CHILD_OPTION, CHILD_SETTINGS - CALL_SETTINGS
            if isinstance(body, BuiltFlow):
                code, unusable = TASK_OPTION, CALL_SETTINGS - CHILD_SETTINGS
            found += (
                code.fault((option,), option=option)
                for option in unusable
                if given.get(option) is not None
            )
        if isinstance(body, BuiltFlow):
            assembly.set_child(id, child_settings(values))
        elif values.get("queue") == DEFAULT_QUEUE:
            assembly.keep_in_default_queue(id)
        assembly.faults += (fault.under("nodes", id) for fault in found)
        inputs = assembly.inputs(id, values)
        if any(fault.where[:1] in _PORT_OPTIONS for fault in found):
            assembly.unread(id, inputs.names)
        if form is NODE_TYPE:
            is_config_lost = any(fault.where[:1] == ("config",) for fault in found)
            node_type = _UNKNOWN if is_config_lost else node_type
            node: Node = _typed_node(assembly, id, node_type, values, inputs)
        else:
            node = _MAKERS[form](assembly, id, values, inputs)
        if isinstance(node, TaskNode):
            gathers = is_several if self.gathers is None else self.gathers
            node = replace(node, gathers=gathers and not inputs.references)
            return assembly.add(node, entry, gathers=node.gathers)
        # A delay passes on the previous output, a single value; inputs are only for its time.
        if is_several and (form is DELAY or not inputs.references):
            assembly.merge(id)
        return assembly.add(node, entry)

    def _inlined(
        self, assembly: Assembly, cursor: FlowCursor, place: str, steps: BuilderSteps
    ) -> FlowCursor:
        note = partial(assembly.fault_at, place)
        if self.name is not None or len(self.given) > 1 or self.gathers is not None:
            note(INLINED_OPTIONS.fault())
        entry, is_several = assembly.entry(cursor, self.after, note)
        if is_several:
            note(INLINED_AFTER.fault())
        return inline(steps, assembly, entry, place)

    def id(self, assembly: Assembly, place: str, stem: str = "") -> str:
        """The given name, or that of the task or node type."""
        signal = self.given.get("signal")
        if isinstance(self.name, str):
            return assembly.own_id(self.name, place)
        if self.name is not None:
            assembly.fault_at(place, *check.wrong_type(self.name, "name", "a string").faults)
            return assembly.generated_id(UNNAMED, place)
        if self.form is SIGNAL and isinstance(signal, str) and NODE_ID.fullmatch(signal):
            return assembly.generated_id(signal, place)
        if self.form in (SIGNAL, ROUTE, DELAY):
            return assembly.generated_id(self.form.type, place)
        if self.form is APPROVAL:
            return assembly.generated_id("approve", place)
        if stem:
            return assembly.generated_id(stem, place)
        return _called_id(assembly, self.given["body"], place)


def _called_id(assembly: Assembly, body: Any, place: str) -> str:
    if isinstance(body, Task | BuiltFlow):
        return assembly.own_id(body.name, place)
    if getattr(body, "__name__", None) == LAMBDA:
        assembly.fault_at(place, LAMBDA_NAME.fault())
    elif isinstance(body, BuilderSteps):
        assembly.fault_at(place, NOT_BUILT.fault(value=safe_repr(body)))
    elif callable(body):
        assembly.fault_at(place, FUNCTION_NAME.fault(function=safe_repr(body)))
    return assembly.generated_id(UNNAMED, place)


def _type_of(assembly: Assembly, node_type: Any, place: str) -> NodeType:
    try:
        if not isinstance(node_type, str):
            return NodeTypes([node_type])[node_type.name]
        if node_type in STRUCTURAL:
            raise InvalidInput(STRUCTURAL_TYPE.fault(type=node_type))
        return NodeTypes()[node_type]
    except InvalidInput as error:
        assembly.fault_at(place, *error.faults)
        return _UNKNOWN


class _Unknown(NodeType):
    """Placeholder for an unknown node type, so that the search for faults can continue."""

    name = UNNAMED

    def execute(self, config: Any, ctx: Any) -> None: ...


_UNKNOWN = _Unknown()


def add_steps(
    steps: BuilderSteps, assembly: Assembly, cursor: FlowCursor, place: str = ""
) -> FlowCursor:
    """Add the nodes of all steps; ``place`` is their place in an enclosing flow."""
    counts: Counter[str] = Counter()
    for method, step in steps._steps:
        counts[method] += 1
        where = f".{method} number {counts[method]}"
        cursor = step.add(assembly, cursor, f"{place}, {where}" if place else where)
    return cursor


def inline(steps: BuilderSteps, assembly: Assembly, cursor: FlowCursor, place: str) -> FlowCursor:
    """Add the nodes of a flow that is a part of another one."""
    if any(each is steps for each in assembly.nesting):
        assembly.fault_at(place, CONTAINS_ITSELF.fault())
        return cursor
    if len(assembly.nesting) >= NESTING_MAX:
        assembly.fault_at(place, NESTED_TOO_DEEP.fault(most=NESTING_MAX))
        return cursor
    if not steps._steps:
        assembly.fault_at(place, EMPTY_PART.fault())
    assembly.nesting.append(steps)
    try:
        return add_steps(steps, assembly, cursor, place)
    finally:
        assembly.nesting.pop()


# One function per type: from parsed options to the node.

_Values = Mapping[str, Any]


def _task_node(assembly: Assembly, id: str, values: _Values, inputs: Inputs) -> TaskNode:
    body, config = values["body"], values["config"]
    if isinstance(body, NodeType) or (isinstance(body, type) and issubclass(body, NodeType)):
        assembly.fault(NODE_TYPE_AS_TASK, ("nodes", id, "body"), value=safe_repr(body))
        body = anything
    arguments = inputs.names if config is None else list(config)
    is_called_by_name = config is not None or bool(inputs.references)
    where = ("nodes", id, "body")
    call = assembly.call(
        body,
        id,
        values,
        where,
        arguments if is_called_by_name else None,
        inputs.names if config is None else (),
    )
    return TaskNode(id=id, call=call, config=config, **_task_fields(assembly, id, values))


def _typed_node(
    assembly: Assembly, id: str, node_type: NodeType, values: _Values, inputs: Inputs
) -> TaskNode:
    config = values["config"] or {}
    faults = config_faults(node_type, config) if node_type is not _UNKNOWN else []
    assembly.faults += (fault.under("nodes", id, "config") for fault in faults)
    fields = _task_fields(assembly, id, values)
    if faults or node_type is _UNKNOWN:
        assembly.unread(id, inputs.names)
    else:
        fields["ports"] = (*node_type.ports_of(config), *fields["ports"])
        paths = node_type.reads_of(config)
        everything = set(inputs.names) if () in paths else set()
        assembly.reads(id, everything | {path[0] for path in paths if path})
    call = assembly.call(node_type, id, values, ("nodes", id))
    return TaskNode(id=id, call=call, type=node_type.name, config=config, **fields)


def _task_fields(assembly: Assembly, id: str, values: _Values) -> dict[str, Any]:
    """The fields that tasks and node types share."""
    plain = ("on_error", "on_missing", "ports", "on_timeout", "input_schema", "output_schema")
    fields = {name: values[name] for name in (*plain, "check")}
    return {**fields, "undo": _undo(assembly, id, values)}


def _undo(assembly: Assembly, id: str, values: _Values) -> Call | None:
    if values["undo"] is None:
        return None
    return assembly.call(values["undo"], f"{id}.undo", {}, ("nodes", id, "undo"))


def _body(assembly: Assembly, id: str, values: _Values) -> Call | FlowRef:
    """The task or child flow of a map or loop."""
    body = values["body"]
    if isinstance(body, BuiltFlow):
        return assembly.child(body)
    return assembly.call(body, id, values, ("nodes", id, "body"))


def _map_node(assembly: Assembly, id: str, values: _Values, inputs: Inputs) -> MapNode:
    return MapNode(
        id=id,
        body=_body(assembly, id, values),
        over=values["over"],
        concurrency=values["concurrency"],
        items_max=values["items_max"],
        on_error=values["on_error"],
        undo=_undo(assembly, id, values),
        on_missing=inputs.on_missing,
    )


def _loop_node(assembly: Assembly, id: str, values: _Values, inputs: Inputs) -> LoopNode:
    until, where = values["until"], ("nodes", id, "until")
    is_data = isinstance(until, str | Mapping | list | tuple)
    if is_data:
        until = assembly.attempt(where, lambda: json_value(until, "until"), None)
    ask, name = until, f"{id}.until"
    # The name depends on the source, so that a worker can serve two versions of a flow.
    if isinstance(until, str):
        ask, name = key_function(until), f"{name}:{until}"
    elif isinstance(until, dict | list):
        digest = hashlib.sha256(to_json(until, "until", is_input=True)).hexdigest()[:8]
        is_sound = not condition_faults(until)  # faults are added by the check of the definition
        ask, name = condition_function(until if is_sound else []), f"{name}:{digest}"
    elif is_data:
        ask = anything  # not serializable
    if callable(ask) and not isinstance(ask, Task):
        ask = truth_of(ask)
    return LoopNode(
        id=id,
        body=_body(assembly, id, values),
        check=assembly.call(ask, name, {}, where),
        until=until if is_data else None,
        iterations_max=values["max_iterations"],
        on_max=values["on_max"],
        on_error=values["on_error"],
        undo=_undo(assembly, id, values),
        on_missing=inputs.on_missing,
    )


def _delay_node(assembly: Assembly, id: str, values: _Values, inputs: Inputs) -> DelayNode:
    return DelayNode(
        id=id, delay_ms=values["delay"], until=values["until"], on_missing=inputs.on_missing
    )


def _signal_node(assembly: Assembly, id: str, values: _Values, inputs: Inputs) -> SignalNode:
    timeout_ms, on_timeout = values["timeout"], values["on_timeout"]
    if timeout_ms is None and on_timeout != FAIL:
        assembly.fault(NEEDS_TIMEOUT, ("nodes", id, "on_timeout"), timeout="timeout")
    is_default = isinstance(on_timeout, DefaultPayload)
    return SignalNode(
        id=id,
        signal=values["signal"],
        timeout_ms=timeout_ms,
        on_timeout=FAIL if is_default else on_timeout,
        where=values["where"],
        on_missing=inputs.on_missing,
        default_payload=on_timeout if is_default else None,
    )


def _approval_node(assembly: Assembly, id: str, values: _Values, inputs: Inputs) -> ApprovalNode:
    deadline_ms, on_timeout, notify = (
        values[each] for each in ("deadline", "on_timeout", "notify")
    )
    if deadline_ms is None and on_timeout != FAIL:
        assembly.fault(NEEDS_TIMEOUT, ("nodes", id, "on_timeout"), timeout="deadline")
    if notify is not None:
        notify = assembly.call(notify, f"{id}.notify", {}, ("nodes", id, "notify"))
    is_answer = isinstance(on_timeout, DefaultAnswer)
    return ApprovalNode(
        id=id,
        title=values["title"],
        message=values["message"],
        form=values["form"],
        shows=values["show"],
        data=values["data"],
        deciders=values["deciders"],
        quorum=values["policy"],
        answers=values["answers"],
        timeout_ms=deadline_ms,
        on_timeout=FAIL if is_answer else on_timeout,
        default_answer=on_timeout if is_answer else None,
        on_reject=values["on_reject"],
        reminders_ms=values["reminders"],
        escalations=values["escalate"],
        notify=notify,
        on_missing=inputs.on_missing,
    )


def _flow_node(assembly: Assembly, id: str, values: _Values, inputs: Inputs) -> FlowNode:
    return FlowNode(
        id=id,
        body=assembly.child(values["body"]),
        on_error=values["on_error"],
        undo=_undo(assembly, id, values),
        on_missing=inputs.on_missing,
    )


_MAKERS: Mapping[NodeForm, Callable[[Assembly, str, _Values, Inputs], Node]] = {
    TASK: _task_node,
    MAP: _map_node,
    LOOP: _loop_node,
    DELAY: _delay_node,
    SIGNAL: _signal_node,
    APPROVAL: _approval_node,
    FLOW: _flow_node,
}


def anything(*args: Any, **kwargs: Any) -> None:
    """Placeholder for an invalid function."""


# Forks and routes


@dataclass(frozen=True, slots=True)
class ForkStep(BuilderStep):
    branches: Mapping[Any, Branch]

    def add(self, assembly: Assembly, cursor: FlowCursor, place: str) -> FlowCursor:
        entry, _ = assembly.entry(cursor, None, partial(assembly.fault_at, place))
        if not self.branches:
            assembly.fault_at(place, EMPTY_FORK.fault())
        ends: dict[str, FlowCursor] = {}
        for name in sorted(self.branches, key=str):
            where = f"{place}, branch {name!r}"
            branch = self.branches[name]
            if not isinstance(name, str) or not name:
                assembly.fault_at(where, BRANCH_NAME.fault(name=safe_repr(name)))
            elif branch is None and not entry.ends:
                assembly.fault_at(where, NOTHING_BEFORE.fault())
            else:
                ends[name] = _add_branch(assembly, entry, branch, where)
        every = tuple(end for each in ends.values() for end in each.ends)
        return FlowCursor(ends=every, branches=ends, fork=place)


@dataclass(frozen=True, slots=True)
class JoinStep(BuilderStep):
    draft: Draft
    """Of a task."""

    def add(self, assembly: Assembly, cursor: FlowCursor, place: str) -> FlowCursor:
        faults: list[Fault] = []
        if isinstance(self.draft.given["body"], BuiltFlow):
            assembly.fault_at(place, CHILD_JOINS.fault())
            return FlowCursor(ends=cursor.ends)
        if not cursor.branches:
            faults.append(NO_FORK.fault())
        for name, branch in cursor.branches.items():
            if branch.fork:
                faults.append(BRANCH_FORKS.fault(branch=name, fork=branch.fork))
        ends = tuple(
            End(end.source, end.port, name)
            for name, branch in cursor.branches.items()
            for end in branch.ends
        )
        draft = dataclasses.replace(self.draft, gathers=bool(ends))
        joined = draft.add(assembly, FlowCursor(ends=ends), place)
        for end in joined.ends:
            assembly.faults += (fault.under("nodes", end.source) for fault in faults)
        return joined


@dataclass(frozen=True, slots=True)
class RouteStep(BuilderStep):
    draft: Draft
    branches: Any
    default: Branch = None
    keys: Sequence[RouteKey] | None = None

    def add(self, assembly: Assembly, cursor: FlowCursor, place: str) -> FlowCursor:
        id = self.draft.id(assembly, place)
        faults: list[Fault] = []
        branches = self._by_port(faults)
        self._check_keys(branches, faults)
        values = read_options(
            ROUTE,
            self.draft.given,
            faults,
            wrong=self.draft.wrong,
            is_yaml=assembly.is_yaml,
        )
        entry, is_several = assembly.entry(cursor, self.draft.after, faults.append)
        assembly.faults += (fault.under("nodes", id) for fault in faults)
        key, name = values["key"], id
        if isinstance(key, str):
            # The name has the key, so that a worker can serve two versions of a flow.
            key, name = key_function(key), f"{id}:{key}"
        node = RouteNode(
            id=id,
            call=assembly.call(key, name, values, ("nodes", id, "key")),
            ports=tuple(branches),
            on_error=values["on_error"],
            key=values["key"] if isinstance(values["key"], str) else "",
        )
        if is_several:
            assembly.merge(id)
        assembly.add(node, entry)
        ends: list[End] = []
        fork = ""
        for port, branch in branches.items():
            entry = FlowCursor(ends=(End(id, port),))
            after = _add_branch(assembly, entry, branch, f"{place}, branch {port!r}")
            ends.extend(after.ends)
            fork = fork or after.fork
        return FlowCursor(ends=tuple(ends), fork=fork)

    def _by_port(self, faults: list[Fault]) -> dict[str, Branch]:
        """The branches by port, in an order independent of the caller's."""
        found: dict[str, Branch] = {}
        if not isinstance(self.branches, Mapping):
            expected = "an object: {key: branch}"
            faults += check.wrong_type(self.branches, "branches", expected).faults
            return found
        for key, branch in self.branches.items():
            port = _port_of(key)
            if port is None:
                faults.append(BRANCH_KEY.fault(("branches",), key=safe_repr(key)))
            elif port in found:
                faults.append(DUPLICATE_BRANCH.fault(("branches",), key=port))
            else:
                found[port] = branch
        if self.default is not None:
            if DEFAULT_PORT in found:
                faults.append(TWO_DEFAULTS.fault(("default",)))
            found[DEFAULT_PORT] = self.default
        return {port: found[port] for port in sorted(found, key=lambda p: (p == DEFAULT_PORT, p))}

    def _check_keys(self, branches: Mapping[str, Branch], faults: list[Fault]) -> None:
        if self.keys is None:
            return
        try:
            keys = check.listed(self.keys, "keys", "keys")
        except InvalidInput as error:
            faults += error.faults
            return
        declared = {_port_of(key) for key in keys}
        for port in sorted(str(port) for port in declared.difference(branches)):
            if DEFAULT_PORT not in branches:
                faults.append(MISSING_BRANCH.fault(("branches",), key=port))
        for port in branches:
            if port not in declared and port != DEFAULT_PORT:
                nearest = near(port, [str(each) for each in declared])
                faults.append(UNDECLARED_BRANCH.fault(("branches",), key=port, nearest=nearest))


def _port_of(key: Any) -> str | None:
    """The port of a key, as the engine converts the result of a key function."""
    if isinstance(key, bool):
        return str(key).lower()
    return str(key) if isinstance(key, str | int) else None


def _add_branch(assembly: Assembly, cursor: FlowCursor, branch: Any, place: str) -> FlowCursor:
    """Add the nodes of a branch after ``cursor``; returns its end."""
    if branch is None:
        return cursor
    if isinstance(branch, BuilderSteps):
        return inline(branch, assembly, cursor, place)
    if not isinstance(branch, Sequence):
        return _add_part(assembly, cursor, branch, place)
    if isinstance(branch, str) or not branch:
        assembly.fault_at(place, NOT_A_BRANCH.fault(value=safe_repr(branch)))
    else:
        for number, part in enumerate(branch, 1):
            cursor = _add_part(assembly, cursor, part, f"{place}, item {number}")
    return cursor


def _add_part(assembly: Assembly, cursor: FlowCursor, part: Any, place: str) -> FlowCursor:
    if not isinstance(part, BuilderSteps | BuiltFlow) and not callable(part):
        assembly.fault_at(place, NOT_A_PART.fault(value=safe_repr(part)))
        return cursor
    return Draft(TASK, {"body": part}).add(assembly, cursor, place)
