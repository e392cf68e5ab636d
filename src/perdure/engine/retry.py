"""What follows a failed attempt: a retry after a delay, dead-lettering, or failure. Pure."""

from __future__ import annotations

from datetime import timedelta

from perdure.errors import DeadlineExceeded, Permanent, RetryLater
from perdure.model.failure import Failure, type_name
from perdure.model.job import ClaimedJob
from perdure.model.outcome import DeadLettered, Failed, Outcome, Retried
from perdure.model.retry import Retry
from perdure.model.value import Value

MAX_SNOOZES = 10
"""How often a job may raise ``RetryLater`` before it is dead-lettered."""


class Budget(Value):
    """How often and when one job may be retried."""

    policy: Retry | None
    """The policy of the job, or else of its task."""
    hold_off: timedelta = timedelta(0)


def after_error(
    job: ClaimedJob, error: BaseException, failure: Failure, budget: Budget, draw: float
) -> Outcome:
    """The outcome of an attempt that raised ``error``. ``draw`` is a random number in [0, 1)."""
    if isinstance(error, RetryLater):
        return _after_retry_later(job, error, failure, budget, draw)
    policy = _policy_of(job, budget)
    if isinstance(error, Permanent | DeadlineExceeded) or not _retries(policy, error):
        return Failed(failure=failure)
    assert policy is not None
    failures = job.failures + 1
    if failures >= (job.max_attempts or policy.retries + 1):
        return DeadLettered(failure=failure)
    delay = backoff(policy, failures, draw)
    return Retried(failure=failure, delay=delay, hold_off=budget.hold_off)


def backoff(policy: Retry, failures: int, draw: float) -> timedelta:
    """The delay after this many failed attempts."""
    longest = policy.delay_max.total_seconds()
    try:
        seconds = min(longest, policy.first_delay.total_seconds() * policy.factor ** (failures - 1))
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
    # Validate again: attributes can be changed after the constructor has checked them.
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
    """The policy to apply; a job with max_attempts is retried even if its task has no policy."""
    if budget.policy is not None:
        return budget.policy
    return Retry(job.max_attempts - 1) if job.max_attempts is not None else None


def _retries(policy: Retry | None, error: BaseException) -> bool:
    if policy is None:
        return False
    names = {type_name(base) for base in type(error).__mro__ if issubclass(base, BaseException)}
    if names.intersection(policy.refused_names):
        return False
    return not policy.on or bool(names.intersection(policy.retried_names))
