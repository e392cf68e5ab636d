"""Failures that stores record themselves, because no attempt was there to say what went wrong."""

from __future__ import annotations

from datetime import datetime

from perdure.diagnostics import RECORD, Code, declare, render
from perdure.errors import DeadlineExceeded, JobCancelled, PerdureError, WorkerDied
from perdure.model.failure import Failure
from perdure.model.ids import JobId
from perdure.model.retry import type_name

LEASE_EXPIRED = declare(
    "job.lease_expired", "the lease of worker {worker} expired before it settled the job"
)
DEADLINE_EXPIRED = declare(
    "job.deadline_expired", "the deadline {deadline} passed before the job was completed"
)
REPLACED = declare("job.replaced", "replaced by {job_id}")
UNREADABLE_FAILURE = declare("job.unreadable_failure", "the stored failure cannot be read")


def lease_expired(worker: str | None) -> Failure:
    return _failure(WorkerDied, LEASE_EXPIRED, worker=worker)


def deadline_expired(deadline_at: datetime) -> Failure:
    return _failure(DeadlineExceeded, DEADLINE_EXPIRED, deadline=deadline_at)


def replaced_by(job: JobId) -> Failure:
    return _failure(JobCancelled, REPLACED, job_id=job)


def _failure(error: type[PerdureError], code: Code, **args: object) -> Failure:
    message = render(code.fault(**args), RECORD)
    return Failure(type=type_name(error), message=message, code=code.name)


UNREADABLE = Failure(
    type="", message=render(UNREADABLE_FAILURE.fault(), RECORD), code=UNREADABLE_FAILURE.name
)
"""Stands for one that a row holds and this version cannot read."""
