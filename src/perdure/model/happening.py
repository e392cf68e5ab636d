"""Happenings: what comes to a run from outside, and makes it decide. A closed union."""

from __future__ import annotations

from perdure.model.failure import Failure
from perdure.model.graph import FlowRef
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import RunStatus
from perdure.model.value import Value


class Finished(Value):
    """A job of the run returned ``output``, as JSON."""

    key: Key
    output: bytes
    is_done: bool | None = None
    """Of a loop's body: whether the loop is done, if that was asked along with it."""


class FailedForGood(Value):
    key: Key
    failure: Failure


class AttemptFailed(Value):
    """Another attempt will be made."""

    key: Key
    attempt: int
    failure: Failure


class WaitDue(Value):
    """A timer ran out, or the time for a signal did."""

    key: Key


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
    | ChildEnded
    | Signalled
    | PauseAsked
    | UnpauseAsked
    | CancelAsked
    | RetryAsked
    | MigrationAsked
)
