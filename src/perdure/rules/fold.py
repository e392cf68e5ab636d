"""Folding: the state of a run is what its events add up to, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from immutables import Map
from msgspec.structs import replace

from perdure.errors import EventLogCorrupt
from perdure.model.event import (
    CompensationStarted,
    Event,
    ItemCompleted,
    IterationCompleted,
    NodeCompleted,
    NodeFailed,
    NodeRetried,
    NodeUndone,
    OutputChanged,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunForked,
    RunMigrated,
    RunPaused,
    RunRetried,
    RunSubmitted,
    RunUnpaused,
    SignalReceived,
    Then,
    UndoFailed,
)
from perdure.model.graph import CONTINUE, ORDINARY
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import LiveKind, MapState, NodeState, NodeStatus, RunState, RunStatus

Changes = dict[str, Any]


def fold(state: RunState, event: Event) -> RunState:
    """The state after one more event."""
    number = state.number + 1
    changes: Changes = {"number": number}
    _FOLDS[type(event)](state, event, changes)
    then = getattr(event, "then", None)
    if then is not None:
        _follow(state, changes, then)
    folded = replace(state, **changes)
    status = _status(folded)
    return folded if folded.status is status else replace(folded, status=status)


def check_contiguous(run: RunId, expected: int, number: int) -> None:
    """Refuse a log with a gap, or with an event twice."""
    if number != expected:
        raise EventLogCorrupt(run, f"event {expected} is missing: {number} follows")


def _status(state: RunState) -> RunStatus:
    if state.is_ended:
        return state.status
    if state.is_paused:
        return RunStatus.PAUSED
    if state.ends_as is not None:
        return RunStatus.COMPENSATING
    return RunStatus.RUNNING if state.jobs or not state.live else RunStatus.WAITING


def _follow(state: RunState, changes: Changes, then: Then) -> None:
    """What an event led to at once."""
    nodes = changes.get("nodes", state.nodes)
    live = changes.get("live", state.live)
    jobs = changes.get("jobs", state.jobs)
    maps = changes.get("maps", state.maps)
    children = changes.get("children", state.children)
    for id, count in then.mapped:
        maps = maps.set(id, MapState(count=count, launched=0, refs=Map()))
    for keys, kind in (
        (then.started, LiveKind.JOB),
        (then.waiting, LiveKind.WAIT),
        ((text for text, _ in then.children), LiveKind.CHILD),
    ):
        for text in keys:
            live = live.set(text, kind)
            jobs += kind is LiveKind.JOB
            key = Key.parse(text)
            if key.part != "undo":
                nodes = nodes.set(key.node, _live_node(nodes.get(key.node), key))
            if key.item is not None:
                map_state = maps[key.node]
                launched = max(map_state.launched, key.item + 1)
                maps = maps.set(key.node, replace(map_state, launched=launched))
    for text, run in then.children:
        children = children.set(text, run)
    for id in then.skipped:
        nodes = nodes.set(id, NodeState(status=NodeStatus.SKIPPED))
    for id in then.blocked:
        nodes = nodes.set(id, NodeState(status=NodeStatus.BLOCKED))
    changes.update(nodes=nodes, live=live, jobs=jobs, maps=maps, children=children)
    if then.arrived:
        arrived = changes.get("arrived", state.arrived)
        for each in then.arrived:
            arrived = arrived.set(each.node, (each.decided, each.active, each.blocked))
        changes["arrived"] = arrived


def _live_node(before: NodeState | None, key: Key) -> NodeState:
    ref = 0 if before is None else before.ref
    return NodeState(status=NodeStatus.LIVE, ref=ref, iteration=key.iteration, part=key.part)


def _leave(state: RunState, changes: Changes, text: str) -> None:
    """A key is no longer live."""
    live = changes.get("live", state.live)
    kind = live.get(text)
    if kind is not None:
        changes["live"] = live.delete(text)
        changes["jobs"] = changes.get("jobs", state.jobs) - (kind is LiveKind.JOB)


def _leave_all(state: RunState, changes: Changes) -> None:
    """The run ends, or turns to undoing: whatever is live is cancelled."""
    nodes = changes.get("nodes", state.nodes)
    for id in {Key.parse(text).node for text in state.live if not text.startswith("undo:")}:
        former = nodes[id]
        if former.status is NodeStatus.LIVE:
            nodes = nodes.set(id, replace(former, status=NodeStatus.CANCELLED))
    changes.update(nodes=nodes, live=Map(), jobs=0)


def _submitted(state: RunState, event: RunSubmitted, changes: Changes) -> None:
    changes.update(
        flow=event.flow, version=event.version, aging_ms=event.aging_ms, parent=event.parent
    )


def _node_completed(state: RunState, event: NodeCompleted, changes: Changes) -> None:
    ref = event.ref or changes["number"]
    former = state.nodes.get(event.node)
    text = _text_of(event.node, event.iteration)
    _leave(state, changes, text)
    if former is not None and former.iteration:
        _leave(state, changes, f"check:{text}")
    done = NodeState(
        status=NodeStatus.COMPLETED, ref=ref, port=event.port, iteration=event.iteration
    )
    changes["nodes"] = state.nodes.set(event.node, done)
    if event.cause == "signal":
        changes["mail"] = _taken(state.mail, event.ref)


def _taken(mail: Map[str, tuple[int, ...]], ref: int) -> Map[str, tuple[int, ...]]:
    for name, refs in mail.items():
        if ref in refs:
            left = tuple(each for each in refs if each != ref)
            return mail.set(name, left) if left else mail.delete(name)
    return mail


def _item_completed(state: RunState, event: ItemCompleted, changes: Changes) -> None:
    _item_ended(state, changes, event.key)


def _item_ended(state: RunState, changes: Changes, text: str) -> None:
    key = Key.parse(text)
    _leave(state, changes, text)
    assert key.item is not None
    former = state.maps[key.node]
    refs = former.refs.set(key.item, changes["number"])
    changes["maps"] = state.maps.set(key.node, replace(former, refs=refs))


def _iteration_completed(state: RunState, event: IterationCompleted, changes: Changes) -> None:
    key = Key.parse(event.key)
    _leave(state, changes, event.key)
    former = state.nodes[key.node]
    if key.part != "check":  # which has no output of its own
        changes["nodes"] = state.nodes.set(key.node, replace(former, ref=changes["number"]))


def _node_retried(state: RunState, event: NodeRetried, changes: Changes) -> None:
    pass


def _node_failed(state: RunState, event: NodeFailed, changes: Changes) -> None:
    key = Key.parse(event.key)
    if key.item is not None and event.handled == CONTINUE:
        _item_ended(state, changes, event.key)
        return
    _leave(state, changes, event.key)
    former = state.nodes.get(key.node) or NodeState(status=NodeStatus.LIVE)
    if event.handled:
        port = ORDINARY if event.handled == CONTINUE else event.handled
        ended = NodeState(
            status=NodeStatus.COMPLETED,
            ref=changes["number"],
            port=port,
            iteration=key.iteration,
        )
        if key.item is not None:  # the other items of a map that goes on from a port
            _leave_items(state, changes, key.node)
    else:
        ended = replace(former, status=NodeStatus.FAILED)
        if not state.failed_node:
            changes.update(failure=event.failure, failed_node=key.node)
        if key.item is not None:
            _leave_items(state, changes, key.node)
    changes["nodes"] = state.nodes.set(key.node, ended)


def _leave_items(state: RunState, changes: Changes, node: str) -> None:
    former = state.maps[node]
    for item in range(former.launched):
        if item not in former.refs:
            _leave(state, changes, f"{node}[{item}]")


def _signal_received(state: RunState, event: SignalReceived, changes: Changes) -> None:
    waiting = state.mail.get(event.name, ())
    changes["mail"] = state.mail.set(event.name, (*waiting, changes["number"]))


def _paused(state: RunState, event: RunPaused, changes: Changes) -> None:
    changes.update(is_paused=True, reason=event.reason, by=event.by)


def _unpaused(state: RunState, event: RunUnpaused, changes: Changes) -> None:
    changes.update(is_paused=False, reason=None, by=None)


def _compensation_started(state: RunState, event: CompensationStarted, changes: Changes) -> None:
    _leave_all(state, changes)
    changes.update(
        ends_as=RunStatus(event.outcome),
        failure=event.failure,
        failed_node=event.node,
        reason=event.reason,
        by=event.by,
        is_paused=False,
    )


def _node_undone(state: RunState, event: NodeUndone, changes: Changes) -> None:
    _undo_ended(state, changes, event.node)


def _undo_failed(state: RunState, event: UndoFailed, changes: Changes) -> None:
    _undo_ended(state, changes, event.node)


def _undo_ended(state: RunState, changes: Changes, node: str) -> None:
    _leave(state, changes, f"undo:{node}")
    undone = replace(state.nodes[node], is_undone=True)
    changes["nodes"] = state.nodes.set(node, undone)


def _run_completed(state: RunState, event: RunCompleted, changes: Changes) -> None:
    changes.update(status=RunStatus.COMPLETED, result_ref=event.ref or changes["number"])


def _run_failed(state: RunState, event: RunFailed, changes: Changes) -> None:
    _leave_all(state, changes)
    changes.update(
        status=RunStatus.FAILED,
        failure=event.failure,
        failed_node=event.node,
        ends_as=None,
        is_paused=False,
    )


def _run_cancelled(state: RunState, event: RunCancelled, changes: Changes) -> None:
    _leave_all(state, changes)
    changes.update(
        status=RunStatus.CANCELLED,
        reason=event.reason,
        by=event.by,
        ends_as=None,
        is_paused=False,
    )


def _run_retried(state: RunState, event: RunRetried | RunForked, changes: Changes) -> None:
    nodes = state.nodes
    for id, node in state.nodes.items():
        if node.status is NodeStatus.BLOCKED:
            nodes = nodes.delete(id)
    changes.update(
        status=RunStatus.RUNNING,
        nodes=nodes,
        arrived=Map(),
        failure=None,
        failed_node="",
        reason=None,
        by=None,
        is_paused=False,
        ends_as=None,
        live=Map(),
        jobs=0,
    )


def _run_migrated(state: RunState, event: RunMigrated, changes: Changes) -> None:
    changes["version"] = event.version


def _output_changed(state: RunState, event: OutputChanged, changes: Changes) -> None:
    changed = replace(state.nodes[event.node], ref=changes["number"])
    changes["nodes"] = state.nodes.set(event.node, changed)


def _text_of(node: str, iteration: int) -> str:
    return f"{node}#{iteration}" if iteration else node


_FOLDS: dict[type, Callable[[RunState, Any, Changes], None]] = {
    RunSubmitted: _submitted,
    NodeCompleted: _node_completed,
    ItemCompleted: _item_completed,
    IterationCompleted: _iteration_completed,
    NodeRetried: _node_retried,
    NodeFailed: _node_failed,
    SignalReceived: _signal_received,
    RunPaused: _paused,
    RunUnpaused: _unpaused,
    CompensationStarted: _compensation_started,
    NodeUndone: _node_undone,
    UndoFailed: _undo_failed,
    RunCompleted: _run_completed,
    RunFailed: _run_failed,
    RunCancelled: _run_cancelled,
    RunRetried: _run_retried,
    RunForked: _run_retried,
    RunMigrated: _run_migrated,
    OutputChanged: _output_changed,
}
