"""Approvals: what people are asked, and what they answered."""

from __future__ import annotations

from typing import Any

from perdure.model.graph import JsonSchema
from perdure.model.ids import RunId
from perdure.model.value import Value


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
