"""From a task, or a plain function, to what a node calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from perdure.client.flow_options import AnyTask, Function
from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.graph import Call
from perdure.model.policy import encode_policy
from perdure.model.retry import Retry, retry_of
from perdure.model.task import PlainFunction
from perdure.rules.condition import holds, parse_condition
from perdure.rules.graph_check import nearest

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
