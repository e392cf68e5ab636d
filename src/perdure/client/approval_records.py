"""What a client answers about approvals: plain values."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from perdure.model.graph import JsonSchema
from perdure.model.ids import RunId
from perdure.model.value import Value


class ApprovalStatus(StrEnum):
    OPEN = "open"
    DECIDED = "decided"
    TIMED_OUT = "timed out"
    """Nobody decided in time; what follows is as its flow says."""
    CANCELLED = "cancelled"
    """Its run ended before anybody decided."""


class Answer(Value):
    """What one of the deciders said, and when."""

    decision: str
    by: str | None
    at: datetime
    note: str | None = None
    data: Any = None
    """What came with it, as the form asks."""
    stands_for: tuple[str, ...] = ()
    """Those of the deciders that it was given for: a name, or roles."""


class Reminder(Value):
    """When it had been open for long; from then on ``deciders`` might decide too."""

    number: int
    at: datetime
    deciders: tuple[str, ...] = ()


class ApprovalRecord(Value):
    """One approval: what is asked, of whom, what was answered, and how it ended."""

    id: str
    """``<run>:<node>``."""
    run: RunId
    node: str
    namespace: str
    flow: str
    status: ApprovalStatus
    title: str
    message: str
    form: JsonSchema | None
    """JSON Schema of what comes with an answer; None: nothing is asked for."""
    show: Any
    """What deciders should see before they decide."""
    data: Any
    """What an answer may change, as it was before."""
    deciders: tuple[str, ...]
    """Names or roles; none: whoever comes."""
    choices: tuple[str, ...]
    """The decisions that there are."""
    quorum: int
    """How many must agree; 0: all deciders."""
    answers: tuple[Answer, ...]
    """So far, in their order."""
    opened_at: datetime
    due_at: datetime | None = None
    """When it times out; None: never, or it is not open."""
    reminders: tuple[Reminder, ...] = ()
    """So far; only told where one approval was asked for."""
    decision: str | None = None
    """What it came to, once it is decided."""
    port: str | None = None
    """The port from which its run went on; None: it is open, or its run failed by it."""
    decided_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.status is ApprovalStatus.OPEN
