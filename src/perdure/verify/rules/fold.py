"""I5: folding the events gives the state, from any snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import Finding, declare
from perdure.engine.plan import summary_of
from perdure.engine.snapshot import FORMAT, restore
from perdure.model import event as events
from perdure.model.run import LiveType, RunStatus
from perdure.verify.load import AuditedRun, is_json
from perdure.verify.replay import ReplayStep

_SUMMARIZED = frozenset(
    {
        RunStatus.PAUSED,
        RunStatus.COMPENSATING,
        RunStatus.COMPLETED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
    }
)
"""In other states a summary is not kept up to date."""


LOG_FOLDS = declare("verify.log_folds", "the log cannot be folded any further: {fault}")


def log_folds(view: AuditedRun) -> Iterator[Finding]:
    if view.replay.fault:
        yield view.finding("I5", LOG_FOLDS, view.replay.fault_number, fault=view.replay.fault)


RUN_ROW = declare(
    "verify.run_row", "{name} is {kept} in the run's row, but {folded} according to its events"
)


def run_row(view: AuditedRun) -> Iterator[Finding]:
    """The run's row equals the fold of its events."""
    if view.replay.fault:
        return
    run, state = view.run, view.state
    pairs = (
        ("status", run.status, state.status),
        ("flow", run.flow, state.flow),
        ("version", run.version, state.version),
        ("parent", run.parent, state.parent),
        ("priority", run.priority, state.priority),
        # A retry after the deadline removes it from the state only.
        ("settings", *(replace(each.settings, deadline=None) for each in (run, state))),
    )
    for name, kept, folded in pairs:
        if kept != folded:
            yield view.finding("I5", RUN_ROW, state.number, name=name, kept=kept, folded=folded)


RUN_END_TIME_NO_END_IN_ROW = declare(
    "verify.run_end_time.no_end_in_row", "{event} ended the run, but its row has no end time"
)
RUN_END_TIME_NO_ENDING_EVENT = declare(
    "verify.run_end_time.no_ending_event",
    "the row ended at {finished_at}, but no event ended the run",
)
RUN_END_TIME_OTHER_TIME = declare(
    "verify.run_end_time.other_time",
    "the row ended at {finished_at}, but the event that ended the run is of {at}",
)


def run_end_time(view: AuditedRun) -> Iterator[Finding]:
    """An ended run has the time of its last ending event; any other has none."""
    if view.replay.fault:
        return
    run, ended = view.run, _ending(view)
    if run.finished_at is None:
        if ended is not None:
            yield view.finding(
                "I5", RUN_END_TIME_NO_END_IN_ROW, ended.number, event=type(ended.event).__name__
            )
    elif ended is None:
        yield view.finding(
            "I5", RUN_END_TIME_NO_ENDING_EVENT, view.state.number, finished_at=run.finished_at
        )
    elif ended.stored.at != run.finished_at:
        yield view.finding(
            "I5",
            RUN_END_TIME_OTHER_TIME,
            ended.number,
            finished_at=run.finished_at,
            at=ended.stored.at,
        )


def _ending(view: AuditedRun) -> ReplayStep | None:
    """The step that ended the run, if it has ended."""
    found: ReplayStep | None = None
    for step in view.replay.steps:
        if not step.after.is_ended:
            found = None
        elif found is None:
            found = step
    return found


RUN_SUMMARY_UNREADABLE = declare(
    "verify.run_summary.unreadable", "the row's summary {summary!r} cannot be read"
)
RUN_SUMMARY_DIFFERS = declare(
    "verify.run_summary.differs",
    "the row's summary is {summary!r}, but {wanted!r} according to the events",
)


def run_summary(view: AuditedRun) -> Iterator[Finding]:
    """The summary in the row equals that of the events."""
    if view.run.summary and not is_json(view.run.summary):
        yield view.finding(
            "I5", RUN_SUMMARY_UNREADABLE, view.state.number, summary=view.run.summary[:80]
        )
        return
    if view.replay.fault or view.state.status not in _SUMMARIZED:
        return
    wanted = summary_of(view.state)
    if msgspec.json.decode(view.run.summary or b"{}") != msgspec.json.decode(wanted):
        yield view.finding(
            "I5", RUN_SUMMARY_DIFFERS, view.state.number, summary=view.run.summary, wanted=wanted
        )


KEY_STARTED_ONCE_TWICE = declare(
    "verify.key_started_once.twice", "{event} starts one key several times"
)
KEY_STARTED_ONCE_HAS_JOB = declare(
    "verify.key_started_once.has_job", "{event} starts a key that already has a job"
)


def key_started_once(view: AuditedRun) -> Iterator[Finding]:
    """No key gets a second job while it has one."""
    for step in view.replay.steps:
        started = getattr(step.event, "effects", events.NOTHING).started
        if len(set(started)) < len(started):
            yield view.finding(
                "I2", KEY_STARTED_ONCE_TWICE, step.number, event=type(step.event).__name__
            )
        if isinstance(step.event, _ENDS_JOBS):
            continue
        for key in started:
            if step.before.live.get(key) is LiveType.JOB:
                yield view.finding(
                    "I2",
                    KEY_STARTED_ONCE_HAS_JOB,
                    step.number,
                    key=key,
                    event=type(step.event).__name__,
                )


_ENDS_JOBS = (
    events.NodePaused,
    events.RunRetried,
    events.RunForked,
    events.CompensationStarted,
)
"""Events that end jobs, and may start the same keys again."""


LIVE_JOB_COUNT = declare(
    "verify.live_job_count", "{jobs:job|jobs} started and not ended, for {live:live key|live keys}"
)


def live_job_count(view: AuditedRun) -> Iterator[Finding]:
    """The number of started, unended jobs equals the number of live keys with a job."""
    live = sum(1 for live_type in view.state.live.values() if live_type is LiveType.JOB)
    if live != view.state.jobs:
        yield view.finding("I2", LIVE_JOB_COUNT, view.state.number, jobs=view.state.jobs, live=live)


SNAPSHOT_STATE_AHEAD = declare(
    "verify.snapshot_state.ahead",
    "the snapshot is of event {number}, but the last event of the run is {run_number}",
)
SNAPSHOT_STATE_UNREADABLE = declare(
    "verify.snapshot_state.unreadable",
    "the snapshot cannot be read or does not match its checksum",
)
SNAPSHOT_STATE_DIFFERS = declare(
    "verify.snapshot_state.differs",
    "{name} is {stored!r} in the snapshot, but {computed!r} according to the events up to it",
)


def snapshot_state(view: AuditedRun) -> Iterator[Finding]:
    """Folding from the snapshot equals folding from the start."""
    snapshot = view.snapshot
    if snapshot is None:
        return
    number = snapshot.number
    if number > view.run.number:
        yield view.finding(
            "I5", SNAPSHOT_STATE_AHEAD, number, number=number, run_number=view.run.number
        )
        return
    kept = restore(snapshot)
    if kept is None:
        if _is_of_this_format(snapshot.data):
            yield view.finding("I5", SNAPSHOT_STATE_UNREADABLE, number)
        return
    if (folded := view.replay.state_at(number)) is None:
        return
    for name in folded.__struct_fields__:
        stored, computed = getattr(kept, name), getattr(folded, name)
        if stored != computed:
            yield view.finding(
                "I5", SNAPSHOT_STATE_DIFFERS, number, name=name, stored=stored, computed=computed
            )


EVENTS_AFTER_SNAPSHOT = declare(
    "verify.events_after_snapshot",
    "the event loaded after the snapshot of event {after} differs from the one in the log",
)


def events_after_snapshot(view: AuditedRun) -> Iterator[Finding]:
    """The events loaded with the snapshot are those of the log after it."""
    after = 0 if view.snapshot is None else view.snapshot.number
    known = [event for event in view.events if event.number > after]
    for stored, event in zip(view.tail, known, strict=False):
        if stored != event:
            yield view.finding("I5", EVENTS_AFTER_SNAPSHOT, event.number, after=after)
            return


def _is_of_this_format(data: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(data)["format"] == FORMAT)
    except (msgspec.MsgspecError, KeyError, TypeError):
        return True


RULES = (
    log_folds,
    run_row,
    run_end_time,
    run_summary,
    key_started_once,
    live_job_count,
    snapshot_state,
    events_after_snapshot,
)
