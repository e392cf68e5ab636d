"""From a task, or a plain function, to what a node calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, TypeVar

from perdure.errors import InvalidInput
from perdure.model.duration import Duration, as_duration
from perdure.model.graph import Call
from perdure.model.job import DEFAULT_QUEUE, PRIORITY_DEFAULT
from perdure.model.policy import encode_policy
from perdure.model.retry import Retry
from perdure.model.task import Task, checked_name, checked_priority, checked_tags

AnyTask = Task[..., Any]
Function = Callable[..., Any]
T = TypeVar("T")


class CallSettings(TypedDict, total=False):
    """What a node changes of the settings of the task that it calls; None leaves them."""

    retries: Retry | int | None
    timeout: Duration | None
    queue: str | None
    priority: int | None
    tags: Sequence[str] | None


class RouteOptions(CallSettings, total=False):
    on_error: str
    """``"fail"``, or the port to go on from with the error."""


class NodeOptions(CallSettings, total=False):
    on_error: str
    """``"fail"``, ``"continue"`` with null, or the port to go on from with the error."""
    undo: AnyTask | Function | None
    """Called with the node's output when a run that failed or was cancelled is undone."""


CALL_SETTINGS = frozenset(CallSettings.__optional_keys__)


def call_of(task: AnyTask, settings: Mapping[str, Any], refuse: Callable[[str], None]) -> Call:
    """How a node calls a task; everything that stands against it is told to ``refuse``."""

    def checked(make: Callable[[], T], instead: T) -> T:
        try:
            return make()
        except InvalidInput as error:
            refuse(str(error))
            return instead

    def given(name: str, check: Callable[[Any], T], own: T) -> T:
        value = settings.get(name)
        return own if value is None else checked(lambda: check(value), own)

    checked(lambda: _refuse_computed_limits(task), None)
    return Call(
        task=task.name,
        queue=given("queue", lambda queue: checked_name(queue, "queue"), task.queue),
        priority=given("priority", checked_priority, task.priority),
        tags=given("tags", checked_tags, task.tags),
        takes_input=checked(lambda: _takes_input(task), True),
        policy=_policy(given("retries", _retry, None), given("timeout", _timeout, None)),
    )


def named_task(function: Function, name: str) -> AnyTask:
    """A plain function as a task of its own."""
    return Task(
        function,
        name=name,
        queue=DEFAULT_QUEUE,
        priority=PRIORITY_DEFAULT,
        retry=None,
        timeout=None,
        tags=(),
        limits=(),
        isolation="thread",
    )


def key_function(key: str) -> Function:
    """Reads one key of an object."""

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"there is no {key!r} in {type(value).__name__}: no object")
        if key not in value:
            known = ", ".join(map(repr, value)) or "none at all"
            raise InvalidInput(f"there is no key {key!r}; there is {known}")
        return value[key]

    return read


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


def positive_ms(value: Duration, name: str) -> int:
    duration = as_duration(value, name)
    if duration < timedelta(milliseconds=1):
        raise InvalidInput(f"{name}={value!r} must be at least one millisecond")
    return duration // timedelta(milliseconds=1)


def _refuse_computed_limits(task: AnyTask) -> None:
    for limit in task.limits:
        if callable(limit.key):
            raise InvalidInput(
                f"task {task.name!r} has a {type(limit).__name__} whose key is computed from the "
                "input; whoever schedules a node may not have that function, so only limits with "
                "a plain key work in a flow"
            )


def _takes_input(task: AnyTask) -> bool:
    """Whether the task is called with the node's input, or with nothing."""
    try:
        signature = task.input_signature
    except ValueError as error:
        raise InvalidInput(
            f"the parameters of {task.function!r} cannot be told ({error}); wrap it in a function"
        ) from error
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise InvalidInput(
        f"task {task.name!r}{signature} cannot be called with one value, as nodes are; after a "
        "join that value is one object with everything in it"
    )


def _retry(retries: Any) -> Retry | None:
    return retries if isinstance(retries, Retry) else Retry(retries)


def _timeout(timeout: Any) -> timedelta | None:
    duration = as_duration(timeout, "timeout")
    if not duration:
        raise InvalidInput(f"timeout={timeout!r} must be above zero")
    return duration


def _policy(retry: Retry | None, timeout: timedelta | None) -> str | None:
    policy = encode_policy(retry, timeout)
    return None if policy is None else policy.decode()
