"""How nodes and runs end: completed, failed, given up, undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.engine.decider import Deciding
from perdure.engine.decision import NULL, Following
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
from perdure.model.failure import Failure
from perdure.model.graph import CONTINUE, FAIL, ORDINARY, Call, MapNode, Node
from perdure.model.ids import Key
from perdure.model.run import NodeStatus, RunStatus


def complete(
    deciding: Deciding,
    id: str,
    port: str,
    value: bytes | None,
    *,
    cause: str = "",
    ref: int = 0,
    iteration: int = 0,
    warnings: tuple[str, ...] = (),
) -> None:
    """A node ends on a port; its output is ``value``, or the value of the event ``ref``."""
    following = deciding.after_end(id, port, value, ref)
    event = NodeCompleted(
        node=id,
        port=port,
        iteration=iteration,
        cause=cause,
        ref=ref,
        then=following.then(),
        warnings=warnings,
    )
    deciding.emit(event, value)


def skip(deciding: Deciding, id: str, reason: str) -> None:
    """A node was reached and does not count."""
    following = deciding.after_skip(id)
    deciding.emit(NodeSkipped(node=id, reason=reason, then=following.then()))


def pass_on(deciding: Deciding, id: str, port: str, cause: str) -> None:
    """Complete a node whose output is its input."""
    complete(deciding, id, port, None, cause=cause, ref=deciding.input_ref(id))


def complete_item(
    deciding: Deciding,
    node: MapNode,
    key: Key,
    kind: Callable[..., Event],
    output: bytes,
    **details: Any,
) -> None:
    """One more item is done: the next one starts, and after the last the map is completed."""
    before = deciding.state.maps[node.id]
    following = Following()
    if before.launched < before.count:
        deciding.launch_next(following, node, before.launched)
    deciding.emit(kind(key=key.text, then=following.then(), **details), output)
    if len(deciding.state.maps[node.id].refs) == before.count:
        complete_map(deciding, node.id)


def complete_map(deciding: Deciding, id: str) -> None:
    output = deciding.gathered_items(deciding.state.maps[id])
    complete(deciding, id, ORDINARY, output, cause="items")
    deciding.forget_items(id)


def fail(deciding: Deciding, key: Key, failure: Failure, cause: str = "") -> None:
    """A key failed for good: the run goes on as the node says, or ends."""
    node = deciding.graph.nodes[key.node]
    handled = getattr(node, "on_error", FAIL)
    if handled == CONTINUE and isinstance(node, MapNode) and key.item is not None:
        details = {"failure": failure, "handled": CONTINUE, "cause": cause}
        complete_item(deciding, node, key, NodeFailed, NULL, **details)
        return
    _drop_items(deciding, node, key)
    if handled != FAIL:
        error = msgspec.json.encode({"type": failure.type, "message": failure.message})
        port, value = (ORDINARY, NULL) if handled == CONTINUE else (handled, error)
        following = deciding.after_end(key.node, port, value)
        event = NodeFailed(
            key=key.text, failure=failure, handled=handled, cause=cause, then=following.then()
        )
        deciding.emit(event, value)
    elif deciding.graph.on_failure == "finish":
        following = deciding.after_block(key.node)
        then = following.then()
        deciding.emit(NodeFailed(key=key.text, failure=failure, cause=cause, then=then))
    else:
        deciding.emit(NodeFailed(key=key.text, failure=failure, cause=cause))
        end(deciding, RunStatus.FAILED, failure=failure, node=key.node)


def _drop_items(deciding: Deciding, node: Node, key: Key) -> None:
    """A map that failed at one item gives up the others."""
    if key.item is None or not isinstance(node, MapNode):
        return
    progress = deciding.state.maps[node.id]
    live = deciding.state.live
    for item in range(progress.launched):
        if item not in progress.refs and item != key.item:
            poll = Key(node=node.id, item=item, part="poll").text
            deciding.decision.drops.append(Key(node=node.id, item=item).text)
            deciding.decision.drops.extend([poll] if poll in live else [])
    deciding.forget_items(node.id)


def settle(deciding: Deciding) -> None:
    """Carry on with what needs nobody, until the run waits for something or ends."""
    while deciding.unusable or deciding.skipping or deciding.instant or deciding.full:
        if deciding.unusable:
            error = deciding.unusable.pop(0)
            fail(deciding, Key(node=error.node), error.failure)
        elif deciding.skipping:
            skips = deciding.skipping.pop(0)
            skip(deciding, skips.node, skips.reason)
        elif deciding.instant:
            id, ref = deciding.instant.pop(0)
            complete(deciding, id, ORDINARY, None, cause="signal", ref=ref)
        else:
            complete_map(deciding, deciding.full.pop(0))
        if deciding.state.is_ended or deciding.state.ends_as is not None:
            return
    state = deciding.state
    if state.live or state.is_paused or state.is_ended or state.ends_as is not None:
        return
    if state.failure is not None:
        end(deciding, RunStatus.FAILED, failure=state.failure, node=state.failed_node)
    else:
        ref, value = deciding.result()
        deciding.emit(RunCompleted(ref=ref), value)


def end(
    deciding: Deciding,
    outcome: RunStatus,
    *,
    failure: Failure | None = None,
    node: str = "",
    reason: str | None = None,
    by: str | None = None,
    compensates: bool = True,
) -> None:
    """End the run, or first undo what it completed."""
    deciding.give_up()
    if deciding.state.is_paused:
        deciding.decision.holds = False
    undoes = _to_undo(deciding) if compensates else ()
    if not undoes:
        deciding.emit(_ending(outcome, failure, node, reason, by, compensates))
        return
    following = Following()
    _schedule_undo(deciding, following, undoes[0])
    deciding.emit(
        CompensationStarted(
            outcome=outcome,
            undoes=undoes,
            then=following.then(),
            failure=failure,
            node=node,
            reason=reason,
            by=by,
        )
    )


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


def undone(deciding: Deciding, id: str, failure: Failure | None) -> None:
    """An undo task ended, well or not; the next one starts, and after the last the run ends."""
    following = Following()
    left = deciding.state.undoes[deciding.state.undoes.index(id) + 1 :]
    if left:
        _schedule_undo(deciding, following, left[0])
    then = following.then()
    if failure is None:
        deciding.emit(NodeUndone(node=id, then=then))
    else:
        deciding.emit(UndoFailed(node=id, failure=failure, then=then))
    state = deciding.state
    if not left and state.ends_as is not None:
        deciding.emit(
            _ending(state.ends_as, state.failure, state.failed_node, state.reason, state.by)
        )


def _to_undo(deciding: Deciding) -> tuple[str, ...]:
    """The completed nodes that have something to undo, the last one first."""
    undoable = [
        (state.end_number, id)
        for id, state in deciding.state.nodes.items()
        if state.status is NodeStatus.COMPLETED
        and not state.has_failed
        and not state.is_undone
        and undo_of(deciding.graph.nodes[id]) is not None
    ]
    return tuple(id for _, id in sorted(undoable, reverse=True))


def _schedule_undo(deciding: Deciding, following: Following, id: str) -> None:
    call = undo_of(deciding.graph.nodes[id])
    assert call is not None
    output = deciding.json(deciding.state.nodes[id].ref)
    deciding.schedule(following, Key(node=id, part="undo"), call, output)


def undo_of(node: Node) -> Call | None:
    return getattr(node, "undo", None)
