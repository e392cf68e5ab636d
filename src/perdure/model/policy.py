"""Retry policy and timeout that a caller gave one job, as they are stored with it."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from perdure.model.retry import Retry
from perdure.model.value import Value


class CallPolicy(Value):
    """What overrides the task's own settings for one job; None leaves them."""

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
            on=self.on,
            never_on=self.never_on,
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
            on=retry.retried_names,
            never_on=retry.refused_names,
            timeout_ms=timeout_ms,
        )
    )


def decode_policy(data: bytes) -> CallPolicy:
    return msgspec.json.decode(data, type=CallPolicy)
