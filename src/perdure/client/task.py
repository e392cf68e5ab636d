"""The ``@task`` decorator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from perdure.errors import InvalidInput
from perdure.model.duration import Duration, as_duration
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
        raise InvalidInput(f'isolation={isolation!r} must be "thread" or "process"')
    for limit in limits:
        if not isinstance(limit, Concurrency | Rate | Spacing):
            raise InvalidInput(f"limits=[{limit!r}] is not a Concurrency, Rate or Spacing")

    def decorate(decorated: Callable[P, R]) -> Task[P, R]:
        if not callable(decorated):
            raise InvalidInput(f"@task decorates a function, not {decorated!r}")
        return Task(
            decorated,
            name=name or decorated.__name__,
            queue=queue,
            priority=priority,
            retry=Retry(retries) if isinstance(retries, int) else retries,
            timeout=None if timeout is None else as_duration(timeout, "timeout"),
            tags=tags,
            limits=limits,
            isolation=isolation,
        )

    return decorate if function is None else decorate(function)
