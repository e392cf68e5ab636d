"""What follows a failed attempt: a retry after a delay, dead-lettering, or failure. Pure."""

from __future__ import annotations

from datetime import timedelta

from perdure.errors import DeadlineExceeded, Permanent, RetryLater
from perdure.model.failure import Failure, type_name
from perdure.model.job import MAX_SNOOZES, ClaimedJob, Job
from perdure.model.outcome import DeadLettered, Failed, Outcome, Retried
from perdure.model.retry import Retry
from perdure.model.value import Value


class Budget(Value):
    """How often and when one job may be retried."""

    policy: Retry | None
    """The policy of the job, or else of its task."""
    hold_off: timedelta = timedelta(0)
    max_snoozes: int = MAX_SNOOZES
    """How often it may raise ``RetryLater`` if neither it nor its task bounds its attempts."""


def after_error(
    job: ClaimedJob | Job, error: BaseException, failure: Failure, budget: Budget, draw: float
) -> Outcome:
    """The outcome of an attempt that raised ``error``. ``draw`` is a random number in [0, 1).

    Failures and snoozes share the bound on attempts.
    """
    policy = budget.policy
    if policy is None and job.max_attempts is not None:  # retried, even if its task has no policy
        policy = Retry(job.max_attempts - 1)
    is_snoozed = isinstance(error, RetryLater)
    if not is_snoozed and (
        isinstance(error, Permanent | DeadlineExceeded) or not _retries(policy, error)
    ):
        return Failed(failure=failure)
    attempts = job.failures + job.snoozes + 1
    if policy is None:
        attempts_max = budget.max_snoozes + 1
        policy = Retry(budget.max_snoozes)  # for its delays
    else:
        attempts_max = job.max_attempts or policy.retries + 1
    if attempts >= attempts_max:
        return DeadLettered(failure=failure)
    if not isinstance(error, RetryLater):
        delay = backoff(policy, job.failures + 1, draw)
        return Retried(failure=failure, delay=delay, hold_off=budget.hold_off)
    # Validate again: attributes can be changed after the constructor has checked them.
    later = RetryLater(until=error.until, after=error.after, limit=error.limit)
    return Retried(
        failure=failure,
        # Without a date: not before its limits have room, which the next claim checks.
        delay=backoff(policy, job.snoozes + 1, draw) if later.after is None else later.after,
        until=later.until,
        is_snoozed=True,
        closes_limit=later.limit,
    )


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


def _retries(policy: Retry | None, error: BaseException) -> bool:
    if policy is None:
        return False
    names = {type_name(base) for base in type(error).__mro__ if issubclass(base, BaseException)}
    if names.intersection(policy.refused_names):
        return False
    return not policy.on or bool(names.intersection(policy.retried_names))
