"""Fold events into the state of a run, including its live jobs, waits and children.

Folding needs no graph, no task code and no version of the decision rules: each event carries its
effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from immutables import Map
from msgspec import UNSET
from msgspec.structs import replace

from perdure.errors import EventLogCorrupt
from perdure.model.event import (
    NOTHING,
    ApprovalAnswered,
    ApprovalEscalated,
    ApprovalReminded,
    CompensationStarted,
    Effects,
    Event,
    ItemCompleted,
    IterationCompleted,
    NodeCancelled,
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
    PriorityChanged,
    QueuedRunStarted,
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
from perdure.model.ids import AUXILIARY_PARTS, Key, RunId
from perdure.model.principal import RESERVED
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
"""Fields of the state that the event changes, with their new values."""

_NO_OPEN_WAITS: Changes = {
    "pauses": Map(),
    "early_reports": Map(),
    "approvals": Map(),
    "external_failures": Map(),
}
"""Open waits and answers do not survive when a run ends, compensates or is retried."""
TOKENS_MAX = 1_000
"""Tokens of reports kept per key, to recognize repeated reports."""
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
    """Fold an event read from a store; raises ``EventLogCorrupt`` if it does not fit the state."""
    try:
        return fold(state, event)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"event {state.number + 1} does not follow from those before it: {error!r}"
        raise EventLogCorrupt(run_id=run, reason=reason) from error


def check_contiguous(run: RunId, expected: int, number: int) -> None:
    """Raise if the log has a gap or a duplicate event."""
    if number != expected:
        raise EventLogCorrupt(run_id=run, reason=f"event {expected} is missing: {number} follows")


def check_complete(run: RunId, expected: int, number: int) -> None:
    """Raise unless the log, read up to event ``number``, ends where the run's row says."""
    if number != expected:
        reason = f"it ends with event {number} instead of {expected}"
        raise EventLogCorrupt(run_id=run, reason=reason)


def _status(state: RunState, changes: Changes) -> RunStatus:
    status: RunStatus = changes.get("status", state.status)
    if status in ENDED:
        return status
    if changes.get("is_paused", state.is_paused):
        return RunStatus.PAUSED
    if changes.get("ends_as", state.ends_as) is not None:
        return RunStatus.COMPENSATING
    if changes.get("is_queued", state.is_queued):
        return RunStatus.QUEUED
    if changes.get("jobs", state.jobs) or not changes.get("live", state.live):
        return RunStatus.RUNNING
    return RunStatus.WAITING


# Effects and live keys


def _apply_effects(state: RunState, changes: Changes, effects: Effects) -> None:
    """Apply the jobs, waits, children and skipped nodes that an event carries."""
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
        _drop_edge_counts(state, changes, ended)
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
        if key.item is not None and not key.part:
            launched[key.node] = max(launched.get(key.node, 0), key.item + 1)
        elif key.part in ("", "check"):  # other parts are auxiliary: they do not change the node
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
    _drop_edge_counts(state, changes, reached)


def _live_node(before: NodeState | None, key: Key) -> NodeState:
    if before is None and not key.iteration:  # the common case
        return _LIVE
    ref = 0 if before is None else before.ref
    return NodeState(status=NodeStatus.LIVE, ref=ref, iteration=key.iteration, part=key.part)


def _drop_edge_counts(state: RunState, changes: Changes, reached: Iterable[str]) -> None:
    """Drop the edge counts of nodes that were reached: they are no longer needed."""
    counts = changes.get("edge_counts", state.edge_counts)
    if counts:
        for id in reached:
            if id in counts:
                changes["edge_counts"] = counts = counts.delete(id)


def _end_live(state: RunState, changes: Changes, text: str) -> None:
    """Remove a key from the live ones."""
    live = changes.get("live", state.live)
    live_type = live.get(text)
    if live_type is not None:
        changes["live"] = live.delete(text)
        if live_type is LiveType.JOB:
            changes["jobs"] = changes.get("jobs", state.jobs) - 1


def _end_all_live(state: RunState, changes: Changes) -> None:
    """The run ends or starts to compensate: cancel everything that is live."""
    cancelled: dict[str, NodeState] = {}
    for text in state.live:
        key = Key.parse(text)
        former = state.nodes[key.node]
        if key.part == "cancel":  # it must be done even if the run ends
            continue
        if key.part == "undo":  # it may have run in part, so it counts as undone
            cancelled[key.node] = replace(former, is_undone=True)
        elif former.status is NodeStatus.LIVE:
            cancelled[key.node] = replace(former, status=NodeStatus.CANCELLED)
    left = {text: LiveType.JOB for text in state.live if text.startswith("cancel:")}
    changes.update(
        nodes=state.nodes.update(cancelled),
        live=Map(left),
        jobs=len(left),
        only_cancels=False,
        **_NO_OPEN_WAITS,
    )


def _end_pauses(state: RunState, changes: Changes, texts: Iterable[str]) -> None:
    """Attach reports to the pauses that these tasks resume from."""
    early, pauses = (
        changes.get("early_reports", state.early_reports),
        changes.get("pauses", state.pauses),
    )
    for text in texts:
        if (ref := early.get(text)) is not None and (former := pauses.get(text)):
            pauses = pauses.set(text, (*former[:-1], replace(former[-1], report=ref)))
            early = early.delete(text)
            _end_live(state, changes, f"poll:{text}")
    changes.update(early_reports=early, pauses=pauses)


def _drop_pauses(state: RunState, changes: Changes, text: str) -> None:
    """Drop pauses, progress and reports of a key that ended."""
    for name in ("pauses", "progress", "early_reports", "external_failures"):
        known = changes.get(name, getattr(state, name))
        if text in known:
            changes[name] = known.delete(text)


def _drop_approval(state: RunState, changes: Changes, node: str) -> None:
    """Drop a closed approval with its reminders and notifications."""
    former = state.approvals.get(node, ApprovalState())
    _end_live(state, changes, f"remind:{node}")
    _end_live(state, changes, f"notify:{node}")
    for number in range(1, former.reminders + 1):
        _end_live(state, changes, f"notify:{node}#{number}")
    if node in state.approvals:
        changes["approvals"] = state.approvals.delete(node)


# Nodes


def _node_completed(state: RunState, event: NodeCompleted, changes: Changes) -> None:
    id, number = event.node, changes["number"]
    text = id
    if event.iteration:
        text = f"{id}#{event.iteration}"
        _end_live(state, changes, f"check:{text}")
    _end_live(state, changes, text)
    if state.pauses or state.progress or state.early_reports:
        _end_live(state, changes, f"poll:{text}")
        _drop_pauses(state, changes, text)
    done = NodeState(
        status=NodeStatus.COMPLETED,
        ref=event.ref or number,
        port=event.port,
        iteration=event.iteration,
        end_number=number,
    )
    changes["nodes"] = state.nodes.set(id, done)
    if event.cause == "signal":
        changes["signals"] = _without_signal(state.signals, event.ref)
    elif event.cause == "items":
        changes["maps"] = state.maps.delete(id)
    elif event.cause in ("approval", "timeout"):
        _drop_approval(state, changes, id)


def _without_signal(signals: Map[str, tuple[int, ...]], ref: int) -> Map[str, tuple[int, ...]]:
    for name, refs in signals.items():
        if ref in refs:
            left = tuple(each for each in refs if each != ref)
            return signals.set(name, left) if left else signals.delete(name)
    return signals


def _node_skipped(state: RunState, event: NodeSkipped, changes: Changes) -> None:
    _end_live(state, changes, event.node)
    _drop_pauses(state, changes, event.node)
    skipped = NodeState(status=NodeStatus.SKIPPED, end_number=changes["number"])
    changes["nodes"] = state.nodes.set(event.node, skipped)


def _iteration_completed(state: RunState, event: IterationCompleted, changes: Changes) -> None:
    key = Key.parse(event.key)
    _end_live(state, changes, event.key)
    _drop_pauses(state, changes, event.key)
    if key.part != "check":  # a check has no output
        former = state.nodes[key.node]
        changes["nodes"] = state.nodes.set(key.node, replace(former, ref=changes["number"]))


def _node_retried(state: RunState, event: NodeRetried, changes: Changes) -> None:
    text = event.key
    if not event.is_snoozed and Key.parse(text).part not in AUXILIARY_PARTS:
        changes["failed_attempts"] = state.failed_attempts + 1
    if event.restarts:  # the external work starts again: drop the failed report
        changes["pauses"] = state.pauses.set(text, state.pauses[text][:-1])
    if event.restarts or text in state.external_failures:
        changes["external_failures"] = state.external_failures.set(
            text, state.external_failures.get(text, 0) + 1
        )


def _node_failed(state: RunState, event: NodeFailed, changes: Changes) -> None:
    key = Key.parse(event.key)
    if event.cause in ("", "attempts"):  # otherwise a child, a wait or an approval failed
        changes["failed_attempts"] = state.failed_attempts + 1
    if key.item is not None and event.handled == CONTINUE:
        _item_ended(state, event, changes)
        return
    _end_live(state, changes, event.key)
    _end_live(state, changes, f"poll:{event.key}")
    if event.cause in ("approval", "timeout"):
        _drop_approval(state, changes, key.node)
    if key.item is not None:  # one failed item cancels the others
        _end_live_items(state, changes, key.node)
    if event.handled:
        _drop_pauses(state, changes, event.key)
        ended = NodeState(
            status=NodeStatus.COMPLETED,
            ref=changes["number"],
            port=ORDINARY if event.handled == CONTINUE else event.handled,
            iteration=key.iteration,
            end_number=changes["number"],
            has_failed=True,
        )
        if key.node in state.maps and not state.map_window:
            changes["maps"] = state.maps.delete(key.node)
    else:
        ended = replace(state.nodes[key.node], status=NodeStatus.FAILED)
        if not state.failed_node:
            changes.update(failure=event.failure, failed_node=key.node)
    changes["nodes"] = state.nodes.set(key.node, ended)


def _end_live_items(state: RunState, changes: Changes, node: str) -> None:
    former = state.maps[node]
    for item in range(former.launched):
        if item not in former.refs:
            text = f"{node}[{item}]"
            _end_live(state, changes, text)
            _end_live(state, changes, f"poll:{text}")
            _drop_pauses(state, changes, text)


def _item_ended(state: RunState, event: ItemCompleted | NodeFailed, changes: Changes) -> None:
    text, key = event.key, Key.parse(event.key)
    _end_live(state, changes, text)
    _end_live(state, changes, f"poll:{text}")
    _drop_pauses(state, changes, text)
    assert key.item is not None
    former, number = state.maps[key.node], changes["number"]
    changed: Changes = {"refs": former.refs.set(key.item, number)}
    if isinstance(event, ItemCompleted):
        changed["size_bytes"] = former.size_bytes + event.size_bytes
    elif state.map_window:
        changed["failed"] = former.failed.set(key.item, number)
    progress = replace(former, **changed)
    changes["maps"] = state.maps.set(key.node, progress)


# Pauses, approvals and signals


def _node_paused(state: RunState, event: NodePaused, changes: Changes) -> None:
    _end_live(state, changes, event.key)
    pause = PauseState(
        name=event.name,
        checkpoint=changes["number"],
        poll_ms=event.poll_ms,
        cancels=event.cancels or UNSET,
        attempt=event.attempt,
    )
    former = state.pauses.get(event.key, ())
    changes["pauses"] = state.pauses.set(event.key, (*former, pause))


def _node_reported(state: RunState, event: NodeReported, changes: Changes) -> None:
    text, number = event.key, changes["number"]
    if event.token:
        known = state.reports.get(text, ())
        changes["reports"] = state.reports.set(text, (*known, event.token)[-TOKENS_MAX:])
    if event.has_progress:
        changes["progress"] = state.progress.set(text, number)
    is_poll = event.is_poll or event.by in RESERVED  # as older logs have it
    if state.live.get(f"poll:{text}") is LiveType.JOB and is_poll:
        _end_live(state, changes, f"poll:{text}")
    if ReportStatus(event.status) in LAST:
        changes["early_reports"] = state.early_reports.set(text, number)
        if text in event.effects.started:
            _end_live(state, changes, text)


def _poll_ended(state: RunState, event: NodePollStarted | NodePolled, changes: Changes) -> None:
    _end_live(state, changes, f"poll:{event.key}")


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


def _approval_reminded(
    state: RunState, event: ApprovalReminded | ApprovalEscalated, changes: Changes
) -> None:
    _end_live(state, changes, f"remind:{event.node}")
    former = state.approvals.get(event.node, ApprovalState())
    deciders = (*former.deciders, *event.deciders)
    reminded = replace(former, reminders=former.reminders + 1, deciders=deciders)
    changes["approvals"] = state.approvals.set(event.node, reminded)


def _auxiliary_ended(
    state: RunState, event: NodeNotified | NodeCancelled, changes: Changes
) -> None:
    _end_live(state, changes, event.key)


def _signal_received(state: RunState, event: SignalReceived, changes: Changes) -> None:
    waiting = state.signals.get(event.name, ())
    changes["signals"] = state.signals.set(event.name, (*waiting, changes["number"]))


# The run


def _submitted(state: RunState, event: RunSubmitted, changes: Changes) -> None:
    changes.update(
        flow=event.flow,
        version=event.version,
        aging_ms=event.aging_ms,
        parent=event.parent,
        settings=event.settings,
        priority=event.priority,
        is_queued=event.is_queued,
        map_window=event.map_window,
        gathered_max_bytes=event.gathered_max_bytes,
    )


def _started(state: RunState, event: QueuedRunStarted, changes: Changes) -> None:
    changes["is_queued"] = False


def _priority_changed(state: RunState, event: PriorityChanged, changes: Changes) -> None:
    changes["priority"] = event.priority


def _paused(state: RunState, event: RunPaused, changes: Changes) -> None:
    changes["is_paused"] = True
    if state.ends_as is None:  # otherwise they give the reason for the compensation
        changes.update(reason=event.reason, by=event.by)


def _unpaused(state: RunState, event: RunResumed, changes: Changes) -> None:
    changes["is_paused"] = False
    if state.ends_as is None:
        changes.update(reason=None, by=None)


def _compensation_started(state: RunState, event: CompensationStarted, changes: Changes) -> None:
    _end_all_live(state, changes)
    changes.update(
        ends_as=RunStatus(event.outcome),
        undoes=event.undoes,
        failure=event.failure,
        failed_node=event.node,
        reason=event.reason,
        by=event.by,
        is_paused=False,
        only_cancels=not event.compensates,
    )


def _undo_ended(state: RunState, event: NodeUndone | UndoFailed, changes: Changes) -> None:
    node, text = event.node, Key(node=event.node, item=event.item).text
    _end_live(state, changes, f"undo:{text}")
    undone = replace(state.nodes[node], is_undone=True)
    changes["nodes"] = state.nodes.set(node, undone)
    changes["undoes"] = state.undoes[state.undoes.index(text) + 1 :]


def _run_completed(state: RunState, event: RunCompleted, changes: Changes) -> None:
    changes.update(status=RunStatus.COMPLETED, result_ref=event.ref or changes["number"])


def _run_failed(state: RunState, event: RunFailed, changes: Changes) -> None:
    _end_all_live(state, changes)
    changes.update(
        status=RunStatus.FAILED,
        failure=event.failure,
        failed_node=event.node,
        ends_as=None,
        undoes=(),
        is_paused=False,
    )


def _run_cancelled(state: RunState, event: RunCancelled, changes: Changes) -> None:
    _end_all_live(state, changes)
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
    if event.is_late:
        changes["settings"] = replace(state.settings, deadline=None)
    changes.update(
        status=RunStatus.RUNNING,
        is_queued=event.is_queued,
        failed_attempts=0,
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
        **_NO_OPEN_WAITS,
    )


def _run_forked(state: RunState, event: RunForked, changes: Changes) -> None:
    _run_retried(state, event, changes)
    changes["parent"] = None  # the parent waits for the original run
    if event.is_queued:  # for a place: its time to start has passed
        settings = changes.get("settings", state.settings)
        changes["settings"] = replace(settings, delay_ms=None, run_at=None)
    for id in event.restarts:
        changes["nodes"] = changes["nodes"].set(id, _LIVE)
        if id in (maps := changes.get("maps", state.maps)):
            changes["maps"] = maps.delete(id)


def _run_migrated(state: RunState, event: RunMigrated, changes: Changes) -> None:
    changes.update(version=event.version, edge_counts=Map())


def _output_changed(state: RunState, event: OutputChanged, changes: Changes) -> None:
    changed = replace(state.nodes[event.node], ref=changes["number"])
    if event.iteration:  # the check of that iteration is next
        changed = replace(changed, iteration=event.iteration, part="check")
    changes["nodes"] = state.nodes.set(event.node, changed)


_FOLDS: dict[type, Callable[[RunState, Any, Changes], None]] = {
    RunSubmitted: _submitted,
    QueuedRunStarted: _started,
    PriorityChanged: _priority_changed,
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
    ApprovalEscalated: _approval_reminded,
    NodeNotified: _auxiliary_ended,
    NodeCancelled: _auxiliary_ended,
}
