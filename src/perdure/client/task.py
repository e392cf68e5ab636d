"""The ``@task`` decorator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from perdure.diagnostics import safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.duration import Duration
from perdure.model.job import DEFAULT_QUEUE, PRIORITY_DEFAULT
from perdure.model.limit import Concurrency, Limit, Rate, Spacing
from perdure.model.retry import Retry
from perdure.model.task import Isolation, Task

P = ParamSpec("P")
R = TypeVar("R")


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
    if isolation not in ("thread", "process"):
        raise InvalidInput(f'isolation={safe_repr(isolation)} must be "thread" or "process"')
    for limit in check.listed(limits, "limits", "limits"):
        if not isinstance(limit, Concurrency | Rate | Spacing):
            raise InvalidInput(f"limits=[{safe_repr(limit)}] is not a Concurrency, Rate or Spacing")

    def decorate(decorated: Callable[P, R]) -> Task[P, R]:
        if not callable(decorated):
            raise InvalidInput(f"@task decorates a function, not {safe_repr(decorated)}")
        return Task(
            decorated,
            name=name or getattr(decorated, "__name__", None),  # type: ignore[arg-type]  # checked
            queue=queue,
            priority=priority,
            retry=_checked_retry(retries),
            timeout=_checked_timeout(timeout),
            tags=tags,
            limits=limits,
            isolation=isolation,
        )

    return decorate if function is None else decorate(function)


def _checked_retry(retries: object) -> Retry | None:
    if retries is None or isinstance(retries, Retry):
        return retries
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise InvalidInput(f"retries={safe_repr(retries)} must be a Retry or a whole number from 0")
    return Retry(retries)


def _checked_timeout(timeout: Duration | None) -> timedelta | None:
    if timeout is None:
        return None
    duration = check.span(timeout, "timeout")
    if not duration:
        raise InvalidInput(
            f"timeout={safe_repr(timeout)} must be above zero; None means no timeout"
        )
    return duration
