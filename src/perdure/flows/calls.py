"""Calls and named inputs of nodes, from tasks, plain functions and input sources."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.diagnostics import Fault, declare, near, safe_repr
from perdure.errors import InvalidInput
from perdure.expr.condition import holds, parse_condition
from perdure.expr.path import parse_path
from perdure.expr.template import with_names
from perdure.flows.options import AnyTask, Function, json_value
from perdure.model.graph import Call, Input, OnMissing
from perdure.model.retry import encode_policy
from perdure.tasks.task import FIRST_ARGUMENT, PlainFunction

NO_KEY = declare("node.no_key", "key {key!r} not found[; known: {known}]")
NOT_AN_OBJECT = declare(
    "node.not_an_object",
    "key {key!r} not found: the value must be an object, not {type}",
)
ONE_VALUE = declare(
    "flow.one_value",
    "[{option}: ]task {task!r}{signature} cannot be called with one value, as nodes are",
    "Use `inputs` to pass named arguments; after a join, the value is one object",
)
NO_SIGNATURE = declare(
    "flow.no_signature",
    "[{option}: ]the parameters of {function} are unknown: {reason}",
    "Wrap it in a function",
)

NO_PARAMETER = declare(
    "flow.no_parameter",
    "task {task!r} has no parameter {name!r}[; did you mean {nearest:or}?][; it has {known}]",
)
POSITIONAL = declare(
    "flow.positional_parameter",
    "task {task!r} takes {name!r} by position only, not by name",
)
NO_ARGUMENT = declare(
    "flow.no_argument", "task {task!r} needs {name!r}[, which is not among {given}]"
)

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def call_of(
    task: AnyTask,
    settings: Mapping[str, Any],
    faults: list[Fault],
    arguments: Collection[str] | None = None,
    inputs: Collection[str] = (),
) -> Call:
    """How a node calls a task; problems are added to ``faults``.

    ``settings`` are parsed options; None keeps the setting of the task. ``arguments`` are the names
    of the arguments; if None, the task gets one value. ``inputs`` are those that are inputs as they
    are.
    """

    def given(name: str, own: Any) -> Any:
        value = settings.get(name)
        return own if value is None else value

    takes_input = True
    try:
        if arguments is None:
            takes_input = _takes_input(task)
        else:
            faults.extend(_argument_faults(task, arguments))
    except InvalidInput as error:
        faults.extend(error.faults)
    policy = encode_policy(settings.get("retries"), settings.get("timeout"))
    return Call(
        task=task.name,
        queue=given("queue", task.queue),
        priority=given("priority", task.priority),
        tags=given("tags", task.tags),
        takes_input=takes_input,
        policy=None if policy is None else policy.decode(),
        keys=_key_templates(task, arguments, inputs),
    )


def _key_templates(
    task: AnyTask, arguments: Collection[str] | None, inputs: Collection[str]
) -> tuple[str, ...]:
    """The templates of its limit keys over what the engine knows when it schedules the node.

    Empty if that is not enough: then the first worker that has the code computes the keys.
    """
    parameters = list(_signature(task).parameters) if task.computed_limits else []
    if not parameters:
        return ()
    first = parameters[0]
    if arguments is None:
        names = {FIRST_ARGUMENT: FIRST_ARGUMENT, first: FIRST_ARGUMENT}
    else:
        known = {name: name for name in inputs if name != FIRST_ARGUMENT}
        names = ({FIRST_ARGUMENT: first} if first in known else {}) | known
    found = [
        with_names(limit.key, names) if isinstance(limit.key, str) else None
        for limit in task.computed_limits
    ]
    made = tuple(each for each in found if each is not None)
    return made if len(made) == len(found) else ()


def named_task(function: Function, name: str) -> AnyTask:
    """A plain function as a task."""
    return PlainFunction(function, name=name)


def key_function(key: str) -> Function:
    """A function that returns one key of an object."""

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InvalidInput(NOT_AN_OBJECT.fault(key=key, type=type(value).__name__))
        if key not in value:
            raise InvalidInput(NO_KEY.fault(key=key, known=tuple(value)))
        return value[key]

    return read


def condition_function(condition: Any) -> Function:
    """A function that returns whether a condition holds for a value."""
    parsed = parse_condition(condition)

    def is_met(value: Any) -> bool:
        return holds(parsed, value)

    return is_met


def truth_of(function: Function) -> Function:
    """The same function with its result converted to a bool."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def answer_later(*args: Any, **kwargs: Any) -> bool:
            return bool(await function(*args, **kwargs))

        return answer_later

    @functools.wraps(function)
    def answer(*args: Any, **kwargs: Any) -> bool:
        return bool(function(*args, **kwargs))

    return answer


def _takes_input(task: AnyTask) -> bool:
    """Whether the task is called with the node's input or without arguments."""
    signature = _signature(task)
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise InvalidInput(ONE_VALUE.fault(task=task.name, signature=str(signature)))


def _argument_faults(task: AnyTask, names: Collection[str]) -> Iterator[Fault]:
    """Why a task cannot be called with exactly the arguments of these names."""
    parameters = _signature(task).parameters.values()
    by_name = [each for each in parameters if each.kind in _BY_NAME]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    known = tuple(each.name for each in by_name)
    for name in names:
        if name not in known and not takes_any:
            nearest = near(name, known)
            yield NO_PARAMETER.fault(
                task=task.name, name=name, nearest=nearest, known=() if nearest else known
            )
    for each in parameters:
        if each.kind is each.POSITIONAL_ONLY and each.default is each.empty:
            yield POSITIONAL.fault(task=task.name, name=each.name)
    for each in by_name:
        if each.default is each.empty and each.name not in names:
            yield NO_ARGUMENT.fault(task=task.name, name=each.name, given=tuple(names))


def _signature(task: AnyTask) -> inspect.Signature:
    try:
        return task.input_signature
    except ValueError as error:
        fault = NO_SIGNATURE.fault(function=safe_repr(task.function), reason=str(error))
        raise InvalidInput(fault) from error


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
    'Set `on_missing` to "default"',
)
INVALID_PATH = declare("flow.invalid_path", "input {input!r}: a part of the path {path!r} is empty")
SECRET_DEFAULT = declare("flow.secret_default", "input {input!r}: a secret has no default")
SECRET_NAME = declare(
    "flow.secret_name",
    "input {input!r}: {secret!r} cannot be the name of a secret",
    "Use letters, digits, '_' and '-', and no path",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An input whose source is not yet resolved."""

    name: str
    text: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of a node, unresolved."""

    references: tuple[Reference, ...] = ()
    on_missing: OnMissing = "error"

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.references]


def given_inputs(sources: Mapping[Any, Any], on_missing: OnMissing, faults: list[Fault]) -> Inputs:
    """Parse the inputs of a node; problems are added to ``faults``."""
    found: list[Reference] = []
    for name, source in sources.items():
        try:
            found.append(_reference(name, source, on_missing))
        except InvalidInput as error:
            # A placeholder, so that templates naming this input are not faults too.
            found.append(Reference(str(name), _INPUT))
            faults.extend(each.under(str(name)) for each in error.faults)
    return Inputs(tuple(sorted(found, key=lambda each: each.name)), on_missing)


def resolved(reference: Reference, nodes: Container[str]) -> Input:
    """Resolve the source of an input. Unknown nodes are left to the check of the graph."""
    name, text = reference.name, reference.text
    # All possible node ids, the shortest first: ids may contain dots.
    ends = [found.start() for found in _OUTPUT.finditer(text)]
    sources = [text[:end] for end in ends if end]
    known = [source for source in sources if source in nodes]
    if not known and (text == _INPUT or text.startswith(f"{_INPUT}.")):
        return _input(reference, "", text.removeprefix(_INPUT))
    if not known and text.startswith(f"{_SECRET}."):
        return Input(name=name, secret=_secret(reference, text.removeprefix(f"{_SECRET}.")))
    if not sources:
        raise _no_source(reference, nodes)
    source = known[-1] if known else sources[0]
    return _input(reference, source, text.removeprefix(f"{source}.output"))


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
    default = json_value(source.get("default"), f"the default of input {name!r}")
    return Reference(name, source["from"], default)


def _input(reference: Reference, source: str, path: str) -> Input:
    try:
        parts = parse_path(path[1:]) if path else ()
    except InvalidInput as error:
        fault = INVALID_PATH.fault(input=reference.name, path=path[1:])
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
