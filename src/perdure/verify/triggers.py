"""What happened to a run, told from the event that it led to first.

A log has what was decided, and not what came to the run from outside. Nearly all of that can be
told from the event, its value, and what was live before it; what cannot is said where it matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.model import event as events
from perdure.model.graph import ORDINARY, FlowRef, Graph, RouteNode
from perdure.model.ids import Key
from perdure.model.run import LiveKind, RunState, RunStatus
from perdure.model.trigger import (
    Answered,
    AttemptFailed,
    CancelAsked,
    ChildEnded,
    FailedForGood,
    Finished,
    Happening,
    MigrationAsked,
    PauseAsked,
    Paused,
    Reported,
    RetryAsked,
    Signalled,
    Skipped,
    UnpauseAsked,
    WaitDue,
)
from perdure.model.wait import ReportStatus
from perdure.verify.replay import Step

NULL = b"null"
_BESIDE = ("undo", "poll", "notify")


class EventInContext:
    """An event that may be the first of a decision, with what is known around it."""

    def __init__(self, graph: Graph, step: Step, value: bytes) -> None:
        self.graph = graph
        self.before: RunState = step.before
        self.event = step.event
        self.value = value
        """Its JSON; null if it has none."""

    def is_live(self, key: str, kind: LiveKind) -> bool:
        return self.before.live.get(key) is kind


def trigger_of(context: EventInContext) -> Happening | None:
    """What made the run decide; None for an event that only ever follows another."""
    find = _FINDS.get(type(context.event))
    return None if find is None else find(context, context.event)


def _completed(context: EventInContext, event: events.NodeCompleted) -> Happening | None:
    key = Key(node=event.node, iteration=event.iteration)
    if event.cause in ("timer", "timeout"):
        return WaitDue(key=key)
    if event.cause == "child":
        return _child_ended(context, key.text)
    if event.cause:
        return None
    if event.iteration and event.ref:
        asked = Key(node=event.node, iteration=event.iteration, part="check")
        return Finished(key=asked, output=_json(event.port == ORDINARY))
    if event.iteration:
        return Finished(key=key, output=context.value, is_done=event.port == ORDINARY)
    if isinstance(context.graph.nodes[event.node], RouteNode):
        return Finished(key=key, output=_json(event.port))
    return Finished(key=key, output=context.value, port=event.port, warnings=event.warnings)


def _item_completed(context: EventInContext, event: events.ItemCompleted) -> Happening:
    if context.is_live(event.key, LiveKind.CHILD):
        return _child_ended(context, event.key)
    return Finished(key=Key.parse(event.key), output=context.value)


def _iteration_completed(context: EventInContext, event: events.IterationCompleted) -> Happening:
    key = Key.parse(event.key)
    if key.part == "check":
        return Finished(key=key, output=_json(False))
    if context.is_live(event.key, LiveKind.CHILD):
        return _child_ended(context, event.key)
    is_asked = any(text.startswith("check:") for text in event.then.started)
    return Finished(key=key, output=context.value, is_done=None if is_asked else False)


def _child_ended(context: EventInContext, text: str) -> Happening:
    child = context.before.children[text]
    status, output = RunStatus.COMPLETED, context.value
    return ChildEnded(key=Key.parse(text), run=child, status=status, output=output)


def _failed(context: EventInContext, event: events.NodeFailed) -> Happening | None:
    key = Key.parse(event.key)
    if event.cause == "timeout":
        return WaitDue(key=key)
    if event.cause == "child":
        child = context.before.children[event.key]
        return ChildEnded(key=key, run=child, status=RunStatus.FAILED, failure=event.failure)
    if event.cause:
        return None
    if key.part in _BESIDE:  # one that may not pause did
        return Paused(key=key, checkpoint=NULL)
    return FailedForGood(key=key, failure=event.failure)


def _reported(context: EventInContext, event: events.NodeReported) -> Happening:
    return Reported(
        key=Key.parse(event.key),
        status=ReportStatus(event.status),
        report=context.value,
        token=event.token,
        by=event.by,
        has_progress=event.has_progress,
    )


def _ignored(context: EventInContext, event: events.ReportIgnored) -> Happening:
    key, status = Key.parse(event.key), ReportStatus(event.status)
    return Reported(key=key, status=status, report=NULL, by=event.by, port=event.port)


def _answered(context: EventInContext, event: events.ApprovalAnswered) -> Happening:
    return Answered(
        node=event.node,
        decision=event.decision,
        data=context.value,
        by=event.by,
        roles=event.stands_for,
        note=event.note,
    )


def _paused(context: EventInContext, event: events.NodePaused) -> Happening:
    """Without the deadline, which is kept with its wait only."""
    return Paused(
        key=Key.parse(event.key), checkpoint=context.value, name=event.name, poll_ms=event.poll_ms
    )


def _ended_beside(text: str, failure: Any) -> Happening:
    key = Key.parse(text)
    if failure is not None:
        return FailedForGood(key=key, failure=failure)
    return Finished(key=key, output=NULL)


def _compensating(context: EventInContext, event: events.CompensationStarted) -> Happening | None:
    if event.outcome != RunStatus.CANCELLED:
        return None
    return CancelAsked(reason=event.reason, by=event.by, compensates=True)


def _skipped(context: EventInContext, event: events.NodeSkipped) -> Happening | None:
    if not context.is_live(event.node, LiveKind.JOB):
        return None
    return Skipped(key=Key(node=event.node), reason=event.reason)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


_FINDS: dict[type, Callable[[EventInContext, Any], Happening | None]] = {
    events.NodeCompleted: _completed,
    events.ItemCompleted: _item_completed,
    events.IterationCompleted: _iteration_completed,
    events.NodeFailed: _failed,
    events.NodeSkipped: _skipped,
    events.NodePaused: _paused,
    events.NodeReported: _reported,
    events.ReportIgnored: _ignored,
    events.ApprovalAnswered: _answered,
    events.CompensationStarted: _compensating,
    # What it only asks for another time changes nothing but this.
    events.NodeRetried: lambda context, event: AttemptFailed(
        key=Key.parse(event.key),
        attempt=event.attempt,
        failure=event.failure,
        is_postponed=not event.restarts,
    ),
    events.NodeAsked: lambda context, event: WaitDue(key=Key.parse(f"poll:{event.key}")),
    events.NodePolled: lambda context, event: _ended_beside(f"poll:{event.key}", event.failure),
    events.ApprovalReminded: lambda context, event: WaitDue(
        key=Key(node=event.node, part="remind")
    ),
    events.NodeNotified: lambda context, event: _ended_beside(event.key, event.failure),
    events.NodeUndone: lambda context, event: _ended_beside(f"undo:{event.node}", None),
    events.UndoFailed: lambda context, event: _ended_beside(f"undo:{event.node}", event.failure),
    events.SignalReceived: lambda context, event: Signalled(
        name=event.name, payload=context.value, by=event.by
    ),
    events.RunPaused: lambda context, event: PauseAsked(reason=event.reason, by=event.by),
    events.RunUnpaused: lambda context, event: UnpauseAsked(by=event.by),
    events.RunCancelled: lambda context, event: CancelAsked(
        reason=event.reason, by=event.by, compensates=event.compensates
    ),
    events.RunRetried: lambda context, event: RetryAsked(by=event.by),
    events.RunMigrated: lambda context, event: MigrationAsked(
        to=FlowRef(name=context.graph.name, version=event.version), by=event.by
    ),
}
"""Whatever is not here only follows: the ends of runs, and what a run does by itself."""
