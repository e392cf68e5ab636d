"""Event by event, from the log to the state of a run, including its live jobs, waits and children.

Folding needs no graph, no task code and no version of the deciding rules: each event carries
what followed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from immutables import Map
from msgspec.structs import replace

from perdure.errors import EventLogCorrupt
from perdure.model.event import (
    NOTHING,
    ApprovalAnswered,
    ApprovalReminded,
    CompensationStarted,
    Effects,
    Event,
    ItemCompleted,
    IterationCompleted,
    NodeCompleted,
    NodeFailed,
    NodeNotified,
    NodePaused,
    NodePolled,
    NodePollStarted,
    NodeReported,
    NodeRetried,
    NodeSkipped,
    NodeUndone,
    OutputChanged,
    ReportIgnored,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunForked,
    RunMigrated,
    RunPaused,
    RunResumed,
    RunRetried,
    RunSkipped,
    RunSubmitted,
    SignalReceived,
    UndoFailed,
)
from perdure.model.graph import CONTINUE, ORDINARY
from perdure.model.ids import Key, RunId
from perdure.model.run import (
    ENDED,
    AnswerState,
    ApprovalState,
    LiveType,
    MapState,
    NodeState,
    NodeStatus,
    PauseState,
    RunState,
    RunStatus,
)
from perdure.model.wait import LAST, ReportStatus

Changes = dict[str, Any]
"""Fields of the state, as they are after the event."""

_NOTHING_OPEN: Changes = {
    "pauses": Map(),
    "early_reports": Map(),
    "approvals": Map(),
    "external_failures": Map(),
}
"""How far a node came with people and external parties does not outlive its end by force."""
TOKENS_MAX = 1_000
"""How many reports on one key are remembered."""
_LIVE = NodeState(status=NodeStatus.LIVE)
_SKIPPED = NodeState(status=NodeStatus.SKIPPED)
_BLOCKED = NodeState(status=NodeStatus.BLOCKED)


def fold(state: RunState, event: Event) -> RunState:
    """The state after one more event."""
    changes: Changes = {"number": state.number + 1}
    _FOLDS[type(event)](state, event, changes)
    effects: Effects = getattr(event, "effects", NOTHING)
    if effects is not NOTHING:
        _apply_effects(state, changes, effects)
    changes["status"] = _status(state, changes)
    return replace(state, **changes)


def fold_stored(run: RunId, state: RunState, event: Event) -> RunState:
    """The same for an event from a store, which may not follow from those before it."""
    try:
        return fold(state, event)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"event {state.number + 1} does not follow from those before it: {error!r}"
        raise EventLogCorrupt(run_id=run, reason=reason) from error


def check_contiguous(run: RunId, expected: int, number: int) -> None:
    """Refuse a log with a gap, or with an event twice."""
    if number != expected:
        raise EventLogCorrupt(run_id=run, reason=f"event {expected} is missing: {number} follows")


def _status(state: RunState, changes: Changes) -> RunStatus:
    status: RunStatus = changes.get("status", state.status)
    if status in ENDED:
        return status
    if changes.get("is_paused", state.is_paused):
        return RunStatus.PAUSED
    if changes.get("ends_as", state.ends_as) is not None:
        return RunStatus.COMPENSATING
    if changes.get("jobs", state.jobs) or not changes.get("live", state.live):
        return RunStatus.RUNNING
    return RunStatus.WAITING


# Effects, and what is live


def _apply_effects(state: RunState, changes: Changes, effects: Effects) -> None:
    """What follows from an event at once."""
    if effects.mapped:
        maps = {id: MapState(count=count, launched=0, refs=Map()) for id, count in effects.mapped}
        changes["maps"] = changes.get("maps", state.maps).update(maps)
    if effects.started:
        changes["jobs"] = changes.get("jobs", state.jobs) + len(effects.started)
        _go_live(state, changes, effects.started, LiveType.JOB)
        if changes.get("early_reports", state.early_reports):
            _end_pauses(state, changes, effects.started)
    if effects.waiting:
        _go_live(state, changes, effects.waiting, LiveType.WAIT)
    if effects.children:
        children = dict(effects.children)
        changes["children"] = changes.get("children", state.children).update(children)
        _go_live(state, changes, children, LiveType.CHILD)
    if effects.skipped or effects.blocked:
        ended = dict.fromkeys(effects.skipped, _SKIPPED) | dict.fromkeys(effects.blocked, _BLOCKED)
        changes["nodes"] = changes.get("nodes", state.nodes).update(ended)
        _forget_edge_counts(state, changes, ended)
    if effects.edge_counts:
        counts = {
            each.node: (each.decided, each.active, each.blocked) for each in effects.edge_counts
        }
        changes["edge_counts"] = changes.get("edge_counts", state.edge_counts).update(counts)


def _go_live(state: RunState, changes: Changes, texts: Iterable[str], live_type: LiveType) -> None:
    nodes = changes.get("nodes", state.nodes)
    live = changes.get("live", state.live)
    reached: list[str] = []
    launched: dict[str, int] = {}
    for text in texts:
        live = live.set(text, live_type)
        key = Key.parse(text)
        if key.item is not None:
            launched[key.node] = max(launched.get(key.node, 0), key.item + 1)
        elif key.part in ("", "check"):  # others stand beside the node
            nodes = nodes.set(key.node, _live_node(nodes.get(key.node), key))
            reached.append(key.node)
    for id, count in launched.items():
        maps = changes.get("maps", state.maps)
        progress = replace(maps[id], launched=max(maps[id].launched, count))
        changes["maps"] = maps.set(id, progress)
        nodes = nodes.set(id, _LIVE)
        reached.append(id)
    changes["live"] = live
    changes["nodes"] = nodes
    _forget_edge_counts(state, changes, reached)


def _live_node(before: NodeState | None, key: Key) -> NodeState:
    if before is None and not key.iteration:  # as nearly always
        return _LIVE
    ref = 0 if before is None else before.ref
    return NodeState(status=NodeStatus.LIVE, ref=ref, iteration=key.iteration, part=key.part)


def _forget_edge_counts(state: RunState, changes: Changes, reached: Iterable[str]) -> None:
    """The edges of a node count until it is reached."""
    counts = changes.get("edge_counts", state.edge_counts)
    if counts:
        for id in reached:
            if id in counts:
                changes["edge_counts"] = counts = counts.delete(id)


def _leave(state: RunState, changes: Changes, text: str) -> None:
    """A key is no longer live."""
    live = changes.get("live", state.live)
    live_type = live.get(text)
    if live_type is not None:
        changes["live"] = live.delete(text)
        if live_type is LiveType.JOB:
            changes["jobs"] = changes.get("jobs", state.jobs) - 1


def _leave_all(state: RunState, changes: Changes) -> None:
    """The run ends, or turns to undoing: whatever is live is cancelled."""
    cancelled: dict[str, NodeState] = {}
    for text in state.live:
        key = Key.parse(text)
        former = state.nodes[key.node]
        if key.part == "undo":  # nobody knows how far it came
            cancelled[key.node] = replace(former, is_undone=True)
        elif former.status is NodeStatus.LIVE:
            cancelled[key.node] = replace(former, status=NodeStatus.CANCELLED)
    changes.update(nodes=state.nodes.update(cancelled), live=Map(), jobs=0, **_NOTHING_OPEN)


def _end_pauses(state: RunState, changes: Changes, texts: Iterable[str]) -> None:
    """Tasks that have been reported on resume."""
    early, pauses = (
        changes.get("early_reports", state.early_reports),
        changes.get("pauses", state.pauses),
    )
    for text in texts:
        if (ref := early.get(text)) is not None and (former := pauses.get(text)):
            pauses = pauses.set(text, (*former[:-1], replace(former[-1], report=ref)))
            early = early.delete(text)
            _leave(state, changes, f"poll:{text}")
    changes.update(early_reports=early, pauses=pauses)


def _forget_pauses(state: RunState, changes: Changes, text: str) -> None:
    """A key is completed: how it came there does not matter any more."""
    for name in ("pauses", "progress", "early_reports", "external_failures"):
        known = changes.get(name, getattr(state, name))
        if text in known:
            changes[name] = known.delete(text)


def _forget_approval(state: RunState, changes: Changes, node: str) -> None:
    """An approval is over, and with it what stands beside it."""
    former = state.approvals.get(node, ApprovalState())
    _leave(state, changes, f"remind:{node}")
    _leave(state, changes, f"notify:{node}")
    for number in range(1, former.reminders + 1):
        _leave(state, changes, f"notify:{node}#{number}")
    if node in state.approvals:
        changes["approvals"] = state.approvals.delete(node)


# Nodes


def _node_completed(state: RunState, event: NodeCompleted, changes: Changes) -> None:
    id, number = event.node, changes["number"]
    text = id
    if event.iteration:
        text = f"{id}#{event.iteration}"
        _leave(state, changes, f"check:{text}")
    _leave(state, changes, text)
    if state.pauses or state.progress or state.early_reports:
        _leave(state, changes, f"poll:{text}")
        _forget_pauses(state, changes, text)
    done = NodeState(
        status=NodeStatus.COMPLETED,
        ref=event.ref or number,
        port=event.port,
        iteration=event.iteration,
        end_number=number,
    )
    changes["nodes"] = state.nodes.set(id, done)
    if event.cause == "signal":
        changes["signals"] = _taken(state.signals, event.ref)
    elif event.cause == "items":
        changes["maps"] = state.maps.delete(id)
    elif event.cause in ("approval", "timeout"):
        _forget_approval(state, changes, id)


def _taken(signals: Map[str, tuple[int, ...]], ref: int) -> Map[str, tuple[int, ...]]:
    for name, refs in signals.items():
        if ref in refs:
            left = tuple(each for each in refs if each != ref)
            return signals.set(name, left) if left else signals.delete(name)
    return signals


def _node_skipped(state: RunState, event: NodeSkipped, changes: Changes) -> None:
    _leave(state, changes, event.node)
    _forget_pauses(state, changes, event.node)
    skipped = NodeState(status=NodeStatus.SKIPPED, end_number=changes["number"])
    changes["nodes"] = state.nodes.set(event.node, skipped)


def _iteration_completed(state: RunState, event: IterationCompleted, changes: Changes) -> None:
    key = Key.parse(event.key)
    _leave(state, changes, event.key)
    _forget_pauses(state, changes, event.key)
    if key.part != "check":  # which has no output of its own
        former = state.nodes[key.node]
        changes["nodes"] = state.nodes.set(key.node, replace(former, ref=changes["number"]))


def _node_retried(state: RunState, event: NodeRetried, changes: Changes) -> None:
    text = event.key
    if event.restarts:  # the external work is started again, as if it had not been reported on
        changes["pauses"] = state.pauses.set(text, state.pauses[text][:-1])
    if event.restarts or text in state.external_failures:
        changes["external_failures"] = state.external_failures.set(
            text, state.external_failures.get(text, 0) + 1
        )


def _node_failed(state: RunState, event: NodeFailed, changes: Changes) -> None:
    key = Key.parse(event.key)
    if key.item is not None and event.handled == CONTINUE:
        _item_ended(state, event, changes)
        return
    _leave(state, changes, event.key)
    _leave(state, changes, f"poll:{event.key}")
    if event.cause in ("approval", "timeout"):
        _forget_approval(state, changes, key.node)
    if key.item is not None:  # the map gives up its other items
        _leave_items(state, changes, key.node)
    if event.handled:
        _forget_pauses(state, changes, event.key)
        ended = NodeState(
            status=NodeStatus.COMPLETED,
            ref=changes["number"],
            port=ORDINARY if event.handled == CONTINUE else event.handled,
            iteration=key.iteration,
            end_number=changes["number"],
            has_failed=True,
        )
        if key.node in state.maps:
            changes["maps"] = state.maps.delete(key.node)
    else:
        ended = replace(state.nodes[key.node], status=NodeStatus.FAILED)
        if not state.failed_node:
            changes.update(failure=event.failure, failed_node=key.node)
    changes["nodes"] = state.nodes.set(key.node, ended)


def _leave_items(state: RunState, changes: Changes, node: str) -> None:
    former = state.maps[node]
    for item in range(former.launched):
        if item not in former.refs:
            text = f"{node}[{item}]"
            _leave(state, changes, text)
            _leave(state, changes, f"poll:{text}")
            _forget_pauses(state, changes, text)


def _item_ended(state: RunState, event: ItemCompleted | NodeFailed, changes: Changes) -> None:
    text, key = event.key, Key.parse(event.key)
    _leave(state, changes, text)
    _leave(state, changes, f"poll:{text}")
    _forget_pauses(state, changes, text)
    assert key.item is not None
    former = state.maps[key.node]
    refs = former.refs.set(key.item, changes["number"])
    changes["maps"] = state.maps.set(key.node, replace(former, refs=refs))


# Pauses, approvals and signals


def _node_paused(state: RunState, event: NodePaused, changes: Changes) -> None:
    _leave(state, changes, event.key)
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
    if state.live.get(f"poll:{text}") is LiveType.JOB and event.by == "poll":
        _leave(state, changes, f"poll:{text}")
    if ReportStatus(event.status) in LAST:
        changes["early_reports"] = state.early_reports.set(text, number)
        if text in event.effects.started:
            _leave(state, changes, text)


def _poll_ended(state: RunState, event: NodePollStarted | NodePolled, changes: Changes) -> None:
    _leave(state, changes, f"poll:{event.key}")


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
    _leave(state, changes, f"remind:{event.node}")
    former = state.approvals.get(event.node, ApprovalState())
    deciders = (*former.deciders, *event.deciders)
    reminded = replace(former, reminders=event.number, deciders=deciders)
    changes["approvals"] = state.approvals.set(event.node, reminded)


def _node_notified(state: RunState, event: NodeNotified, changes: Changes) -> None:
    _leave(state, changes, event.key)


def _signal_received(state: RunState, event: SignalReceived, changes: Changes) -> None:
    waiting = state.signals.get(event.name, ())
    changes["signals"] = state.signals.set(event.name, (*waiting, changes["number"]))


# The run


def _submitted(state: RunState, event: RunSubmitted, changes: Changes) -> None:
    changes.update(
        flow=event.flow, version=event.version, aging_ms=event.aging_ms, parent=event.parent
    )


def _paused(state: RunState, event: RunPaused, changes: Changes) -> None:
    changes["is_paused"] = True
    if state.ends_as is None:  # else they say why it is being undone
        changes.update(reason=event.reason, by=event.by)


def _unpaused(state: RunState, event: RunResumed, changes: Changes) -> None:
    changes["is_paused"] = False
    if state.ends_as is None:
        changes.update(reason=None, by=None)


def _compensation_started(state: RunState, event: CompensationStarted, changes: Changes) -> None:
    _leave_all(state, changes)
    changes.update(
        ends_as=RunStatus(event.outcome),
        undoes=event.undoes,
        failure=event.failure,
        failed_node=event.node,
        reason=event.reason,
        by=event.by,
        is_paused=False,
    )


def _undo_ended(state: RunState, event: NodeUndone | UndoFailed, changes: Changes) -> None:
    node = event.node
    _leave(state, changes, f"undo:{node}")
    undone = replace(state.nodes[node], is_undone=True)
    changes["nodes"] = state.nodes.set(node, undone)
    changes["undoes"] = state.undoes[state.undoes.index(node) + 1 :]


def _run_completed(state: RunState, event: RunCompleted, changes: Changes) -> None:
    changes.update(status=RunStatus.COMPLETED, result_ref=event.ref or changes["number"])


def _run_failed(state: RunState, event: RunFailed, changes: Changes) -> None:
    _leave_all(state, changes)
    changes.update(
        status=RunStatus.FAILED,
        failure=event.failure,
        failed_node=event.node,
        ends_as=None,
        undoes=(),
        is_paused=False,
    )


def _run_cancelled(state: RunState, event: RunCancelled, changes: Changes) -> None:
    _leave_all(state, changes)
    changes.update(
        status=RunStatus.CANCELLED,
        reason=event.reason,
        by=event.by,
        compensates=event.compensates,
        ends_as=None,
        undoes=(),
        is_paused=False,
    )


def _run_skipped(state: RunState, event: RunSkipped, changes: Changes) -> None:
    changes.update(status=RunStatus.SKIPPED, reason=event.reason)


def _run_retried(state: RunState, event: RunRetried | RunForked, changes: Changes) -> None:
    nodes = state.nodes
    for id, node in state.nodes.items():
        if node.status is NodeStatus.BLOCKED:
            nodes = nodes.delete(id)
    changes.update(
        status=RunStatus.RUNNING,
        nodes=nodes,
        edge_counts=Map(),
        failure=None,
        failed_node="",
        reason=None,
        by=None,
        is_paused=False,
        ends_as=None,
        compensates=False,
        undoes=(),
        result_ref=0,
        live=Map(),
        jobs=0,
        **_NOTHING_OPEN,
    )


def _run_forked(state: RunState, event: RunForked, changes: Changes) -> None:
    _run_retried(state, event, changes)
    changes["parent"] = None  # which waits for the run that this one was copied from


def _run_migrated(state: RunState, event: RunMigrated, changes: Changes) -> None:
    changes.update(version=event.version, edge_counts=Map())


def _output_changed(state: RunState, event: OutputChanged, changes: Changes) -> None:
    changed = replace(state.nodes[event.node], ref=changes["number"])
    changes["nodes"] = state.nodes.set(event.node, changed)


_FOLDS: dict[type, Callable[[RunState, Any, Changes], None]] = {
    RunSubmitted: _submitted,
    NodeCompleted: _node_completed,
    ItemCompleted: _item_ended,
    IterationCompleted: _iteration_completed,
    NodeRetried: _node_retried,
    NodeFailed: _node_failed,
    SignalReceived: _signal_received,
    RunPaused: _paused,
    RunResumed: _unpaused,
    CompensationStarted: _compensation_started,
    NodeUndone: _undo_ended,
    UndoFailed: _undo_ended,
    RunCompleted: _run_completed,
    RunFailed: _run_failed,
    RunCancelled: _run_cancelled,
    RunSkipped: _run_skipped,
    RunRetried: _run_retried,
    RunForked: _run_forked,
    RunMigrated: _run_migrated,
    OutputChanged: _output_changed,
    NodeSkipped: _node_skipped,
    NodePaused: _node_paused,
    NodeReported: _node_reported,
    NodePollStarted: _poll_ended,
    NodePolled: _poll_ended,
    ReportIgnored: _report_ignored,
    ApprovalAnswered: _approval_answered,
    ApprovalReminded: _approval_reminded,
    NodeNotified: _node_notified,
}
