"""Folding what people and outside parties bring: pauses, reports, answers, reminders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from perdure.model.event import (
    ApprovalAnswered,
    ApprovalReminded,
    NodeAsked,
    NodeNotified,
    NodePaused,
    NodePolled,
    NodeReported,
    NodeSkipped,
    ReportIgnored,
)
from perdure.model.report import LAST, ReportStatus
from perdure.model.run import (
    AnswerState,
    ApprovalState,
    LiveKind,
    NodeState,
    NodeStatus,
    PauseState,
    RunState,
)
from perdure.rules.live import Changes, forget_pauses, leave

TOKENS_MAX = 1_000
"""How many reports on one key are remembered."""


def _node_skipped(state: RunState, event: NodeSkipped, changes: Changes) -> None:
    leave(state, changes, event.node)
    forget_pauses(state, changes, event.node)
    skipped = NodeState(status=NodeStatus.SKIPPED, end_number=changes["number"])
    changes["nodes"] = state.nodes.set(event.node, skipped)


def _node_paused(state: RunState, event: NodePaused, changes: Changes) -> None:
    leave(state, changes, event.key)
    pause = PauseState(name=event.name, checkpoint=changes["number"], poll_ms=event.poll_ms)
    former = state.pauses.get(event.key, ())
    changes["pauses"] = state.pauses.set(event.key, (*former, pause))


def _node_reported(state: RunState, event: NodeReported, changes: Changes) -> None:
    text, number = event.key, changes["number"]
    if event.token:
        known = state.reports.get(text, ())
        changes["reports"] = state.reports.set(text, (*known, event.token)[-TOKENS_MAX:])
    if event.has_progress:
        changes["progress"] = state.progress.set(text, number)
    if state.live.get(f"poll:{text}") is LiveKind.JOB and event.by == "poll":
        leave(state, changes, f"poll:{text}")
    if ReportStatus(event.status) in LAST:
        changes["early"] = state.early.set(text, number)
        if text in event.then.started:
            leave(state, changes, text)


def _node_asked(state: RunState, event: NodeAsked, changes: Changes) -> None:
    leave(state, changes, f"poll:{event.key}")


def _node_polled(state: RunState, event: NodePolled, changes: Changes) -> None:
    leave(state, changes, f"poll:{event.key}")


def _report_ignored(state: RunState, event: ReportIgnored, changes: Changes) -> None:
    pass


def _approval_answered(state: RunState, event: ApprovalAnswered, changes: Changes) -> None:
    former = state.approvals.get(event.node, ApprovalState())
    answer = AnswerState(
        decision=event.decision,
        by=event.by,
        stands_for=event.stands_for,
        ref=changes["number"],
        note=event.note,
    )
    answered = replace(former, answers=(*former.answers, answer))
    changes["approvals"] = state.approvals.set(event.node, answered)


def _approval_reminded(state: RunState, event: ApprovalReminded, changes: Changes) -> None:
    leave(state, changes, f"remind:{event.node}")
    former = state.approvals.get(event.node, ApprovalState())
    deciders = (*former.deciders, *event.deciders)
    reminded = replace(former, reminders=event.number, deciders=deciders)
    changes["approvals"] = state.approvals.set(event.node, reminded)


def _node_notified(state: RunState, event: NodeNotified, changes: Changes) -> None:
    leave(state, changes, event.key)


FOLDS: dict[type, Callable[[RunState, Any, Changes], None]] = {
    NodeSkipped: _node_skipped,
    NodePaused: _node_paused,
    NodeReported: _node_reported,
    NodeAsked: _node_asked,
    NodePolled: _node_polled,
    ReportIgnored: _report_ignored,
    ApprovalAnswered: _approval_answered,
    ApprovalReminded: _approval_reminded,
    NodeNotified: _node_notified,
}
