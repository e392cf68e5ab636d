"""What operators ask of a run: pause it, cancel it, start it anew, move it to another version."""

from __future__ import annotations

from collections.abc import Callable, Collection

from perdure.engine.approvals import conclude_all
from perdure.engine.completion import complete, end, settle
from perdure.engine.decider import Deciding
from perdure.engine.decision import Following
from perdure.engine.external_waits import reported_in_pause, resume
from perdure.engine.readiness import recount
from perdure.errors import RunEnded, RunNotPaused, RunNotRetryable
from perdure.model.event import Event, RunMigrated, RunPaused, RunRetried, RunUnpaused, Then
from perdure.model.graph import ORDINARY, SignalNode
from perdure.model.run import LiveKind, NodeState, NodeStatus, RunStatus
from perdure.model.trigger import CancelAsked, MigrationAsked, PauseAsked, RetryAsked, UnpauseAsked


def pause_asked(deciding: Deciding, happening: PauseAsked) -> None:
    refuse_ended(deciding, "pause")
    if not deciding.state.is_paused:
        deciding.decision.holds = True
        deciding.emit(RunPaused(reason=happening.reason, by=happening.by))


def unpause_asked(deciding: Deciding, happening: UnpauseAsked) -> None:
    refuse_ended(deciding, "unpause")
    if not deciding.state.is_paused:
        raise RunNotPaused(run_id=deciding.run, status=deciding.state.status)
    _unpause(deciding, happening.by)
    deliver(deciding, deciding.state.mail)
    conclude_all(deciding)
    settle(deciding)


def _unpause(deciding: Deciding, by: str | None) -> None:
    deciding.decision.holds = False
    following = Following()
    for id in _kept_back(deciding):
        deciding.start(following, id)
    for text in reported_in_pause(deciding):
        resume(deciding, following, text)
    deciding.emit(RunUnpaused(by=by, then=following.then()))


def _kept_back(deciding: Deciding) -> list[str]:
    """Nodes that became ready in the pause, by a move to another version."""
    arrived, graph = deciding.state.arrived, deciding.graph
    if not arrived or deciding.state.ends_as is not None:
        return []
    return [
        id
        for id, edges in graph.incoming.items()
        if (counts := arrived.get(id)) is not None and counts[0] == len(edges)
    ]


def deliver(deciding: Deciding, names: Collection[str]) -> None:
    """Hand signals of these names to the nodes that wait for them, in the order of the graph."""
    live = deciding.state.live
    matches = [
        (ref, id)
        for name in names
        for id in deciding.graph.signals.get(name, ())
        if live.get(id) is LiveKind.WAIT and (ref := _signal_for(deciding, id, name))
    ]
    for ref, id in sorted(matches):
        deciding.decision.closes.append(id)
        complete(deciding, id, ORDINARY, None, cause="signal", ref=ref)


def _signal_for(deciding: Deciding, id: str, name: str) -> int:
    """The oldest signal that nobody takes and this node is for; 0 if there is none."""
    unread = deciding.unread(name)
    if not unread:
        return 0
    node = deciding.graph.nodes[id]
    assert isinstance(node, SignalNode)
    where = None if node.where is None else deciding.rendered(node, node.where)
    for number in unread:
        if deciding.accepts(where, number):
            return deciding.take(number)
    return 0


def cancel_asked(deciding: Deciding, happening: CancelAsked) -> None:
    refuse_ended(deciding, "cancel")
    if happening.compensates and deciding.state.ends_as is not None:
        if deciding.state.is_paused:
            _unpause(deciding, happening.by)
        return  # it is being undone already
    end(
        deciding,
        RunStatus.CANCELLED,
        reason=happening.reason,
        by=happening.by,
        compensates=happening.compensates,
    )


def retry_asked(deciding: Deciding, happening: RetryAsked) -> None:
    state = deciding.state
    if state.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
        raise RunNotRetryable(run_id=deciding.run, reason=f"it is {state.status}")
    if any(node.is_undone for node in state.nodes.values()):
        raise RunNotRetryable(
            run_id=deciding.run,
            reason="what it had completed was undone; submit it anew, or fork it",
        )
    reopen(deciding, lambda then: RunRetried(then=then, by=happening.by))
    settle(deciding)


def reopen(deciding: Deciding, event: Callable[[Then], Event], anew: Collection[str] = ()) -> None:
    """Start everything again that was live, failed or blocked; keep what is completed.

    Nodes of ``anew`` start from their beginning, others where they stood.
    """
    kept: dict[str, NodeState] = {}
    resumed: list[str] = []
    for id in deciding.graph.nodes:
        node = deciding.state.nodes.get(id)
        if node is None or node.status is NodeStatus.BLOCKED:
            continue
        if node.status in (NodeStatus.COMPLETED, NodeStatus.SKIPPED):
            kept[id] = node
        else:
            kept[id] = _LIVE
            resumed.append(id)
    following = deciding.after_recount(recount(deciding.graph, kept))
    for id in resumed:
        if id in anew:
            deciding.start(following, id)
        else:
            deciding.resume(following, id)
    deciding.emit(event(following.then()))


_LIVE = NodeState(status=NodeStatus.LIVE)


def migration_asked(deciding: Deciding, happening: MigrationAsked) -> None:
    """Go on in another version, whose graph this decision is made with.

    Whether the run can is for ``rules.migration`` to say, before.
    """
    refuse_ended(deciding, "migrate")
    state = deciding.state
    if happening.to.version == state.version:
        return
    deciding.decision.version = happening.to.version
    following = Following()
    if state.ends_as is None:
        standing = recount(deciding.graph, state.nodes)
        if state.is_paused:  # what is ready stays where it is until the pause ends
            for id in standing.ready:
                count = len(deciding.graph.incoming[id])
                standing.arrived[id] = (count, count, 0)
            standing.ready.clear()
        following = deciding.after_recount(standing)
    for id in state.maps:
        deciding.forget_items(id)
    then = following.then()
    deciding.emit(RunMigrated(version=happening.to.version, by=happening.by, then=then))
    settle(deciding)


def refuse_ended(deciding: Deciding, act: str) -> None:
    if deciding.state.is_ended:
        raise RunEnded(run_id=deciding.run, operation=act, status=deciding.state.status)
