"""I2 and I8: each key is committed once, and ended keys and runs stay ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perdure.diagnostics import Finding, declare
from perdure.model import event as events
from perdure.model.event import Event
from perdure.model.ids import Key
from perdure.model.run import LiveType, NodeStatus, RunState, RunStatus
from perdure.verify.load import AuditedRun
from perdure.verify.replay import ReplayStep

Keys = tuple[str, ...]

_IN_A_PAUSE = (
    events.SignalReceived,
    events.NodeReported,
    events.ReportIgnored,
    events.ApprovalAnswered,
    events.RunResumed,
    events.RunMigrated,
    events.PriorityChanged,
    events.RunCancelled,
    events.RunFailed,
    events.CompensationStarted,
    events.OutputChanged,
    events.RunForked,
)
"""The events that a paused run may get."""


def ended_key(event: Event) -> str:
    """The key that an event ends, successfully or not; empty if it ends none."""
    match event:
        case events.NodeCompleted():
            key = Key(node=event.node, iteration=event.iteration).text
            # If a loop's check has its own job, the iteration ended before.
            return f"check:{key}" if event.iteration and event.ref else key
        case events.ItemCompleted() | events.IterationCompleted() | events.NodeFailed():
            return event.key
        case events.NodeSkipped():
            return event.node
        case events.NodeUndone() | events.UndoFailed():
            return _undo_key(event)
        case _:
            return ""


def _undo_key(event: events.NodeUndone | events.UndoFailed) -> str:
    return Key(node=event.node, item=event.item, part="undo").text


KEY_COMMITTED_ONCE = declare(
    "verify.key_committed_once", "{event}, but event {ends} had already ended it"
)


def key_committed_once(view: AuditedRun) -> Iterator[Finding]:
    """No key ends twice, unless a retry or a fork started it again in between."""
    ends: dict[str, int] = {}
    for step in view.replay.steps:
        if isinstance(step.event, events.RunRetried | events.RunForked | events.QueuedRunStarted):
            ends = _still_ended(ends, step.event.effects)
        key = ended_key(step.event)
        if not key:
            continue
        if key in ends:
            numbers = (ends[key], step.number)
            yield view.finding(
                "I2",
                KEY_COMMITTED_ONCE,
                *numbers,
                key=key,
                event=type(step.event).__name__,
                ends=ends[key],
            )
        ends[key] = step.number


def _still_ended(ends: dict[str, int], effects: events.Effects) -> dict[str, int]:
    """The ended keys, without restarted ones, later iterations, and items of restarted maps."""
    texts = (*effects.started, *effects.waiting, *(key for key, _ in effects.children))
    keys = [Key.parse(text) for text in texts]
    again = {*texts, *(key.node for key in keys)}
    loops = {key.node: key.iteration for key in keys if key.iteration}
    maps = {node for node, _ in effects.mapped}

    def is_again(text: str) -> bool:
        key = Key.parse(text)
        if key.iteration and key.node in loops:
            return key.iteration >= loops[key.node]
        return text in again or key.node in maps

    return {text: number for text, number in ends.items() if not is_again(text)}


KEY_WAS_LIVE = declare("verify.key_was_live", "{event} of a key that had no {wanted}[ but a {was}]")


def key_was_live(view: AuditedRun) -> Iterator[Finding]:
    """A key that ends, fails, pauses or is answered was live just before."""
    for step in view.replay.steps:
        find = _LIVE_KEYS.get(type(step.event))
        if find is None:
            continue
        keys, types = find(step.event)
        if any(step.before.live.get(key) in types for key in keys):
            continue
        if isinstance(step.event, events.NodeCompleted) and _is_gathered(step.before, step.event):
            continue
        if isinstance(step.event, events.NodeReported) and _is_ahead(step.before, step.event):
            continue
        wanted = " or ".join(sorted(types))
        was = step.before.live.get(keys[0])
        yield view.finding(
            "I2",
            KEY_WAS_LIVE,
            step.number,
            key=keys[0],
            event=type(step.event).__name__,
            wanted=wanted,
            was=was,
        )


def _is_gathered(state: RunState, event: events.NodeCompleted) -> bool:
    """Whether all items of a map were done when it completed."""
    progress = state.maps.get(event.node)
    return event.cause == "items" and progress is not None and len(progress.refs) == progress.count


def _is_ahead(state: RunState, event: events.NodeReported) -> bool:
    """Whether the run had not reached the node yet; the report is stored until then."""
    return Key.parse(event.key).node not in state.nodes


_ANY = frozenset(LiveType)
_JOB = frozenset({LiveType.JOB})
_WAIT = frozenset({LiveType.WAIT})
_WORK = frozenset({LiveType.JOB, LiveType.CHILD})

Find = Callable[[Any], tuple[Keys, frozenset[LiveType]]]


def _of_node(event: events.NodeCompleted) -> tuple[Keys, frozenset[LiveType]]:
    text = Key(node=event.node, iteration=event.iteration).text
    types = _ANY if not event.cause else _TYPES_OF_CAUSE.get(event.cause, _ANY)
    return (text, f"check:{text}"), types


_TYPES_OF_CAUSE = {
    "timer": _WAIT,
    "timeout": _WAIT,
    "signal": _WAIT,
    "approval": _WAIT,
    "child": frozenset({LiveType.CHILD}),
    "items": _WAIT,
}

_LIVE_KEYS: dict[type, Find] = {
    events.NodeCompleted: _of_node,
    events.ItemCompleted: lambda event: ((event.key,), _WORK),
    events.IterationCompleted: lambda event: ((event.key,), _WORK),
    events.NodeRetried: lambda event: ((event.key,), _JOB),
    events.NodeFailed: lambda event: ((event.key,), _ANY),
    events.NodeSkipped: lambda event: ((event.node,), _ANY),
    events.NodePaused: lambda event: ((event.key,), _JOB),
    events.NodeReported: lambda event: ((event.key,), _ANY),
    events.NodePollStarted: lambda event: ((f"poll:{event.key}",), _WAIT),
    events.NodePolled: lambda event: ((f"poll:{event.key}",), _JOB),
    events.ApprovalAnswered: lambda event: ((event.node,), _WAIT),
    events.ApprovalReminded: lambda event: ((f"remind:{event.node}",), _WAIT),
    events.ApprovalEscalated: lambda event: ((f"remind:{event.node}",), _WAIT),
    events.NodeCancelled: lambda event: ((event.key,), _JOB),
    events.NodeNotified: lambda event: ((event.key,), _JOB),
    events.NodeUndone: lambda event: ((_undo_key(event),), _JOB),
    events.UndoFailed: lambda event: ((_undo_key(event),), _JOB),
}


NOTHING_AFTER_END = declare(
    "verify.nothing_after_end", "{event} after event {end} had ended the run"
)


def nothing_after_end(view: AuditedRun) -> Iterator[Finding]:
    """After its end, a run gets only an explicit retry or the start of a fork."""
    for step in view.replay.steps:
        if not step.before.is_ended or _restarts(view, step):
            continue
        end = next(s.number for s in reversed(view.replay.steps[: step.number - 1]) if _ends(s))
        yield view.finding(
            "I8", NOTHING_AFTER_END, end, step.number, event=type(step.event).__name__, end=end
        )


def _ends(step: ReplayStep) -> bool:
    return step.after.is_ended and not step.before.is_ended


def _restarts(view: AuditedRun, step: ReplayStep) -> bool:
    match step.event:
        case events.RunRetried():
            return step.before.status in (RunStatus.FAILED, RunStatus.CANCELLED)
        case events.RunForked():
            return True
        case events.OutputChanged():  # precedes the fork that it belongs to
            rest = view.replay.steps[step.number :]
            others = (each for each in rest if not isinstance(each.event, events.OutputChanged))
            return isinstance(getattr(next(others, None), "event", None), events.RunForked)
        case _:
            return False


RETRY_OF_ENDED_RUN = declare("verify.retry_of_ended_run", "RunRetried while the run was {status}")


def retry_of_ended_run(view: AuditedRun) -> Iterator[Finding]:
    for step in view.replay.steps:
        if isinstance(step.event, events.RunRetried) and not step.before.is_ended:
            yield view.finding("I8", RETRY_OF_ENDED_RUN, step.number, status=step.before.status)


FORK_ORIGIN = declare(
    "verify.fork_origin",
    "forked after event {number} of run {run_id!r}, but has {copied:event|events} from it",
)


def fork_origin(view: AuditedRun) -> Iterator[Finding]:
    """The events before a fork equal those of its origin, up to the number that it names."""
    changes = 0
    for step in view.replay.steps:
        if isinstance(step.event, events.OutputChanged):
            changes += 1
            continue
        if isinstance(step.event, events.RunForked):
            copied = step.number - 1 - changes
            if copied != step.event.origin.number:
                origin = step.event.origin
                yield view.finding(
                    "I8",
                    FORK_ORIGIN,
                    step.number,
                    number=origin.number,
                    run_id=origin.run,
                    copied=copied,
                )
        changes = 0


NOTHING_WHILE_PAUSED = declare("verify.nothing_while_paused", "{event} while the run was paused")


def nothing_while_paused(view: AuditedRun) -> Iterator[Finding]:
    for step in view.replay.steps:
        if step.before.is_paused and not isinstance(step.event, _IN_A_PAUSE):
            yield view.finding(
                "I8", NOTHING_WHILE_PAUSED, step.number, event=type(step.event).__name__
            )


PAUSES_ALTERNATE = declare("verify.pauses_alternate", "{event} while the run was {was}")


def pauses_alternate(view: AuditedRun) -> Iterator[Finding]:
    for step in view.replay.steps:
        if isinstance(step.event, events.RunPaused | events.RunResumed):
            should_be = isinstance(step.event, events.RunResumed)
            if step.before.is_paused is not should_be:
                was = "paused already" if step.before.is_paused else "not paused"
                yield view.finding(
                    "I8", PAUSES_ALTERNATE, step.number, event=type(step.event).__name__, was=was
                )


COMPLETED_RUN_DONE_LIVE = declare(
    "verify.completed_run_done.live", "RunCompleted while these were live: {live}"
)
COMPLETED_RUN_DONE_FAILED = declare(
    "verify.completed_run_done.failed", "RunCompleted after these had failed: {failed}"
)


def completed_run_done(view: AuditedRun) -> Iterator[Finding]:
    """A completed run has no live keys and no failures."""
    for step in view.replay.steps:
        if not isinstance(step.event, events.RunCompleted):
            continue
        if step.before.live:
            live = tuple(sorted(step.before.live)[:5])
            yield view.finding("I8", COMPLETED_RUN_DONE_LIVE, step.number, live=live)
        nodes = step.before.nodes
        failed = tuple(sorted(id for id in nodes if nodes[id].status is NodeStatus.FAILED)[:5])
        if failed:
            yield view.finding("I8", COMPLETED_RUN_DONE_FAILED, step.number, failed=failed)


OUTPUTS_EXIST_NODE = declare(
    "verify.outputs_exist.node", "its output should be the value of event {ref}, which has none"
)
OUTPUTS_EXIST_ITEM = declare(
    "verify.outputs_exist.item", "its output should be the value of event {ref}, which has none"
)
OUTPUTS_EXIST_RESULT = declare(
    "verify.outputs_exist.result",
    "the run's result should be the value of event {ref}, which has none",
)


def outputs_exist(view: AuditedRun) -> Iterator[Finding]:
    """Every reference of the state is an event with a value."""
    with_value = {event.number for event in view.events if event.value is not None}
    for id, node in view.state.nodes.items():
        if node.status is NodeStatus.COMPLETED and node.ref and node.ref not in with_value:
            yield view.finding("I2", OUTPUTS_EXIST_NODE, node.ref, key=id, ref=node.ref)
    for id, progress in view.state.maps.items():
        for item, ref in progress.refs.items():
            if ref not in with_value:
                yield view.finding("I2", OUTPUTS_EXIST_ITEM, ref, key=f"{id}[{item}]", ref=ref)
    ref = view.state.result_ref
    if view.state.status is RunStatus.COMPLETED and ref and ref not in with_value:
        yield view.finding("I2", OUTPUTS_EXIST_RESULT, ref, ref=ref)


ATTEMPTS_INCREASE = declare(
    "verify.attempts_increase", "attempt {number} failed after attempt {before}"
)


def attempts_increase(view: AuditedRun) -> Iterator[Finding]:
    """The failed attempts of one job have increasing numbers."""
    last: dict[str, tuple[int, int]] = {}
    for step in view.replay.steps:
        if isinstance(step.event, events.NodeRetried):
            number, key = step.event.attempt, step.event.key
            before, at = last.get(key, (0, 0))
            if number <= before:
                yield view.finding(
                    "I9", ATTEMPTS_INCREASE, at, step.number, key=key, number=number, before=before
                )
            last[key] = number, step.number
        for key in getattr(step.event, "effects", events.NOTHING).started:
            last.pop(key, None)


RULES = (
    key_committed_once,
    key_was_live,
    nothing_after_end,
    retry_of_ended_run,
    fork_origin,
    nothing_while_paused,
    pauses_alternate,
    completed_run_done,
    outputs_exist,
    attempts_increase,
)
