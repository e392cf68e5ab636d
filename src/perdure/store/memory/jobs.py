"""Jobs: how they come in, are held, and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from perdure.errors import FingerprintTaken, InvalidInput, JobCancelled
from perdure.model.duration import nearest_duration
from perdure.model.failure import Failure
from perdure.model.hint import HintKind
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import HELD, Claim, Claimed, Inserted, NewJob, Progress, Status
from perdure.model.outcome import Settlement
from perdure.model.reach import check_times
from perdure.model.retry import type_name
from perdure.model.worker import Renewal
from perdure.rules.lifecycle import Operation
from perdure.rules.rank import rank_of
from perdure.store.contract import ClaimRequest, JobStore
from perdure.store.memory.claiming import claim
from perdure.store.memory.settling import settle
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.transaction import Handle, Transaction


class MemoryJobs(Handle, JobStore):
    async def insert_jobs(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        jobs = list(jobs)
        with self._transaction() as transaction:
            return [_insert(transaction, job) for job in jobs]

    async def claim_jobs(self, request: ClaimRequest) -> Claimed:
        with self._transaction() as transaction:
            return claim(transaction, request)

    async def settle_jobs(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        with self._transaction() as transaction:
            return [settle(transaction, settlement) for settlement in settlements]

    async def renew_leases(
        self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta
    ) -> Renewal:
        with self._transaction() as transaction:
            for claim in claims:
                if (job := transaction.held(claim)) is not None:
                    transaction.save(
                        replace(job, lease_until=transaction.now + nearest_duration(lease))
                    )
            return _renewal(transaction, claims)

    async def check_claims(self, claims: Sequence[Claim]) -> Renewal:
        with self._transaction() as transaction:
            return _renewal(transaction, claims)

    async def save_progress(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        with self._transaction() as transaction:
            for claim, latest in progress:
                if (job := transaction.held(claim)) is not None:
                    transaction.save(replace(job, progress=latest))
                    transaction.hint(HintKind.CHANGED, job.id)

    async def give_back_unknown(self, worker: WorkerId, known: Sequence[JobId]) -> int:
        with self._transaction() as transaction:
            forgotten = set(transaction.state.by_worker.ids(worker)) - set(known)
            for id in forgotten:
                _take_back(transaction, transaction.state.jobs[id])
            return len(forgotten)


def _insert(transaction: Transaction, new: NewJob) -> Inserted:
    if new.id in transaction.state.jobs:
        return Inserted(id=new.id, is_new=True)  # repeated after an unclear commit
    job = _stored(transaction, new)
    rival = live_rival(transaction, job)
    if rival is not None:
        if new.on_conflict == "return":
            return Inserted(id=rival.id, is_new=False)
        if new.on_conflict == "raise":
            raise FingerprintTaken(rival.lane.queue, new.fingerprint or "", rival.id)
        _replace(transaction, rival, new.id)
    transaction.save(job)
    transaction.hint_if_queued(job)
    return Inserted(id=job.id, is_new=True)


def _stored(transaction: Transaction, new: NewJob) -> StoredJob:
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


def _renewal(transaction: Transaction, claims: Sequence[Claim]) -> Renewal:
    held = {claim.id: transaction.held(claim) for claim in claims}
    return Renewal(
        lost=frozenset(id for id, job in held.items() if job is None),
        aborting=frozenset(
            id for id, job in held.items() if job is not None and job.status is Status.ABORTING
        ),
    )


def _take_back(transaction: Transaction, job: StoredJob) -> None:
    if job.status is Status.ABORTING:
        transaction.move(job, Operation.GIVE_BACK, Status.CANCELLED, epoch=job.epoch + 1)
    else:
        transaction.move(
            job,
            Operation.GIVE_BACK,
            Status.WAITING,
            epoch=job.epoch + 1,
            attempt=job.attempt - 1,
        )
