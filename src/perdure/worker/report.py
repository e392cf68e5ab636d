"""What a worker tells and counts: every outcome becomes one event and one tally."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure import clock
from perdure.model.job import ClaimedJob, Expired, Status, TakenOver
from perdure.model.outcome import Buried, Failed, NodeOutcome, Retried
from perdure.worker.attempt import Attempt
from perdure.worker.events import (
    ClaimLost,
    JobCancelled,
    JobCompleted,
    JobDead,
    JobEvent,
    JobFailed,
    JobReleased,
    JobRetried,
    JobTakenOver,
    Listeners,
    WorkerEvent,
)
from perdure.worker.stats import Tally


class Report:
    """The tally and the listeners of one worker."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.listeners = Listeners()
        self.tally = Tally()

    def wants(self, kind: type[WorkerEvent]) -> bool:
        return self.listeners.wants(kind)

    def emit(self, event: WorkerEvent) -> None:
        self.listeners.emit(event)

    def job(
        self, kind: type[JobEvent], job: ClaimedJob | TakenOver | Expired, **details: Any
    ) -> None:
        if not self.listeners.wants(kind):
            return
        node = job.node if isinstance(job, ClaimedJob) else None
        event = kind(
            worker=self.worker,
            job_id=job.claim.id if isinstance(job, ClaimedJob) else job.id,
            task=job.lane.task,
            queue=job.lane.queue,
            attempt=job.attempt,
            run_id=None if node is None else node.run,
            node=None if node is None else node.key,
            **details,
        )
        self.listeners.emit(event)

    def taken_over(self, job: TakenOver) -> None:
        """Count and tell what became of a job whose worker was gone."""
        self.tally.taken_over += 1
        self.tally.updated_at = clock.system_clock()
        self.job(JobTakenOver, job, holder=job.worker, failure=job.failure)
        if job.after is Status.DEAD:
            self.tally.dead += 1
            self.job(JobDead, job, failure=job.failure)
        elif job.after is Status.CANCELLED:
            self.tally.cancelled += 1
            self.job(JobCancelled, job)

    def expired(self, job: Expired) -> None:
        """Count and tell that a job failed because nobody started it in time."""
        self.tally.failed += 1
        self.tally.updated_at = clock.system_clock()
        self.job(JobFailed, job, failure=job.failure)

    def settled(self, attempt: Attempt, outcome: NodeOutcome, status: Status | None) -> None:
        """Count and tell how an attempt ended in the record."""
        tally, job = self.tally, attempt.job
        tally.updated_at = clock.system_clock()
        if status is None:
            tally.claims_lost += 1
            self.job(ClaimLost, job)
        elif status is Status.COMPLETED:
            tally.completed += 1
            seconds = attempt.seconds
            tally.seconds += seconds
            if self.wants(JobCompleted):
                self.job(JobCompleted, job, duration=timedelta(seconds=seconds))
        elif status is Status.CANCELLED:
            tally.cancelled += 1
            self.job(JobCancelled, job)
        elif isinstance(outcome, Failed):
            tally.failed += 1
            self.job(JobFailed, job, failure=outcome.failure)
        elif isinstance(outcome, Buried):
            tally.dead += 1
            self.job(JobDead, job, failure=outcome.failure)
        elif isinstance(outcome, Retried):
            tally.retried += 1
            self.job(JobRetried, job, failure=outcome.failure)
        else:
            tally.released += 1
            self.job(JobReleased, job)
