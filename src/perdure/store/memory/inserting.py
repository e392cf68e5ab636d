"""How jobs come in, and what a fingerprint that is taken does to them."""

from __future__ import annotations

from perdure.errors import FingerprintTaken, InvalidInput, JobCancelled
from perdure.model.failure import Failure
from perdure.model.hint import HintKind
from perdure.model.ids import JobId
from perdure.model.job import HELD, Inserted, NewJob, Status
from perdure.model.reach import check_times
from perdure.model.retry import type_name
from perdure.rules.rank import rank_of
from perdure.store.lifecycle import Operation
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.transaction import Transaction


def insert(transaction: Transaction, new: NewJob) -> Inserted:
    """Add one job; what its fingerprint or its times forbid is raised."""
    if new.id in transaction.state.jobs:
        return Inserted(id=new.id, is_new=True)  # repeated after an unclear commit
    job = fresh(transaction, new)
    rival = live_rival(transaction, job)
    if rival is not None:
        if new.on_conflict == "return":
            return Inserted(id=rival.id, is_new=False)
        if new.on_conflict == "raise":
            raise FingerprintTaken(
                queue=rival.lane.queue, fingerprint=new.fingerprint or "", job_id=rival.id
            )
        _replace(transaction, rival, new.id)
    transaction.save(job)
    transaction.hint_if_queued(job)
    return Inserted(id=job.id, is_new=True)


def fresh(transaction: Transaction, new: NewJob) -> StoredJob:
    """The job as it is when nobody has held it yet."""
    check_times(new)
    now = transaction.now
    ready_at = new.run_at or now + new.delay
    deadline_at = new.deadline_at
    if deadline_at is None and new.deadline is not None:
        deadline_at = now + new.deadline
    if deadline_at is not None and deadline_at <= now:
        raise InvalidInput(f"the deadline {deadline_at} of job {new.id} is not after {now}")
    return StoredJob(
        id=new.id,
        namespace=new.namespace,
        lane=new.lane,
        status=Status.WAITING if ready_at <= now else Status.SCHEDULED,
        priority=new.priority,
        rank=rank_of(ready_at, new.priority, new.aging),
        created_at=now,
        ready_at=ready_at,
        input=new.input,
        input_hash=new.input_hash,
        group=new.group,
        fingerprint=new.fingerprint,
        max_attempts=new.max_attempts,
        deadline_at=deadline_at,
        policy=new.policy,
        node=new.node,
    )


def live_rival(transaction: Transaction, job: StoredJob) -> StoredJob | None:
    """The live job that has this job's fingerprint, if one has."""
    place = (job.namespace, job.lane.queue, job.fingerprint)
    for id in transaction.state.fingerprints.ids(place):
        return transaction.state.jobs[id]
    return None


def _replace(transaction: Transaction, job: StoredJob, by: JobId) -> None:
    failure = Failure(type=type_name(JobCancelled), message=f"replaced by {by}")
    transaction.move(
        job,
        Operation.REPLACE,
        Status.CANCELLED,
        epoch=job.epoch + (job.status in HELD),
        history=transaction.failed(job, failure),
    )
    if job.status in HELD:
        transaction.hint(HintKind.ABORTING, job.id)
