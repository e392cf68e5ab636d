"""External waits: approvals, answers and reports."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from perdure.diagnostics import declare
from perdure.model.graph import JsonSchema
from perdure.model.ids import RunId
from perdure.model.value import Value

CANNOT_PAUSE = declare("node.cannot_pause", "{key!r} cannot pause: only the node's own work can")


TITLE_MAX = 1_000
"""Characters of a title, as a template and once it is filled in."""
MESSAGE_MAX = 20_000


def bounded(text: str, most: int) -> str:
    """The title or message of an approval, truncated."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


class ApprovalRequest(Value, omit_defaults=True):
    """The rendered data of an approval for its deciders, stored with the wait."""

    node: str
    flow: str
    title: str
    message: str = ""
    form: JsonSchema | None = None
    show: Any = None
    data: Any = None
    """Data that an answer may change."""
    answers: tuple[str, ...] = ()
    quorum: int = 1
    """How many must agree; 0 means all deciders."""


class Notice(Value, omit_defaults=True):
    """The argument of the ``notify`` task of an approval."""

    approval: str
    why: str
    """``opened``, ``reminder`` or ``escalation``."""
    title: str
    message: str
    deciders: tuple[str, ...]
    number: int = 0
    """The number of the reminder or escalation."""


def approval_id(run: RunId, node: str) -> str:
    """The id of an approval. Node ids have no colon, but run ids may."""
    return f"{run}:{node}"


def parse_approval_id(id: str) -> tuple[RunId, str]:
    """The run and the node; an empty node if the id is invalid."""
    run, colon, node = id.rpartition(":")
    return (RunId(run), node) if colon else (RunId(id), "")


class ReportStatus(StrEnum):
    PROGRESS = "progress"
    """Not final."""
    COMPLETED = "completed"
    FAILED = "failed"


LAST = frozenset({ReportStatus.COMPLETED, ReportStatus.FAILED})
"""Final statuses: later reports are ignored."""


class Report(Value, omit_defaults=True):
    """A report on external work, as stored and as passed to the resumed body."""

    status: ReportStatus
    result: Any = None
    error: str | None = None
    """The reason of a failure."""
    progress: Any = None
    """Stored, so that a later attempt can resume from it."""
    port: str = ""
    """The port to continue on, unless the body chooses another."""


class PastPause(Value, omit_defaults=True):
    """A finished pause, for the body that is executed again."""

    name: str
    checkpoint: Any
    report: Report


STEP_PREFIX = "perdure:"
"""Steps whose names begin with it belong to Perdure."""


def answer_step(epoch: int) -> str:
    """The step with the answer to a plain job that was parked under this epoch."""
    return f"{STEP_PREFIX}answer:{epoch}"


class Resumption(Value, omit_defaults=True):
    """The state of a body that paused before, passed with its job."""

    pauses: tuple[PastPause, ...] = ()
    progress: Any = None
    """The last reported progress, also of an earlier, failed attempt."""
    failures: int = 0
    """Failed attempts in earlier jobs."""
    attempt: int = 1
    """The attempt that its job starts with."""
