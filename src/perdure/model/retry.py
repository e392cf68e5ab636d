"""Retry policies, as declared by tasks and as stored with jobs.

Delays are computed, and policies applied, in ``engine.retry``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from perdure.model import check
from perdure.model.failure import current_name, stored_name, type_name
from perdure.model.times import Duration
from perdure.model.value import Value

RETRIES_MAX = 1_000_000
ErrorTypes = type[BaseException] | str | tuple[type[BaseException] | str, ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """``Retry(5, first="1s", factor=2, max="5m")``: five retries after the first attempt.

    The n-th retry waits ``first * factor**(n-1)``, at most ``max``; with ``jitter`` it waits a
    random time between half of that and all of it, so that retries do not coincide.

    ``on`` retries only these exception types (and their subclasses), ``never_on`` all but these.
    """

    retries: int
    first: Duration = "1s"
    factor: float = 2
    max: Duration = "5m"
    jitter: bool = True
    on: ErrorTypes = ()
    never_on: ErrorTypes = ()

    def __post_init__(self) -> None:
        check.integer(self.retries, "retries", 0, RETRIES_MAX)
        check.number(self.factor, "factor", 1)
        self._set("first", check.span(self.first, "first"))
        self._set("max", check.span(self.max, "max"))
        self._set("on", _names(self.on, "on"))
        self._set("never_on", _names(self.never_on, "never_on"))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def retried_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.on)  # type: ignore[union-attr]  # names by now

    @property
    def refused_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.never_on)  # type: ignore[union-attr]

    @property
    def first_delay(self) -> timedelta:
        assert isinstance(self.first, timedelta)
        return self.first

    @property
    def delay_max(self) -> timedelta:
        assert isinstance(self.max, timedelta)
        return self.max


def _names(types: ErrorTypes, name: str) -> tuple[str, ...]:
    items = types if isinstance(types, tuple | list) else (types,)
    for item in items:
        is_exception = isinstance(item, type) and issubclass(item, BaseException)
        if not isinstance(item, str) and not is_exception:
            raise check.wrong_type(item, name, "exception types, or their names")
    return tuple(item if isinstance(item, str) else type_name(item) for item in items)


def retry_of(retries: Retry | int | None) -> Retry | None:
    """The policy for a number of retries, with default delays, or the policy itself."""
    if retries is None or isinstance(retries, Retry):
        return retries
    return Retry(check.integer(retries, "retries", 0, RETRIES_MAX))


class CallPolicy(Value):
    """Overrides of the task's settings for one job; None keeps them."""

    retries: int | None = None
    first_ms: float = 0
    factor: float = 2
    max_ms: float = 0
    jitter: bool = True
    on: tuple[str, ...] = ()
    never_on: tuple[str, ...] = ()
    timeout_ms: float | None = None

    @property
    def retry(self) -> Retry | None:
        if self.retries is None:
            return None
        return Retry(
            self.retries,
            first=timedelta(milliseconds=self.first_ms),
            factor=self.factor,
            max=timedelta(milliseconds=self.max_ms),
            jitter=self.jitter,
            on=tuple(map(current_name, self.on)),
            never_on=tuple(map(current_name, self.never_on)),
        )

    @property
    def timeout(self) -> timedelta | None:
        return None if self.timeout_ms is None else timedelta(milliseconds=self.timeout_ms)


def encode_policy(retry: Retry | None, timeout: timedelta | None) -> bytes | None:
    if retry is None and timeout is None:
        return None
    timeout_ms = None if timeout is None else timeout / timedelta(milliseconds=1)
    if retry is None:
        return msgspec.json.encode(CallPolicy(timeout_ms=timeout_ms))
    return msgspec.json.encode(
        CallPolicy(
            retries=retry.retries,
            first_ms=retry.first_delay / timedelta(milliseconds=1),
            factor=retry.factor,
            max_ms=retry.delay_max / timedelta(milliseconds=1),
            jitter=retry.jitter,
            on=tuple(map(stored_name, retry.retried_names)),
            never_on=tuple(map(stored_name, retry.refused_names)),
            timeout_ms=timeout_ms,
        )
    )


def decode_policy(data: bytes) -> CallPolicy:
    return msgspec.json.decode(data, type=CallPolicy)
