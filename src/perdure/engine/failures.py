"""What a failed attempt leads to: a retry after a delay, the dead letter, or failure for good.

Also how an exception becomes a stored ``Failure``.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

from msgspec import UNSET, UnsetType

from perdure.diagnostics import declared
from perdure.errors import (
    DeadlineExceeded,
    PerdureError,
    Permanent,
    RetryLater,
    record_text,
)
from perdure.model.failure import Cause, Failure, policy_name, type_name
from perdure.model.job import ClaimedJob
from perdure.model.outcome import DeadLettered, Failed, Outcome, Retried
from perdure.model.payload import storable_text
from perdure.model.retry import Retry
from perdure.model.value import Value

MAX_SNOOZES = 10
"""How often a job may say RetryLater before it goes to the dead letter."""


class Budget(Value):
    """What decides about the next try of one job."""

    policy: Retry | None
    """The caller's, else the task's."""
    hold_off: timedelta = timedelta(0)


def after_error(
    job: ClaimedJob, error: BaseException, failure: Failure, budget: Budget, draw: float
) -> Outcome:
    """Decide by the exception that ended the attempt. ``draw`` is a random number in [0, 1)."""
    if isinstance(error, RetryLater):
        return _after_retry_later(job, error, failure, budget, draw)
    policy = _policy_of(job, budget)
    if isinstance(error, Permanent | DeadlineExceeded) or not _retries(policy, error):
        return Failed(failure=failure)
    assert policy is not None
    tries = job.failures + 1
    if tries >= (job.max_attempts or policy.retries + 1):
        return DeadLettered(failure=failure)
    delay = backoff(policy, tries, draw)
    return Retried(failure=failure, delay=delay, hold_off=budget.hold_off)


def backoff(policy: Retry, tries: int, draw: float) -> timedelta:
    """How long to wait after the ``tries``-th failed try."""
    longest = policy.delay_max.total_seconds()
    try:
        seconds = min(longest, policy.first_delay.total_seconds() * policy.factor ** (tries - 1))
    except OverflowError:
        seconds = longest
    if policy.jitter:
        seconds *= 0.5 + 0.5 * draw
    return timedelta(seconds=seconds)


def _after_retry_later(
    job: ClaimedJob, error: RetryLater, failure: Failure, budget: Budget, draw: float
) -> Outcome:
    if job.snoozes >= MAX_SNOOZES:
        return DeadLettered(failure=failure)
    # Checked anew: a subclass, or whoever raised it, may have put anything there since.
    error = RetryLater(until=error.until, after=error.after, limit=error.limit)
    delay = error.after
    if delay is None:
        policy = _policy_of(job, budget) or Retry(MAX_SNOOZES)
        delay = backoff(policy, job.snoozes + 1, draw)
    return Retried(
        failure=failure,
        delay=delay,
        until=error.until,
        is_snoozed=True,
        closes_limit=error.limit,
    )


def _policy_of(job: ClaimedJob, budget: Budget) -> Retry | None:
    """A job enqueued with max_attempts asks for retries even if its task has no policy."""
    if budget.policy is not None:
        return budget.policy
    return Retry(job.max_attempts - 1) if job.max_attempts is not None else None


def _retries(policy: Retry | None, error: BaseException) -> bool:
    if policy is None:
        return False
    names = {policy_name(base) for base in type(error).__mro__ if issubclass(base, BaseException)}
    if names.intersection(policy.refused_names):
        return False
    return not policy.on or bool(names.intersection(policy.retried_names))


MESSAGE_MAX = 4_000
TRACEBACK_MAX = 16_000
CAUSES_MAX = 8
_OURS = "perdure.worker"

Masked = Callable[[str], str]


def describe(error: BaseException, masked: Masked | None = None) -> Failure:
    """Type, message, traceback and cause chain of an exception.

    ``masked`` takes out what must not be kept, before texts are shortened.
    Never fails: an exception is code of somebody else's, and what its own methods raise must
    cost no more than a part of the description.
    """
    try:
        causes = tuple(_causes(error, masked))
    except BaseException:
        causes = ()
    return Failure(
        type=_type(error, masked),
        message=_text(error, masked),
        traceback=_traceback(error, masked),
        causes=causes,
        code=_code(error),
    )


def _causes(error: BaseException, masked: Masked | None) -> list[Cause]:
    causes: list[Cause] = []
    seen = {id(error)}
    below = _below(error)
    while below is not None and id(below) not in seen and len(causes) < CAUSES_MAX:
        seen.add(id(below))
        causes.append(Cause(type=_type(below, masked), message=_text(below, masked)))
        below = _below(below)
    return causes


def _code(error: BaseException) -> str | UnsetType:
    """Only a declared one: a subclass of an application's may have any ``code``."""
    try:
        code = error.diagnostic.code if isinstance(error, PerdureError) else UNSET
        return code if type(code) is str and code in declared() else UNSET
    except BaseException:  # a subclass of somebody else's
        return UNSET


def _below(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def _type(error: BaseException, masked: Masked | None) -> str:
    try:
        return _shorten(type_name(type(error)), MESSAGE_MAX, masked)
    except BaseException:
        return "BaseException"


def _text(error: BaseException, masked: Masked | None) -> str:
    try:
        return _shorten(record_text(error), MESSAGE_MAX, masked)
    except BaseException:  # a broken __str__ must not hide the error it belongs to
        return f"<{_type(error, masked).rpartition('.')[2]} without a readable message>"


def _traceback(error: BaseException, masked: Masked | None) -> str:
    try:
        shown = _without_our_frames(error.__traceback__)
        lines = traceback.format_exception(type(error), error, shown, limit=50)
        return _shorten("".join(lines), TRACEBACK_MAX, masked)
    except BaseException:
        return f"{_type(error, masked)}: {_text(error, masked)}\n"


def _shorten(text: str, limit: int, masked: Masked | None = None) -> str:
    """Keep both ends: the start says where it came from, the end what it was."""
    text = storable_text(text if masked is None else masked(text))
    if len(text) <= limit:
        return text
    half = limit // 2 - 10
    return f"{text[:half]}\n… (cut) …\n{text[-half:]}"


def _without_our_frames(frames: TracebackType | None) -> TracebackType | None:
    """Start where the task's own code does."""
    start = frames
    while start is not None and start.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        start = start.tb_next
    return start or frames
