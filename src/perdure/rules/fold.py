"""Folding: the state of a run is what its events add up to, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from immutables import Map
from msgspec.structs import replace

from perdure.errors import EventLogCorrupt
from perdure.model.event import (
    NOTHING,
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
    RunSkipped,
    RunSubmitted,
    RunUnpaused,
    SignalReceived,
    Then,
    UndoFailed,
)
from perdure.model.graph import CONTINUE, ORDINARY
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import (
    ENDED,
    NodeState,
    NodeStatus,
    RunState,
    RunStatus,
)
from perdure.rules import fold_people
from perdure.rules.live import (
    NOTHING_OPEN,
    Changes,
    follow,
    forget_approval,
    forget_pauses,
    leave,
    leave_all,
)


def fold(state: RunState, event: Event) -> RunState:
    """The state after one more event."""
    changes: Changes = {"number": state.number + 1}
    _FOLDS[type(event)](state, event, changes)
    then: Then = getattr(event, "then", NOTHING)
    if then is not NOTHING:
        follow(state, changes, then)
    changes["status"] = _status(state, changes)
    return replace(state, **changes)


def fold_stored(run: RunId, state: RunState, event: Event) -> RunState:
    """The same for an event from a store, where one may stand that does not follow on."""
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


def _submitted(state: RunState, event: RunSubmitted, changes: Changes) -> None:
    changes.update(
        flow=event.flow, version=event.version, aging_ms=event.aging_ms, parent=event.parent
    )


def _node_completed(state: RunState, event: NodeCompleted, changes: Changes) -> None:
    id, number = event.node, changes["number"]
    text = id
    if event.iteration:
        text = f"{id}#{event.iteration}"
        leave(state, changes, f"check:{text}")
    leave(state, changes, text)
    if state.pauses or state.progress or state.early:
        leave(state, changes, f"poll:{text}")
        forget_pauses(state, changes, text)
    done = NodeState(
        status=NodeStatus.COMPLETED,
        ref=event.ref or number,
        port=event.port,
        iteration=event.iteration,
        end_number=number,
    )
    changes["nodes"] = state.nodes.set(id, done)
    if event.cause == "signal":
        changes["mail"] = _taken(state.mail, event.ref)
    elif event.cause == "items":
        changes["maps"] = state.maps.delete(id)
    elif event.cause in ("approval", "timeout"):
        forget_approval(state, changes, id)


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
    leave(state, changes, text)
    leave(state, changes, f"poll:{text}")
    forget_pauses(state, changes, text)
    assert key.item is not None
    former = state.maps[key.node]
    refs = former.refs.set(key.item, changes["number"])
    changes["maps"] = state.maps.set(key.node, replace(former, refs=refs))


def _iteration_completed(state: RunState, event: IterationCompleted, changes: Changes) -> None:
    key = Key.parse(event.key)
    leave(state, changes, event.key)
    forget_pauses(state, changes, event.key)
    if key.part != "check":  # which has no output of its own
        former = state.nodes[key.node]
        changes["nodes"] = state.nodes.set(key.node, replace(former, ref=changes["number"]))


def _node_retried(state: RunState, event: NodeRetried, changes: Changes) -> None:
    text = event.key
    if event.restarts:  # the outside work is begun again, as if it had not been reported on
        changes["pauses"] = state.pauses.set(text, state.pauses[text][:-1])
    if event.restarts or text in state.retried:
        changes["retried"] = state.retried.set(text, state.retried.get(text, 0) + 1)


def _node_failed(state: RunState, event: NodeFailed, changes: Changes) -> None:
    key = Key.parse(event.key)
    if key.item is not None and event.handled == CONTINUE:
        _item_ended(state, changes, event.key)
        return
    leave(state, changes, event.key)
    leave(state, changes, f"poll:{event.key}")
    if event.cause in ("approval", "timeout"):
        forget_approval(state, changes, key.node)
    if key.item is not None:  # the map gives up its other items
        _leave_items(state, changes, key.node)
    if event.handled:
        forget_pauses(state, changes, event.key)
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
            leave(state, changes, text)
            leave(state, changes, f"poll:{text}")
            forget_pauses(state, changes, text)


def _signal_received(state: RunState, event: SignalReceived, changes: Changes) -> None:
    waiting = state.mail.get(event.name, ())
    changes["mail"] = state.mail.set(event.name, (*waiting, changes["number"]))


def _paused(state: RunState, event: RunPaused, changes: Changes) -> None:
    changes["is_paused"] = True
    if state.ends_as is None:  # else they say why it is being undone
        changes.update(reason=event.reason, by=event.by)


def _unpaused(state: RunState, event: RunUnpaused, changes: Changes) -> None:
    changes["is_paused"] = False
    if state.ends_as is None:
        changes.update(reason=None, by=None)


def _compensation_started(state: RunState, event: CompensationStarted, changes: Changes) -> None:
    leave_all(state, changes)
    changes.update(
        ends_as=RunStatus(event.outcome),
        undoes=event.undoes,
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
    leave(state, changes, f"undo:{node}")
    undone = replace(state.nodes[node], is_undone=True)
    changes["nodes"] = state.nodes.set(node, undone)
    changes["undoes"] = state.undoes[state.undoes.index(node) + 1 :]


def _run_completed(state: RunState, event: RunCompleted, changes: Changes) -> None:
    changes.update(status=RunStatus.COMPLETED, result_ref=event.ref or changes["number"])


def _run_failed(state: RunState, event: RunFailed, changes: Changes) -> None:
    leave_all(state, changes)
    changes.update(
        status=RunStatus.FAILED,
        failure=event.failure,
        failed_node=event.node,
        ends_as=None,
        undoes=(),
        is_paused=False,
    )


def _run_cancelled(state: RunState, event: RunCancelled, changes: Changes) -> None:
    leave_all(state, changes)
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
        arrived=Map(),
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
        **NOTHING_OPEN,
    )


def _run_forked(state: RunState, event: RunForked, changes: Changes) -> None:
    _run_retried(state, event, changes)
    changes["parent"] = None  # which waits for the run that this one was copied from


def _run_migrated(state: RunState, event: RunMigrated, changes: Changes) -> None:
    changes.update(version=event.version, arrived=Map())


def _output_changed(state: RunState, event: OutputChanged, changes: Changes) -> None:
    changed = replace(state.nodes[event.node], ref=changes["number"])
    changes["nodes"] = state.nodes.set(event.node, changed)


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
    RunSkipped: _run_skipped,
    RunRetried: _run_retried,
    RunForked: _run_forked,
    RunMigrated: _run_migrated,
    OutputChanged: _output_changed,
    **fold_people.FOLDS,
}
