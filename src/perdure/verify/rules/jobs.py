"""Jobs: whole rows, nothing overdue, and inputs that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.model.duration import DURATION_MAX
from perdure.model.job import FINISHED, HELD, Job, JobState, Status
from perdure.model.lane import UNREADABLE, Lane
from perdure.model.policy import decode_policy
from perdure.store.contract.audit import JobColumns
from perdure.verify.finding import Finding, VerifySettings
from perdure.verify.load import decoded, late_by

ROUNDING_SECONDS = 0.01


class JobView:
    """One job as the rules see it."""

    def __init__(self, job: Job, state: JobState | None, settings: VerifySettings) -> None:
        self.job = job
        self.state = state
        self.settings = settings
        self.now = job.created_at
        self.grace: timedelta | None = None
        self.details: JobColumns | None = None
        """As it is stored; None where the store does not tell."""

    @property
    def is_plain(self) -> bool:
        return self.job.node is None

    def finding(self, invariant: str, rule: str, text: str) -> Finding:
        where: dict[str, Any] = {"namespace": self.job.namespace, "job": self.job.id}
        if self.job.node is not None:
            where |= {"run": self.job.node.run, "key": self.job.node.key}
        return Finding(invariant=invariant, rule=rule, text=text, **where)

    def late_by(self, due_at: datetime | None) -> timedelta | None:
        return late_by(due_at, self.now, self.grace)


def is_whole(view: JobView) -> Iterator[Finding]:
    """Held jobs have a lease and a holder, finished ones an end, others neither."""
    job = view.job
    is_held, is_finished = job.status in HELD, job.status in FINISHED
    if is_held is not (job.lease_until is not None):
        lease = "no lease" if is_held else f"a lease until {job.lease_until}"
        yield view.finding("I7", "is_whole", f"it is {job.status} and has {lease}")
    if is_held and job.worker is None:
        yield view.finding("I7", "is_whole", f"it is {job.status} and nobody holds it")
    if is_finished is not (job.finished_at is not None):
        end = "no end" if is_finished else f"ended at {job.finished_at}"
        yield view.finding("I8", "is_whole", f"it is {job.status} and has {end}")
    state = view.state
    if state is not None and state.status is Status.COMPLETED and state.output is None:
        yield view.finding("I2", "is_whole", "it is completed and has no output")
    if job.attempt > job.epoch:
        text = f"attempt {job.attempt} of a job that was claimed {job.epoch} times at most"
        yield view.finding("I9", "is_whole", text)


def jobs_in_time(view: JobView) -> Iterator[Finding]:
    job = view.job
    if not view.is_plain:  # with its run
        return
    if job.status in HELD and (late := view.late_by(job.lease_until)) is not None:
        text = f"the lease of worker {job.worker} ran out {late} ago, and nobody took the job over"
        yield view.finding("I7", "jobs_in_time", text)
    if job.status is Status.SCHEDULED and (late := view.late_by(job.ready_at)) is not None:
        text = f"scheduled for {late} ago, and it does not wait yet"
        yield view.finding("I7", "jobs_in_time", text)
    is_unheld = job.status in (Status.WAITING, Status.SCHEDULED, Status.PAUSED)
    if is_unheld and (late := view.late_by(job.deadline_at)) is not None:
        text = f"its deadline passed {late} ago, and it did not fail"
        yield view.finding("I7", "jobs_in_time", text)


def in_its_lane(view: JobView) -> Iterator[Finding]:
    """The lane of a job is that of its queue and task; workers look for it nowhere else."""
    details = view.details
    if details is None:
        return
    lane = Lane.parse(details.lane)
    if lane == UNREADABLE:
        text = f"its lane {details.lane!r} cannot be read: nobody takes it"
        yield view.finding("I7", "in_its_lane", text)
    elif (lane.queue, lane.task) != (details.queue, details.task):
        text = (
            f"its lane is of task {lane.task!r} in queue {lane.queue!r}, the job of task "
            f"{details.task!r} in queue {details.queue!r}"
        )
        yield view.finding("I7", "in_its_lane", text)
    elif view.is_plain and lane.flow:
        text = f"its lane is of flow {lane.flow!r}, and it belongs to no run"
        yield view.finding("I7", "in_its_lane", text)


def in_its_place(view: JobView) -> Iterator[Finding]:
    """Its rank follows from when it was ready and how urgent it is, so that its turn comes.

    How much waiting makes up for urgency is for its client to say: only what none can is told.
    """
    job, details = view.job, view.details
    if details is None or job.status in FINISHED:
        return
    offset = details.rank - job.ready_at.timestamp()
    most = job.priority * DURATION_MAX.total_seconds()
    if not -ROUNDING_SECONDS <= offset <= most + ROUNDING_SECONDS:
        text = f"its rank is {details.rank}, which no job ready at {job.ready_at} has"
        yield view.finding("I7", "in_its_place", text)


def can_be_called(view: JobView) -> Iterator[Finding]:
    """What it is to be called with, and its own policy, are there and can be read."""
    job, details = view.job, view.details
    if details is None or job.status in FINISHED:
        return
    try:
        arguments, named, *_ = msgspec.json.decode(decoded(details.input, view.settings))
        is_call = isinstance(arguments, list) and isinstance(named, dict)
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):
        is_call = False
    if not is_call:
        text = "what it is to be called with is not there, or cannot be read"
        yield view.finding("I1", "can_be_called", text)
    try:
        if details.policy is not None:
            decode_policy(details.policy)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        yield view.finding("I1", "can_be_called", f"its policy cannot be read: {error}")


RULES = (is_whole, jobs_in_time, in_its_lane, in_its_place, can_be_called)
