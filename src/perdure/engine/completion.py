"""How nodes and runs end: completed, skipped, failed, cancelled, compensated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.engine.decider import Decider
from perdure.engine.run_view import NULL
from perdure.model.event import (
    CompensationStarted,
    Event,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    NodeUndone,
    RunCancelled,
    RunCompleted,
    RunFailed,
    UndoFailed,
)
from perdure.model.failure import Failure, stored_name
from perdure.model.graph import CONTINUE, FAIL, ORDINARY, Call, MapNode, Node
from perdure.model.ids import Key
from perdure.model.run import NodeStatus, RunStatus


def complete(
    d: Decider,
    id: str,
    port: str,
    value: bytes | None,
    *,
    cause: str = "",
    ref: int = 0,
    iteration: int = 0,
    warnings: tuple[str, ...] = (),
) -> None:
    """Complete a node on a port; its output is ``value``, or the value of the event ``ref``."""
    d.follow_edges(id, port, value, ref)
    event = NodeCompleted(
        node=id,
        port=port,
        iteration=iteration,
        cause=cause,
        ref=ref,
        effects=d.take_effects(),
        warnings=warnings,
    )
    d.emit(event, value)


def pass_on(d: Decider, id: str, port: str, cause: str) -> None:
    """Complete a node whose output is its input."""
    complete(d, id, port, None, cause=cause, ref=d.view.input_ref(id))


def end_by_policy(
    d: Decider,
    key: Key,
    policy: str,
    value: bytes | None,
    failure: Failure,
    *,
    cause: str = "",
    ref: int = 0,
) -> None:
    """End a node according to its on_timeout, on_max or on_reject: fail, continue, or a port.

    Unless it fails, its output is ``value``, or the value of the event ``ref``.
    """
    if policy == FAIL:
        fail(d, key, failure, cause)  # the node's on_error still applies
    else:
        port = ORDINARY if policy == CONTINUE else policy
        complete(d, key.node, port, value, cause=cause, ref=ref, iteration=key.iteration)


def skip(d: Decider, id: str, reason: str) -> None:
    """Skip a node that was reached."""
    d.skip_edges(id, is_blocked=False)
    d.emit(NodeSkipped(node=id, reason=reason, effects=d.take_effects()))


def complete_item(
    d: Decider,
    node: MapNode,
    key: Key,
    event_type: Callable[..., Event],
    output: bytes,
    **details: Any,
) -> None:
    """Complete an item of a map: start the next one, or complete the map after the last."""
    before = d.state.maps[node.id]
    if before.launched < before.count:
        d.launch_next(node, before.launched)
    d.emit(event_type(key=key.text, effects=d.take_effects(), **details), output)
    if len(d.state.maps[node.id].refs) == before.count:
        complete_map(d, node.id)


def complete_map(d: Decider, id: str) -> None:
    output = d.view.gathered_items(d.state.maps[id])
    complete(d, id, ORDINARY, output, cause="items")
    d.view.forget_items(id)


def fail(d: Decider, key: Key, failure: Failure, cause: str = "") -> None:
    """Fail a key permanently: the node's on_error applies, or the run ends."""
    node = d.graph.nodes[key.node]
    handled = getattr(node, "on_error", FAIL)
    if isinstance(node, MapNode) and key.item is not None:
        if handled == CONTINUE:
            details = {"failure": failure, "handled": CONTINUE, "cause": cause}
            complete_item(d, node, key, NodeFailed, NULL, **details)
            return
        _drop_other_items(d, node, key.item)
    if handled != FAIL:
        # Conditions of stored flows compare the type: a renamed error keeps its earlier name.
        error = msgspec.json.encode({"type": stored_name(failure.type), "message": failure.message})
        port, value = (ORDINARY, NULL) if handled == CONTINUE else (handled, error)
        d.follow_edges(key.node, port, value)
        event = NodeFailed(
            key=key.text, failure=failure, handled=handled, cause=cause, effects=d.take_effects()
        )
        d.emit(event, value)
    elif d.graph.on_failure == "finish":
        d.skip_edges(key.node, is_blocked=True)
        d.emit(NodeFailed(key=key.text, failure=failure, cause=cause, effects=d.take_effects()))
    else:
        d.emit(NodeFailed(key=key.text, failure=failure, cause=cause))
        end(d, RunStatus.FAILED, failure=failure, node=key.node)


def _drop_other_items(d: Decider, node: MapNode, failed: int) -> None:
    """Cancel the other items of a map of which one item failed."""
    progress, live = d.state.maps[node.id], d.state.live
    for item in range(progress.launched):
        if item not in progress.refs and item != failed:
            d.decision.cancel_keys.append(Key(node=node.id, item=item).text)
            poll = Key(node=node.id, item=item, part="poll").text
            if poll in live:
                d.decision.cancel_keys.append(poll)
    d.view.forget_items(node.id)


def settle(d: Decider) -> None:
    """Process everything that needs no job, until the run waits for something or ends."""
    while d.unusable or d.skipping or d.signaled or d.emptied:
        if d.unusable:
            error = d.unusable.pop(0)
            fail(d, Key(node=error.node), error.failure)
        elif d.skipping:
            skips = d.skipping.pop(0)
            skip(d, skips.node, skips.reason)
        elif d.signaled:
            id, ref = d.signaled.pop(0)
            complete(d, id, ORDINARY, None, cause="signal", ref=ref)
        else:
            complete_map(d, d.emptied.pop(0))
        if d.state.is_ended or d.state.ends_as is not None:
            return
    state = d.state
    if state.live or state.is_paused or state.is_ended or state.ends_as is not None:
        return
    if state.failure is not None:
        end(d, RunStatus.FAILED, failure=state.failure, node=state.failed_node)
    else:
        ref, value = d.view.result()
        d.emit(RunCompleted(ref=ref), value)


def end(
    d: Decider,
    outcome: RunStatus,
    *,
    failure: Failure | None = None,
    node: str = "",
    reason: str | None = None,
    by: str | None = None,
    compensates: bool = True,
) -> None:
    """End the run, or start compensation first."""
    d.give_up()
    if d.state.is_paused:
        d.decision.suspend = False
    undoes = _to_undo(d) if compensates else ()
    if not undoes:
        d.emit(_ending(outcome, failure, node, reason, by, compensates))
        return
    _schedule_undo(d, undoes[0])
    d.emit(
        CompensationStarted(
            outcome=outcome,
            undoes=undoes,
            effects=d.take_effects(),
            failure=failure,
            node=node,
            reason=reason,
            by=by,
        )
    )


def undone(d: Decider, id: str, failure: Failure | None) -> None:
    """An undo task ended or failed: start the next one, or end the run after the last."""
    left = d.state.undoes[d.state.undoes.index(id) + 1 :]
    if left:
        _schedule_undo(d, left[0])
    if failure is None:
        d.emit(NodeUndone(node=id, effects=d.take_effects()))
    else:
        d.emit(UndoFailed(node=id, failure=failure, effects=d.take_effects()))
    state = d.state
    if not left and state.ends_as is not None:
        d.emit(_ending(state.ends_as, state.failure, state.failed_node, state.reason, state.by))


def _ending(
    outcome: RunStatus,
    failure: Failure | None,
    node: str,
    reason: str | None,
    by: str | None,
    compensates: bool = True,
) -> Event:
    if outcome is RunStatus.FAILED:
        assert failure is not None
        return RunFailed(failure=failure, node=node)
    return RunCancelled(reason=reason, by=by, compensates=compensates)


def _to_undo(d: Decider) -> tuple[str, ...]:
    """The completed nodes with an undo task, the last one first."""
    undoable = [
        (state.end_number, id)
        for id, state in d.state.nodes.items()
        if state.status is NodeStatus.COMPLETED
        and not state.has_failed
        and not state.is_undone
        and undo_of(d.graph.nodes[id]) is not None
    ]
    return tuple(id for _, id in sorted(undoable, reverse=True))


def _schedule_undo(d: Decider, id: str) -> None:
    call = undo_of(d.graph.nodes[id])
    assert call is not None
    d.schedule(Key(node=id, part="undo"), call, d.view.json(d.state.nodes[id].ref))


def undo_of(node: Node) -> Call | None:
    return getattr(node, "undo", None)
