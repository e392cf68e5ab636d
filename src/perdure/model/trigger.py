"""Happenings: what comes to a run from outside, and makes it decide. A closed union."""

from __future__ import annotations

from perdure.model.failure import Failure
from perdure.model.graph import ORDINARY, FlowRef
from perdure.model.ids import Key, RunId
from perdure.model.run import RunStatus
from perdure.model.value import Value
from perdure.model.wait import ReportStatus


class Finished(Value):
    """A job of the run returned ``output``, as JSON."""

    key: Key
    output: bytes
    is_done: bool | None = None
    """Of a loop's body: whether the loop is done, if that was asked along with it."""
    port: str = ORDINARY
    """That the result chose."""
    warnings: tuple[str, ...] = ()


class Skipped(Value):
    """A job of the run does not want its node to count."""

    key: Key
    reason: str = ""


class Paused(Value):
    """A job of the run ended to wait for somebody outside, who reports."""

    key: Key
    checkpoint: bytes
    name: str = ""
    deadline_ms: int | None = None
    poll_ms: int | None = None
    """When to ask how it is going, and how often, if nobody reports."""


class FailedForGood(Value):
    key: Key
    failure: Failure


class AttemptFailed(Value):
    """Another attempt will be made."""

    key: Key
    attempt: int
    failure: Failure
    is_postponed: bool = False
    """It only asked for another time."""


class WaitDue(Value):
    """A timer ran out, or the time for a signal, an answer or a report did."""

    key: Key
    late_ms: int = 0
    """How long ago that was."""


class Reported(Value):
    """The outside party that a node waits for spoke. ``report`` is a ``model.report.Report``."""

    key: Key
    status: ReportStatus
    report: bytes
    token: str = ""
    by: str | None = None
    port: str = ORDINARY
    has_progress: bool = False


class Answered(Value):
    """Somebody decided on an approval."""

    node: str
    decision: str
    data: bytes = b"null"
    by: str | None = None
    roles: tuple[str, ...] = ()
    note: str | None = None
    is_late: bool = False
    """The time for it is over, though nobody has seen to that yet."""


class ChildEnded(Value):
    key: Key
    run: RunId
    status: RunStatus
    output: bytes = b"null"
    failure: Failure | None = None


class Signalled(Value):
    name: str
    payload: bytes
    by: str | None = None


class PauseAsked(Value):
    reason: str | None = None
    by: str | None = None


class UnpauseAsked(Value):
    by: str | None = None


class CancelAsked(Value):
    reason: str | None = None
    by: str | None = None
    compensates: bool = False


class RetryAsked(Value):
    by: str | None = None


class MigrationAsked(Value):
    to: FlowRef
    by: str | None = None


Happening = (
    Finished
    | FailedForGood
    | AttemptFailed
    | WaitDue
    | Skipped
    | Paused
    | Reported
    | Answered
    | ChildEnded
    | Signalled
    | PauseAsked
    | UnpauseAsked
    | CancelAsked
    | RetryAsked
    | MigrationAsked
)
