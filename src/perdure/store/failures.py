"""Failures that stores record themselves, because no attempt can report them."""

from __future__ import annotations

from datetime import datetime

from perdure.diagnostics import RECORD, declare, render
from perdure.errors import DeadlineExceeded, JobCancelled, WorkerCrashed
from perdure.model.failure import Failure, failure_of
from perdure.model.ids import JobId

LEASE_EXPIRED = declare(
    "job.lease_expired", "the lease of worker {worker} expired before it settled the job"
)
WORKER_RESTARTED = declare(
    "job.worker_restarted", "worker {worker} was started again before it settled the job"
)
DEADLINE_EXPIRED = declare(
    "job.deadline_expired", "the deadline {deadline} passed before the job was completed"
)
REPLACED = declare("job.replaced", "replaced by {job_id}")
UNREADABLE_FAILURE = declare("job.unreadable_failure", "the stored failure cannot be read")


def lease_expired(worker: str | None) -> Failure:
    return failure_of(LEASE_EXPIRED.fault(worker=worker), WorkerCrashed)


def worker_restarted(worker: str | None) -> Failure:
    return failure_of(WORKER_RESTARTED.fault(worker=worker), WorkerCrashed)


def deadline_expired(deadline_at: datetime) -> Failure:
    return failure_of(DEADLINE_EXPIRED.fault(deadline=deadline_at), DeadlineExceeded)


def replaced_by(job: JobId) -> Failure:
    return failure_of(REPLACED.fault(job_id=job), JobCancelled)


UNREADABLE = Failure(
    type="", message=render(UNREADABLE_FAILURE.fault(), RECORD), code=UNREADABLE_FAILURE.name
)
"""Replaces a stored failure that this version cannot decode."""
