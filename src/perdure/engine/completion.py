"""How nodes and runs end: completed, skipped, failed, cancelled, compensated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.engine.decider import Decider, is_cancel
from perdure.engine.run_view import NULL, ValuesTooLarge
from perdure.model.event import (
    CompensationStarted,
    Event,
    ItemCompleted,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    NodeUndone,
    RunCancelled,
    RunCompleted,
    RunFailed,
    UndoFailed,
)
from perdure.model.failure import Failure, failure_of, stored_name
from perdure.model.graph import (
    CONTINUE,
    FAIL,
    ORDINARY,
    Call,
    LoopNode,
    MapNode,
    Node,
    TaskNode,
)
from perdure.model.ids import RUN_TIMEOUT, Key
from perdure.model.payload import weight
from perdure.model.run import LiveType, NodeStatus, RunStatus

MAP_OUTPUT_MAX_BYTES = 64 * 1024 * 1024
"""The last item of a map makes one value of all outputs."""

OUTPUTS_TOO_LARGE = declare(
    "node.outputs_too_large",
    "map {node!r}: the outputs of its items total more than {most} bytes",
    "Store large results elsewhere and return references",
)
RESULT_TOO_LARGE = declare(
    "run.result_too_large",
    "the outputs that make up the run's result total more than {most} bytes",
    "Store large results elsewhere and return references",
)


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
    if d.state.map_window and event_type is ItemCompleted:
        size = weight(output)
        if before.size_bytes + size > MAP_OUTPUT_MAX_BYTES:
            fault = OUTPUTS_TOO_LARGE.fault(node=node.id, most=MAP_OUTPUT_MAX_BYTES)
            is_child = d.state.live.get(key.text) is LiveType.CHILD
            fail(d, key, failure_of(fault), "child" if is_child else "")
            return
        details["size_bytes"] = size
    if before.launched < before.count:
        d.launch_more(node, before)
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
            cancel_work(d, Key(node=node.id, item=item))
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
    if state.is_queued:
        return
    if state.failure is not None:
        end(d, RunStatus.FAILED, failure=state.failure, node=state.failed_node)
    else:
        try:
            ref, value = d.view.result()
        except ValuesTooLarge:
            fault = RESULT_TOO_LARGE.fault(most=state.gathered_max_bytes)
            end(d, RunStatus.FAILED, failure=failure_of(fault))
            return
        if state.settings.timeout_ms is not None or state.settings.deadline is not None:
            d.decision.close_waits.append(RUN_TIMEOUT)
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
    """End the run; undo its completed nodes and cancel its external work first."""
    d.give_up()
    if d.state.is_paused:
        d.decision.suspend = False
    for text in d.state.pauses:
        if text in d.state.live:
            cancel_work(d, Key.parse(text))
    undoes = _to_undo(d) if compensates else ()
    if undoes:
        _schedule_undo(d, undoes[0])
    if not d.decision.schedules and not any(map(is_cancel, d.state.live)):
        d.emit(_ending(outcome, failure, node, reason, by, compensates))
        return
    d.emit(
        CompensationStarted(
            outcome=outcome,
            undoes=undoes,
            effects=d.take_effects(),
            failure=failure,
            node=node,
            reason=reason,
            by=by,
            compensates=compensates,
        )
    )


def cancel_work(d: Decider, key: Key) -> None:
    """Start a job that cancels the external work of a key, if its node type can."""
    pauses = d.state.pauses.get(key.text)
    if pauses and pauses[-1].cancels is True and (work := work_of(d, key)) is not None:
        cancel_key = replace(key, part="cancel")
        d.schedule(cancel_key, *work, d.view.resumption_of(key.text))


def work_of(d: Decider, key: Key) -> tuple[Call, bytes] | None:
    """The call of a key and its input; None for auxiliary jobs and nodes without a task."""
    node = d.graph.nodes[key.node]
    if key.part:
        return None
    if isinstance(node, TaskNode):
        return node.call, d.view.input_of(node.id)
    if isinstance(node, MapNode) and isinstance(node.body, Call) and key.item is not None:
        return node.body, d.view.items_of(node)[key.item]
    if isinstance(node, LoopNode) and isinstance(node.body, Call):
        if key.iteration == 1:
            return node.body, d.view.input_of(node.id)
        return node.body, d.view.json(d.state.nodes[node.id].ref)
    return None


def undone(d: Decider, key: Key, failure: Failure | None) -> None:
    """An undo task ended or failed: start the next one, or end the run after the last."""
    node, item = key.node, key.item
    left = d.state.undoes[d.state.undoes.index(Key(node=node, item=item).text) + 1 :]
    if left:
        _schedule_undo(d, left[0])
    if failure is None:
        d.emit(NodeUndone(node=node, item=item, effects=d.take_effects()))
    else:
        d.emit(UndoFailed(node=node, item=item, failure=failure, effects=d.take_effects()))
    end_compensated(d)


def end_compensated(d: Decider) -> None:
    """End a run whose last undo or cancellation has ended."""
    state = d.state
    if state.ends_as is None:
        settle(d)
    elif not state.live:
        why = (state.failure, state.failed_node, state.reason, state.by)
        d.emit(_ending(state.ends_as, *why, compensates=not state.only_cancels))


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
    """The completed nodes and items of failed maps with an undo task, the last one first."""
    undoable = [
        (state.end_number, id)
        for id, state in d.state.nodes.items()
        if state.status is NodeStatus.COMPLETED
        and not state.has_failed
        and not state.is_undone
        and undo_of(d.graph.nodes[id]) is not None
    ]
    if d.state.map_window:
        undoable += (
            (ref, Key(node=id, item=item).text)
            for id, progress in d.state.maps.items()
            if undo_of(d.graph.nodes[id]) is not None and not d.state.nodes[id].is_undone
            for item, ref in progress.refs.items()
            if item not in progress.failed
        )
    return tuple(text for _, text in sorted(undoable, reverse=True))


def _schedule_undo(d: Decider, text: str) -> None:
    key = Key.parse(text)
    call = undo_of(d.graph.nodes[key.node])
    assert call is not None
    if key.item is None:
        outputs = d.view.json(d.state.nodes[key.node].ref)
    else:  # a list, as for the whole map
        outputs = b"[%b]" % d.view.json(d.state.maps[key.node].refs[key.item])
    d.schedule(Key(node=key.node, item=key.item, part="undo"), call, outputs)


def undo_of(node: Node) -> Call | None:
    return getattr(node, "undo", None)
