"""Waits for people and for external parties: approvals, answers, reports."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from perdure.diagnostics import declare
from perdure.model.graph import JsonSchema
from perdure.model.ids import RunId
from perdure.model.value import Value

CANNOT_PAUSE = declare(
    "node.cannot_pause", "{key!r} cannot pause: only the work of a node itself can"
)


class ApprovalRequest(Value, omit_defaults=True):
    """What deciders see; kept with the wait. All texts are filled in."""

    node: str
    flow: str
    title: str
    message: str = ""
    form: JsonSchema | None = None
    show: Any = None
    data: Any = None
    """What the answer may change."""
    answers: tuple[str, ...] = ()
    quorum: int = 1
    """How many must agree; 0: all deciders."""


class Notice(Value, omit_defaults=True):
    """What the ``notify`` task of an approval is called with."""

    approval: str
    why: str
    """``opened``, ``reminder`` or ``escalation``."""
    title: str
    message: str
    deciders: tuple[str, ...]
    number: int = 0
    """Of the reminder or escalation."""


def approval_id(run: RunId, node: str) -> str:
    """How an approval is called from outside. Ids of nodes have no colon, those of runs may."""
    return f"{run}:{node}"


def parse_approval_id(id: str) -> tuple[RunId, str]:
    """The run and the node; an empty node if it is no such id."""
    run, colon, node = id.rpartition(":")
    return (RunId(run), node) if colon else (RunId(id), "")


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
