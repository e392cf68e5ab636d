"""I5: folding the events gives the state, whoever folds them and wherever they begin."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.engine.new_jobs import summary_of
from perdure.model import event as events
from perdure.model.run import LiveKind, RunStatus
from perdure.rules.snapshot import FORMAT, restore
from perdure.verify.finding import Finding
from perdure.verify.load import RunView, is_json
from perdure.verify.replay import Step

_SUMMARISED = frozenset(
    {
        RunStatus.PAUSED,
        RunStatus.COMPENSATING,
        RunStatus.COMPLETED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
    }
)
"""In other states a summary is not kept up to date."""


def foldable(view: RunView) -> Iterator[Finding]:
    if view.replay.fault:
        text = f"the log cannot be folded further: {view.replay.fault}"
        yield view.finding("I5", "foldable", text, view.replay.fault_number)


def row_agrees(view: RunView) -> Iterator[Finding]:
    """The run's row says what its events add up to."""
    if view.replay.fault:
        return
    run, state = view.run, view.state
    pairs = (
        ("status", run.status, state.status),
        ("flow", run.flow, state.flow),
        ("version", run.version, state.version),
        ("parent", run.parent, state.parent),
    )
    for name, kept, folded in pairs:
        if kept != folded:
            text = f"{name} is {kept!s} in the run's row, and {folded!s} by its events"
            yield view.finding("I5", "row_agrees", text, state.number)


def ended_in_time(view: RunView) -> Iterator[Finding]:
    """An ended run has the time of the event that ended it, any other has none."""
    if view.replay.fault:
        return
    run, ended = view.run, _ending(view)
    if run.finished_at is None:
        if ended is not None:
            text = f"{type(ended.event).__name__} ended the run, whose row has no end"
            yield view.finding("I5", "ended_in_time", text, ended.number)
    elif ended is None:
        text = f"the row ended at {run.finished_at}, and no event ended it"
        yield view.finding("I5", "ended_in_time", text, view.state.number)
    elif ended.stored.at != run.finished_at:
        text = f"the row ended at {run.finished_at}, by the event that ended it {ended.stored.at}"
        yield view.finding("I5", "ended_in_time", text, ended.number)


def _ending(view: RunView) -> Step | None:
    """The step that ended the run, if it is ended."""
    found: Step | None = None
    for step in view.replay.steps:
        if not step.after.is_ended:
            found = None
        elif found is None:
            found = step
    return found


def summarised(view: RunView) -> Iterator[Finding]:
    """What the row says of why it is so is what the events say."""
    if view.run.summary and not is_json(view.run.summary):
        text = f"the row's summary {view.run.summary[:80]!r} cannot be read"
        yield view.finding("I5", "summarised", text, view.state.number)
        return
    if view.replay.fault or view.state.status not in _SUMMARISED:
        return
    wanted = summary_of(view.state)
    if msgspec.json.decode(view.run.summary or b"{}") != msgspec.json.decode(wanted):
        text = f"the row's summary is {view.run.summary!r}, by the events it is {wanted!r}"
        yield view.finding("I5", "summarised", text, view.state.number)


def started_once(view: RunView) -> Iterator[Finding]:
    """No key gets a job while it has one."""
    for step in view.replay.steps:
        started = getattr(step.event, "then", events.NOTHING).started
        if len(set(started)) < len(started):
            text = f"{type(step.event).__name__} starts one key several times"
            yield view.finding("I2", "started_once", text, step.number)
        if isinstance(step.event, _LETTING_GO):
            continue
        for key in started:
            if step.before.live.get(key) is LiveKind.JOB:
                text = f"{type(step.event).__name__} starts it, which has a job already"
                yield view.finding("I2", "started_once", text, step.number, key=key)


_LETTING_GO = (
    events.NodePaused,
    events.RunRetried,
    events.RunForked,
    events.CompensationStarted,
)
"""What ends jobs, and may start the same keys again."""


def counted(view: RunView) -> Iterator[Finding]:
    """As many jobs were started and have not ended as keys with a job are live."""
    live = sum(1 for kind in view.state.live.values() if kind is LiveKind.JOB)
    if live != view.state.jobs:
        text = f"{view.state.jobs} jobs were started and have not ended, for {live} live keys"
        yield view.finding("I2", "counted", text, view.state.number)


def snapshot_agrees(view: RunView) -> Iterator[Finding]:
    """Going on from the snapshot is the same as beginning with nothing."""
    snapshot = view.snapshot
    if snapshot is None:
        return
    number = snapshot.number
    if number > view.run.number:
        text = f"the snapshot is of event {number}, the run has {view.run.number}"
        yield view.finding("I5", "snapshot_agrees", text, number)
        return
    kept = restore(snapshot)
    if kept is None:
        if _is_of_this_format(snapshot.data):
            text = "the snapshot cannot be read, or is not what its checksum says"
            yield view.finding("I5", "snapshot_agrees", text, number)
        return
    if (folded := view.replay.state_at(number)) is None:
        return
    for name in folded.__struct_fields__:
        if getattr(kept, name) != getattr(folded, name):
            text = (
                f"{name} is {getattr(kept, name)!r} in the snapshot, and "
                f"{getattr(folded, name)!r} by the events up to it"
            )
            yield view.finding("I5", "snapshot_agrees", text, number)


def tail_agrees(view: RunView) -> Iterator[Finding]:
    """What is loaded with the snapshot are the events of the log after it."""
    after = 0 if view.snapshot is None else view.snapshot.number
    known = [event for event in view.events if event.number > after]
    for told, event in zip(view.tail, known, strict=False):
        if told != event:
            text = f"after the snapshot of event {after} another event is loaded than from the log"
            yield view.finding("I5", "tail_agrees", text, event.number)
            return


def _is_of_this_format(data: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(data)["format"] == FORMAT)
    except (msgspec.MsgspecError, KeyError, TypeError):
        return True


RULES = (
    foldable,
    row_agrees,
    ended_in_time,
    summarised,
    started_once,
    counted,
    snapshot_agrees,
    tail_agrees,
)
