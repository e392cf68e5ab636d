"""Jobs: whole rows, nothing overdue, and outputs of the claim that was current (I2, I3, I7)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from perdure.model.job import FINISHED, HELD, Job, JobState, Status
from perdure.testing.check.finding import Finding
from perdure.testing.check.rules.outputs import nonces_in
from perdure.testing.check.settings import CheckSettings
from perdure.testing.check.testimony import Testimony


class JobView:
    """One job as the rules see it."""

    def __init__(
        self, job: Job, state: JobState | None, settings: CheckSettings, testimony: Testimony
    ) -> None:
        self.job = job
        self.state = state
        self.settings = settings
        self.testimony = testimony
        self.now = job.created_at
        self.grace: timedelta | None = None

    def finding(self, invariant: str, rule: str, text: str) -> Finding:
        where: dict[str, Any] = {"namespace": self.job.namespace, "job": self.job.id}
        if self.job.node is not None:
            where |= {"run": self.job.node.run, "key": self.job.node.key}
        return Finding(invariant=invariant, rule=rule, text=text, **where)

    def late_by(self, due_at: datetime | None) -> timedelta | None:
        if self.grace is None or due_at is None or self.now - due_at <= self.grace:
            return None
        return self.now - due_at


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
    if job.attempt > job.epoch:
        text = f"attempt {job.attempt} of a job that was claimed {job.epoch} times at most"
        yield view.finding("I9", "is_whole", text)


def in_time(view: JobView) -> Iterator[Finding]:
    job = view.job
    if job.node is not None:  # with its run
        return
    if job.status in HELD and (late := view.late_by(job.lease_until)) is not None:
        text = f"the lease of worker {job.worker} ran out {late} ago, and nobody took the job over"
        yield view.finding("I7", "in_time", text)
    if job.status is Status.SCHEDULED and (late := view.late_by(job.ready_at)) is not None:
        yield view.finding("I7", "in_time", f"scheduled for {late} ago, and it does not wait yet")
    is_unheld = job.status in (Status.WAITING, Status.SCHEDULED, Status.PAUSED)
    if is_unheld and (late := view.late_by(job.deadline_at)) is not None:
        yield view.finding("I7", "in_time", f"its deadline passed {late} ago, and it did not fail")


def output_is_current(view: JobView) -> Iterator[Finding]:
    """A holder's own outcome leaves the epoch: that of the row is the one that may write."""
    job, testimony = view.job, view.testimony
    if job.node is not None or job.status is not Status.COMPLETED or view.state is None:
        return
    if not testimony.is_witnessed("", job.task):
        return
    executions = testimony.executions_of_job(job.id)
    if not executions:
        text = "completed, and no witness saw it executed"
        yield view.finding("I2", "output_is_current", text)
        return
    if not testimony.is_signed("", job.task) or view.state.output is None:
        return
    signed = nonces_in(view.settings.codec.decode(view.state.output))
    own = [each for each in executions if each.nonce in signed]
    if len(own) != 1:
        text = f"its output is of {len(own)} of its {len(executions)} executions, instead of one"
        yield view.finding("I2", "output_is_current", text)
        return
    [committed] = own
    started_at = None if job.started_at is None else job.started_at.timestamp()
    testimony.commit(committed.nonce, f"job {job.id}", started_at)
    if committed.epoch != job.epoch:
        text = (
            f"its output is of epoch {committed.epoch} ({committed.nonce}, worker "
            f"{committed.worker}), and its row is of epoch {job.epoch}"
        )
        yield view.finding("I3", "output_is_current", text)
    elif committed.attempt != job.attempt:
        text = f"its output is of attempt {committed.attempt}, its row of attempt {job.attempt}"
        yield view.finding("I9", "output_is_current", text)


RULES = (is_whole, in_time, output_is_current)
