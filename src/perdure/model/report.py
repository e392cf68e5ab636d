"""Reports: what an outside party says of the work that a paused node waits for."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from perdure.model.value import Value


class ReportStatus(StrEnum):
    PROGRESS = "progress"
    """There is more to come."""
    COMPLETED = "completed"
    FAILED = "failed"


LAST = frozenset({ReportStatus.COMPLETED, ReportStatus.FAILED})
"""After one of these no other counts."""


class Report(Value, omit_defaults=True):
    """As it is kept, and as a body that goes on receives it."""

    status: ReportStatus
    result: Any = None
    error: str | None = None
    """Why it failed."""
    progress: Any = None
    """How far it came; kept, so that another try can go on from there."""
    port: str = ""
    """From which the run goes on, if the body leaves it at that."""


class PastPause(Value, omit_defaults=True):
    """A pause that is over, as a body that is executed again finds it."""

    name: str
    checkpoint: Any
    report: Report


class Resumption(Value, omit_defaults=True):
    """What a job carries for a body that paused before, besides the node's input."""

    pauses: tuple[PastPause, ...] = ()
    progress: Any = None
    """The last that was reported, also of an earlier try that failed."""
    failures: int = 0
    """How many attempts failed before, in jobs that are over."""
