"""From a task or plain function, with its inputs by name, to what a node calls."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, get_args

from perdure.diagnostics import declare, near, safe_repr
from perdure.errors import InvalidInput
from perdure.expr.condition import holds, parse_condition
from perdure.expr.path import parse_path
from perdure.flows.check import nearest
from perdure.flows.options import AnyTask, Function
from perdure.model import check
from perdure.model.graph import Call, Input, OnMissing
from perdure.model.payload import from_json, to_json
from perdure.model.retry import Retry, encode_policy, retry_of
from perdure.tasks.task import PlainFunction

T = TypeVar("T")

NO_KEY = declare("node.no_key", "key {key!r} not found[; known: {known}]")
NOT_AN_OBJECT = declare(
    "node.not_an_object",
    "key {key!r} not found: the value must be an object, not {type}",
)
COMPUTED_LIMIT = declare(
    "flow.computed_limit",
    "task {task!r} has a {limit} whose key is computed from the input",
    "Use limits with a fixed key in a flow: what schedules a node may not have that function",
)
ONE_VALUE = declare(
    "flow.one_value",
    "task {task!r}{signature} cannot be called with one value, as nodes are",
    "Give it inputs={...} by name; after a join, the value is one object with everything in it",
)
NO_SIGNATURE = declare(
    "flow.no_signature",
    "the parameters of {function} are unknown: {reason}",
    "Wrap it in a function",
)

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def call_of(
    task: AnyTask,
    settings: Mapping[str, Any],
    refuse: Callable[[str | InvalidInput], None],
    arguments: Collection[str] | None = None,
) -> Call:
    """How a node calls a task; everything that stands against it is told to ``refuse``.

    ``arguments`` are the names of those that it gets; None: it gets one value.
    """

    def checked(make: Callable[[], T], instead: T) -> T:
        try:
            return make()
        except InvalidInput as error:
            refuse(error)
            return instead

    def given(name: str, check: Callable[[Any], T], own: T) -> T:
        value = settings.get(name)
        return own if value is None else checked(lambda: check(value), own)

    checked(lambda: _refuse_computed_limits(task), None)
    if arguments is None:
        takes_input = checked(lambda: _takes_input(task), True)
    else:
        takes_input = True
        checked(lambda: _tell(_argument_faults(task, arguments), refuse), None)
    return Call(
        task=task.name,
        queue=given("queue", lambda queue: check.name(queue, "queue"), task.queue),
        priority=given("priority", check.priority, task.priority),
        tags=given("tags", check.tags, task.tags),
        takes_input=takes_input,
        policy=_policy(given("retries", retry_of, None), given("timeout", _timeout, None)),
    )


def named_task(function: Function, name: str) -> AnyTask:
    """A plain function as a task of its own."""
    return PlainFunction(function, name=name)


def key_function(key: str) -> Function:
    """Reads one key of an object."""

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InvalidInput(NOT_AN_OBJECT.fault(key=key, type=type(value).__name__))
        if key not in value:
            raise InvalidInput(NO_KEY.fault(key=key, known=tuple(value)))
        return value[key]

    return read


def condition_function(condition: Any) -> Function:
    """Tells whether a condition on its properties holds for a value."""
    parsed = parse_condition(condition)

    def is_so(value: Any) -> bool:
        return holds(parsed, value)

    return is_so


def truth_of(function: Function) -> Function:
    """The same function, but for its answer, which is plainly true or false."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def answer_later(*args: Any, **kwargs: Any) -> bool:
            return bool(await function(*args, **kwargs))

        return answer_later

    @functools.wraps(function)
    def answer(*args: Any, **kwargs: Any) -> bool:
        return bool(function(*args, **kwargs))

    return answer


def _refuse_computed_limits(task: AnyTask) -> None:
    for limit in task.limits:
        if callable(limit.key):
            raise InvalidInput(COMPUTED_LIMIT.fault(task=task.name, limit=type(limit).__name__))


def _takes_input(task: AnyTask) -> bool:
    """Whether the task is called with the node's input, or with nothing."""
    signature = _signature(task)
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise InvalidInput(ONE_VALUE.fault(task=task.name, signature=str(signature)))


def _tell(faults: Iterator[str], refuse: Callable[[str | InvalidInput], None]) -> None:
    for fault in faults:
        refuse(fault)


def _argument_faults(task: AnyTask, names: Collection[str]) -> Iterator[str]:
    """What stands against calling a task with arguments of these names, and no others."""
    parameters = _signature(task).parameters.values()
    by_name = [each for each in parameters if each.kind in _BY_NAME]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    known = [each.name for each in by_name]
    for name in names:
        if name not in known and not takes_any:
            takes = f"; it has {', '.join(map(repr, known))}" if known else "; it has none"
            yield f"task {task.name!r} has no parameter {name!r}{nearest(name, known) or takes}"
    for each in parameters:
        if each.kind is each.POSITIONAL_ONLY and each.default is each.empty:
            yield f"task {task.name!r} takes {each.name!r} by position only, not by name"
    for each in by_name:
        if each.default is each.empty and each.name not in names:
            yield f"task {task.name!r} needs {each.name!r}, which is not among {_listed(names)}"


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names)) or "its arguments: there are none"


def _signature(task: AnyTask) -> inspect.Signature:
    try:
        return task.input_signature
    except ValueError as error:
        fault = NO_SIGNATURE.fault(function=safe_repr(task.function), reason=str(error))
        raise InvalidInput(fault) from error


def _timeout(timeout: Any) -> timedelta | None:
    return check.span(timeout, "timeout", is_positive=True)


def _policy(retry: Retry | None, timeout: timedelta | None) -> str | None:
    policy = encode_policy(retry, timeout)
    return None if policy is None else policy.decode()


_OUTPUT = re.compile(r"\.output(?=\.|$)")
_INPUT, _SECRET = "input", "secret"
_SECRET_NAME = re.compile(r"[A-Za-z0-9_-]+")
_FIELDS = ("from", "default")

_SOURCES = (
    "Write '<node>.output', 'input' or 'secret.NAME', the first two optionally with a path; or an "
    "object with 'from' and 'default'"
)
NOT_A_SOURCE = declare("flow.not_a_source", "input {input!r}: {source} is not a source", _SOURCES)
NO_OUTPUT = declare(
    "flow.no_output", "input {input!r}: {source!r} names no output", "Write {correct!r}"
)
INPUT_NAME = declare("flow.input_name", "inputs: the name {name!r} must be a string")
UNKNOWN_FIELD = declare(
    "flow.unknown_input_field",
    "input {input!r}: unknown field {field!r}[; did you mean {nearest:or}?]",
)
UNUSED_DEFAULT = declare(
    "flow.unused_default",
    "input {input!r}: its default has no effect",
    'Set on_missing="default" on the node',
)
INVALID_PATH = declare("flow.invalid_path", "input {input!r}: {reason}")
SECRET_DEFAULT = declare("flow.secret_default", "input {input!r}: a secret has no default")
SECRET_NAME = declare(
    "flow.secret_name",
    "input {input!r}: {secret!r} cannot be the name of a secret",
    "Use letters, digits, '_' and '-', and no path",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An input as it was told."""

    name: str
    text: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of a node as they were told."""

    references: tuple[Reference, ...] = ()
    on_missing: OnMissing = "error"

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.references]


def inputs_told(options: Mapping[str, Any], refuse: Callable[[str | InvalidInput], None]) -> Inputs:
    """What the options say of inputs; everything that stands against it is told to ``refuse``."""

    def attempt(make: Callable[[], T], instead: T) -> T:
        try:
            return make()
        except InvalidInput as error:
            refuse(error)
            return instead

    policy = options.get("on_missing", "error")
    on_missing: OnMissing = attempt(
        lambda: check.choice(policy, "on_missing", get_args(OnMissing)),
        "default",  # so that no default is refused as unused
    )
    nothing: Mapping[Any, Any] = {}
    told = attempt(lambda: _sources_told(options.get("inputs")), nothing)
    found = [
        # A stand-in, for what names the input not to be refused too.
        attempt(partial(_reference, name, source, on_missing), Reference(str(name), _INPUT))
        for name, source in told.items()
    ]
    return Inputs(tuple(sorted(found, key=lambda each: each.name)), on_missing)


def resolved(reference: Reference, nodes: Container[str]) -> Input:
    """The input that is meant; one of a node that there is not is for the check of the graph."""
    name, text = reference.name, reference.text
    sources = list(_sources(text))
    known = [source for source in sources if source in nodes]
    if not known and (text == _INPUT or text.startswith(f"{_INPUT}.")):
        return _input(reference, "", text.removeprefix(_INPUT))
    if not known and text.startswith(f"{_SECRET}."):
        return Input(name=name, secret=_secret(reference, text.removeprefix(f"{_SECRET}.")))
    if not sources:
        raise _no_source(reference, nodes)
    source = known[-1] if known else sources[0]
    return _input(reference, source, text.removeprefix(f"{source}.output"))


def plain(value: Any, what: str) -> Any:
    """The value as it will be read back from the stored definition."""
    return from_json(to_json(value, what))


def _sources_told(told: Any) -> Mapping[Any, Any]:
    if told is not None and not isinstance(told, Mapping):
        raise check.wrong_type(told, "inputs", 'an object: {"order": "load.output"}')
    return told or {}


def _reference(name: Any, source: Any, on_missing: OnMissing) -> Reference:
    if not isinstance(name, str):
        raise InvalidInput(INPUT_NAME.fault(name=name))
    if isinstance(source, str):
        return Reference(name, source)
    if not isinstance(source, Mapping) or not isinstance(source.get("from"), str):
        raise InvalidInput(NOT_A_SOURCE.fault(input=name, source=safe_repr(source)))
    for key in source:
        if key not in _FIELDS:
            nearest = near(str(key), _FIELDS)
            raise InvalidInput(UNKNOWN_FIELD.fault(input=name, field=key, nearest=nearest))
    if "default" in source and on_missing != "default":
        raise InvalidInput(UNUSED_DEFAULT.fault(input=name))
    default = plain(source.get("default"), f"the default of input {name!r}")
    return Reference(name, source["from"], default)


def _sources(text: str) -> Iterator[str]:
    """Everything that may be the id of a node: ids may have dots, the shortest comes first."""
    for found in _OUTPUT.finditer(text):
        if found.start():
            yield text[: found.start()]


def _input(reference: Reference, source: str, path: str) -> Input:
    try:
        parts = parse_path(path[1:]) if path else ()
    except InvalidInput as error:
        fault = INVALID_PATH.fault(input=reference.name, reason=str(error))
        raise InvalidInput(fault) from error
    return Input(name=reference.name, source=source, path=parts, default=reference.default)


def _secret(reference: Reference, secret: str) -> str:
    if reference.default is not None:
        raise InvalidInput(SECRET_DEFAULT.fault(input=reference.name))
    if not _SECRET_NAME.fullmatch(secret):
        raise InvalidInput(SECRET_NAME.fault(input=reference.name, secret=secret))
    return secret


def _no_source(reference: Reference, nodes: Container[str]) -> InvalidInput:
    name, text = reference.name, reference.text
    parts = text.split(".")
    for count in range(len(parts), 0, -1):
        id = ".".join(parts[:count])
        if id in nodes:
            correct = ".".join([id, "output", *parts[count:]])
            return InvalidInput(NO_OUTPUT.fault(input=name, source=text, correct=correct))
    return InvalidInput(NOT_A_SOURCE.fault(input=name, source=safe_repr(text)))
