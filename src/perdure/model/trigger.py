"""Triggers of a run's decisions: ends of jobs, waits and child runs, and commands."""

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
    """For a loop's body: whether the loop is done, if the worker evaluated it already."""


class WaitDue(Value):
    """A timer fired, or a signal, decision or report did not arrive in time."""

    key: Key
    late_ms: int = 0
    """How long ago."""


class ChildEnded(Value):
    key: Key
    run: RunId
    status: RunStatus
    output: bytes = b"null"
    failure: Failure | None = None


class ReportReceived(Value):
    """A callback reported on external work. ``report`` is a ``model.wait.Report``."""

    key: Key
    status: ReportStatus
    report: bytes
    token: str = ""
    by: str | None = None
    port: str = ORDINARY
    has_progress: bool = False
    is_poll: bool = False
    """A poll of the node itself returned it."""


class DecideApproval(Value):
    node: str
    decision: str
    data: bytes = b"null"
    by: str | None = None
    roles: tuple[str, ...] = ()
    note: str | None = None
    revision: int | None = None
    """The revision of the data that was decided on; None: as it was when the approval opened."""
    is_late: bool = False
    """The deadline has passed, but no worker has ended the wait yet."""
    is_recorded: bool = False
    """Read from a log: already checked by the rules of its version; ``roles`` are the ones it
    counted for."""


class SendSignal(Value):
    name: str
    payload: bytes
    by: str | None = None
    unread_max: int | None = None
    """Refused if the run would then keep more unread signals of this name."""


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
    is_late: bool = False
    """The run's deadline has passed, so it no longer has one."""


class SetPriority(Value):
    priority: int
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
    | SetPriority
    | MigrateRun
)
