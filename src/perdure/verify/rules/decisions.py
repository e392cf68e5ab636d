"""I10 and I7: the log is what the rules decide, and what is open is what they asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from perdure.engine.new_jobs import call_of
from perdure.model.duration import nearest_duration
from perdure.model.job import FINISHED, Job
from perdure.model.lane import Lane
from perdure.model.run import LiveKind, Wait, WaitKind
from perdure.rules.decision import Schedule
from perdure.rules.rank import rank_of
from perdure.store.contract.audit import JobColumns
from perdure.verify.finding import Finding
from perdure.verify.load import RunView, decoded, is_json
from perdure.verify.redecide import Opened

ROUNDING = timedelta(milliseconds=2)
RANK_ROUNDING = 0.01
"""In seconds: a rank is a number with a fraction."""
IN_ONE_COMMIT = timedelta(seconds=60)
"""How far apart the times of what one commit wrote may be."""


def as_decided(view: RunView) -> Iterator[Finding]:
    """Deciding anew upon what happened gives the events that are there."""
    found = view.redecided
    if found.fault:
        yield view.finding("I10", "as_decided", found.fault, found.number)


def waits_as_opened(view: RunView) -> Iterator[Finding]:
    """An open wait is the one that was asked for: its kind, name, deciders, detail and time."""
    if view.jobs is None or view.redecided.fault:
        return
    for wait in view.waits:
        opened = view.redecided.opened.get(wait.key)
        if opened is None or view.state.live.get(wait.key) in (None, LiveKind.JOB):
            continue  # which is told elsewhere
        for fault in _faults(view, wait, opened):
            yield view.finding("I7", "waits_as_opened", fault, key=wait.key)


def _faults(view: RunView, wait: Wait, opened: Opened) -> Iterator[str]:
    wanted = opened.wait
    pairs = (
        ("kind", wait.kind, wanted.kind),
        ("name", wait.name, wanted.name),
        ("deciders", wait.deciders, wanted.deciders),
    )
    for name, kept, asked in pairs:
        if kept != asked:
            yield f"the {name} of its wait is {kept!r}, it was opened with {asked!r}"
    if not _same_json(view, wait.detail, wanted.detail):
        yield f"the detail of its wait is {wait.detail[:80]!r}, not what it was opened with"
    if wanted.kind is not WaitKind.CHILD and not _is_due_in_time(wait, opened):
        yield f"its wait is due at {wait.due_at}; {_told(opened)}"


def _same_json(view: RunView, kept: bytes | None, asked: bytes) -> bool:
    """Whether a stored value is this JSON; nothing is only the same as nothing."""
    json = decoded(kept, view.settings)
    if json == asked or not json or not asked:
        return json == asked
    if not is_json(json) or not is_json(asked):
        return False
    return bool(msgspec.json.decode(json) == msgspec.json.decode(asked))


def _is_due_in_time(wait: Wait, opened: Opened) -> bool:
    wanted = opened.wait
    if wanted.kind is WaitKind.OUTSIDE:  # whose deadline is kept with the wait alone
        return wait.due_at is None or wait.due_at >= wait.opened_at
    if wanted.due_at is not None:
        return wait.due_at is not None and abs(wait.due_at - wanted.due_at) <= ROUNDING
    if wanted.delay is None or wait.due_at is None:
        return wanted.delay is None and wait.due_at is None
    delay = nearest_duration(wanted.delay)
    earliest = max(opened.at, opened.at + delay - opened.sooner) - ROUNDING
    return earliest <= wait.due_at <= opened.at + delay + IN_ONE_COMMIT


def _told(opened: Opened) -> str:
    wanted = opened.wait
    if wanted.due_at is not None:
        return f"it was opened for {wanted.due_at}"
    if wanted.delay is None:
        return "it was opened to be due at no time"
    return f"it was opened at {opened.at} for {wanted.delay}"


def jobs_as_scheduled(view: RunView) -> Iterator[Finding]:
    """The job of a key is the one that was asked for: its lane, urgency, policy, input and rank."""
    if view.jobs is None or view.redecided.fault:
        return
    for job in view.jobs:
        schedule = None if job.node is None else view.redecided.scheduled.get(job.node.key)
        if schedule is None or view.state.live.get(schedule.key.text) is not LiveKind.JOB:
            continue  # which is told elsewhere
        details = None if view.details is None else view.details.get(job.id)
        for fault in _job_faults(view, job, details, schedule):
            where = {"key": schedule.key.text, "job": job.id}
            yield view.finding("I7", "jobs_as_scheduled", fault, **where)


def _job_faults(
    view: RunView, job: Job, details: JobColumns | None, schedule: Schedule
) -> Iterator[str]:
    call = schedule.call
    pairs: list[tuple[str, object, object]] = [("priority", job.priority, call.priority)]
    if details is not None:
        wanted = Lane(
            queue=call.queue,
            task=call.task,
            tags=call.tags,
            flow=f"{view.state.flow}@{view.state.version}",
        )
        policy = None if call.policy is None else call.policy.encode()
        pairs += [
            ("queue", details.queue, call.queue),
            ("task", details.task, call.task),
            ("lane", details.lane, wanted.text),
            ("policy", details.policy, policy),
        ]
    for name, kept, asked in pairs:
        if kept != asked:
            yield f"the {name} of its job is {kept!r}, it was asked for with {asked!r}"
    if details is not None and job.status not in FINISHED:
        aging = timedelta(milliseconds=view.state.aging_ms)
        rank = rank_of(job.ready_at, job.priority, aging)
        if abs(details.rank - rank) > RANK_ROUNDING:
            yield f"the rank of its job is {details.rank}, by its time and priority it is {rank}"
        if not _same_json(view, details.input, call_of(schedule)):
            yield "the input of its job is not what it was asked for with"


RULES = (as_decided, waits_as_opened, jobs_as_scheduled)
