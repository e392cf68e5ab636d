"""``@task``: a Python function with a name and the settings of its jobs."""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.job import DEFAULT_QUEUE, MAX_SNOOZES, PRIORITY_DEFAULT, Priority, Progress
from perdure.model.limit import (
    Concurrency,
    CustomLimit,
    Limit,
    Rate,
    Spacing,
    computed_keys,
    is_computed,
)
from perdure.model.payload import Converter, convert_argument, converter, from_json, to_json
from perdure.model.retry import Retry, retry_of
from perdure.model.times import Duration
from perdure.tasks.context import CONTEXT, AsyncContext, Context
from perdure.tasks.options import NO_SETTINGS, CallOptions, job_settings
from perdure.tasks.resource import Resource, Resources, resource_in

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Isolation = Literal["thread", "process"]
CONTEXT_NAME = "ctx"
LAMBDA = "<lambda>"
FIRST_ARGUMENT = "input"
"""In the template of a limit key: the first argument."""


INVALID_CALL = declare("task.invalid_call", "invalid arguments for task {task!r}: {reason}")
OTHER_CONTEXT = declare(
    "task.other_context",
    "{what} is {body} and gets {expected}, but {name!r} is declared as {declared}",
    "Write {name}: {expected} = CONTEXT",
)


FUNCTION_FAILED = declare(
    "job.function_failed",
    "the {function} failed for this input: {error}",
    "It is called with the same arguments as the task",
)


class Task(Generic[P, R_co]):
    """A function decorated with ``@task``.

    Calling it calls the function directly; if it declares a context, with a local one.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        name: str,
        queue: str = DEFAULT_QUEUE,
        priority: Priority = PRIORITY_DEFAULT,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        tags: Sequence[str] = (),
        limits: Sequence[Limit] = (),
        isolation: Isolation = "thread",
        max_snoozes: int = MAX_SNOOZES,
    ) -> None:
        self.function = function
        self.name = check.name(name, "name", label="task name")
        self.queue = check.name(queue, "queue")
        self.priority = check.priority(priority)
        self.retry = retry
        self.timeout = timeout
        self.tags = check.tags(tags)
        self.limits = tuple(limits)
        self.isolation: Isolation = isolation
        self.max_snoozes = check.integer(max_snoozes, "max_snoozes", 0)
        self.is_async = inspect.iscoroutinefunction(function)
        self.base: Task[P, R_co] = self
        """The task without options."""
        self.given: CallOptions = {}
        """The arguments of ``options``."""
        self.settings = NO_SETTINGS
        """The checked ``given``."""
        update_wrapper(self, function)
        self.destinations: Callable[[Any], Sequence[str]] | None = None
        """For a node type that sends its config to hosts: their origins."""
        self.reads: tuple[Resource, ...] = ()
        """For a node type: the resources that it reads from its context."""
        refuse_other_context(function, f"task {name!r}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return (
            self.local()(*args, **kwargs) if self._is_injected else self.function(*args, **kwargs)
        )

    def local(
        self,
        *,
        on_progress: Callable[[Progress], object] | None = None,
        resources: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Callable[P, R_co]:
        """Return the function for direct calls, with a local context.

        ``work.local(on_progress=print)(3)`` calls ``work(3)`` and prints its progress. The body
        gets ``resources`` by name; ``secrets`` default to the environment. Each step is called
        once per call, and a pause is rejected.
        """
        from perdure.tasks.local import LocalCall  # only direct calls need it

        local = LocalCall(on_progress, resources, secrets)

        def call(*args: P.args, **kwargs: P.kwargs) -> R_co:
            function: Callable[..., R_co] = self.function
            if not self._is_injected:
                return function(*args, **kwargs)
            return function(*args, **local.arguments(self, args, kwargs))

        return call

    @cached_property
    def _is_injected(self) -> bool:
        try:
            return bool(self.injected)
        except ValueError:  # a builtin may have no signature
            return False

    def __repr__(self) -> str:
        return f"<task {self.name!r}{' with options' if self.given else ''}>"

    def options(self, **options: Unpack[CallOptions]) -> Self:
        """Return a copy of the task with options for its jobs.

        ``fingerprint`` is unique among the live jobs of the queue; a function is called with the
        arguments of each call. The job is due at ``run_at`` or after ``delay``, and fails after
        ``deadline``. Only ``enqueue``, ``enqueue_many`` and schedules accept a task with options.
        """
        if not options:
            return self
        given: CallOptions = {**self.given, **options}
        made = copy.copy(self)
        made.base, made.given, made.settings = self.base, given, job_settings(given)
        return made

    @cached_property
    def computed_limits(self) -> tuple[Limit, ...]:
        """The limits whose keys are computed from the arguments."""
        return tuple(filter(is_computed, self.limits))

    def limit_keys(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """The keys of ``computed_limits`` for a call, which must be valid."""
        from perdure.expr.template import render_text  # child processes do without it

        values = []
        for limit in self.computed_limits:
            if isinstance(limit.key, str):
                named = from_json(to_json(self.named(args, kwargs), "the arguments"))
                scope = {FIRST_ARGUMENT: next(iter(named.values()), None)} | named
                values.append(render_text(limit.key, scope))
            else:
                assert limit.key is not None
                try:
                    values.append(limit.key(*args, **kwargs))
                except Exception as error:
                    function = f"key function of {type(limit).__name__}"
                    fault = FUNCTION_FAILED.fault(function=function, error=safe_repr(error))
                    raise InvalidInput(fault) from error
        return computed_keys(self.computed_limits, values)

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def context_parameter(self) -> str | None:
        """The parameter that receives the context, in any position."""
        for name, parameter in self.signature.parameters.items():
            if (
                parameter.default is CONTEXT
                or name == CONTEXT_NAME
                or declared_context(parameter.annotation) is not None
            ):
                return name
        return None

    @property
    def context_type(self) -> type[Context | AsyncContext]:
        return AsyncContext if self.is_async else Context

    @cached_property
    def injected(self) -> dict[str, Resource | None]:
        """The parameters that the worker fills in, in order: with a resource or, if None, the
        context."""
        found = {
            name: resource_in(parameter.default)
            for name, parameter in self.signature.parameters.items()
        }
        own = self.context_parameter
        return {name: each for name, each in found.items() if each is not None or name == own}

    @property
    def resources(self) -> list[Resource]:
        """The resources that it needs."""
        return [*filter(None, self.injected.values()), *self.reads]

    @cached_property
    def input_signature(self) -> inspect.Signature:
        """The signature for callers of ``enqueue``: without what the worker fills in."""
        parameters = [
            parameter
            for name, parameter in self.signature.parameters.items()
            if name not in self.injected
        ]
        return self.signature.replace(parameters=parameters)

    @cached_property
    def _converters(self) -> dict[str, Converter]:
        hints = self._hints
        plain = {
            name: converter(hints[name])
            for name, parameter in self.input_signature.parameters.items()
            if name in hints
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        return {name: convert for name, convert in plain.items() if convert is not None}

    @cached_property
    def result_converter(self) -> Converter | None:
        return converter(self._hints["return"]) if "return" in self._hints else None

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.function)
        except (NameError, TypeError):  # names that exist only for type checkers
            return {}

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """Match a call with the function's parameters."""
        try:
            return self.input_signature.bind(*args, **kwargs)
        except TypeError as error:
            fault = INVALID_CALL.fault(task=self.name, reason=str(error))
            raise InvalidInput(fault) from error

    def named(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a valid call by name."""
        return dict(self.bind(args, kwargs).arguments)

    def canonical(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """The call with arguments by position where possible, so that equal calls look equal."""
        if self._is_by_position(args, kwargs):
            return args, kwargs
        bound = self.bind(args, kwargs)
        return bound.args, bound.kwargs

    def _is_by_position(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether this is a valid call by position, checked without the cost of binding."""
        return not kwargs and len(args) in self._position_counts

    @cached_property
    def _position_counts(self) -> range:
        """The possible numbers of arguments of a call by position alone."""
        parameters = list(self.input_signature.parameters.values())
        required = [each for each in parameters if each.default is each.empty]
        if any(each.kind is each.KEYWORD_ONLY for each in required):
            return range(0)
        by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        least = sum(each.kind in by_position for each in required)
        most = sum(each.kind in by_position for each in parameters)
        return range(least, most + 1)

    def check_types(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise if plain JSON values do not match the function's annotations."""
        self._typed(list(args), dict(kwargs))

    def convert(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Convert the arguments of a call in place to the types that the function declares."""
        if not self._is_by_position(args, kwargs):
            self.bind(args, kwargs)
        if self._converters:
            self._typed(args, kwargs)

    def inject(
        self, args: list[Any], kwargs: dict[str, Any], context: Any, resources: Resources | None
    ) -> None:
        """Add the context and the resources to the arguments, in place.

        Raises ``Permanent`` for a resource that is missing or of another type. Without
        ``resources``, only the context is added.
        """
        for name, declared in self.injected.items():
            if declared is None:
                value = context
            elif resources is None:
                continue
            else:
                value = resources.take(declared, self.name)
            index = self._indexes.get(name)
            if index is not None and len(args) > index:
                args.insert(index, value)
            else:
                kwargs[name] = value

    def _typed(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Convert the values in place to the annotated types."""
        for index, (name, convert) in enumerate(self._positional[: len(args)]):
            if convert is not None:
                args[index] = convert_argument(convert, args[index], name, self.name)
        for name in kwargs.keys() & self._converters.keys():
            kwargs[name] = convert_argument(self._converters[name], kwargs[name], name, self.name)

    @cached_property
    def _positional(self) -> list[tuple[str, Converter | None]]:
        """The converters in the order of positional arguments."""
        return [
            (name, self._converters.get(name))
            for name, parameter in self.input_signature.parameters.items()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]

    @cached_property
    def _indexes(self) -> dict[str, int]:
        """The indexes of the positional parameters."""
        return {
            name: index
            for index, (name, parameter) in enumerate(self.signature.parameters.items())
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        }


def declared_context(annotation: Any) -> type[Context | AsyncContext] | None:
    """The context class of an annotation; string annotations are matched by name."""
    for each in (Context, AsyncContext):
        if isinstance(annotation, str):
            if annotation.rpartition(".")[2] == each.__name__:
                return each
        elif isinstance(annotation, type) and issubclass(annotation, each):
            return each
    return None


def refuse_other_context(function: Callable[..., Any], what: str) -> None:
    """Reject a sync body that declares an ``AsyncContext``, or the reverse."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin may have none
        return
    is_async = inspect.iscoroutinefunction(function)
    expected = AsyncContext if is_async else Context
    for name, parameter in parameters.items():
        declared = declared_context(parameter.annotation)
        if declared is not None and declared is not expected:
            raise InvalidInput(
                OTHER_CONTEXT.fault(
                    (name,),
                    what=what,
                    body="async" if is_async else "sync",
                    name=name,
                    declared=declared.__name__,
                    expected=expected.__name__,
                )
            )


class AsyncTask(Task[P, R_co]):
    """An async function decorated with ``@task``. ``R`` is the awaited result."""

    def __call__(  # type: ignore[override]  # returns an awaitable of R_co
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R_co]:
        return cast("Coroutine[Any, Any, R_co]", super().__call__(*args, **kwargs))

    if TYPE_CHECKING:

        def local(  # type: ignore[override]  # returns an awaitable of R_co
            self,
            *,
            on_progress: Callable[[Progress], object] | None = None,
            resources: Mapping[str, Any] | None = None,
            secrets: Mapping[str, str] | None = None,
        ) -> Callable[P, Coroutine[Any, Any, R_co]]: ...


class PlainFunction(Task[P, R_co]):
    """A plain function in a flow, without settings; it runs where its node does."""


UNNAMED = declare(
    "task.unnamed", "{value} has no name to use for a task", "Give the task one: name=..."
)
NOT_A_FUNCTION = declare("task.not_a_function", "@task decorates a function (got {value})")


class TaskDecorator(Protocol):
    """The decorator that ``@task(...)`` returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(
    function: str | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    priority: Priority = PRIORITY_DEFAULT,
    retries: Retry | int | None = None,
    timeout: Duration | None = None,
    tags: Sequence[str] = (),
    limits: Sequence[Limit] = (),
    isolation: Isolation = "thread",
    max_snoozes: int = MAX_SNOOZES,
) -> TaskDecorator: ...


def task(
    function: Callable[P, R] | str | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    priority: Priority = PRIORITY_DEFAULT,
    retries: Retry | int | None = None,
    timeout: Duration | None = None,
    tags: Sequence[str] = (),
    limits: Sequence[Limit] = (),
    isolation: Isolation = "thread",
    max_snoozes: int = MAX_SNOOZES,
) -> Any:
    """Turn a sync or async function into a task that can be enqueued.

    ``retries`` is the number of retries, with exponential delays from 1 s, or a ``Retry``; by
    default an exception fails the job. ``timeout`` bounds each attempt. Only workers with all
    ``tags`` execute it. ``isolation="process"`` runs the body in a child process that a timeout or
    an abort kills; ``"thread"`` runs a sync body in a thread. ``max_snoozes`` bounds ``RetryLater``
    where neither ``retries`` nor ``max_attempts`` does.
    """
    if isinstance(function, str):
        name, function = function, None
    check.choice(isolation, "isolation", get_args(Isolation))
    for index, limit in enumerate(check.listed(limits, "limits", "limits")):
        if not isinstance(limit, Concurrency | Rate | Spacing | CustomLimit):
            raise check.wrong_type(
                limit, f"limits[{index}]", "a Concurrency, Rate, Spacing or CustomLimit"
            )
        if isinstance(limit.key, str) and is_computed(limit):
            from perdure.expr.template import template_faults  # child processes do without it

            if faults := template_faults(limit.key):
                raise InvalidInput(*(fault.under("limits", index) for fault in faults))

    def decorate(decorated: Callable[P, R]) -> Task[P, R]:
        if not callable(decorated):
            raise InvalidInput(NOT_A_FUNCTION.fault(value=safe_repr(decorated)))
        given = name or getattr(decorated, "__name__", "")
        # A lambda, a functools.partial or an object that is callable: others would have the same.
        if not given or given == LAMBDA:
            raise InvalidInput(UNNAMED.fault(("name",), value=safe_repr(decorated)))
        found_type = AsyncTask if inspect.iscoroutinefunction(decorated) else Task
        return found_type(
            decorated,
            name=given,
            queue=queue,
            priority=priority,
            retry=retry_of(retries),
            timeout=check.optional(check.span, timeout, "timeout", is_positive=True),
            tags=tags,
            limits=limits,
            isolation=isolation,
            max_snoozes=max_snoozes,
        )

    return decorate if function is None else decorate(function)
