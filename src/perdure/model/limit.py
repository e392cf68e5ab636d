"""Limits as declared by users, and the rules that a store applies to one key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, cast

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.times import Duration
from perdure.model.value import Value

Key = str | Callable[..., str] | None


@dataclass(frozen=True, slots=True)
class Limit:
    """The base of all limits.

    A limit applies to the jobs of the task or worker that declares it; ``queue`` or ``task``
    narrow it. ``key`` names the counter, which all workers of a namespace share; a key equal to one
    of the worker's queues or tasks narrows the limit to it. On a task, the key may be computed from
    the arguments, with one counter per value: by a function of them, or as a template over their
    names, such as ``"{{ order.tenant }}"``; ``input`` is the first of them.
    """

    key: Key = None
    queue: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class Concurrency(Limit):
    """At most ``count`` at once, counted by live leases, so crashed workers do not block others."""

    count: int = 1

    def __init__(
        self, count: int, *, key: Key = None, queue: str | None = None, task: str | None = None
    ) -> None:
        _set(self, key=key, queue=queue, task=task, count=check.integer(count, "count", 1))


@dataclass(frozen=True, slots=True, init=False)
class Rate(Limit):
    """At most ``count`` starts in any window of length ``per``; ``evenly`` also spaces them.

    The window has a margin of 100 ms, so that the rate applies to the actual starts of bodies.
    """

    count: int = 1
    per: timedelta = timedelta(seconds=1)
    evenly: bool = False

    def __init__(
        self,
        count: int,
        *,
        per: Duration,
        evenly: bool = False,
        key: Key = None,
        queue: str | None = None,
        task: str | None = None,
    ) -> None:
        window = check.span(per, "per", is_positive=True)
        count = check.integer(count, "count", 1)
        _set(self, key=key, queue=queue, task=task, count=count, per=window, evenly=evenly)


@dataclass(frozen=True, slots=True, init=False)
class Spacing(Limit):
    """At least ``every`` between one start and the next, counted with a margin of 100 ms."""

    every: timedelta = timedelta(0)

    def __init__(
        self, every: Duration, *, key: Key = None, queue: str | None = None, task: str | None = None
    ) -> None:
        gap = check.span(every, "every", is_positive=True)
        _set(self, key=key, queue=queue, task=task, every=gap)


class Limiter(Protocol):
    """Counts places under keys outside of the store, for a ``CustomLimit``.

    Each worker makes all calls in a thread with its own event loop, several at the same time, and
    each must return within 5 s. Workers of one process call from several threads. ``ttl`` is the
    worker's lease: a place that is not renewed for that long must become free, because its worker
    has crashed.
    """

    async def acquire(
        self, key: str, n: int, ttl: timedelta
    ) -> tuple[Sequence[str], datetime | None]:
        """Take up to ``n`` places under a key for ``ttl``; return their ids.

        The second value is when to ask again if these are fewer than ``n``; None if that is
        unknown.
        """
        ...

    async def renew(self, key: str, places: Sequence[str], ttl: timedelta) -> None:
        """Keep these places for ``ttl`` from now."""
        ...

    async def release(self, key: str, places: Sequence[str]) -> None:
        """Free these places; some may already be free."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class CustomLimit(Limit):
    """As many at once as ``limiter`` grants. A worker asks it before it claims jobs."""

    limiter: Limiter | None = None
    """None: it is in another process."""

    def __init__(
        self,
        limiter: Limiter,
        *,
        key: Key = None,
        queue: str | None = None,
        task: str | None = None,
    ) -> None:
        for method in ("acquire", "renew", "release"):
            if not inspect.iscoroutinefunction(getattr(limiter, method, None)):
                raise check.wrong_type(limiter, "limiter", f"a Limiter, which has async {method}()")
        _set(self, key=key, queue=queue, task=task, limiter=limiter)


def is_computed(limit: Limit) -> bool:
    """Whether its key is computed from each job's input: by a function, or as a template."""
    return callable(limit.key) or (isinstance(limit.key, str) and "{{" in limit.key)


INVALID_KEY = declare(
    "limit.invalid_key",
    "the computed key of {limit} is {value!r}",
    "It must be a non-empty string",
)


def computed_keys(limits: Sequence[Limit], values: Sequence[object]) -> tuple[str, ...]:
    """Check the computed limit keys of a task for one input."""
    for limit, value in zip(limits, values, strict=True):
        if not isinstance(value, str) or not value:
            raise InvalidInput(INVALID_KEY.fault(limit=type(limit).__name__, value=value))
    return checked_keys([str(value) for value in values])


def checked_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Check the limit keys of a job."""
    found = tuple(check.name(key, "limits", label="limit key") for key in keys)
    check.check_size(found, "limits", check.KEYS_MAX_BYTES, label="limit keys")
    return found


class LimitRule(Value):
    """A rule for one key, which a store applies in its transaction.

    A key may have several, for rates in different windows; the strictest applies.
    """

    key: str
    live_max: int | None = None
    starts_max: int | None = None
    window: timedelta | None = None
    spacing: timedelta | None = None


class LimitUsage(Value):
    """The usage of one key, read under its lock."""

    live: int = 0
    starts: int = 0
    """Starts within the window."""
    oldest_start_at: datetime | None = None
    """The first of those, which leaves the window next."""
    last_start_at: datetime | None = None
    closed_until: datetime | None = None
    """Set by ``RetryLater``."""


class LimitUse(Value):
    """The current usage of one rule, and the jobs that count as live."""

    usage: LimitUsage
    held_by: tuple[JobId, ...] = ()
    """The oldest ones, at most ``HOLDERS_MAX``."""


HOLDERS_MAX = 5


class LimitInfo(Value, omit_defaults=True):
    """A limit as published by its worker: plain data, without a key function."""

    live_max: int | None = None
    starts_max: int | None = None
    window: timedelta | None = None
    spacing: timedelta | None = None
    evenly: bool = False
    key: str | None = None
    is_computed: bool = False
    """The key is computed from each job's input."""
    queue: str | None = None
    task: str | None = None
    is_custom: bool = False
    """A limiter of the worker's own decides."""


def info_of(limit: Limit) -> LimitInfo:
    return LimitInfo(
        live_max=limit.count if isinstance(limit, Concurrency) else None,
        starts_max=limit.count if isinstance(limit, Rate) else None,
        window=limit.per if isinstance(limit, Rate) else None,
        spacing=limit.every if isinstance(limit, Spacing) else None,
        evenly=isinstance(limit, Rate) and limit.evenly,
        key=None if is_computed(limit) else cast("str | None", limit.key),
        is_computed=is_computed(limit),
        queue=limit.queue,
        task=limit.task,
        is_custom=isinstance(limit, CustomLimit),
    )


def limit_of(info: LimitInfo) -> Limit | None:
    """The limit; None if its type is only known to newer versions.

    Computed keys are stored with the jobs.
    """
    key: Key = _computed_elsewhere if info.is_computed else info.key
    if info.live_max is not None:
        return Concurrency(info.live_max, key=key, queue=info.queue, task=info.task)
    if info.starts_max is not None and info.window is not None:
        return Rate(
            info.starts_max,
            per=info.window,
            evenly=info.evenly,
            key=key,
            queue=info.queue,
            task=info.task,
        )
    if info.spacing:
        return Spacing(info.spacing, key=key, queue=info.queue, task=info.task)
    if info.is_custom:
        limit = object.__new__(CustomLimit)
        _set(limit, key=key, queue=info.queue, task=info.task, limiter=None)
        return limit
    return None


def _computed_elsewhere(*_: object) -> str:
    raise AssertionError("computed limit keys are in the partition of each job")


def _set(limit: Limit, **values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, str):  # (comment) the counter: a key, queue or task
            check.name(value, name)
        object.__setattr__(limit, name, value)
