"""Bodies that wait for somebody outside: how they pause, are reported on, and go on."""

from __future__ import annotations

import msgspec

from perdure.diagnostics import declare
from perdure.engine.completion import complete, fail
from perdure.engine.decider import Deciding, resumption_of
from perdure.engine.decision import NULL, Following, ms
from perdure.engine.failures import failure_of
from perdure.errors import InvalidInput, NodeNotFound, NodeNotWaiting, RunEnded, WaitTimedOut
from perdure.model.event import NodeAsked, NodePaused, NodePolled, NodeReported, ReportIgnored
from perdure.model.failure import Failure
from perdure.model.graph import CONTINUE, FAIL, ORDINARY, Call, LoopNode, MapNode, TaskNode
from perdure.model.ids import Key
from perdure.model.run import LiveKind, NewWait, NodeStatus, WaitKind
from perdure.model.trigger import Paused, Reported
from perdure.model.wait import LAST, Report, ReportStatus
from perdure.tasks.result import CANNOT_PAUSE, UNKNOWN_PORT

NO_REPORT = declare("node.no_report", "nobody reported on node {key!r} in time")
INVALID_POLL = declare("node.invalid_poll", "poll() must return a Report or None: {reason}")

BY_POLL = "poll"
"""Who a report is by that we asked for."""


def pause(deciding: Deciding, happening: Paused) -> None:
    """A body stopped to wait; if it has been reported on already, it is executed again at once."""
    key, text = happening.key, happening.key.text
    if _work(deciding, key) is None:
        fail(deciding, key, failure_of(CANNOT_PAUSE.fault(key=text)))
        return
    following = Following()
    if text in deciding.state.early:
        following.started.append(text)
    else:
        _await_report(deciding, following, happening)
    event = NodePaused(
        key=text, name=happening.name, poll_ms=happening.poll_ms, then=following.then()
    )
    deciding.emit(event, happening.checkpoint)
    if following.started:  # what to go on with is known only now
        _schedule(deciding, Following(), key)


def _await_report(deciding: Deciding, following: Following, happening: Paused) -> None:
    deadline = None if happening.deadline_ms is None else ms(happening.deadline_ms)
    wait = NewWait(
        key=happening.key.text,
        kind=WaitKind.OUTSIDE,
        name=happening.name,
        delay=deadline,
        detail=happening.checkpoint,
    )
    deciding.wait(following, wait)
    if happening.poll_ms is not None:
        _poll_in(deciding, following, happening.key.text, happening.poll_ms)


def report(deciding: Deciding, happening: Reported) -> None:
    """The outside party spoke. The first last word counts; what is repeated counts once."""
    key, state = happening.key, deciding.state
    text = key.text
    if key.node not in deciding.graph.nodes:
        raise NodeNotFound(run_id=deciding.run, node=key.node, known=tuple(deciding.graph.nodes))
    if happening.token and happening.token in state.reports.get(text, ()):
        return
    if state.is_ended:
        raise RunEnded(
            run_id=deciding.run, operation=f"report on node {key.node!r} of", status=state.status
        )
    _check_port(deciding, happening)
    is_last = happening.status in LAST
    if state.live.get(text) is None or _work(deciding, key) is None:
        _refuse(deciding, happening, is_last)
    elif is_last and text in state.early:
        _ignore(deciding, happening)
    else:
        _take(deciding, happening, is_last)


def _check_port(deciding: Deciding, happening: Reported) -> None:
    node = deciding.graph.nodes[happening.key.node]
    ports = node.ports if isinstance(node, TaskNode) else ()
    if happening.port and happening.port not in ports:
        fault = UNKNOWN_PORT.fault(("port",), node=node.id, port=happening.port, known=ports)
        raise InvalidInput(fault)


def _refuse(deciding: Deciding, happening: Reported, is_last: bool) -> None:
    key = happening.key
    node = deciding.state.nodes.get(key.node)
    if is_last and node is not None and node.status is NodeStatus.COMPLETED:
        _ignore(deciding, happening)
        return
    status = "not reached yet" if node is None else str(node.status)
    if key.text in deciding.state.live:
        status = "of a kind that does not wait for reports"
    raise NodeNotWaiting(run_id=deciding.run, node=key.node, status=status)


def _ignore(deciding: Deciding, happening: Reported) -> None:
    """Another last word came first; that there was this one too is kept, for whoever wonders."""
    deciding.emit(
        ReportIgnored(
            key=happening.key.text,
            status=happening.status,
            port=happening.port,
            by=happening.by,
        )
    )


def _take(deciding: Deciding, happening: Reported, is_last: bool) -> None:
    text, state = happening.key.text, deciding.state
    following = Following()
    is_open = state.live[text] is LiveKind.WAIT and not state.is_paused
    if is_last and is_open:
        following.started.append(text)
    elif is_open and (happening.by == BY_POLL or not _is_being_asked(deciding, text)):
        _ask_later(deciding, following, text)  # it is not silent
    event = NodeReported(
        key=text,
        status=happening.status,
        token=happening.token,
        by=happening.by,
        has_progress=happening.has_progress,
        then=following.then(),
    )
    deciding.emit(event, happening.report)
    if following.started:
        _close(deciding, text)
        _schedule(deciding, Following(), happening.key)


def reported_in_pause(deciding: Deciding) -> list[str]:
    """Keys that were reported on while the whole run was paused."""
    live = deciding.state.live
    return [text for text in deciding.state.early if live.get(text) is LiveKind.WAIT]


def resume(deciding: Deciding, following: Following, text: str) -> None:
    """Execute a body again that has been reported on."""
    _close(deciding, text)
    _schedule(deciding, following, Key.parse(text))


def failed_outside(deciding: Deciding, text: str) -> bool:
    """Whether the body that is executed goes on from a report that the work failed."""
    pauses = deciding.state.pauses.get(text)
    if not pauses or not pauses[-1].report:
        return False
    report = msgspec.json.decode(deciding.json(pauses[-1].report), type=Report)
    return report.status is ReportStatus.FAILED


def pause_due(deciding: Deciding, key: Key) -> None:
    """The time of a pause is over, or it is time to ask how the work is going."""
    if key.part == "poll":
        _ask(deciding, Key(node=key.node, iteration=key.iteration, item=key.item))
        return
    _close(deciding, key.text)
    node = deciding.graph.nodes[key.node]
    on_timeout = node.on_timeout if isinstance(node, TaskNode) else FAIL
    if on_timeout == FAIL:
        fail(deciding, key, failure_of(NO_REPORT.fault(key=key.text), WaitTimedOut), "timeout")
    else:
        port = ORDINARY if on_timeout == CONTINUE else on_timeout
        complete(deciding, key.node, port, NULL, cause="timeout")


def polled(deciding: Deciding, key: Key, output: bytes, failure: Failure | None) -> None:
    """The outside party was asked; ``output`` is a report, or null if there is nothing new."""
    about = Key(node=key.node, iteration=key.iteration, item=key.item)
    try:
        found = None if failure else msgspec.json.decode(output, type=Report | None)
    except msgspec.MsgspecError as error:
        found, failure = None, failure_of(INVALID_POLL.fault(reason=str(error)))
    if found is not None:
        happening = Reported(
            key=about,
            status=found.status,
            report=output,
            by=BY_POLL,
            port=found.port,
            has_progress=found.progress is not None,
        )
        try:
            report(deciding, happening)
        except InvalidInput as error:
            failure = failure_of(error.faults[0])
        else:
            return
    following = Following()
    _ask_later(deciding, following, about.text)
    deciding.emit(NodePolled(key=about.text, failure=failure, then=following.then()))


def _ask(deciding: Deciding, key: Key) -> None:
    work = _work(deciding, key)
    if work is None:
        return
    following = Following()
    poll = Key(node=key.node, iteration=key.iteration, item=key.item, part="poll")
    deciding.decision.closes.append(poll.text)
    deciding.schedule(following, poll, *work, resumption_of(deciding, key.text))
    deciding.emit(NodeAsked(key=key.text, then=following.then()))


def _ask_later(deciding: Deciding, following: Following, text: str) -> None:
    """Ask again in a while, if this is one to be asked at all."""
    poll_ms = deciding.state.pauses[text][-1].poll_ms
    if poll_ms is not None:
        _poll_in(deciding, following, text, poll_ms)


def _poll_in(deciding: Deciding, following: Following, text: str, poll_ms: int) -> None:
    wait = NewWait(key=_poll(text), kind=WaitKind.TIMER, delay=ms(poll_ms))
    deciding.wait(following, wait)


def _is_being_asked(deciding: Deciding, text: str) -> bool:
    return deciding.state.live.get(_poll(text)) is LiveKind.JOB


def _schedule(deciding: Deciding, following: Following, key: Key) -> None:
    work = _work(deciding, key)
    assert work is not None
    deciding.schedule(following, key, *work, resumption_of(deciding, key.text))


def _close(deciding: Deciding, text: str) -> None:
    """End the wait for a report, and whatever asks for one."""
    deciding.decision.closes.append(text)
    deciding.decision.drops.append(_poll(text))


def _poll(text: str) -> str:
    return f"poll:{text}"


def _work(deciding: Deciding, key: Key) -> tuple[Call, bytes] | None:
    """What a key executes, and on what; None if it is not the work of a node itself."""
    node = deciding.graph.nodes[key.node]
    if key.part:
        return None
    if isinstance(node, TaskNode):
        return node.call, deciding.input_of(node.id)
    if isinstance(node, MapNode) and isinstance(node.body, Call) and key.item is not None:
        return node.body, deciding.items_of(node)[key.item]
    if isinstance(node, LoopNode) and isinstance(node.body, Call):
        first = key.iteration == 1
        state = deciding.state.nodes[node.id]
        return node.body, deciding.input_of(node.id) if first else deciding.json(state.ref)
    return None
