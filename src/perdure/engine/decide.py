"""The engine: what follows from what happened to a run. Pure, and total over what can happen.

A first execution, a retry, a person's answer, a timer, a recovery after a crash and a replay all
come through here. What no longer matters (a late outcome, a timer of a node that is done) decides
nothing: the decision has no events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.engine.approvals import answer, approval_due, notified
from perdure.engine.completion import complete, complete_item, fail, pass_on, settle, skip, undone
from perdure.engine.decider import Deciding
from perdure.engine.decision import NULL, Decision, Following, Values
from perdure.engine.external_waits import failed_outside, pause, pause_due, polled, report
from perdure.engine.failures import failure_of
from perdure.engine.run_commands import (
    cancel_asked,
    deliver,
    migration_asked,
    pause_asked,
    refuse_ended,
    reopen,
    retry_asked,
    unpause_asked,
)
from perdure.errors import InvalidInput, LoopExhausted, RunCancelled, WaitTimedOut
from perdure.model.event import (
    ItemCompleted,
    IterationCompleted,
    NodeRetried,
    Origin,
    OutputChanged,
    Parent,
    RunForked,
    RunSubmitted,
    SignalReceived,
)
from perdure.model.failure import Failure
from perdure.model.graph import (
    CONTINUE,
    DEFAULT_PORT,
    FAIL,
    ORDINARY,
    ApprovalNode,
    DelayNode,
    Graph,
    LoopNode,
    MapNode,
    RouteNode,
    SignalNode,
    TaskNode,
    ports_of,
)
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveKind, NodeStatus, RunState, RunStatus
from perdure.model.trigger import (
    Answered,
    AttemptFailed,
    CancelAsked,
    ChildEnded,
    FailedForGood,
    Finished,
    Happening,
    MigrationAsked,
    PauseAsked,
    Paused,
    Reported,
    RetryAsked,
    Signalled,
    Skipped,
    UnpauseAsked,
    WaitDue,
)

FORK_AFTER_UNDO = declare(
    "run.fork_after_undo",
    "cannot fork after event {number} of run {run!r}: completed nodes had been undone by then",
    "Fork from an earlier event",
)
NOT_COMPLETED = declare(
    "run.patch_not_completed",
    "cannot change the output of {nodes:and}, not completed after event {number} of run {run!r}"
    "[; completed: {completed}]",
)
ENDED_ON_UNKNOWN_PORT = declare(
    "node.ended_on_unknown_port",
    "node {node!r} ended on port {port!r}, which it does not have[; it has {known}]",
)
NO_BRANCH = declare(
    "node.no_branch", "route {node!r} has no branch for {key!r} and no default; it has {known}"
)
NOT_DONE = declare("node.loop_not_done", "loop {node!r} is not done after {count} iterations")
CHILD_CANCELLED = declare("run.child_cancelled", "child run {run} was cancelled")
NO_SIGNAL = declare("node.no_signal", "no signal {signal!r} came within {timeout_ms} ms")


def decide(
    graph: Graph, run: RunId, state: RunState, happening: Happening, values: Values
) -> tuple[Decision, RunState]:
    """What is to be written because of ``happening``, and the state that it leads to.

    Raises ``RunEnded``, ``RunNotPaused`` or ``RunNotRetryable`` for what an operator asked and
    cannot have, its like for what people and outside parties say, and ``ValueMissing`` for values
    to be read first.
    """
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
    settle(deciding)
    return deciding.decision, deciding.state


def fork(
    graph: Graph,
    run: RunId,
    state: RunState,
    origin: Origin,
    patch: dict[str, bytes],
    values: Values,
) -> tuple[Decision, RunState]:
    """Go on from a state that was copied from another run, with some outputs changed.

    What a changed output leads to starts from its beginning. Raises ``InvalidInput`` for an
    output that is not there to be changed, and for a state in which something was undone.
    """
    _check_fork(state, origin, patch)
    deciding = Deciding(graph, run, state, values)
    for node, output in patch.items():
        deciding.emit(OutputChanged(node=node), output)
    anew = {edge.target for node in patch for edge in graph.outgoing[node]}
    reopen(deciding, lambda then: RunForked(origin=origin, then=then), anew)
    settle(deciding)
    return deciding.decision, deciding.state


def _check_fork(state: RunState, origin: Origin, patch: dict[str, bytes]) -> None:
    if any(node.is_undone for node in state.nodes.values()):
        raise InvalidInput(FORK_AFTER_UNDO.fault(("after",), number=origin.number, run=origin.run))
    completed = {id for id, n in state.nodes.items() if n.status is NodeStatus.COMPLETED}
    if unknown := [id for id in patch if id not in completed]:
        fault = NOT_COMPLETED.fault(
            ("patch",),
            nodes=tuple(unknown),
            number=origin.number,
            run=origin.run,
            completed=tuple(sorted(completed)),
        )
        raise InvalidInput(fault)


# What jobs lead to


def _finished(deciding: Deciding, happening: Finished) -> None:
    key, output = happening.key, happening.output
    if not _is_live(deciding, key, LiveKind.JOB):
        return
    if key.part in _ASIDE:
        _ASIDE[key.part](deciding, key, output, None)
        return
    node = deciding.graph.nodes[key.node]
    match node:
        case TaskNode():
            _complete_task(deciding, node, happening)
        case RouteNode():
            _route(deciding, node, output)
        case MapNode():
            complete_item(deciding, node, key, ItemCompleted, output)
        case LoopNode():
            _iterated(deciding, node, key, happening)
    settle(deciding)


def _failed_for_good(deciding: Deciding, happening: FailedForGood) -> None:
    key, failure = happening.key, happening.failure
    if not _is_live(deciding, key, LiveKind.JOB):
        return
    if key.part in _ASIDE:
        _ASIDE[key.part](deciding, key, NULL, failure)
        return
    fail(deciding, key, failure)
    settle(deciding)


def _undo_ended(deciding: Deciding, key: Key, output: bytes, failure: Failure | None) -> None:
    undone(deciding, key.node, failure)


_ASIDE: dict[str, Callable[[Deciding, Key, bytes, Failure | None], None]] = {
    "undo": _undo_ended,
    "poll": polled,
    "notify": notified,
}
"""Jobs that stand beside their node: what their ends lead to."""


def _skipped(deciding: Deciding, happening: Skipped) -> None:
    key = happening.key
    if not _is_live(deciding, key, LiveKind.JOB):
        return
    if isinstance(deciding.graph.nodes[key.node], TaskNode) and not key.part:
        skip(deciding, key.node, happening.reason)
        settle(deciding)
    else:  # of the items of a map, and in a loop: nothing came of it
        _finished(deciding, Finished(key=key, output=NULL))


def _complete_task(deciding: Deciding, node: TaskNode, happening: Finished) -> None:
    port = happening.port
    if port not in ports_of(node):
        fault = ENDED_ON_UNKNOWN_PORT.fault(("port",), node=node.id, port=port, known=node.ports)
        fail(deciding, Key(node=node.id), failure_of(fault))
        return
    complete(deciding, node.id, port, happening.output, warnings=happening.warnings)


def _attempt_failed(deciding: Deciding, happening: AttemptFailed) -> None:
    key = happening.key
    if _is_live(deciding, key, LiveKind.JOB):
        event = NodeRetried(
            key=key.text,
            attempt=happening.attempt,
            failure=happening.failure,
            restarts=not happening.is_postponed and failed_outside(deciding, key.text),
        )
        deciding.emit(event)


def _route(deciding: Deciding, node: RouteNode, output: bytes) -> None:
    key = msgspec.json.decode(output)
    if isinstance(key, bool):
        key = str(key).lower()
    port = str(key) if isinstance(key, str | int) else None
    if port is None or port not in node.ports:
        if DEFAULT_PORT not in node.ports:
            fault = NO_BRANCH.fault(node=node.id, key=key, known=node.ports)
            fail(deciding, Key(node=node.id), failure_of(fault))
            return
        port = DEFAULT_PORT
    pass_on(deciding, node.id, port, "")


def _iterated(deciding: Deciding, node: LoopNode, key: Key, happening: Finished) -> None:
    """One iteration was executed, or the question answered whether it was the last."""
    output, is_done = happening.output, happening.is_done
    if key.part == "check":
        ref = deciding.state.nodes[node.id].ref
        _after_check(deciding, node, key, None, ref, bool(msgspec.json.decode(output)))
    elif is_done is None:
        _ask_whether_done(deciding, node, key, output)
    else:
        _after_check(deciding, node, key, output, 0, is_done)


def _ask_whether_done(deciding: Deciding, node: LoopNode, key: Key, output: bytes) -> None:
    following = Following()
    deciding.check(following, node, key.iteration, output)
    deciding.emit(IterationCompleted(key=key.text, then=following.then()), output)


def _after_check(
    deciding: Deciding, node: LoopNode, key: Key, output: bytes | None, ref: int, is_done: bool
) -> None:
    """Go round again or not; the iteration's output is ``output``, or the value of ``ref``."""
    if not is_done and key.iteration < node.iterations_max:
        following = Following()
        again = Key(node=node.id, iteration=key.iteration + 1)
        deciding.call(following, again, node.body, deciding.json(ref) if output is None else output)
        deciding.emit(IterationCompleted(key=key.text, then=following.then()), output)
    elif not is_done and node.on_max == FAIL:
        fault = NOT_DONE.fault(node=node.id, count=node.iterations_max)
        fail(deciding, key, failure_of(fault, LoopExhausted))
    else:
        port = ORDINARY if is_done or node.on_max == CONTINUE else node.on_max
        complete(deciding, node.id, port, output, ref=ref, iteration=key.iteration)


# What waits lead to


def _child_ended(deciding: Deciding, happening: ChildEnded) -> None:
    key, output = happening.key, happening.output
    is_current = deciding.state.children.get(key.text) == happening.run
    if not is_current or not _is_live(deciding, key, LiveKind.CHILD):
        return
    deciding.decision.closes.append(key.text)
    node = deciding.graph.nodes[key.node]
    if happening.status is not RunStatus.COMPLETED:
        failure = happening.failure or failure_of(
            CHILD_CANCELLED.fault(run=happening.run), RunCancelled
        )
        fail(deciding, key, failure, "child")
    elif isinstance(node, MapNode):
        complete_item(deciding, node, key, ItemCompleted, output)
    elif isinstance(node, LoopNode):
        _ask_whether_done(deciding, node, key, output)
    else:
        complete(deciding, key.node, ORDINARY, output, cause="child")
    settle(deciding)


def _wait_due(deciding: Deciding, happening: WaitDue) -> None:
    key = happening.key
    if not _is_live(deciding, key, LiveKind.WAIT):
        return
    node = deciding.graph.nodes[key.node]
    if isinstance(node, ApprovalNode):
        approval_due(deciding, node, happening)
    elif key.text in deciding.state.pauses or key.part == "poll":
        pause_due(deciding, key)
    elif isinstance(node, DelayNode):
        deciding.decision.closes.append(key.text)
        pass_on(deciding, node.id, ORDINARY, "timer")
    elif isinstance(node, SignalNode) and node.timeout_ms is not None:
        deciding.decision.closes.append(key.text)
        _time_out(deciding, node)
    settle(deciding)


def _time_out(deciding: Deciding, node: SignalNode) -> None:
    if node.on_timeout == FAIL:
        fault = NO_SIGNAL.fault(signal=node.signal, timeout_ms=node.timeout_ms)
        fail(deciding, Key(node=node.id), failure_of(fault, WaitTimedOut), "timeout")
    else:
        port = ORDINARY if node.on_timeout == CONTINUE else node.on_timeout
        complete(deciding, node.id, port, NULL, cause="timeout")


def _signalled(deciding: Deciding, happening: Signalled) -> None:
    refuse_ended(deciding, "signal")
    deciding.emit(SignalReceived(name=happening.name, by=happening.by), happening.payload)
    if not deciding.state.is_paused:
        deliver(deciding, [happening.name])
        settle(deciding)


def _answered(deciding: Deciding, happening: Answered) -> None:
    answer(deciding, happening)
    settle(deciding)


def _reported(deciding: Deciding, happening: Reported) -> None:
    report(deciding, happening)
    settle(deciding)


def _paused(deciding: Deciding, happening: Paused) -> None:
    if _is_live(deciding, happening.key, LiveKind.JOB):
        pause(deciding, happening)
        settle(deciding)


def _is_live(deciding: Deciding, key: Key, kind: LiveKind) -> bool:
    """Whether an outcome of this kind matters; in a pause none does."""
    return not deciding.state.is_paused and deciding.state.live.get(key.text) is kind


_DECISIONS: dict[type, Callable[[Deciding, Any], None]] = {
    Finished: _finished,
    FailedForGood: _failed_for_good,
    AttemptFailed: _attempt_failed,
    Skipped: _skipped,
    Paused: _paused,
    Reported: _reported,
    Answered: _answered,
    WaitDue: _wait_due,
    ChildEnded: _child_ended,
    Signalled: _signalled,
    PauseAsked: pause_asked,
    UnpauseAsked: unpause_asked,
    CancelAsked: cancel_asked,
    RetryAsked: retry_asked,
    MigrationAsked: migration_asked,
}
