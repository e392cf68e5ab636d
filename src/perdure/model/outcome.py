"""Outcomes of an attempt: a closed union that the store writes, fenced by the claim."""

from __future__ import annotations

from datetime import datetime, timedelta

from perdure.model.failure import Failure
from perdure.model.job import Claim, Progress
from perdure.model.value import Value


class Completed(Value, omit_defaults=True, tag=True):
    output: bytes
    port: str = ""
    """For a node's job: the port that the result chose."""
    warnings: tuple[str, ...] = ()
    """For a node's job: findings of advisory checks."""


class Retried(Value, tag=True):
    """Back to the queue after ``delay``, or at ``until``; another worker is preferred."""

    failure: Failure
    delay: timedelta = timedelta(0)
    until: datetime | None = None
    """Takes precedence over ``delay``."""
    is_snoozed: bool = False
    """Counts as a ``RetryLater`` instead of against the task's retries."""
    hold_off: timedelta = timedelta(0)
    """How long, once it is ready, the worker that failed it leaves it to others."""
    closes_limit: str | None = None
    """A limit key to close until the same time, for every worker."""


class Failed(Value, tag=True):
    failure: Failure


class DeadLettered(Value, tag=True):
    """The job is dead-lettered."""

    failure: Failure


class Cancelled(Value, tag=True):
    """The body ended after an abort."""

    failure: Failure | None = None


class Requeued(Value, omit_defaults=True, tag=True):
    """Back to the queue unfinished; keeps its place and does not count as an attempt."""

    partition_key: str = ""
    """The stored key of another partition to move to, which names its limit keys."""
    delay: timedelta = timedelta(0)
    """Until when it is scheduled; it then loses its place to jobs that are ready earlier."""


class Parked(Value, tag=True):
    """Parked as ``paused`` until resumed; does not count as an attempt."""


class Paused(Value, omit_defaults=True, tag=True):
    """For a node's job: it waits for a report. ``checkpoint`` is encoded by the codec."""

    checkpoint: bytes
    name: str = ""
    deadline: timedelta | None = None
    poll: timedelta | None = None
    cancels: bool = False
    """Whether external work must be cancelled if nothing waits for it any more."""


class Skipped(Value, omit_defaults=True, tag=True):
    """For a node's job: the node is skipped."""

    reason: str = ""


Outcome = Completed | Retried | Failed | DeadLettered | Cancelled | Requeued | Parked

"""Outcomes that a store writes for any job."""
NodeOutcome = Outcome | Paused | Skipped
"""Outcomes of a node's job; its run decides what is written."""


class Settlement(Value):
    """One outcome under one claim. An aborting job is cancelled regardless of its outcome."""

    claim: Claim
    outcome: Outcome
    progress: Progress | None = None
    """The last progress, if not yet written."""
    is_hidden: bool = False
    """Hide the finished job from readers immediately; its waiters still get the result."""
