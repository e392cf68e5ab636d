"""Decisions on operators' commands: pause, resume, cancel, retry, fork, migrate, signal."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.engine.approvals import conclude_all
from perdure.engine.completion import complete, end, settle
from perdure.engine.decider import Decider, is_cancel, milliseconds
from perdure.engine.external_waits import resume_reported
from perdure.engine.readiness import recount
from perdure.engine.run_view import unusable
from perdure.errors import (
    InvalidInput,
    Permanent,
    RunAlreadyPaused,
    RunEnded,
    RunNotPaused,
    RunNotRetryable,
)
from perdure.expr.budget import CostBudget
from perdure.model.event import (
    PriorityChanged,
    QueuedRunStarted,
    RunMigrated,
    RunPaused,
    RunResumed,
    RunRetried,
)
from perdure.model.failure import failure_of
from perdure.model.graph import ORDINARY, SignalNode
from perdure.model.ids import RUN_START
from perdure.model.run import LiveType, NodeState, NodeStatus, RunStatus
from perdure.model.trigger import (
    CancelRun,
    MigrateRun,
    PauseRun,
    ResumeRun,
    RetryRun,
    SetPriority,
)

TIMED_OUT = declare(
    "run.timed_out",
    "the run did not end[ within {timeout}][ by {deadline}]",
    "Retry the run to restart its timeout",
)


def pause_run(d: Decider, command: PauseRun) -> None:
    refuse_ended(d, "pause")
    if d.state.is_paused:
        raise RunAlreadyPaused(run_id=d.run)
    d.decision.suspend = True
    d.emit(RunPaused(reason=command.reason, by=command.by))


def resume_run(d: Decider, command: ResumeRun) -> None:
    refuse_ended(d, "resume")
    if not d.state.is_paused:
        raise RunNotPaused(run_id=d.run, status=d.state.status)
    _resume(d, command.by)
    deliver(d, d.state.signals)
    conclude_all(d)
    settle(d)


def _resume(d: Decider, by: str | None) -> None:
    d.decision.suspend = False
    counts = d.state.edge_counts
    if counts and d.state.ends_as is None:
        # A migration may have made nodes ready while the run was paused.
        for id, edges in d.graph.incoming.items():
            if id in counts and counts[id][0] == len(edges):
                d.start(id)
    resume_reported(d)
    d.emit(RunResumed(by=by, effects=d.take_effects()))


def deliver(d: Decider, names: Collection[str], since: int = 0) -> None:
    """Deliver pending signals of these names to waiting nodes, in the order of the graph.

    ``since`` is the event of a signal that has just arrived: only this one is looked at, and its
    sender gets the error if that costs too much. Otherwise the node fails.
    """
    live = d.state.live
    matches: list[tuple[int, str]] = []
    for name in names:
        for id in d.graph.signals.get(name, ()):
            if live.get(id) is not LiveType.WAIT:
                continue
            try:
                if ref := _signal_for(d, id, name, since):
                    matches.append((ref, id))
            except InvalidInput as error:
                if since:
                    raise
                d.decision.close_waits.append(id)
                d.unusable.append(unusable(d.graph.nodes[id], "where", error))
    for ref, id in sorted(matches):
        d.decision.close_waits.append(id)
        complete(d, id, ORDINARY, None, cause="signal", ref=ref)


def _signal_for(d: Decider, id: str, name: str, since: int) -> int:
    """The oldest pending signal that this node accepts; 0 if there is none."""
    unread = [number for number in d.view.unread(name) if number >= since]
    if not unread:
        return 0
    node = d.graph.nodes[id]
    assert isinstance(node, SignalNode)
    budget = CostBudget()
    return d.view.take_first(d.view.where_of(node, budget), unread, budget)


def cancel_run(d: Decider, command: CancelRun) -> None:
    refuse_ended(d, "cancel")
    if command.compensates and d.state.ends_as is not None:
        if d.state.is_paused:
            _resume(d, command.by)
        return  # it is already compensating
    if d.state.ends_as is not None and d.state.live and all(map(is_cancel, d.state.live)):
        return  # it ends once its external work is cancelled
    end(
        d,
        RunStatus.CANCELLED,
        reason=command.reason,
        by=command.by,
        compensates=command.compensates,
    )


def retry_run(d: Decider, command: RetryRun) -> None:
    state = d.state
    if state.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
        raise RunNotRetryable(run_id=d.run, reason=f"it is {state.status}")
    if any(node.is_undone for node in state.nodes.values()):
        raise RunNotRetryable(
            run_id=d.run,
            reason="what it had completed was undone; submit it again, or fork it",
        )
    is_queued = state.settings.max_running is not None
    if is_queued:
        d.decision.is_started = False
    else:
        d.decision.is_started = state.is_queued or None  # it was cancelled before it had started
        reopen(d)
    event = RunRetried(
        effects=d.take_effects(), by=command.by, is_late=command.is_late, is_queued=is_queued
    )
    d.emit(event)
    if is_queued:  # for a place: its time to start has passed
        d.queue(replace(d.state.settings, delay_ms=None, run_at=None))
    d.start_clock(d.state.settings, is_queued=is_queued)
    settle(d)


def set_priority(d: Decider, command: SetPriority) -> None:
    refuse_ended(d, "set_priority")
    if command.priority != d.state.priority:
        d.decision.reprioritizes = True
        d.emit(PriorityChanged(priority=command.priority, by=command.by))


def start_queued(d: Decider) -> None:
    """Start a run that was queued."""
    if not d.state.is_queued or d.state.is_ended or d.state.is_paused:
        return
    d.decision.close_waits.append(RUN_START)
    d.decision.is_started = True
    if d.state.nodes:  # it was retried, or is a fork
        reopen(d)
    else:
        for id in d.graph.starts:
            d.start(id)
    d.emit(QueuedRunStarted(effects=d.take_effects()))
    if d.state.settings.timeout_ms is not None:  # the clock of a deadline runs already
        d.start_clock(d.state.settings)
    settle(d)


def time_out(d: Decider) -> None:
    """Fail a run that took too long. A compensation is not interrupted."""
    state = d.state
    if state.is_ended or state.ends_as is not None:
        return
    settings = state.settings
    fault = TIMED_OUT.fault(timeout=milliseconds(settings.timeout_ms), deadline=settings.deadline)
    end(d, RunStatus.FAILED, failure=failure_of(fault, Permanent))


def reopen(d: Decider, from_start: Collection[str] = ()) -> None:
    """Restart all nodes that were live, failed or blocked; keep completed ones.

    Nodes in ``from_start`` start from the beginning, others resume where they were.
    """
    d.is_reopening = True
    kept: dict[str, NodeState] = {}
    restarted: list[str] = []
    for id in d.graph.nodes:
        node = d.state.nodes.get(id)
        if is_reopened(node):
            kept[id] = _LIVE
            restarted.append(id)
        elif node is not None and node.status is not NodeStatus.BLOCKED:
            kept[id] = node
    d.adopt_recount(recount(d.graph, kept))
    for id in restarted:
        if id in from_start:
            d.start(id)
        else:
            d.restart(id)


_LIVE = NodeState(status=NodeStatus.LIVE)


def is_reopened(node: NodeState | None) -> bool:
    """Whether a retry or a fork starts it again: it was live, or it failed."""
    return node is not None and node.status in (
        NodeStatus.LIVE,
        NodeStatus.FAILED,
        NodeStatus.CANCELLED,
    )


def migrate_run(d: Decider, command: MigrateRun) -> None:
    """Continue in another version; ``d`` has the graph of that version.

    The caller has checked with ``engine.migration`` that this is possible.
    """
    refuse_ended(d, "migrate")
    state = d.state
    if command.to.version == state.version:
        return
    d.decision.version = command.to.version
    if state.ends_as is None and not state.is_queued:
        readiness = recount(d.graph, state.nodes)
        if state.is_paused:  # ready nodes wait until the run is resumed
            for id in readiness.ready:
                count = len(d.graph.incoming[id])
                readiness.edge_counts[id] = (count, count, 0)
            readiness.ready.clear()
        d.adopt_recount(readiness)
    for id in state.maps:
        d.view.forget_items(id)
    d.emit(RunMigrated(version=command.to.version, by=command.by, effects=d.take_effects()))
    settle(d)


def refuse_ended(d: Decider, operation: str) -> None:
    if d.state.is_ended:
        raise RunEnded(run_id=d.run, operation=operation, status=d.state.status)
