"""The engine: what follows from what happened to a run. Pure, and total over what can happen.

A first execution, a retry, a person's answer, a timer, a recovery after a crash and a replay all
come through here. What no longer matters (a late outcome, a timer of a node that is done) decides
nothing: the decision has no events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.errors import RunEnded, RunNotPaused, RunNotRetryable
from perdure.model.event import (
    CompensationStarted,
    Event,
    ItemCompleted,
    IterationCompleted,
    NodeCompleted,
    NodeFailed,
    NodeRetried,
    NodeUndone,
    Origin,
    OutputChanged,
    Parent,
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
    UndoFailed,
)
from perdure.model.failure import Failure
from perdure.model.graph import (
    CONTINUE,
    DEFAULT_PORT,
    FAIL,
    ORDINARY,
    Call,
    DelayNode,
    Graph,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
)
from perdure.model.happening import (
    AttemptFailed,
    CancelAsked,
    ChildEnded,
    FailedForGood,
    Finished,
    Happening,
    MigrationAsked,
    PauseAsked,
    RetryAsked,
    Signalled,
    UnpauseAsked,
    WaitDue,
)
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import NodeStatus, RunState, RunStatus
from perdure.rules.deciding import NULL, Deciding, Decision, Following, Values


def decide(
    graph: Graph, run: RunId, state: RunState, happening: Happening, values: Values
) -> tuple[Decision, RunState]:
    """What is to be written because of ``happening``, and the state that it leads to."""
    deciding = Deciding(graph, run, state, values)
    _DECISIONS[type(happening)](deciding, happening)
    return deciding.decision, deciding.state


def submit(
    graph: Graph,
    run: RunId,
    input: bytes,
    values: Values,
    *,
    aging_ms: int,
    parent: Parent | None = None,
    replaced: bool = False,
) -> tuple[Decision, RunState]:
    """The beginning of a run."""
    deciding = Deciding(graph, run, RunState(), values)
    following = Following()
    deciding.provide(input)
    for id in graph.starts:
        deciding.start(following, id)
    event = RunSubmitted(
        flow=graph.name,
        version=graph.version,
        aging_ms=aging_ms,
        then=following.then(),
        parent=parent,
        replaced=replaced,
    )
    deciding.emit(event, input)
    _settle(deciding)
    return deciding.decision, deciding.state


def fork(
    graph: Graph,
    run: RunId,
    state: RunState,
    origin: Origin,
    patch: dict[str, bytes],
    values: Values,
) -> tuple[Decision, RunState]:
    """Go on from a state that was copied from another run, with some outputs changed."""
    deciding = Deciding(graph, run, state, values)
    for node, output in patch.items():
        deciding.emit(OutputChanged(node=node), output)
    _reopen(deciding, lambda then: RunForked(origin=origin, then=then))
    _settle(deciding)
    return deciding.decision, deciding.state


# What jobs and waits lead to


def _finished(deciding: Deciding, happening: Finished) -> None:
    key, output = happening.key, happening.output
    if not _is_live(deciding, key):
        return
    if key.part == "undo":
        _undone(deciding, key.node, None)
        return
    node = deciding.graph.nodes[key.node]
    match node:
        case RouteNode():
            _route(deciding, node, output)
        case MapNode():
            _item_done(deciding, node, key, ItemCompleted, output)
        case LoopNode():
            _iterated(deciding, node, key, happening)
        case _:
            complete(deciding, key.node, ORDINARY, output)
    _settle(deciding)


def _child_ended(deciding: Deciding, happening: ChildEnded) -> None:
    key = happening.key
    is_current = deciding.state.children.get(key.text) == happening.run
    if not is_current or deciding.state.is_paused or not _is_live(deciding, key):
        return
    deciding.decision.closes.append(key.text)
    if happening.status is not RunStatus.COMPLETED:
        failure = happening.failure or Failure(
            type="perdure.errors.RunCancelled", message=f"child run {happening.run} was cancelled"
        )
        _fail(deciding, key, failure, "child")
        _settle(deciding)
        return
    node = deciding.graph.nodes[key.node]
    match node:
        case MapNode():
            _item_done(deciding, node, key, ItemCompleted, happening.output)
        case LoopNode():
            following = Following()
            check = Key(node=key.node, iteration=key.iteration, part="check")
            deciding.schedule(following, check, node.check, happening.output)
            event = IterationCompleted(key=key.text, then=following.then())
            deciding.emit(event, happening.output)
        case _:
            complete(deciding, key.node, ORDINARY, happening.output, cause="child")
    _settle(deciding)


def _wait_due(deciding: Deciding, happening: WaitDue) -> None:
    key = happening.key
    if deciding.state.is_paused or not _is_live(deciding, key):
        return
    deciding.decision.closes.append(key.text)
    node = deciding.graph.nodes[key.node]
    if isinstance(node, DelayNode):
        _pass_on(deciding, node.id, ORDINARY, "timer")
    elif isinstance(node, SignalNode):
        if node.on_timeout == FAIL:
            message = f"no signal {node.signal!r} came within {node.timeout_ms} ms"
            failure = Failure(type="perdure.errors.WaitTimedOut", message=message)
            _fail(deciding, key, failure, "timeout")
        else:
            port = ORDINARY if node.on_timeout == CONTINUE else node.on_timeout
            complete(deciding, node.id, port, NULL, cause="timeout")
    _settle(deciding)


def _signalled(deciding: Deciding, happening: Signalled) -> None:
    _refuse_ended(deciding, "signal")
    deciding.emit(SignalReceived(name=happening.name, by=happening.by), happening.payload)
    _deliver(deciding)
    _settle(deciding)


def _deliver(deciding: Deciding) -> None:
    """Hand signals that came to the nodes that wait for them, in the order of the graph."""
    state = deciding.state
    if state.is_paused or not state.mail:
        return
    for id, node in deciding.graph.nodes.items():
        if not isinstance(node, SignalNode) or id not in deciding.state.live:
            continue
        if mail := deciding.state.mail.get(node.signal):
            deciding.decision.closes.append(id)
            complete(deciding, id, ORDINARY, None, cause="signal", ref=mail[0])


def complete(
    deciding: Deciding,
    id: str,
    port: str,
    value: bytes | None,
    *,
    cause: str = "",
    ref: int = 0,
    iteration: int = 0,
) -> None:
    following = deciding.after_end(id, port, value, ref)
    event = NodeCompleted(
        node=id, port=port, iteration=iteration, cause=cause, ref=ref, then=following.then()
    )
    deciding.emit(event, value)


def _pass_on(deciding: Deciding, id: str, port: str, cause: str) -> None:
    """Complete a node whose output is its input."""
    complete(deciding, id, port, None, cause=cause, ref=deciding.input_ref(id))


def _route(deciding: Deciding, node: RouteNode, output: bytes) -> None:
    key = msgspec.json.decode(output)
    if isinstance(key, bool):
        key = str(key).lower()
    port = str(key) if isinstance(key, str | int) else None
    if port is None or port not in node.ports:
        if DEFAULT_PORT not in node.ports:
            known = ", ".join(map(repr, node.ports))
            message = f"route {node.id!r} has no branch for {key!r} and no default; it has {known}"
            failure = Failure(type="perdure.errors.InvalidInput", message=message)
            _fail(deciding, Key(node=node.id), failure)
            return
        port = DEFAULT_PORT
    _pass_on(deciding, node.id, port, "")


def _item_done(
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
        deciding.launch_items(following, node, [before.launched])
    deciding.emit(kind(key=key.text, then=following.then(), **details), output)
    after = deciding.state.maps[node.id]
    if len(after.refs) == after.count:
        complete(deciding, node.id, ORDINARY, deciding.gathered_items(after), cause="items")


def _iterated(deciding: Deciding, node: LoopNode, key: Key, happening: Finished) -> None:
    is_done, output = happening.is_done, happening.output
    ref = 0
    if key.part == "check":
        is_done = msgspec.json.decode(output) is True
        ref = deciding.state.nodes[node.id].ref
    if is_done:
        _complete_loop(deciding, node, key, ORDINARY, output, ref)
    elif key.iteration < node.iterations_max:
        following = Following()
        again = Key(node=node.id, iteration=key.iteration + 1)
        deciding.call(following, again, node.body, deciding.json(ref) if ref else output)
        event = IterationCompleted(key=key.text, then=following.then())
        deciding.emit(event, None if ref else output)
    elif node.on_max == FAIL:
        message = f"loop {node.id!r} is not done after {node.iterations_max} iterations"
        _fail(deciding, key, Failure(type="perdure.errors.LoopExhausted", message=message))
    else:
        port = ORDINARY if node.on_max == CONTINUE else node.on_max
        _complete_loop(deciding, node, key, port, output, ref)


def _complete_loop(
    deciding: Deciding, node: LoopNode, key: Key, port: str, output: bytes, ref: int
) -> None:
    value = None if ref else output
    complete(deciding, node.id, port, value, ref=ref, iteration=key.iteration)


# Failure


def _attempt_failed(deciding: Deciding, happening: AttemptFailed) -> None:
    if _is_live(deciding, happening.key):
        deciding.emit(
            NodeRetried(
                key=happening.key.text, attempt=happening.attempt, failure=happening.failure
            )
        )


def _failed_for_good(deciding: Deciding, happening: FailedForGood) -> None:
    if not _is_live(deciding, happening.key):
        return
    if happening.key.part == "undo":
        _undone(deciding, happening.key.node, happening.failure)
        return
    _fail(deciding, happening.key, happening.failure)
    _settle(deciding)


def _fail(deciding: Deciding, key: Key, failure: Failure, cause: str = "") -> None:
    node = deciding.graph.nodes[key.node]
    handled = _on_error(node)
    error = msgspec.json.encode({"type": failure.type, "message": failure.message})
    if handled == CONTINUE and isinstance(node, MapNode) and key.item is not None:
        details = {"failure": failure, "handled": CONTINUE}
        _item_done(deciding, node, key, NodeFailed, NULL, **details)
        return
    if handled != FAIL:
        port, value = (ORDINARY, NULL) if handled == CONTINUE else (handled, error)
        following = deciding.after_end(key.node, port, value)
        event = NodeFailed(
            key=key.text, failure=failure, handled=handled, cause=cause, then=following.then()
        )
        _drop_items(deciding, node, key)
        deciding.emit(event, value)
    elif deciding.graph.on_failure == "finish":
        following = deciding.after_block(key.node)
        event = NodeFailed(key=key.text, failure=failure, cause=cause, then=following.then())
        _drop_items(deciding, node, key)
        deciding.emit(event)
    else:
        deciding.emit(NodeFailed(key=key.text, failure=failure, cause=cause))
        _end(deciding, RunStatus.FAILED, failure=failure, node=key.node)


def _drop_items(deciding: Deciding, node: Node, key: Key) -> None:
    """A map that failed at one item gives up the others."""
    if key.item is None or not isinstance(node, MapNode):
        return
    progress = deciding.state.maps[node.id]
    others = (n for n in range(progress.launched) if n not in progress.refs and n != key.item)
    deciding.decision.drops.extend(Key(node=node.id, item=item).text for item in others)


def _on_error(node: Node) -> str:
    return getattr(node, "on_error", FAIL)


# How a run ends


def _settle(deciding: Deciding) -> None:
    """Carry on with what needs nobody, until the run waits for something or ends."""
    while True:
        if deciding.unusable:
            error = deciding.unusable.pop(0)
            _fail(deciding, Key(node=error.node), error.failure)
        elif deciding.instant:
            id, ref = deciding.instant.pop(0)
            complete(deciding, id, ORDINARY, None, cause="signal", ref=ref)
        elif deciding.empty:
            complete(deciding, deciding.empty.pop(0), ORDINARY, b"[]", cause="items")
        else:
            break
        if deciding.state.is_ended or deciding.state.ends_as is not None:
            return
    state = deciding.state
    if state.live or state.is_ended or state.ends_as is not None:
        return
    if state.failed_node:
        assert state.failure is not None
        _end(deciding, RunStatus.FAILED, failure=state.failure, node=state.failed_node)
    else:
        ref, value = deciding.result()
        deciding.emit(RunCompleted(ref=ref), value)


def _end(
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
    undo = _next_undo(deciding) if compensates else None
    if undo is not None:
        following = Following()
        _schedule_undo(deciding, following, undo)
        deciding.emit(
            CompensationStarted(
                outcome=outcome,
                then=following.then(),
                failure=failure,
                node=node,
                reason=reason,
                by=by,
            )
        )
    else:
        deciding.emit(_ending(outcome, failure, node, reason, by))


def _ending(
    outcome: RunStatus, failure: Failure | None, node: str, reason: str | None, by: str | None
) -> Event:
    if outcome is RunStatus.FAILED:
        assert failure is not None
        return RunFailed(failure=failure, node=node)
    return RunCancelled(reason=reason, by=by)


def _undone(deciding: Deciding, id: str, failure: Failure | None) -> None:
    following = Following()
    undo = _next_undo(deciding, but=id)
    if undo is not None:
        _schedule_undo(deciding, following, undo)
    then = following.then()
    if failure is None:
        deciding.emit(NodeUndone(node=id, then=then))
    else:
        deciding.emit(UndoFailed(node=id, failure=failure, then=then))
    state = deciding.state
    if undo is None and state.ends_as is not None:
        deciding.emit(
            _ending(state.ends_as, state.failure, state.failed_node, state.reason, state.by)
        )


def _next_undo(deciding: Deciding, but: str = "") -> str | None:
    """The node completed last that has something to undo."""
    undoable = [
        (state.ref, id)
        for id, state in deciding.state.nodes.items()
        if state.status is NodeStatus.COMPLETED
        and not state.is_undone
        and id != but
        and _undo_of(deciding.graph.nodes[id]) is not None
    ]
    return max(undoable)[1] if undoable else None


def _schedule_undo(deciding: Deciding, following: Following, id: str) -> None:
    call = _undo_of(deciding.graph.nodes[id])
    assert call is not None
    output = deciding.json(deciding.state.nodes[id].ref)
    deciding.schedule(following, Key(node=id, part="undo"), call, output)


def _undo_of(node: Node) -> Call | None:
    return getattr(node, "undo", None)


# What operators ask for


def _pause_asked(deciding: Deciding, happening: PauseAsked) -> None:
    _refuse_ended(deciding, "pause")
    if not deciding.state.is_paused:
        deciding.decision.holds = True
        deciding.emit(RunPaused(reason=happening.reason, by=happening.by))


def _unpause_asked(deciding: Deciding, happening: UnpauseAsked) -> None:
    _refuse_ended(deciding, "unpause")
    if not deciding.state.is_paused:
        raise RunNotPaused(deciding.run, deciding.state.status)
    deciding.decision.holds = False
    deciding.emit(RunUnpaused(by=happening.by))
    _deliver(deciding)
    _settle(deciding)


def _cancel_asked(deciding: Deciding, happening: CancelAsked) -> None:
    _refuse_ended(deciding, "cancel")
    if happening.compensates and deciding.state.ends_as is not None:
        return  # it is being undone already
    _end(
        deciding,
        RunStatus.CANCELLED,
        reason=happening.reason,
        by=happening.by,
        compensates=happening.compensates,
    )


def _retry_asked(deciding: Deciding, happening: RetryAsked) -> None:
    state = deciding.state
    if state.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
        raise RunNotRetryable(deciding.run, f"it is {state.status}")
    if any(node.is_undone for node in state.nodes.values()):
        raise RunNotRetryable(
            deciding.run, "what it had completed was undone; submit it anew, or fork it"
        )
    _reopen(deciding, lambda then: RunRetried(then=then, by=happening.by))
    _settle(deciding)


def _migration_asked(deciding: Deciding, happening: MigrationAsked) -> None:
    _refuse_ended(deciding, "migrate")
    deciding.decision.version = happening.to.version
    deciding.emit(RunMigrated(version=happening.to.version, by=happening.by))


def _reopen(deciding: Deciding, event: Callable[[Any], Event]) -> None:
    """Start everything again that was live, failed or blocked; keep what is completed."""
    state, graph = deciding.state, deciding.graph
    kept = {NodeStatus.COMPLETED, NodeStatus.SKIPPED}
    following = Following()
    resumed: list[str] = []
    for id in graph.nodes:
        node = state.nodes.get(id)
        if node is not None and node.status in kept:
            continue
        if node is not None and node.status is not NodeStatus.BLOCKED:
            resumed.append(id)
            continue
        decided, active = _decided_edges(graph, state, id)
        if decided:
            following.arrived[id] = (decided, active, 0)
    for id in resumed:
        deciding.resume(following, id)
    deciding.emit(event(following.then()))


def _decided_edges(graph: Graph, state: RunState, id: str) -> tuple[int, int]:
    decided = active = 0
    for edge in graph.incoming[id]:
        source = state.nodes.get(edge.source)
        if source is None or source.status not in (NodeStatus.COMPLETED, NodeStatus.SKIPPED):
            continue
        decided += 1
        active += source.status is NodeStatus.COMPLETED and source.port == edge.port
    return decided, active


def _refuse_ended(deciding: Deciding, act: str) -> None:
    if deciding.state.is_ended:
        raise RunEnded(deciding.run, act, deciding.state.status)


def _is_live(deciding: Deciding, key: Key) -> bool:
    return not deciding.state.is_ended and key.text in deciding.state.live


_DECISIONS: dict[type, Callable[[Deciding, Any], None]] = {
    Finished: _finished,
    FailedForGood: _failed_for_good,
    AttemptFailed: _attempt_failed,
    WaitDue: _wait_due,
    ChildEnded: _child_ended,
    Signalled: _signalled,
    PauseAsked: _pause_asked,
    UnpauseAsked: _unpause_asked,
    CancelAsked: _cancel_asked,
    RetryAsked: _retry_asked,
    MigrationAsked: _migration_asked,
}
