"""Jobs: how they come in, are held, and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from perdure.model.duration import nearest_duration
from perdure.model.hint import HintKind
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claim, Claimed, Inserted, NewJob, Progress, Status
from perdure.model.outcome import Settlement
from perdure.model.worker import Renewal
from perdure.store.contract import ClaimRequest, JobStore
from perdure.store.lifecycle import Operation
from perdure.store.memory.claiming import claim
from perdure.store.memory.inserting import insert
from perdure.store.memory.settling import settle
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.transaction import Session, Transaction


class MemoryJobs(JobStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def insert(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        jobs = list(jobs)
        with self._session.transaction() as transaction:
            return [insert(transaction, job) for job in jobs]

    async def claim(self, request: ClaimRequest) -> Claimed:
        with self._session.transaction() as transaction:
            return claim(transaction, request)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        with self._session.transaction() as transaction:
            return [settle(transaction, settlement) for settlement in settlements]

    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        with self._session.transaction() as transaction:
            for claim in claims:
                if (job := transaction.held(claim)) is not None:
                    transaction.save(
                        replace(job, lease_until=transaction.now + nearest_duration(lease))
                    )
            return _renewal(transaction, claims)

    async def check(self, claims: Sequence[Claim]) -> Renewal:
        with self._session.transaction() as transaction:
            return _renewal(transaction, claims)

    async def save_progress(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        with self._session.transaction() as transaction:
            for claim, latest in progress:
                if (job := transaction.held(claim)) is not None:
                    transaction.save(replace(job, progress=latest))
                    transaction.hint(HintKind.CHANGED, job.id)

    async def requeue_unknown(self, worker: WorkerId, known: Sequence[JobId]) -> int:
        with self._session.transaction() as transaction:
            forgotten = set(transaction.state.by_worker.ids(worker)) - set(known)
            for id in forgotten:
                _take_back(transaction, transaction.state.jobs[id])
            return len(forgotten)


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
