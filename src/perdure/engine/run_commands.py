"""Decisions on operators' commands: pause, resume, cancel, retry, fork, migrate, signal."""

from __future__ import annotations

from collections.abc import Collection

from perdure.engine.approvals import conclude_all
from perdure.engine.completion import complete, end, settle
from perdure.engine.decider import Decider
from perdure.engine.external_waits import resume_reported
from perdure.engine.readiness import recount
from perdure.errors import RunEnded, RunNotPaused, RunNotRetryable
from perdure.model.event import RunMigrated, RunPaused, RunResumed, RunRetried
from perdure.model.graph import ORDINARY, SignalNode
from perdure.model.run import LiveType, NodeState, NodeStatus, RunStatus
from perdure.model.trigger import CancelRun, MigrateRun, PauseRun, ResumeRun, RetryRun


def pause_run(d: Decider, command: PauseRun) -> None:
    refuse_ended(d, "pause")
    if not d.state.is_paused:
        d.decision.suspend = True
        d.emit(RunPaused(reason=command.reason, by=command.by))


def resume_run(d: Decider, command: ResumeRun) -> None:
    refuse_ended(d, "unpause")
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


def deliver(d: Decider, names: Collection[str]) -> None:
    """Deliver pending signals of these names to waiting nodes, in the order of the graph."""
    live = d.state.live
    matches = [
        (ref, id)
        for name in names
        for id in d.graph.signals.get(name, ())
        if live.get(id) is LiveType.WAIT and (ref := _signal_for(d, id, name))
    ]
    for ref, id in sorted(matches):
        d.decision.close_waits.append(id)
        complete(d, id, ORDINARY, None, cause="signal", ref=ref)


def _signal_for(d: Decider, id: str, name: str) -> int:
    """The oldest pending signal that this node accepts; 0 if there is none."""
    unread = d.view.unread(name)
    if not unread:
        return 0
    node = d.graph.nodes[id]
    assert isinstance(node, SignalNode)
    where = None if node.where is None else d.view.rendered(node, node.where)
    for number in unread:
        if d.view.accepts(where, number):
            return d.view.take(number)
    return 0


def cancel_run(d: Decider, command: CancelRun) -> None:
    refuse_ended(d, "cancel")
    if command.compensates and d.state.ends_as is not None:
        if d.state.is_paused:
            _resume(d, command.by)
        return  # it is already compensating
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
    reopen(d)
    d.emit(RunRetried(effects=d.take_effects(), by=command.by))
    settle(d)


def reopen(d: Decider, afresh: Collection[str] = ()) -> None:
    """Restart all nodes that were live, failed or blocked; keep completed ones.

    Nodes of ``afresh`` start from their beginning, others where they stood.
    """
    kept: dict[str, NodeState] = {}
    restarted: list[str] = []
    for id in d.graph.nodes:
        node = d.state.nodes.get(id)
        if node is None or node.status is NodeStatus.BLOCKED:
            continue
        if node.status in (NodeStatus.COMPLETED, NodeStatus.SKIPPED):
            kept[id] = node
        else:
            kept[id] = _LIVE
            restarted.append(id)
    d.follow_standing(recount(d.graph, kept))
    for id in restarted:
        if id in afresh:
            d.start(id)
        else:
            d.restart(id)


_LIVE = NodeState(status=NodeStatus.LIVE)


def migrate_run(d: Decider, command: MigrateRun) -> None:
    """Continue in another version; ``d`` has the graph of that version.

    Whether that is possible is for ``engine.migration`` to say, before.
    """
    refuse_ended(d, "migrate")
    state = d.state
    if command.to.version == state.version:
        return
    d.decision.version = command.to.version
    if state.ends_as is None:
        standing = recount(d.graph, state.nodes)
        if state.is_paused:  # ready nodes wait until the run is resumed
            for id in standing.ready:
                count = len(d.graph.incoming[id])
                standing.edge_counts[id] = (count, count, 0)
            standing.ready.clear()
        d.follow_standing(standing)
    for id in state.maps:
        d.view.forget_items(id)
    d.emit(RunMigrated(version=command.to.version, by=command.by, effects=d.take_effects()))
    settle(d)


def refuse_ended(d: Decider, operation: str) -> None:
    if d.state.is_ended:
        raise RunEnded(run_id=d.run, operation=operation, status=d.state.status)
