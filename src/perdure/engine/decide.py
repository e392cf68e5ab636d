"""``decide``: the events and effects of a trigger on a run. Pure, and total over the triggers.

A first execution, a retry, a decision of a person, a timer, a recovery after a crash and a replay
all come through here. A trigger that no longer matters (a late outcome, the timer of a node that
has ended) leads to a decision without events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.engine.approvals import answer, approval_due, notified
from perdure.engine.completion import (
    complete,
    complete_item,
    end,
    end_by_policy,
    fail,
    pass_on,
    settle,
    skip,
    undone,
)
from perdure.engine.decider import Decider, Decision, milliseconds
from perdure.engine.external_waits import (
    cancelled,
    failed_externally,
    pause,
    pause_due,
    polled,
    report,
)
from perdure.engine.run_commands import (
    cancel_run,
    deliver,
    is_reopened,
    migrate_run,
    pause_run,
    refuse_ended,
    reopen,
    resume_run,
    retry_run,
    set_priority,
    start_queued,
    time_out,
)
from perdure.engine.run_view import NULL, Values
from perdure.errors import (
    InvalidInput,
    LoopExhausted,
    MailboxFull,
    Permanent,
    RunCancelled,
    WaitTimedOut,
)
from perdure.model.event import (
    ItemCompleted,
    IterationCompleted,
    NodeFailed,
    NodeRetried,
    Origin,
    OutputChanged,
    Parent,
    RunForked,
    RunSubmitted,
    SignalReceived,
)
from perdure.model.failure import Failure, failure_of
from perdure.model.graph import (
    CONTINUE,
    DEFAULT_PORT,
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
from perdure.model.ids import AUXILIARY_PARTS, RUN_START, Key, RunId
from perdure.model.job import PRIORITY_DEFAULT
from perdure.model.outcome import Cancelled, Completed, Paused, Retried, Skipped
from perdure.model.payload import weight
from perdure.model.run import LiveType, NodeStatus, RunState, RunStatus
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.trigger import (
    CancelRun,
    ChildEnded,
    DecideApproval,
    JobEnded,
    MigrateRun,
    PauseRun,
    ReportReceived,
    ResumeRun,
    RetryRun,
    SendSignal,
    SetPriority,
    Trigger,
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
NO_SIGNAL = declare("node.no_signal", "signal {signal!r} did not arrive within {timeout}")
ATTEMPTS_EXHAUSTED = declare(
    "run.attempts_exhausted",
    "{count:attempt|attempts} of the run's nodes failed, the most allowed",
    "Retry the run to reset the count",
)
UNREAD_MAX_BYTES = 16 * 1024 * 1024
"""How many unread signals of a name a run keeps, times the size of one that is sent."""
ATTEMPTS = "attempts"
"""The cause of a failed node that had retries left, but whose run had not."""
ATTEMPT_ABORTED = declare("node.attempt_aborted", "the attempt was aborted")


def decide(
    graph: Graph, run: RunId, state: RunState, trigger: Trigger, values: Values
) -> tuple[Decision, RunState]:
    """The decision that ``trigger`` leads to, and the state after it.

    Raises ``RunEnded``, ``RunNotPaused``, ``ApprovalDecided`` and the like for commands that the
    state of the run forbids, and ``ValueMissing`` if values must be read first.
    """
    d = Decider(graph, run, state, values)
    _DECISIONS[type(trigger)](d, trigger)
    return d.decision, d.state


def submit(
    graph: Graph,
    run: RunId,
    input: bytes,
    values: Values,
    *,
    aging_ms: int,
    map_window: int,
    gathered_max_bytes: int,
    parent: Parent | None = None,
    replaced: bool = False,
    settings: RunSettings = NO_SETTINGS,
    priority: int = PRIORITY_DEFAULT,
    first_items: int = 0,
) -> tuple[Decision, RunState]:
    """The first decision about a new run; one that starts later only waits for that."""
    state = RunState(map_window=map_window, gathered_max_bytes=gathered_max_bytes)
    d = Decider(graph, run, state, values)
    d.first_items = first_items
    d.view.provide(input)
    is_queued = settings.starts_queued
    if is_queued:
        d.queue(settings)
    else:
        for id in graph.starts:
            d.start(id)
    d.start_clock(settings, is_queued=is_queued)
    event = RunSubmitted(
        flow=graph.name,
        version=graph.version,
        aging_ms=aging_ms,
        effects=d.take_effects(),
        parent=parent,
        replaced=replaced,
        settings=settings,
        priority=priority,
        is_queued=is_queued,
        map_window=map_window,
        gathered_max_bytes=gathered_max_bytes,
        first_items=first_items,
    )
    d.emit(event, input)
    settle(d)
    return d.decision, d.state


def fork(
    graph: Graph,
    run: RunId,
    state: RunState,
    origin: Origin,
    patch: dict[str, bytes],
    values: Values,
    *,
    is_late: bool = False,
) -> tuple[Decision, RunState]:
    """Continue from a state that was copied from another run, with some outputs changed.

    Nodes downstream of a changed output start from the beginning. A loop with a changed iteration
    continues with its check. Raises ``InvalidInput`` if a changed node or iteration has no output,
    or if any node was undone. ``is_late``: the deadline has passed, so the fork has none.
    """
    if any(node.is_undone for node in state.nodes.values()):
        raise InvalidInput(FORK_AFTER_UNDO.fault(("after",), number=origin.number, run=origin.run))
    changed = {text: changeable(state, text) for text in patch}
    completed = {id for id, n in state.nodes.items() if n.status is NodeStatus.COMPLETED}
    from_start = {
        edge.target
        for key in changed.values()
        if key is not None and not key.iteration
        for edge in graph.outgoing[key.node]
    }
    if unknown := [
        text
        for text, key in changed.items()
        if key is None or (key.iteration and key.node in from_start)
    ]:
        fault = NOT_COMPLETED.fault(
            ("patch",),
            nodes=tuple(unknown),
            number=origin.number,
            run=origin.run,
            completed=tuple(sorted(completed)),
        )
        raise InvalidInput(fault)
    d = Decider(graph, run, state, values)
    for text, key in changed.items():
        assert key is not None
        d.emit(OutputChanged(node=key.node, iteration=key.iteration), patch[text])
    is_queued = state.settings.max_running is not None
    restarts: tuple[str, ...] = ()
    if is_queued:
        restarts = tuple(sorted(id for id in from_start if is_reopened(state.nodes.get(id))))
    else:
        reopen(d, from_start)
    event = RunForked(
        origin=origin,
        effects=d.take_effects(),
        is_late=is_late,
        is_queued=is_queued,
        restarts=restarts,
    )
    d.emit(event)
    if is_queued:
        d.queue(d.state.settings)
    d.start_clock(d.state.settings, is_queued=is_queued)
    settle(d)
    return d.decision, d.state


def changeable(state: RunState, text: str) -> Key | None:
    """What a patch of ``text`` changes: a completed node, or an unfinished loop's last iteration.

    None if that has no output, or a later iteration has used it. The last iteration of a completed
    loop is the output of its node.
    """
    try:
        key = Key.parse(text)
    except InvalidInput:
        return None
    node = state.nodes.get(key.node)
    if node is None or key.item is not None or key.part:
        return None
    if node.status is NodeStatus.COMPLETED:
        return Key(node=key.node) if key.iteration in (0, node.iteration) else None
    last = node.iteration if node.part == "check" else node.iteration - 1
    return key if 0 < key.iteration == last else None


# Ends of jobs


def _job_ended(d: Decider, trigger: JobEnded) -> None:
    key, outcome = trigger.key, trigger.outcome
    if not _is_live(d, key, LiveType.JOB):
        return
    match outcome:
        case Completed():
            _completed(d, trigger, outcome)
        case Retried():
            counts = not outcome.is_snoozed and key.part not in AUXILIARY_PARTS
            if counts and _is_exhausted(d, d.state.failed_attempts + 1):
                d.emit(NodeFailed(key=key.text, failure=outcome.failure, cause=ATTEMPTS))
                _exhausted(d, key)
                return
            event = NodeRetried(
                key=key.text,
                attempt=trigger.attempt,
                failure=outcome.failure,
                restarts=not outcome.is_snoozed and failed_externally(d, key.text),
                is_snoozed=outcome.is_snoozed,
            )
            d.emit(event)
        case Paused():
            pause(d, key, outcome, trigger.attempt)
            settle(d)
        case Skipped() if isinstance(d.graph.nodes[key.node], TaskNode) and not key.part:
            skip(d, key.node, outcome.reason)
            settle(d)
        case Skipped():  # an item of a map, or an iteration of a loop: its output is null
            _completed(d, trigger, Completed(output=NULL))
        case _:
            failure = outcome.failure
            if failure is None:
                assert isinstance(outcome, Cancelled)
                failure = failure_of(ATTEMPT_ABORTED.fault(), Permanent)
            if key.part in AUXILIARY_PARTS:
                _auxiliary_ended(d, key, NULL, failure)
            else:
                fail(d, key, failure)
                is_over = d.state.is_ended or d.state.ends_as is not None
                if not is_over and _is_exhausted(d, d.state.failed_attempts):
                    _exhausted(d, key)
                    return
                settle(d)


def _is_exhausted(d: Decider, failed_attempts: int) -> bool:
    most = d.state.settings.max_attempts
    return most is not None and failed_attempts >= most


def _exhausted(d: Decider, key: Key) -> None:
    """Fail the run: too many attempts of its nodes failed, whatever they handle."""
    fault = ATTEMPTS_EXHAUSTED.fault(count=d.state.failed_attempts)
    end(d, RunStatus.FAILED, failure=failure_of(fault, Permanent), node=key.node)


def _completed(d: Decider, trigger: JobEnded, outcome: Completed) -> None:
    key = trigger.key
    if key.part in AUXILIARY_PARTS:
        _auxiliary_ended(d, key, outcome.output, None)
        return
    node = d.graph.nodes[key.node]
    match node:
        case TaskNode():
            if outcome.port == ORDINARY or outcome.port in ports_of(node):
                complete(d, node.id, outcome.port, outcome.output, warnings=outcome.warnings)
            else:
                fault = ENDED_ON_UNKNOWN_PORT.fault(
                    ("port",), node=node.id, port=outcome.port, known=node.ports
                )
                fail(d, key, failure_of(fault))
        case RouteNode():
            _route(d, node, outcome.output)
        case MapNode():
            complete_item(d, node, key, ItemCompleted, outcome.output)
        case LoopNode():
            _iterated(d, node, key, outcome.output, trigger.is_done)
    settle(d)


def _auxiliary_ended(d: Decider, key: Key, output: bytes, failure: Failure | None) -> None:
    match key.part:
        case "undo":
            undone(d, key, failure)
        case "poll":
            polled(d, key, output, failure)
        case "cancel":
            cancelled(d, key, failure)
        case "notify":
            notified(d, key, failure)


def _route(d: Decider, node: RouteNode, output: bytes) -> None:
    key = msgspec.json.decode(output)
    if isinstance(key, bool):
        key = str(key).lower()
    port = str(key) if isinstance(key, str | int) else None
    if port is None or port not in node.ports:
        if DEFAULT_PORT not in node.ports:
            fault = NO_BRANCH.fault(node=node.id, key=key, known=node.ports)
            fail(d, Key(node=node.id), failure_of(fault))
            return
        port = DEFAULT_PORT
    pass_on(d, node.id, port, "")


def _iterated(d: Decider, node: LoopNode, key: Key, output: bytes, is_done: bool | None) -> None:
    """An iteration ended, or its check task, which decides whether it was the last."""
    if key.part == "check":
        ref = d.state.nodes[node.id].ref
        _after_check(d, node, key, None, ref, bool(msgspec.json.decode(output)))
    elif is_done is None:
        _check_loop(d, node, key, output)
    else:
        _after_check(d, node, key, output, 0, is_done)


def _check_loop(d: Decider, node: LoopNode, key: Key, output: bytes) -> None:
    d.check_loop(node, key.iteration, output)
    d.emit(IterationCompleted(key=key.text, effects=d.take_effects()), output)


def _after_check(
    d: Decider, node: LoopNode, key: Key, output: bytes | None, ref: int, is_done: bool
) -> None:
    """Iterate again or complete; the iteration's output is ``output``, or the value of ``ref``."""
    if is_done:
        complete(d, node.id, ORDINARY, output, ref=ref, iteration=key.iteration)
    elif key.iteration < node.iterations_max:
        again = Key(node=node.id, iteration=key.iteration + 1)
        d.call(again, node.body, d.view.json(ref) if output is None else output)
        d.emit(IterationCompleted(key=key.text, effects=d.take_effects()), output)
    else:
        fault = NOT_DONE.fault(node=node.id, count=node.iterations_max)
        failure = failure_of(fault, LoopExhausted)
        end_by_policy(d, key, node.on_max, output, failure, ref=ref)


# Ends of waits, signals, reports and decisions


def _child_ended(d: Decider, trigger: ChildEnded) -> None:
    key, output = trigger.key, trigger.output
    is_current = d.state.children.get(key.text) == trigger.run
    if not is_current or not _is_live(d, key, LiveType.CHILD):
        return
    d.decision.close_waits.append(key.text)
    node = d.graph.nodes[key.node]
    if trigger.status is not RunStatus.COMPLETED:
        fault = CHILD_CANCELLED.fault(run=trigger.run)
        fail(d, key, trigger.failure or failure_of(fault, RunCancelled), "child")
    elif isinstance(node, MapNode):
        complete_item(d, node, key, ItemCompleted, output)
    elif isinstance(node, LoopNode):
        _check_loop(d, node, key, output)
    else:
        complete(d, key.node, ORDINARY, output, cause="child")
    settle(d)


def _wait_due(d: Decider, trigger: WaitDue) -> None:
    key = trigger.key
    if key.part == "run":  # a timer of the run itself
        (start_queued if key.text == RUN_START else time_out)(d)
        return
    if not _is_live(d, key, LiveType.WAIT):
        return
    node = d.graph.nodes[key.node]
    if isinstance(node, ApprovalNode):
        approval_due(d, node, trigger)
    elif key.text in d.state.pauses or key.part == "poll":
        pause_due(d, key)
    elif isinstance(node, DelayNode):
        d.decision.close_waits.append(key.text)
        pass_on(d, node.id, ORDINARY, "timer")
    elif isinstance(node, SignalNode) and node.timeout_ms is not None:
        d.decision.close_waits.append(key.text)
        fault = NO_SIGNAL.fault(signal=node.signal, timeout=milliseconds(node.timeout_ms))
        failure = failure_of(fault, WaitTimedOut)
        policy, output = node.on_timeout, NULL
        if node.default_payload is not None:
            policy, output = CONTINUE, msgspec.json.encode(node.default_payload.value)
        end_by_policy(d, key, policy, output, failure, cause="timeout")
    settle(d)


def _send_signal(d: Decider, command: SendSignal) -> None:
    refuse_ended(d, "signal")
    d.emit(SignalReceived(name=command.name, by=command.by), command.payload)
    received = d.state.number
    if not d.state.is_paused:
        # Every open wait has already rejected the older ones: when it opened, when they arrived,
        # or when the run was resumed.
        deliver(d, [command.name], since=d.state.number)
        settle(d)
    unread = d.state.signals.get(command.name, ())
    is_unread = received in unread
    if is_unread and command.unread_max is not None:
        size = weight(command.payload)
        if len(unread) > command.unread_max:
            raise MailboxFull(run_id=d.run, signal=command.name, most=command.unread_max)
        # The sizes of the others are not known here. However they differ, a thousand of them have
        # at most eight times as many bytes together.
        if len(unread) > (most := max(1, UNREAD_MAX_BYTES // size)):
            raise MailboxFull(run_id=d.run, signal=command.name, most=most, size_bytes=size)


def _decide_approval(d: Decider, command: DecideApproval) -> None:
    answer(d, command)
    settle(d)


def _report_received(d: Decider, trigger: ReportReceived) -> None:
    report(d, trigger)
    settle(d)


def _is_live(d: Decider, key: Key, live_type: LiveType) -> bool:
    """Whether the end of a job, wait or child counts now; in a paused run it does not."""
    return not d.state.is_paused and d.state.live.get(key.text) is live_type


_DECISIONS: dict[type, Callable[[Decider, Any], None]] = {
    JobEnded: _job_ended,
    WaitDue: _wait_due,
    ChildEnded: _child_ended,
    ReportReceived: _report_received,
    DecideApproval: _decide_approval,
    SendSignal: _send_signal,
    PauseRun: pause_run,
    ResumeRun: resume_run,
    CancelRun: cancel_run,
    RetryRun: retry_run,
    SetPriority: set_priority,
    MigrateRun: migrate_run,
}
