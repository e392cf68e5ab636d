"""External waits: how tasks pause, receive reports, poll, and resume."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from perdure.diagnostics import declare
from perdure.engine.completion import cancel_work, end_by_policy, end_compensated, fail, work_of
from perdure.engine.decider import Decider
from perdure.engine.run_view import NULL
from perdure.errors import InvalidInput, NodeNotFound, NodeNotWaiting, RunEnded, WaitTimedOut
from perdure.model.event import (
    NodeCancelled,
    NodePaused,
    NodePolled,
    NodePollStarted,
    NodeReported,
    ReportIgnored,
)
from perdure.model.failure import Failure, failure_of
from perdure.model.graph import FAIL, UNKNOWN_PORT, Call, LoopNode, MapNode, TaskNode
from perdure.model.ids import Key
from perdure.model.outcome import Paused
from perdure.model.run import LiveType, NewWait, NodeStatus, WaitType
from perdure.model.trigger import ReportReceived
from perdure.model.wait import CANNOT_PAUSE, LAST, Report, ReportStatus

EARLY_REPORTS_MAX = 1_000
"""Nodes, items and iterations with reports that a run has not reached yet."""

NO_REPORT = declare("node.no_report", "no report on node {key!r} arrived in time")
INVALID_POLL = declare("node.invalid_poll", "poll() must return a Report or None: {reason}")


def pause(d: Decider, key: Key, paused: Paused, attempt: int) -> None:
    """Pause a task until it is reported on; if it already was, resume it immediately."""
    text = key.text
    work = work_of(d, key)
    if work is None:
        fail(d, key, failure_of(CANNOT_PAUSE.fault(key=text)))
        return
    poll_ms = None if paused.poll is None else paused.poll // timedelta(milliseconds=1)
    is_reported = text in d.state.early_reports
    if is_reported:
        d.note_started(text)
    else:
        wait = NewWait(
            key=text,
            type=WaitType.EXTERNAL,
            name=paused.name,
            delay=paused.deadline,
            detail=paused.checkpoint,
        )
        d.wait(wait)
        if poll_ms is not None:
            _poll_in(d, text, poll_ms)
    event = NodePaused(
        key=text,
        name=paused.name,
        poll_ms=poll_ms,
        attempt=attempt,
        cancels=paused.cancels,
        effects=d.take_effects(),
    )
    d.emit(event, paused.checkpoint)
    if is_reported:  # after the event, because the resumption includes this pause
        d.insert_job(key, *work, d.view.resumption_of(text))


def report(d: Decider, received: ReportReceived) -> None:
    """Record a report. Only the first final one counts, and a repeated one counts once."""
    key, state = received.key, d.state
    text = key.text
    if key.node not in d.graph.nodes:
        raise NodeNotFound(run_id=d.run, node=key.node, known=tuple(d.graph.nodes))
    if received.token and received.token in state.reports.get(text, ()):
        return
    if state.is_ended:
        operation = f"report on node {key.node!r} of"
        raise RunEnded(run_id=d.run, operation=operation, status=state.status)
    node = d.graph.nodes[key.node]
    ports = node.ports if isinstance(node, TaskNode) else ()
    if received.port and received.port not in ports:
        fault = UNKNOWN_PORT.fault(("port",), node=node.id, port=received.port, known=ports)
        raise InvalidInput(fault)
    is_last = received.status in LAST
    work = work_of(d, key) if text in state.live else None
    if work is None and _may_be_reached(d, key):
        kept = {*state.early_reports, *state.progress, *state.reports} - {text}
        if sum(Key.parse(each).node not in state.nodes for each in kept) >= EARLY_REPORTS_MAX:
            status = f"not reached yet, and {EARLY_REPORTS_MAX} reports are kept already"
            raise NodeNotWaiting(run_id=d.run, node=key.node, status=status)
    elif work is None:
        reached = state.nodes.get(key.node)
        if not is_last or reached is None or reached.status is not NodeStatus.COMPLETED:
            status = "not reached yet" if reached is None else str(reached.status)
            if text in state.live:
                status = "of a type that does not wait for reports"
            raise NodeNotWaiting(run_id=d.run, node=key.node, status=status)
        _ignore(d, received)
        return
    if is_last and text in state.early_reports:
        _ignore(d, received)
        return
    is_open = state.live.get(text) is LiveType.WAIT and not state.is_paused
    is_polled = state.live.get(_poll(text)) is LiveType.JOB
    if is_last and is_open:
        d.note_started(text)
    elif is_open and (received.is_poll or not is_polled):
        _poll_later(d, text)  # a report postpones the next poll
    event = NodeReported(
        key=text,
        status=received.status,
        token=received.token,
        by=received.by,
        has_progress=received.has_progress,
        is_poll=received.is_poll,
        effects=d.take_effects(),
    )
    d.emit(event, received.report)
    if is_last and is_open:  # after the event, because the resumption includes this report
        assert work is not None
        _close(d, text)
        d.insert_job(key, *work, d.view.resumption_of(text))


def _ignore(d: Decider, received: ReportReceived) -> None:
    """Another final report came first; this one is only recorded."""
    ignored = ReportIgnored(
        key=received.key.text, status=received.status, port=received.port, by=received.by
    )
    d.emit(ignored)


def _may_be_reached(d: Decider, key: Key) -> bool:
    """Whether a key that the run has not reached yet could pause once it does."""
    if key.node in d.state.nodes or d.state.ends_as is not None:
        return False
    match d.graph.nodes[key.node]:
        case TaskNode():
            return key == Key(node=key.node)
        case MapNode(body=Call()):
            return key == Key(node=key.node, item=key.item) and key.item is not None
        case LoopNode(body=Call()):
            return key == Key(node=key.node, iteration=1)
        case _:
            return False


def resume_reported(d: Decider) -> None:
    """Resume tasks that were reported on while the run was paused."""
    for text in d.state.early_reports:
        if d.state.live.get(text) is LiveType.WAIT:
            key = Key.parse(text)
            work = work_of(d, key)
            assert work is not None
            _close(d, text)
            d.schedule(key, *work, d.view.resumption_of(text))


def failed_externally(d: Decider, text: str) -> bool:
    """Whether the task last resumed from a report that the external work failed."""
    pauses = d.state.pauses.get(text)
    if not pauses or not pauses[-1].report:
        return False
    report = msgspec.json.decode(d.view.json(pauses[-1].report), type=Report)
    return report.status is ReportStatus.FAILED


def pause_due(d: Decider, key: Key) -> None:
    """A pause timed out, or a poll is due."""
    if key.part == "poll":
        of = Key(node=key.node, iteration=key.iteration, item=key.item)
        if (work := work_of(d, of)) is not None:
            d.decision.close_waits.append(key.text)
            d.schedule(key, *work, d.view.resumption_of(of.text))
            d.emit(NodePollStarted(key=of.text, effects=d.take_effects()))
        return
    _close(d, key.text)
    cancel_work(d, key)
    node = d.graph.nodes[key.node]
    policy = node.on_timeout if isinstance(node, TaskNode) else FAIL
    failure = failure_of(NO_REPORT.fault(key=key.text), WaitTimedOut)
    end_by_policy(d, key, policy, NULL, failure, cause="timeout")


def polled(d: Decider, key: Key, output: bytes, failure: Failure | None) -> None:
    """A poll ended; ``output`` is a report, or null if there is nothing new."""
    of = Key(node=key.node, iteration=key.iteration, item=key.item)
    try:
        found = None if failure else msgspec.json.decode(output, type=Report | None)
    except msgspec.MsgspecError as error:
        found, failure = None, failure_of(INVALID_POLL.fault(reason=str(error)))
    if found is not None:
        received = ReportReceived(
            key=of,
            status=found.status,
            report=output,
            is_poll=True,
            port=found.port,
            has_progress=found.progress is not None,
        )
        try:
            report(d, received)
        except InvalidInput as error:
            failure = failure_of(error.faults[0])
        else:
            return
    _poll_later(d, of.text)
    d.emit(NodePolled(key=of.text, failure=failure, effects=d.take_effects()))


def cancelled(d: Decider, key: Key, failure: Failure | None) -> None:
    """The external work of a node was cancelled, or could not be; the run may end now."""
    d.emit(NodeCancelled(key=key.text, failure=failure))
    end_compensated(d)


def _poll_later(d: Decider, text: str) -> None:
    """Schedule the next poll, if the pause asks for polls."""
    poll_ms = d.state.pauses[text][-1].poll_ms
    if poll_ms is not None:
        _poll_in(d, text, poll_ms)


def _poll_in(d: Decider, text: str, poll_ms: int) -> None:
    delay = timedelta(milliseconds=poll_ms)
    d.wait(NewWait(key=_poll(text), type=WaitType.TIMER, delay=delay))


def _close(d: Decider, text: str) -> None:
    """Close the wait for a report, and cancel its polls."""
    d.decision.close_waits.append(text)
    d.decision.cancel_keys.append(_poll(text))


def _poll(text: str) -> str:
    return f"poll:{text}"
