"""The table of node options, for Python and YAML.

A row has the option's reader, which checks a value and returns its stored form, its JSON Schema,
its path in a file, and a placeholder for invalid values, so that the search for faults can
continue. Builder, loader, dumper, published schema and fault locations all use these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal, TypedDict, get_args

from perdure.diagnostics import Fault, Path, declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.graph import (
    APPROVE,
    FAIL,
    MAP_ITEMS_LIMIT,
    MAP_ITEMS_MAX,
    REJECT,
    Call,
    DefaultAnswer,
    DefaultPayload,
    Escalation,
    JsonSchema,
    OnMissing,
    OutputCheck,
)
from perdure.model.job import PRIORITY_MAX, PRIORITY_MIN, PRIORITY_NAMES, Priority
from perdure.model.payload import from_json, to_json
from perdure.model.retry import RETRIES_MAX, Retry, retry_of
from perdure.model.times import Duration, ms_text
from perdure.tasks.task import Task

AnyTask = Task[..., Any]
Function = Callable[..., Any]

Source = str | Mapping[str, Any]
"""The source of an input: ``"load.output.total"``, ``"input.customer"``, ``"secret.KEY"``, or
``{"from": ..., "default": ...}``."""

Policy = str | int | Mapping[str, int]
"""How many must agree: ``"any"``, ``"all"``, a number, or ``{"at_least": number}``."""

Fragment = Mapping[str, Any]
"""A part of a JSON Schema."""

EMPTY_CHECK = declare("flow.empty_check", "check needs a schema, a condition or both")
ONE_OF = declare("flow.one_of", "needs either {names:or}[, not both: {given:and}]")
TASK_OPTION = declare("flow.task_option", "{option} is for tasks; a child flow has its own nodes")
CHILD_OPTION = declare(
    "flow.child_option", "{option} is for child flows", "Add a delay node before it"
)
NEEDS_TIMEOUT = declare("flow.needs_timeout", "on_timeout needs {timeout}")


# Static types of the builder's options. At runtime, the table below decides.


class CallSettings(TypedDict, total=False):
    """Overrides of the task's settings; None keeps them."""

    retries: Retry | int | None
    timeout: Duration | None
    queue: str | None
    priority: Priority | None
    tags: Sequence[str] | None


class InputOptions(TypedDict, total=False):
    inputs: Mapping[str, Source] | None
    """Named inputs; by default, the node takes the previous output."""
    on_missing: OnMissing
    """``"error"``, ``"default"`` or ``"skip"``, if an input or a value in a template is missing."""


class ChildOptions(InputOptions, total=False):
    """Settings of the child run; None leaves those of its flow and its parent."""

    delay: Duration | None
    timeout: Duration | None
    queue: str | None
    priority: Priority | None
    tags: Sequence[str] | None


class RouteOptions(CallSettings, total=False):
    on_error: str
    """``"fail"``, or a port to continue on with the error."""


class NodeOptions(CallSettings, InputOptions, total=False):
    on_error: str
    """``"fail"``, ``"continue"`` with null, or a port to continue on with the error."""
    undo: AnyTask | Function | None
    """Called with the node's output to compensate a failed or cancelled run."""


class BodyOptions(NodeOptions, total=False):
    delay: Duration | None
    """For a child flow: how long each child run is queued before it starts."""


class NodeTypeOptions(NodeOptions, total=False):
    ports: Sequence[str]
    """Ports that a result may choose, besides the ordinary one and those of the node type."""
    on_timeout: str
    """Like ``on_error``, for an external wait that reaches its deadline."""
    input_schema: JsonSchema | None
    output_schema: JsonSchema | None
    check: Mapping[str, Any] | None
    """``{"schema": ...}`` or ``{"condition": ...}`` that the output must satisfy; with
    ``"advisory": True``, a violation is only recorded as a warning of the node."""


class TaskOptions(NodeTypeOptions, total=False):
    config: Mapping[str, Any] | None
    """The task's arguments by name, with templates over the inputs."""


class ApprovalOptions(InputOptions, total=False):
    message: str
    form: JsonSchema | None
    show: Sequence[str] | None
    """The inputs that deciders see; by default all."""
    data: Any
    """A template for the data that an answer may change; by default the node's input."""
    deciders: Sequence[str]
    policy: Policy
    answers: Sequence[str] | None
    deadline: Duration | None
    on_timeout: str | Mapping[str, Any]
    """``"fail"``, ``"continue"``, a port, or a default answer:
    ``{"decision": ..., "data": ...}``."""
    on_reject: str
    """``"fail"``, ``"continue"`` or a port."""
    reminders: Sequence[Duration]
    escalate: Mapping[Duration, Sequence[str]] | Sequence[tuple[Duration, Sequence[str]]]
    notify: AnyTask | Function | None


# Readers take a value and the name of its option, and return the stored form or raise InvalidInput.

Reader = Callable[[Any, str], Any]


def as_given(value: Any, name: str) -> Any:
    return value


def json_value(value: Any, name: str) -> Any:
    """The value after a round trip through JSON, as read back from a stored definition."""
    return from_json(to_json(value, name))


def _text(value: Any, name: str) -> str:
    return check.instance(value, name, str, "a string")


def _names(value: Any, name: str) -> tuple[str, ...]:
    """A list of names. Duplicates are left to the check of the definition."""
    return tuple(
        check.name(each, (name, at), label=f"{name}[{at}]")
        for at, each in enumerate(check.listed(value, name, "strings"))
    )


def _positive(value: Any, name: str) -> int:
    return check.integer(value, name, 1)


def _items_max(value: Any, name: str) -> int:
    return check.integer(value, name, 1, MAP_ITEMS_LIMIT)


def _object(expected: str) -> Reader:
    def read(value: Any, name: str) -> Any:
        if not isinstance(value, Mapping):
            raise check.wrong_type(value, name, f"an object: {expected}")
        return value

    return read


def _config(value: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json_value(_object("settings by name")(value, name), name)
    return found


def _schema(value: Any, name: str) -> JsonSchema:
    """A JSON Schema. Its validity is left to the check of the definition."""
    if not isinstance(value, Mapping | bool):
        raise check.wrong_type(value, name, "a JSON Schema: an object")
    found: JsonSchema = json_value(value, name)
    return found


def _retries(value: Any, name: str) -> Retry | None:
    return retry_of(value)


def _timeout(value: Any, name: str) -> timedelta:
    return check.span(value, name, is_positive=True)


def _delay(value: Any, name: str) -> timedelta:
    return check.span(value, name)


def _delay_ms(value: Any, name: str) -> int:
    return check.span(value, name) // timedelta(milliseconds=1)


def _on_missing(value: Any, name: str) -> str:
    return str(check.choice(value, name, get_args(OnMissing)))


def _time(value: Any, name: str) -> str:
    """A template, or a time in ISO format."""
    if isinstance(value, str) and "{{" in value:
        return value
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        expected = "a time such as 2030-01-31T08:00:00+00:00, or a template"
        raise check.wrong_type(value, name, expected) from error
    return check.moment(moment, name).isoformat()


_CHECK_FIELDS = ("schema", "condition", "advisory")


def _check(value: Any, name: str) -> OutputCheck:
    if not isinstance(value, Mapping):
        raise check.wrong_type(value, name, "an object with schema, condition or both")
    for field in value:
        check.known(str(field), "field", _CHECK_FIELDS)
    schema, is_advisory = value.get("schema"), value.get("advisory", False)
    check.flag(is_advisory, "advisory")
    if schema is None and value.get("condition") is None:
        raise InvalidInput(EMPTY_CHECK.fault())
    return OutputCheck(
        schema=None if schema is None else _schema(schema, "schema"),
        condition=json_value(value.get("condition"), "condition"),
        is_advisory=is_advisory,
    )


_POLICIES = {"any": 1, "all": 0}


def _quorum(value: Any, name: str) -> int:
    """How many must agree; 0 means all."""
    if isinstance(value, Mapping) and list(value) == ["at_least"]:
        value = value["at_least"]
    if isinstance(value, str) and value in _POLICIES:
        return _POLICIES[value]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        expected = '"any", "all" or a number: {"at_least": 2}'
        raise check.wrong_type(value, name, expected)
    return value


def _answers(value: Any, name: str) -> tuple[str, ...]:
    return (APPROVE, REJECT) if value is None else _names(value, name)


def _on_timeout(value: Any, name: str) -> str | DefaultAnswer:
    if not isinstance(value, Mapping):
        return check.name(value, name)
    for field in value:
        check.known(str(field), "field", ("decision", "data"))
    return DefaultAnswer(
        decision=check.name(value.get("decision"), "decision"),
        data=json_value(value.get("data"), "data"),
    )


def _on_signal_timeout(value: Any, name: str) -> str | DefaultPayload:
    if not isinstance(value, Mapping):
        return check.name(value, name)
    for field in value:
        check.known(str(field), "field", ("default",))
    if "default" not in value:
        raise check.wrong_type(value, name, 'a port, or the output: {"default": 0}')
    return DefaultPayload(value=json_value(value["default"], "default"))


def _reminders(value: Any, name: str) -> tuple[int, ...]:
    listed = () if value is None else check.listed(value, name, "durations")
    return tuple(sorted(check.milliseconds(each, name) for each in listed))


def _escalations(value: Any, name: str) -> tuple[Escalation, ...]:
    """Pairs of delay and deciders, sorted by delay."""
    if value is None:
        return ()
    pairs = value.items() if isinstance(value, Mapping) else check.listed(value, name, "pairs")
    found: list[Escalation] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            expected = 'pairs of delay and deciders: {"1d": ["cfo"]}'
            raise check.wrong_type(pair, name, expected)
        after, deciders = pair
        listed = check.listed(deciders, name, "users or roles")
        found.append(
            Escalation(
                after_ms=check.milliseconds(after, name),
                deciders=tuple(check.decider(each, name) for each in listed),
            )
        )
    return tuple(sorted(found, key=lambda each: each.after_ms))


# Conversions from YAML to the builder's parameters, and from stored values to YAML.


def _task_name(call: Call) -> str:
    return call.task


def _check_to_yaml(stored: OutputCheck) -> dict[str, Any]:
    found = {"schema": stored.schema, "condition": stored.condition}
    given = {key: value for key, value in found.items() if value is not None}
    return {**given, "advisory": True} if stored.is_advisory else given


def _policy_to_yaml(quorum: int) -> Any:
    return {"at_least": quorum} if quorum else "all"


def _reminders_to_yaml(stored: tuple[int, ...]) -> list[str]:
    return [ms_text(each) for each in stored]


def _escalate_to_yaml(stored: tuple[Escalation, ...]) -> list[dict[str, Any]]:
    return [{"after": ms_text(each.after_ms), "to": list(each.deciders)} for each in stored]


def _retry_in_yaml(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    names = {key: tuple(value[key]) for key in ("on", "never_on") if key in value}
    return Retry(**{**value, **names})


def _escalate_in_yaml(value: Any) -> Any:
    return [(each["after"], each["to"]) for each in value]


# JSON Schemas of values in a file.

TEXT: Final[Fragment] = {"type": "string"}
NAME: Final[Fragment] = {"type": "string", "minLength": 1, "maxLength": 200}
FLAG: Final[Fragment] = {"type": "boolean"}
DURATION: Final[Fragment] = {
    "anyOf": [{"type": "string", "minLength": 1}, {"type": "number", "minimum": 0}],
    "examples": ["30s", "5m", "1h30m", "2d"],
}
NAMES: Final[Fragment] = {"type": "array", "items": NAME}
SCHEMA: Final[Fragment] = {"type": ["object", "boolean"]}
CONDITION: Final[Fragment] = {"$ref": "#/$defs/condition"}
PORT: Final[Fragment] = {**NAME, "default": FAIL}


def described(fragment: Fragment, description: str, **more: Any) -> dict[str, Any]:
    return {"description": description, **fragment, **more}


def an_object(
    properties: Mapping[str, Fragment], *, required: Sequence[str] = ()
) -> dict[str, Any]:
    made = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**made, "required": list(required)} if required else made


_INPUT: Final[Fragment] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        an_object(
            {
                "from": described(NAME, "input.PATH, NODE.output.PATH or secret.NAME."),
                "default": {"description": "Used if missing, with on_missing: default."},
            },
            required=("from",),
        ),
    ]
}
RETRY: Final[Fragment] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": RETRIES_MAX},
        an_object(
            {
                "retries": {"type": "integer", "minimum": 0, "maximum": RETRIES_MAX},
                "first": described(DURATION, "Delay before the first retry.", default="1s"),
                "factor": {
                    "description": "Multiplies the delay after each retry.",
                    "type": "number",
                    "minimum": 1,
                    "default": 2,
                },
                "max": described(DURATION, "The longest delay.", default="5m"),
                "jitter": described(FLAG, "Randomize half of the delay.", default=True),
                "on": described(NAMES, "Retry only these exception types."),
                "never_on": described(NAMES, "Never retry these exception types."),
            },
            required=("retries",),
        ),
    ]
}
_CHECK: Final[Fragment] = an_object(
    {
        "schema": described(SCHEMA, "JSON Schema of the output."),
        "condition": CONDITION,
        "advisory": described(FLAG, "Only log violations.", default=False),
    }
)

_SOURCES: Final[Fragment] = {"type": "object", "additionalProperties": _INPUT}
PRIORITY: Final[Fragment] = {
    "anyOf": [
        {"type": "integer", "minimum": PRIORITY_MIN, "maximum": PRIORITY_MAX},
        {"enum": list(PRIORITY_NAMES)},
    ]
}
_UNTIL: Final[Fragment] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": CONDITION},
        {"type": "object"},
    ]
}
_AT_LEAST: Final[Fragment] = {"at_least": {"type": "integer", "minimum": 1}}
_POLICY: Final[Fragment] = {
    "anyOf": [{"enum": ["any", "all"]}, an_object(_AT_LEAST, required=["at_least"])],
    "default": "any",
}
_PORT_OR_ANSWER: Final[Fragment] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        an_object({"decision": NAME, "data": {}}, required=["decision"]),
    ],
    "default": FAIL,
}
_PORT_OR_DEFAULT: Final[Fragment] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        an_object({"default": {}}, required=["default"]),
    ],
    "default": FAIL,
}
_ESCALATE: Final[Fragment] = {
    "type": "array",
    "items": an_object({"after": DURATION, "to": NAMES}, required=["after", "to"]),
}


# The table

FOREVER_MS = 36_500 * 86_400_000
"""Placeholder for an invalid time: later than any other."""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    name: str
    """The name in the builder."""
    read: Reader
    schema: Fragment
    yaml: Path
    """The path within a node of a file."""
    about: str = ""
    default: Any = None
    """Stored if the option is not given."""
    placeholder: Any = None
    """Replaces an invalid value; by default ``default``."""
    is_needed: bool = False
    """Whether the ports of the node, or the node itself, are unknown without it."""
    is_required: bool = False
    gives: str = ""
    """The builder's parameter, if several keys in a file set the same one."""
    names: Literal["", "task", "flow"] = ""
    """Set if the value in a file is the name of a task or flow."""
    suffix: str = ""
    """Added to the node's id to name a plain function given here."""
    from_yaml: Callable[[Any], Any] | None = None
    """Converts a value in a file to the builder's parameter."""
    field: str = ""
    """The field of the stored node; by default ``name``."""
    to_yaml: Callable[[Any], Any] | None = None
    """Converts a stored value to its form in a file."""

    @property
    def parameter(self) -> str:
        return self.gives or self.name

    @property
    def may_be_none(self) -> bool:
        """Whether None means "not given"."""
        return self.default is None and not self.is_required

    @property
    def fragment(self) -> dict[str, Any]:
        return described(self.schema, self.about) if self.about else dict(self.schema)

    @property
    def instead(self) -> Any:
        return self.default if self.placeholder is None else self.placeholder


@dataclass(frozen=True, eq=False)
class NodeForm:
    """The options of one type of node."""

    type: str
    """The type in a file; empty for registered node types, which have their own names."""
    options: tuple[Option, ...]
    one_of: tuple[str, ...] = ()
    """Options of which exactly one must be given."""

    @cached_property
    def by_name(self) -> Mapping[str, Option]:
        return {option.name: option for option in self.options}

    @cached_property
    def parameters(self) -> Mapping[str, Option]:
        """The options by the builder's parameters."""
        return {option.parameter: option for option in self.options}

    @cached_property
    def settings(self) -> Mapping[str, Option]:
        """The options in the node's config, by key."""
        found = (each for each in self.options if len(each.yaml) > 1)
        return {str(each.yaml[1]): each for each in found}

    @cached_property
    def keys(self) -> Mapping[str, Option]:
        """The options outside the node's config, by key."""
        return {str(each.yaml[0]): each for each in self.options if len(each.yaml) == 1}

    @cached_property
    def config_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the node's config; None if no options are in it."""
        if not self.settings:
            return None
        required = [key for key, option in self.settings.items() if option.is_required]
        properties = {key: option.fragment for key, option in self.settings.items()}
        return an_object(properties, required=required)


def _key(name: str, read: Reader, schema: Fragment, about: str, **more: Any) -> Option:
    """An option that is a key of the node in a file."""
    return Option(name, read, schema, (more.pop("key", name),), about, **more)


def _setting(name: str, read: Reader, schema: Fragment, about: str = "", **more: Any) -> Option:
    """An option that is a key of the node's config in a file."""
    return Option(name, read, schema, ("config", more.pop("key", name)), about, **more)


# Not formatted: with one argument per line, the table would be hard to read.
# fmt: off
_INPUTS = (
    _key("inputs", _object('{"order": "load.output"}'), _SOURCES,
        "Inputs by name: input.PATH, NODE.output.PATH or secret.NAME.", is_needed=True),
    _key("on_missing", _on_missing, {"enum": ["error", "default", "skip"], "default": "error"},
        "Applies if an input or a value in a template is missing.", default="error",
        placeholder="default"),  # so that defaults of inputs are not faults too
)
_CALL = (
    _key("retries", _retries, RETRY, "Number of retries, or a retry policy.", key="retry",
        from_yaml=_retry_in_yaml),
    _key("timeout", _timeout, DURATION, "Time limit of one attempt."),
    _key("priority", check.priority, PRIORITY, f"{PRIORITY_MIN} is the most urgent."),
    _key("queue", check.name, NAME, "The queue of its jobs."),
    _key("tags", check.tags, NAMES, "Tags that a worker must have."),
)
_DELAY = _key("delay", _delay, DURATION, "How long a child run is queued before it starts.")
# The same for child runs, which have nodes and retries of their own.
_CHILD = (
    _DELAY,
    _key("timeout", _timeout, DURATION, "Time limit of the child run."),
    _key("priority", check.priority, PRIORITY, "Priority of the child run."),
    _key("queue", check.name, NAME, "The queue of nodes without one of their own."),
    _key("tags", check.tags, NAMES, "Tags of nodes without any of their own."),
)
_ON_ERROR = _key("on_error", check.name, PORT, "fail, continue, or a port.", default=FAIL,
    is_needed=True)
_UNDO = _key("undo", as_given, NAME, "A task that compensates this node.", names="task",
    suffix=".undo", to_yaml=_task_name)
_PORTS = _key("ports", _names, NAMES, "Ports that a result may choose; else the keys of next.",
    default=())
_GATHERS = _key("gathers", as_given, FLAG, "Gather the previous outputs in one object, by name.")
_CONFIG = _key("config", _config, {}, "Config of the type or arguments of the task; templates.",
    is_needed=True)
_NODE_TYPE = (
    *_INPUTS,
    _GATHERS,
    *_CALL,
    # Not needed: with invalid options, any port with successors is assumed to exist.
    replace(_ON_ERROR, is_needed=False),
    _key("on_timeout", check.name, PORT, "For external waits: fail, continue, or a port.",
        default=FAIL),
    _key("input_schema", _schema, SCHEMA, "JSON Schema of the input."),
    _key("output_schema", _schema, SCHEMA, "JSON Schema of the output."),
    _key("check", _check, _CHECK, "Checks the output after success.",
        to_yaml=_check_to_yaml),
    _UNDO,
    _PORTS,
)
_BODY = (
    _setting("task", as_given, NAME, "The task to call.", gives="body", names="task",
        is_needed=True),
    _setting("flow", as_given, NAME,
        "Or the flow to run: its name, or a file in the same folder.", gives="body",
        names="flow", is_needed=True),
)

NODE_TYPE = NodeForm("", (_CONFIG, *_NODE_TYPE))
TASK = NodeForm(
    "task",
    (
        _key("task", as_given, NAME, "The task to call; implies type: task.",
            gives="body", names="task", is_needed=True),
        replace(_CONFIG, schema={"type": "object"}),
        *_NODE_TYPE,
    ),
)
ROUTE = NodeForm(
    "route",
    (
        _setting("key", as_given, NAME, "The property of the input that names the branch.",
            is_needed=True),
        _setting("task", as_given, NAME, "Or a task that returns the branch.", gives="key",
            names="task", is_needed=True),
        *_CALL,
        _ON_ERROR,
        replace(_PORTS, gives="branches", is_needed=True),
    ),
    one_of=("key", "task"),
)
MAP = NodeForm(
    "map",
    (
        *_BODY,
        _setting("over", check.name, NAME, "The property of the input that has the list."),
        _setting("concurrency", _positive, {"type": "integer", "minimum": 1},
            "How many items may be unfinished at once."),
        _setting("items_max", _items_max,
            {"type": "integer", "minimum": 1, "maximum": MAP_ITEMS_LIMIT, "default": MAP_ITEMS_MAX},
            "How many items the list may have."),
        *_INPUTS,
        *_CALL,
        _DELAY,
        _ON_ERROR,
        _UNDO,
    ),
    one_of=("task", "flow"),
)
LOOP = NodeForm(
    "loop",
    (
        *_BODY,
        _setting("until", as_given, _UNTIL,
            "A property of the output, a condition on it, or {task: NAME}.", is_required=True,
            placeholder="done", suffix=".until"),
        _setting("max_iterations", _positive, {"type": "integer", "minimum": 1, "default": 50},
            default=50, field="iterations_max"),
        _setting("on_max", check.name, PORT, "fail, continue, or a port.", default=FAIL,
            is_needed=True),
        *_INPUTS,
        *_CALL,
        _DELAY,
        _ON_ERROR,
        _UNDO,
    ),
    one_of=("task", "flow"),
)
DELAY = NodeForm(
    "delay",
    (
        _setting("delay", _delay_ms, DURATION, "How long to wait.", key="for", default=0,
            is_needed=True),
        _setting("until", _time, TEXT, "Or the time to wait for; a template.", default="",
            is_needed=True),
        *_INPUTS,
    ),
    one_of=("delay", "until"),
)
SIGNAL = NodeForm(
    "signal",
    (
        _setting("signal", check.name, NAME, "The signal; by default the id of the node.",
            key="name", default=""),
        _setting("timeout", check.milliseconds, DURATION, "How long to wait.",
            placeholder=FOREVER_MS, field="timeout_ms", to_yaml=ms_text),
        _setting("on_timeout", _on_signal_timeout, _PORT_OR_DEFAULT,
            "fail, continue, a port, or a default output.", default=FAIL,
            is_needed=True),
        _setting("where", json_value, CONDITION, "A condition on the payload."),
        *_INPUTS,
    ),
)
APPROVAL = NodeForm(
    "approval",
    (
        _setting("title", _text, TEXT, "The question, in one line; a template.",
            is_required=True, placeholder="?"),
        _setting("message", _text, TEXT, "Details for the deciders; a template.", default=""),
        _setting("form", _schema, SCHEMA, "JSON Schema of the data of an answer."),
        _setting("show", _names, NAMES, "The inputs that deciders see; by default all.",
            field="shows"),
        _setting("data", json_value, {}, "Data that an answer may change; a template."),
        _setting("deciders", check.deciders, NAMES,
            "Users, and roles as role:NAME; by default anyone may decide.",
            default=(), placeholder=("?",)),
        _setting("policy", _quorum, _POLICY, default=1, field="quorum", to_yaml=_policy_to_yaml),
        _setting("answers", _answers, NAMES, "Possible answers; by default approve and reject.",
            default=(APPROVE, REJECT), is_needed=True),
        _setting("deadline", check.milliseconds, DURATION, "How long the approval stays open.",
            placeholder=FOREVER_MS, field="timeout_ms", to_yaml=ms_text),
        _setting("on_timeout", _on_timeout, _PORT_OR_ANSWER,
            "fail, continue, a port, or a default answer.", default=FAIL,
            is_needed=True),
        _setting("on_reject", check.name, PORT, "fail, continue, or a port.", default=FAIL,
            is_needed=True),
        _setting("reminders", _reminders, {"type": "array", "items": DURATION}, default=(),
            field="reminders_ms", to_yaml=_reminders_to_yaml),
        _setting("escalate", _escalations, _ESCALATE, default=(), field="escalations",
            from_yaml=_escalate_in_yaml, to_yaml=_escalate_to_yaml),
        _setting("notify", as_given, NAME, "A task that notifies people.", names="task",
            suffix=".notify", to_yaml=_task_name),
        *_INPUTS,
    ),
)
FLOW = NodeForm(
    "flow",
    (
        _setting("flow", as_given, NAME, "Its name, or a file in the same folder.", gives="body",
            names="flow", is_required=True, is_needed=True),
        *_INPUTS,
        *_CHILD,
        _ON_ERROR,
        _UNDO,
    ),
)

# fmt: on

FORMS: Final[Mapping[str, NodeForm]] = {
    form.type: form for form in (TASK, ROUTE, MAP, LOOP, DELAY, SIGNAL, APPROVAL, FLOW)
}
CALL_SETTINGS = frozenset(each.name for each in _CALL)
CHILD_SETTINGS = frozenset(each.name for each in _CHILD)


def read_options(
    form: NodeForm,
    given: Mapping[str, Any],
    faults: list[Fault],
    *,
    wrong: Collection[str] = (),
    is_yaml: bool = False,
) -> dict[str, Any]:
    """The parsed options of one node, by the builder's parameters.

    Invalid options are added to ``faults``, with paths below the node, and get placeholders.
    ``wrong`` are parameters whose faults are already added.
    """
    values: dict[str, Any] = {}
    faults += _unknown_options(form, given)
    for parameter, option in form.parameters.items():
        values[parameter] = option.default
        if parameter in wrong:
            values[parameter] = option.instead
        elif parameter in given and not (given[parameter] is None and option.may_be_none):
            name = str(option.yaml[-1]) if is_yaml else parameter
            try:
                values[parameter] = option.read(given[parameter], name)
            except InvalidInput as error:
                faults += (at_option(each, parameter, name) for each in error.faults)
                values[parameter] = option.instead
    chosen = [form.by_name[each].parameter for each in form.one_of]
    if len(set(chosen)) > 1 and not set(chosen) & set(wrong):
        there = tuple(each for each in chosen if given.get(each) is not None)
        if len(there) != 1:
            faults.append(ONE_OF.fault(names=tuple(chosen), given=there))
    return values


def at_option(fault: Fault, parameter: str, name: str) -> Fault:
    """The fault with its path below the node; argument checks prefix it with ``name``."""
    inside = fault.where[1:] if fault.where[:1] == (name,) else fault.where
    return replace(fault, where=(parameter, *inside))


def _unknown_options(form: NodeForm, given: Mapping[str, Any]) -> Iterator[Fault]:
    for name in given:
        if name in form.parameters:
            continue
        if form is FLOW and name in TASK.parameters:
            yield TASK_OPTION.fault((name,), option=name)
            continue
        if name in CHILD_SETTINGS - CALL_SETTINGS:
            yield CHILD_OPTION.fault((name,), option=name)
            continue
        try:
            check.known(name, "option", form.parameters)
        except InvalidInput as error:
            yield from error.faults
