"""Triggers: what makes a run decide. Ends of jobs, waits and children, and commands of people."""

from __future__ import annotations

from perdure.model.failure import Failure
from perdure.model.graph import ORDINARY, FlowRef
from perdure.model.ids import Key, RunId
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Paused,
    Retried,
    Skipped,
)
from perdure.model.run import RunStatus
from perdure.model.value import Value
from perdure.model.wait import ReportStatus


class JobEnded(Value):
    """An attempt of one of the run's jobs ended. Payloads of ``outcome`` are JSON, not encoded."""

    key: Key
    attempt: int
    outcome: Completed | Skipped | Paused | Retried | Failed | DeadLettered | Cancelled
    is_done: bool | None = None
    """Of a loop's body: whether the loop is done, if the worker evaluated that along with it."""


class WaitDue(Value):
    """A timer fired, or a signal, a decision or a report did not come in time."""

    key: Key
    late_ms: int = 0
    """How long ago that was."""


class ChildEnded(Value):
    key: Key
    run: RunId
    status: RunStatus
    output: bytes = b"null"
    failure: Failure | None = None


class ReportReceived(Value):
    """The external party that a node waits for reported. ``report`` is a ``model.wait.Report``."""

    key: Key
    status: ReportStatus
    report: bytes
    token: str = ""
    by: str | None = None
    port: str = ORDINARY
    has_progress: bool = False


class DecideApproval(Value):
    node: str
    decision: str
    data: bytes = b"null"
    by: str | None = None
    roles: tuple[str, ...] = ()
    note: str | None = None
    is_late: bool = False
    """The time for a decision is over, though no worker has ended the wait yet."""


class SendSignal(Value):
    name: str
    payload: bytes
    by: str | None = None


class PauseRun(Value):
    reason: str | None = None
    by: str | None = None


class ResumeRun(Value):
    by: str | None = None


class CancelRun(Value):
    reason: str | None = None
    by: str | None = None
    compensates: bool = False


class RetryRun(Value):
    by: str | None = None


class MigrateRun(Value):
    to: FlowRef
    by: str | None = None


Trigger = (
    JobEnded
    | WaitDue
    | ChildEnded
    | ReportReceived
    | DecideApproval
    | SendSignal
    | PauseRun
    | ResumeRun
    | CancelRun
    | RetryRun
    | MigrateRun
)
"""A closed union."""
