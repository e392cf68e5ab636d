"""The ``@task`` decorator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, get_args, overload

from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.duration import Duration
from perdure.model.job import DEFAULT_QUEUE, PRIORITY_DEFAULT
from perdure.model.limit import Concurrency, Limit, Rate, Spacing
from perdure.model.retry import Retry, retry_of
from perdure.model.task import Isolation, Task

P = ParamSpec("P")
R = TypeVar("R")

NOT_A_FUNCTION = declare("task.not_a_function", "@task decorates a function (got {value})")


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(
    function: str | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    priority: int = PRIORITY_DEFAULT,
    retries: Retry | int | None = None,
    timeout: Duration | None = None,
    tags: Sequence[str] = (),
    limits: Sequence[Limit] = (),
    isolation: Isolation = "thread",
) -> Callable[[Callable[P, R]], Task[P, R]]: ...


def task(
    function: Callable[P, R] | str | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    priority: int = PRIORITY_DEFAULT,
    retries: Retry | int | None = None,
    timeout: Duration | None = None,
    tags: Sequence[str] = (),
    limits: Sequence[Limit] = (),
    isolation: Isolation = "thread",
) -> Any:
    """Make a function, sync or async, into a task that can be enqueued.

    ``retries`` counts retries after the first try; an int means exponential delays from 1 s.
    Without it an exception fails the job. ``timeout`` bounds each attempt. ``tags`` say what a
    worker must offer. ``isolation="process"`` runs the body in a child process that a timeout or
    an abort really kills; ``"thread"`` runs a sync body in a thread.
    """
    if isinstance(function, str):
        name, function = function, None
    check.choice(isolation, "isolation", get_args(Isolation))
    for index, limit in enumerate(check.listed(limits, "limits", "limits")):
        if not isinstance(limit, Concurrency | Rate | Spacing):
            raise check.wrong_type(limit, f"limits[{index}]", "a Concurrency, Rate or Spacing")

    def decorate(decorated: Callable[P, R]) -> Task[P, R]:
        if not callable(decorated):
            raise InvalidInput(NOT_A_FUNCTION.fault(value=safe_repr(decorated)))
        return Task(
            decorated,
            name=name or getattr(decorated, "__name__", None),  # type: ignore[arg-type]  # checked
            queue=queue,
            priority=priority,
            retry=retry_of(retries),
            timeout=check.optional(check.span, timeout, "timeout", is_positive=True),
            tags=tags,
            limits=limits,
            isolation=isolation,
        )

    return decorate if function is None else decorate(function)
