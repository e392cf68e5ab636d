"""The trigger of a decision, found from the first event that it led to.

A log has decisions, not triggers. Nearly all of a trigger follows from the event, its value, and
the live keys before it; exceptions are noted in the code.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from perdure.engine.decide import ATTEMPTS
from perdure.engine.run_commands import TIMED_OUT
from perdure.model import event as events
from perdure.model.failure import Failure
from perdure.model.graph import ORDINARY, FlowRef, Graph, RouteNode
from perdure.model.ids import AUXILIARY_PARTS, RUN_START, RUN_TIMEOUT, Key
from perdure.model.outcome import Completed, Failed, Paused, Retried, Skipped
from perdure.model.principal import RESERVED
from perdure.model.run import LiveType, RunState, RunStatus
from perdure.model.trigger import (
    CancelRun,
    ChildEnded,
    DecideApproval,
    JobEnded,
    MigrateRun,
    PauseRun,
    ReportReceived,
    ResumeRun,
    RetryRun,
    SendSignal,
    SetPriority,
    Trigger,
    WaitDue,
)
from perdure.model.wait import ReportStatus
from perdure.verify.replay import ReplayStep

NULL = b"null"


class EventInContext:
    """An event that may start a decision, with its context."""

    def __init__(self, graph: Graph, step: ReplayStep, value: bytes) -> None:
        self.graph = graph
        self.before: RunState = step.before
        self.event = step.event
        self.value = value
        """Its JSON; null if it has none."""

    def is_live(self, key: str, live_type: LiveType) -> bool:
        return self.before.live.get(key) is live_type


def trigger_of(context: EventInContext) -> Trigger | None:
    """The trigger of the decision; None for an event that never starts one."""
    event, value = context.event, context.value
    match event:
        case events.NodeCompleted():
            return _completed(context, event)
        case events.ItemCompleted():
            if context.is_live(event.key, LiveType.CHILD):
                return _child_completed(context, event.key)
            return _ended(event.key, Completed(output=value))
        case events.IterationCompleted():
            if Key.parse(event.key).part == "check":
                return _ended(event.key, Completed(output=_json(False)))
            if context.is_live(event.key, LiveType.CHILD):
                return _child_completed(context, event.key)
            is_asked = any(text.startswith("check:") for text in event.effects.started)
            return _ended(event.key, Completed(output=value), None if is_asked else False)
        case events.NodeFailed():
            return _failed(context, event)
        case events.NodeSkipped():
            if not context.is_live(event.node, LiveType.JOB):
                return None
            return _ended(event.node, Skipped(reason=event.reason))
        case events.NodePaused():  # without the deadline, which only the wait has
            poll = None if event.poll_ms is None else timedelta(milliseconds=event.poll_ms)
            paused = Paused(checkpoint=value, name=event.name, poll=poll, cancels=event.cancels)
            return JobEnded(key=Key.parse(event.key), attempt=event.attempt, outcome=paused)
        case events.NodeRetried():
            # Older logs do not record whether it was snoozed; only this depends on it there.
            counts = context.before.settings.max_attempts is not None
            is_snoozed = event.is_snoozed if counts else not event.restarts
            outcome = Retried(failure=event.failure, is_snoozed=is_snoozed)
            return JobEnded(key=Key.parse(event.key), attempt=event.attempt, outcome=outcome)
        case events.NodePolled():
            return _auxiliary_ended(f"poll:{event.key}", event.failure)
        case events.NodeNotified() | events.NodeCancelled():
            return _auxiliary_ended(event.key, event.failure)
        case events.NodeUndone() | events.UndoFailed():
            key = Key(node=event.node, item=event.item, part="undo")
            return _auxiliary_ended(key.text, getattr(event, "failure", None))
        case events.NodePollStarted():
            return WaitDue(key=Key.parse(f"poll:{event.key}"))
        case events.ApprovalReminded() | events.ApprovalEscalated():
            return WaitDue(key=Key(node=event.node, part="remind"))
        case events.NodeReported():
            return ReportReceived(
                key=Key.parse(event.key),
                status=ReportStatus(event.status),
                report=value,
                token=event.token,
                by=event.by,
                has_progress=event.has_progress,
                is_poll=event.is_poll or event.by in RESERVED,
            )
        case events.ReportIgnored():
            key, status = Key.parse(event.key), ReportStatus(event.status)
            return ReportReceived(key=key, status=status, report=NULL, by=event.by, port=event.port)
        case events.ApprovalAnswered():
            return DecideApproval(
                node=event.node,
                decision=event.decision,
                data=value,
                by=event.by,
                roles=event.stands_for,
                note=event.note,
                is_recorded=True,
            )
        case events.SignalReceived():
            return SendSignal(name=event.name, payload=value, by=event.by)
        case events.RunPaused():
            return PauseRun(reason=event.reason, by=event.by)
        case events.RunResumed():
            return ResumeRun(by=event.by)
        case events.RunCancelled():
            return CancelRun(reason=event.reason, by=event.by, compensates=event.compensates)
        case events.CompensationStarted(outcome=RunStatus.CANCELLED):
            return CancelRun(reason=event.reason, by=event.by, compensates=event.compensates)
        case events.RunRetried():
            return RetryRun(by=event.by, is_late=event.is_late)
        case events.QueuedRunStarted():
            return WaitDue(key=Key.parse(RUN_START))
        case events.PriorityChanged():
            return SetPriority(priority=event.priority, by=event.by)
        case events.RunFailed() | events.CompensationStarted() if (
            event.failure is not None and event.failure.code == TIMED_OUT.name
        ):
            return WaitDue(key=Key.parse(RUN_TIMEOUT))
        case events.RunMigrated():
            to = FlowRef(name=context.graph.name, version=event.version)
            return MigrateRun(to=to, by=event.by)
        case _:  # ends of runs, and automatic events
            return None


def _completed(context: EventInContext, event: events.NodeCompleted) -> Trigger | None:
    key = Key(node=event.node, iteration=event.iteration)
    is_done = event.port == ORDINARY
    match event.cause:
        case "timer" | "timeout":
            return WaitDue(key=key)
        case "child":
            return _child_completed(context, key.text)
        case "" if event.iteration and event.ref:
            return _ended(f"check:{key.text}", Completed(output=_json(is_done)))
        case "" if event.iteration:
            return _ended(key.text, Completed(output=context.value), is_done)
        case "" if isinstance(context.graph.nodes[event.node], RouteNode):
            return _ended(key.text, Completed(output=_json(event.port)))
        case "":
            outcome = Completed(output=context.value, port=event.port, warnings=event.warnings)
            return _ended(key.text, outcome)
        case _:
            return None


def _child_completed(context: EventInContext, text: str) -> ChildEnded:
    child = context.before.children[text]
    status, output = RunStatus.COMPLETED, context.value
    return ChildEnded(key=Key.parse(text), run=child, status=status, output=output)


def _failed(context: EventInContext, event: events.NodeFailed) -> Trigger | None:
    key = Key.parse(event.key)
    if event.cause == "timeout":
        return WaitDue(key=key)
    if event.cause == "child":
        child = context.before.children[event.key]
        return ChildEnded(key=key, run=child, status=RunStatus.FAILED, failure=event.failure)
    if event.cause == ATTEMPTS:
        return JobEnded(key=key, attempt=1, outcome=Retried(failure=event.failure))
    if event.cause:
        return None
    if key.part in AUXILIARY_PARTS:  # it paused although it cannot
        return _ended(event.key, Paused(checkpoint=NULL))
    return _ended(event.key, Failed(failure=event.failure))


def _auxiliary_ended(text: str, failure: Failure | None) -> JobEnded:
    return _ended(text, Completed(output=NULL) if failure is None else Failed(failure=failure))


def _ended(
    text: str, outcome: Completed | Skipped | Paused | Failed, is_done: bool | None = None
) -> JobEnded:
    return JobEnded(key=Key.parse(text), attempt=1, outcome=outcome, is_done=is_done)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
