"""The one table of node options: what a node may be given, in Python and in YAML.

A row says how a value is checked and what is stored of it, its JSON Schema, where it stands in a
file, and what stands in for it while other faults are looked for. Builder, loader, dumper,
published schema and the places of faults all follow from these rows.
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
    REJECT,
    Call,
    DefaultAnswer,
    Escalation,
    JsonSchema,
    OnMissing,
    OutputCheck,
)
from perdure.model.job import PRIORITY_MAX, PRIORITY_MIN
from perdure.model.payload import from_json, to_json
from perdure.model.retry import RETRIES_MAX, Retry, retry_of
from perdure.model.times import Duration, ms_text
from perdure.tasks.task import Task

AnyTask = Task[..., Any]
Function = Callable[..., Any]

Source = str | Mapping[str, Any]
"""Where an input is from: ``"load.output.total"``, ``"input.customer"``, ``"secret.KEY"``; or
``{"from": ..., "default": ...}``."""

Policy = str | int | Mapping[str, int]
"""How many must agree: ``"any"``, ``"all"``, or a number, also as ``{"at_least": number}``."""

Fragment = Mapping[str, Any]
"""A part of a JSON Schema."""

EMPTY_CHECK = declare("flow.empty_check", "check needs a schema, a condition or both")
ONE_OF = declare("flow.one_of", "needs either {names:or}[, not both: {given:and}]")
TASK_OPTION = declare(
    "flow.task_option", "{option} is for tasks; a child flow has its own nodes and settings"
)
NEEDS_TIMEOUT = declare("flow.needs_timeout", "on_timeout needs {timeout}: how long it waits")


# Static types of what the methods of the builder take; the rows below decide.


class CallSettings(TypedDict, total=False):
    """What a node changes of the settings of the task that it calls; None leaves them."""

    retries: Retry | int | None
    timeout: Duration | None
    queue: str | None
    priority: int | None
    tags: Sequence[str] | None


class InputOptions(TypedDict, total=False):
    inputs: Mapping[str, Source] | None
    """What the node takes, by name; without, it takes what comes before it."""
    on_missing: OnMissing
    """``"error"``, ``"default"`` or ``"skip"``: where an input, or what a template names, is not
    there."""


class RouteOptions(CallSettings, total=False):
    on_error: str
    """``"fail"``, or the port to go on from with the error."""


class NodeOptions(CallSettings, InputOptions, total=False):
    on_error: str
    """``"fail"``, ``"continue"`` with null, or the port to go on from with the error."""
    undo: AnyTask | Function | None
    """Called with the node's output when a run that failed or was cancelled is undone."""


class NodeTypeOptions(NodeOptions, total=False):
    ports: Sequence[str]
    """The ports that a result may choose, besides those of the node type and the ordinary one."""
    on_timeout: str
    """What follows when a pause comes to its deadline: as ``on_error``."""
    input_schema: JsonSchema | None
    output_schema: JsonSchema | None
    check: Mapping[str, Any] | None
    """``{"schema": ...}`` or ``{"condition": ...}`` that the output must satisfy; with
    ``"advisory": True`` it is only noted."""


class TaskOptions(NodeTypeOptions, total=False):
    config: Mapping[str, Any] | None
    """The arguments of the task by name: templates over the inputs."""


class ApprovalOptions(InputOptions, total=False):
    message: str
    form: JsonSchema | None
    show: Sequence[str] | None
    """The inputs that deciders see; else all."""
    data: Any
    """A template of what an answer may change; else the node's input."""
    deciders: Sequence[str]
    policy: Policy
    answers: Sequence[str] | None
    deadline: Duration | None
    on_timeout: str | Mapping[str, Any]
    """``"fail"``, ``"continue"``, a port, or the answer that counts then:
    ``{"decision": ..., "data": ...}``."""
    on_reject: str
    """``"fail"``, ``"continue"`` or a port."""
    reminders: Sequence[Duration]
    escalate: Mapping[Duration, Sequence[str]] | Sequence[tuple[Duration, Sequence[str]]]
    notify: AnyTask | Function | None


# How values are read: each takes what was given and the name of its option, and returns what is
# stored, or raises InvalidInput.

Reader = Callable[[Any, str], Any]


def as_given(value: Any, name: str) -> Any:
    return value


def json_value(value: Any, name: str) -> Any:
    """The value as it will be read back from the stored definition."""
    return from_json(to_json(value, name))


def _text(value: Any, name: str) -> str:
    return check.instance(value, name, str, "a string")


def _names(value: Any, name: str) -> tuple[str, ...]:
    """A list of names; that each is there once is for the check of the definition to say."""
    return tuple(
        check.name(each, (name, at), label=f"{name}[{at}]")
        for at, each in enumerate(check.listed(value, name, "strings"))
    )


def _positive(value: Any, name: str) -> int:
    return check.integer(value, name, 1)


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
    """Whether it is a schema is for the check of the definition to say."""
    if not isinstance(value, Mapping | bool):
        raise check.wrong_type(value, name, "a JSON Schema: an object")
    found: JsonSchema = json_value(value, name)
    return found


def _retries(value: Any, name: str) -> Retry | None:
    return retry_of(value)


def _timeout(value: Any, name: str) -> timedelta:
    return check.span(value, name, is_positive=True)


def _delay_ms(value: Any, name: str) -> int:
    return check.span(value, name) // timedelta(milliseconds=1)


def _on_missing(value: Any, name: str) -> str:
    return str(check.choice(value, name, get_args(OnMissing)))


def _time(value: Any, name: str) -> str:
    """A template, or a time as text."""
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
    """How many must agree; 0: all."""
    if isinstance(value, Mapping) and list(value) == ["at_least"]:
        value = value["at_least"]
    if isinstance(value, str) and value in _POLICIES:
        return _POLICIES[value]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        expected = '"any", "all" or how many must agree: {"at_least": 2}'
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


def _reminders(value: Any, name: str) -> tuple[int, ...]:
    listed = () if value is None else check.listed(value, name, "durations")
    return tuple(sorted(check.milliseconds(each, name) for each in listed))


def _escalations(value: Any, name: str) -> tuple[Escalation, ...]:
    """Pairs of when and to whom, in the order of their times."""
    if value is None:
        return ()
    pairs = value.items() if isinstance(value, Mapping) else check.listed(value, name, "pairs")
    found: list[Escalation] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            expected = 'pairs of when and to whom: {"1d": ["cfo"]}'
            raise check.wrong_type(pair, name, expected)
        after, deciders = pair
        listed = check.listed(deciders, name, "names or roles")
        found.append(
            Escalation(
                after_ms=check.milliseconds(after, name),
                deciders=tuple(check.name(each, name) for each in listed),
            )
        )
    return tuple(sorted(found, key=lambda each: each.after_ms))


# From what YAML has to what the builder takes, and from what is stored back to YAML.


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


# What may stand in a file.

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
                "default": {"description": "Where it is missing, and on_missing is default."},
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
                "first": described(DURATION, "Before the first retry.", default="1s"),
                "factor": {
                    "description": "How much longer each further one waits.",
                    "type": "number",
                    "minimum": 1,
                    "default": 2,
                },
                "max": described(DURATION, "The longest delay.", default="5m"),
                "jitter": described(FLAG, "Half the delay at random.", default=True),
                "on": described(NAMES, "Only these types of exceptions."),
                "never_on": described(NAMES, "All but these types of exceptions."),
            },
            required=("retries",),
        ),
    ]
}
_CHECK: Final[Fragment] = an_object(
    {
        "schema": described(SCHEMA, "JSON Schema that the output must fit."),
        "condition": CONDITION,
        "advisory": described(FLAG, "Only note it in the log.", default=False),
    }
)

_SOURCES: Final[Fragment] = {"type": "object", "additionalProperties": _INPUT}
_PRIORITY: Final[Fragment] = {
    "type": "integer",
    "minimum": PRIORITY_MIN,
    "maximum": PRIORITY_MAX,
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
_ESCALATE: Final[Fragment] = {
    "type": "array",
    "items": an_object({"after": DURATION, "to": NAMES}, required=["after", "to"]),
}


# The table

FOREVER_MS = 36_500 * 86_400_000
"""Stands in for a time that could not be read: nothing comes after it."""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    name: str
    """As the builder calls it."""
    read: Reader
    schema: Fragment
    yaml: Path
    """Where it stands within a node of a file."""
    about: str = ""
    default: Any = None
    """What is stored where it is not given."""
    stand_in: Any = None
    """What is stored where it could not be read; the default, unless told."""
    is_needed: bool = False
    """Without it nothing is known about the ports of the node, or there is no node at all."""
    is_required: bool = False
    gives: str = ""
    """The builder's parameter, where a file has several keys for it."""
    names: Literal["", "task", "flow"] = ""
    """A file has the name of a task or a flow here."""
    suffix: str = ""
    """Of the plain function that stands here, after the id of its node."""
    from_yaml: Callable[[Any], Any] | None = None
    """What the builder takes for what a file has, if that differs."""
    field: str = ""
    """Of the stored node; its name, unless told."""
    to_yaml: Callable[[Any], Any] | None = None
    """What a file has for what is stored, if that differs."""

    @property
    def parameter(self) -> str:
        return self.gives or self.name

    @property
    def may_be_none(self) -> bool:
        """Whether None is as if it was not given."""
        return self.default is None and not self.is_required

    @property
    def fragment(self) -> dict[str, Any]:
        return described(self.schema, self.about) if self.about else dict(self.schema)

    @property
    def instead(self) -> Any:
        return self.default if self.stand_in is None else self.stand_in


@dataclass(frozen=True, eq=False)
class NodeForm:
    """The options of one type of node."""

    type: str
    """As a file calls it; empty: a registered node type, which has a name of its own."""
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
        """The options that stand in the config of a file, by their keys there."""
        found = (each for each in self.options if len(each.yaml) > 1)
        return {str(each.yaml[1]): each for each in found}

    @cached_property
    def keys(self) -> Mapping[str, Option]:
        """The options that stand in a node of a file itself, by their keys."""
        return {str(each.yaml[0]): each for each in self.options if len(each.yaml) == 1}

    @cached_property
    def config_schema(self) -> dict[str, Any] | None:
        """Of the config in a file, where the options stand in it."""
        if not self.settings:
            return None
        required = [key for key, option in self.settings.items() if option.is_required]
        properties = {key: option.fragment for key, option in self.settings.items()}
        return an_object(properties, required=required)


def _key(name: str, read: Reader, schema: Fragment, about: str, **more: Any) -> Option:
    """A row whose place in a file is a key of the node."""
    return Option(name, read, schema, (more.pop("key", name),), about, **more)


def _setting(name: str, read: Reader, schema: Fragment, about: str = "", **more: Any) -> Option:
    """A row whose place in a file is a key of the node's config."""
    return Option(name, read, schema, ("config", more.pop("key", name)), about, **more)


# A row may take several lines; one argument a line would hide the table.
# fmt: off
_INPUTS = (
    _key("inputs", _object('{"order": "load.output"}'), _SOURCES,
        "What it takes, by local name: input.PATH, NODE.output.PATH, secret.NAME.", is_needed=True),
    _key("on_missing", _on_missing, {"enum": ["error", "default", "skip"], "default": "error"},
        "What follows where an input or the key of a template is missing.", default="error",
        stand_in="default"),  # so that no default of an input is refused as unused
)
_CALL = (
    _key("retries", _retries, RETRY, "How often a failed attempt is tried again.", key="retry",
        from_yaml=_retry_in_yaml),
    _key("timeout", _timeout, DURATION, "How long one attempt may take."),
    _key("priority", check.priority, _PRIORITY, f"{PRIORITY_MIN} is the most urgent."),
    _key("queue", check.name, NAME, "The queue that its job waits in."),
    _key("tags", check.tags, NAMES, "What a worker must offer."),
)
_ON_ERROR = _key("on_error", check.name, PORT, "fail, continue, or a port.", default=FAIL,
    is_needed=True)
_UNDO = _key("undo", as_given, NAME, "The task that takes back what this node did.", names="task",
    suffix=".undo", to_yaml=_task_name)
_PORTS = _key("ports", _names, NAMES, "The ports that a result may choose; else the keys of next.",
    default=())
_GATHERS = _key("gathers", as_given, FLAG, "Takes the outputs before it in one object, by name.")
_CONFIG = _key("config", _config, {}, "Config of the type, or arguments of the task. Templates.",
    is_needed=True)
_NODE_TYPE = (
    *_INPUTS,
    _GATHERS,
    *_CALL,
    # Ports that anything follows are taken to be right where these could not be read.
    replace(_ON_ERROR, is_needed=False),
    _key("on_timeout", check.name, PORT, "After a pause: fail, continue, or a port.", default=FAIL),
    _key("input_schema", _schema, SCHEMA, "JSON Schema that the input must fit."),
    _key("output_schema", _schema, SCHEMA, "JSON Schema that the output must fit."),
    _key("check", _check, _CHECK, "What the output must be like, looked at after success.",
        to_yaml=_check_to_yaml),
    _UNDO,
    _PORTS,
)
_BODY = (
    _setting("task", as_given, NAME, "The task that is called.", gives="body", names="task",
        is_needed=True),
    _setting("flow", as_given, NAME,
        "Or the flow that is run: its name, or a file beside this one.", gives="body",
        names="flow", is_needed=True),
)

NODE_TYPE = NodeForm("", (_CONFIG, *_NODE_TYPE))
TASK = NodeForm(
    "task",
    (
        _key("task", as_given, NAME, "The task that is called; short for node type: task.",
            gives="body", names="task", is_needed=True),
        replace(_CONFIG, schema={"type": "object"}),
        *_NODE_TYPE,
    ),
)
ROUTE = NodeForm(
    "route",
    (
        _setting("key", as_given, NAME, "The key of the input whose value is the branch.",
            is_needed=True),
        _setting("task", as_given, NAME, "Or the task that returns it.", gives="key", names="task",
            is_needed=True),
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
        _setting("over", check.name, NAME, "The key of the input under which the list is."),
        _setting("concurrency", _positive, {"type": "integer", "minimum": 1}),
        *_INPUTS,
        *_CALL,
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
            "A key of the output, a condition on it, or {task: NAME}.", is_required=True,
            stand_in="done", suffix=".until"),
        _setting("max_iterations", _positive, {"type": "integer", "minimum": 1, "default": 50},
            default=50, field="iterations_max"),
        _setting("on_max", check.name, PORT, "fail, continue, or a port.", default=FAIL,
            is_needed=True),
        *_INPUTS,
        *_CALL,
        _ON_ERROR,
        _UNDO,
    ),
    one_of=("task", "flow"),
)
DELAY = NodeForm(
    "delay",
    (
        _setting("delay", _delay_ms, DURATION, "How long it waits.", key="for", default=0,
            is_needed=True),
        _setting("until", _time, TEXT, "Or the time that it waits for; a template.", default="",
            is_needed=True),
        *_INPUTS,
    ),
    one_of=("delay", "until"),
)
SIGNAL = NodeForm(
    "signal",
    (
        _setting("signal", check.name, NAME, "Of the signal; else the id of the node.", key="name",
            default=""),
        _setting("timeout", check.milliseconds, DURATION, "How long it waits.",
            stand_in=FOREVER_MS, field="timeout_ms", to_yaml=ms_text),
        _setting("on_timeout", check.name, PORT, "fail, continue, or a port.", default=FAIL,
            is_needed=True),
        _setting("where", json_value, CONDITION, "What the payload must be like."),
        *_INPUTS,
    ),
)
APPROVAL = NodeForm(
    "approval",
    (
        _setting("title", _text, TEXT, "What is to decide, in a line; a template.",
            is_required=True, stand_in="?"),
        _setting("message", _text, TEXT, "What one needs to know; a template.", default=""),
        _setting("form", _schema, SCHEMA, "JSON Schema of the data of an answer."),
        _setting("show", _names, NAMES, "The inputs that deciders see; else all.", field="shows"),
        _setting("data", json_value, {}, "What an answer may change; a template."),
        _setting("deciders", _names, NAMES, "Names or roles; none: whoever comes.", default=(),
            stand_in=("?",)),
        _setting("policy", _quorum, _POLICY, default=1, field="quorum", to_yaml=_policy_to_yaml),
        _setting("answers", _answers, NAMES, "What may be answered; else approve and reject.",
            default=(APPROVE, REJECT), is_needed=True),
        _setting("deadline", check.milliseconds, DURATION, "How long it stays open.",
            stand_in=FOREVER_MS, field="timeout_ms", to_yaml=ms_text),
        _setting("on_timeout", _on_timeout, _PORT_OR_ANSWER,
            "fail, continue, a port, or the answer that counts then.", default=FAIL,
            is_needed=True),
        _setting("on_reject", check.name, PORT, "fail, continue, or a port.", default=FAIL,
            is_needed=True),
        _setting("reminders", _reminders, {"type": "array", "items": DURATION}, default=(),
            field="reminders_ms", to_yaml=_reminders_to_yaml),
        _setting("escalate", _escalations, _ESCALATE, default=(), field="escalations",
            from_yaml=_escalate_in_yaml, to_yaml=_escalate_to_yaml),
        _setting("notify", as_given, NAME, "The task that tells people.", names="task",
            suffix=".notify", to_yaml=_task_name),
        *_INPUTS,
    ),
)
FLOW = NodeForm(
    "flow",
    (
        _setting("flow", as_given, NAME, "Its name, or a file beside this one.", gives="body",
            names="flow", is_required=True, is_needed=True),
        *_INPUTS,
        _ON_ERROR,
        _UNDO,
    ),
)

# fmt: on

FORMS: Final[Mapping[str, NodeForm]] = {
    form.type: form for form in (TASK, ROUTE, MAP, LOOP, DELAY, SIGNAL, APPROVAL, FLOW)
}
CALL_SETTINGS = frozenset(each.name for each in _CALL)


def read_options(
    form: NodeForm,
    given: Mapping[str, Any],
    faults: list[Fault],
    *,
    wrong: Collection[str] = (),
    is_yaml: bool = False,
) -> dict[str, Any]:
    """The options of one node by the builder's parameters.

    What cannot be read is added to ``faults``, with its path below the node, and has its stand-in.
    ``wrong`` are parameters that were found to be so already.
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
    """The fault with its path below the node; checks of arguments begin it with the name."""
    inside = fault.where[1:] if fault.where[:1] == (name,) else fault.where
    return replace(fault, where=(parameter, *inside))


def _unknown_options(form: NodeForm, given: Mapping[str, Any]) -> Iterator[Fault]:
    for name in given:
        if name in form.parameters:
            continue
        if form is FLOW and name in TASK.parameters:
            yield TASK_OPTION.fault((name,), option=name)
            continue
        try:
            check.known(name, "option", form.parameters)
        except InvalidInput as error:
            yield from error.faults
