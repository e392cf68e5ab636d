"""How an attempt ends: a closed union that the store writes under the claim's fence."""

from __future__ import annotations

from datetime import datetime, timedelta

from perdure.model.failure import Failure
from perdure.model.job import Claim, Progress
from perdure.model.value import Value


class Completed(Value, omit_defaults=True, tag=True):
    output: bytes
    port: str = ""
    """Of a node's job: the port that the result chose."""
    warnings: tuple[str, ...] = ()
    """Of a node's job: what advisory checks found."""


class Retried(Value, tag=True):
    """Back to the queue after ``delay``, or at ``until``; another worker is preferred."""

    failure: Failure
    delay: timedelta = timedelta(0)
    until: datetime | None = None
    """Wins over ``delay``."""
    is_snoozed: bool = False
    """Counts against the budget of RetryLater instead of the task's retries."""
    hold_off: timedelta = timedelta(0)
    """How long after it is ready again the worker that failed it leaves it to others."""
    closes_limit: str | None = None
    """A limit key whose next start moves to the same time for every worker."""


class Failed(Value, tag=True):
    failure: Failure


class DeadLettered(Value, tag=True):
    """To the dead letter."""

    failure: Failure


class Cancelled(Value, tag=True):
    """The body ended after an abort."""

    failure: Failure | None = None


class Requeued(Value, tag=True):
    """Unfinished, through no fault of its own: keeps its place and does not count as an attempt."""


class Parked(Value, tag=True):
    """Parked as ``paused`` until resumed; does not count as an attempt."""


class Paused(Value, omit_defaults=True, tag=True):
    """Of a node's job: it waits for a report. ``checkpoint`` is JSON as the codec encodes it."""

    checkpoint: bytes
    name: str = ""
    deadline: timedelta | None = None
    poll: timedelta | None = None


class Skipped(Value, omit_defaults=True, tag=True):
    """Of a node's job: the node does not count."""

    reason: str = ""


Outcome = Completed | Retried | Failed | DeadLettered | Cancelled | Requeued | Parked

"""What a store writes for any job."""
NodeOutcome = Outcome | Paused | Skipped
"""What the body of a node's job may come to; its run decides what is written."""


class Settlement(Value):
    """One outcome under one claim. An aborting job ends cancelled whatever its outcome says."""

    claim: Claim
    outcome: Outcome
    progress: Progress | None = None
    """The last progress reported and not yet written."""
    is_hidden: bool = False
    """Hide the finished job from readers at once; its waiters still get the result."""
