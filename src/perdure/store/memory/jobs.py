"""Inserting, claiming and settling jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Any

from msgspec.structs import replace

from perdure.errors import FingerprintTaken
from perdure.model.check import check_times
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import CLAIMED, FINISHED, Claim, Claimed, Inserted, NewJob, Progress, Status
from perdure.model.limit import HOLDERS_MAX, LimitRule, LimitUsage, LimitUse
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Requeued,
    Retried,
    Settlement,
)
from perdure.model.partition import Partition, suspicion_in
from perdure.model.run import StoredStep
from perdure.model.times import nearest_duration
from perdure.model.worker import Renewal
from perdure.store import admission
from perdure.store.admission import moved_rank, rank_of
from perdure.store.contract import ClaimRequest, JobStore
from perdure.store.contract.refusals import deadline_passed
from perdure.store.failures import replaced_by
from perdure.store.lifecycle import Transition, after_settling
from perdure.store.memory.records import NOT_STICKY, StoredJob
from perdure.store.memory.state import LimitRecord
from perdure.store.memory.transaction import Session, Transaction
from perdure.store.outcomes import Delayed, Written, written_by


def insert(transaction: Transaction, new: NewJob) -> Inserted:
    """Add one job. Raises for a taken fingerprint or an impossible time."""
    if new.id in transaction.state.jobs:
        return Inserted(id=new.id, is_new=True)  # retried after a lost response
    job = fresh(transaction, new)
    rival = live_rival(transaction, job)
    if rival is not None:
        if new.on_conflict == "return":
            return Inserted(id=rival.id, is_new=False)
        if new.on_conflict == "raise":
            raise FingerprintTaken(
                queue=rival.partition.queue, fingerprint=new.fingerprint or "", job_id=rival.id
            )
        _replace(transaction, rival, new.id)
    transaction.save(job)
    transaction.hint_if_queued(job)
    return Inserted(id=job.id, is_new=True)


def fresh(transaction: Transaction, new: NewJob) -> StoredJob:
    """The stored form of a new job."""
    check_times(new)
    now = transaction.now
    ready_at = new.run_at or now + new.delay
    deadline_at = new.deadline_at
    if deadline_at is None and new.deadline is not None:
        deadline_at = now + new.deadline
    if deadline_at is not None and deadline_at <= now:
        raise deadline_passed(new.id, deadline_at, now)
    return StoredJob(
        id=new.id,
        namespace=new.namespace,
        partition=new.partition,
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
    """The live job with this job's fingerprint, if any."""
    place = (job.namespace, job.partition.queue, job.fingerprint)
    for id in transaction.state.fingerprints.ids(place):
        return transaction.state.jobs[id]
    return None


def _replace(transaction: Transaction, job: StoredJob, by: JobId) -> None:
    transaction.move(
        job,
        Transition.REPLACE,
        Status.CANCELLED,
        epoch=job.epoch + (job.status in CLAIMED),
        history=transaction.failed(job, replaced_by(by)),
    )
    if job.status in CLAIMED:
        transaction.hints.stopped(job.id)


def limit_use(transaction: Transaction, namespace: str, rule: LimitRule) -> LimitUse:
    group = (namespace, rule.key)
    holders = transaction.state.under_limit.after(transaction.now, group)
    jobs = sorted(map(transaction.state.jobs.__getitem__, holders), key=_longest_claimed)
    return LimitUse(
        usage=_usage(transaction, namespace, rule),
        held_by=tuple(job.id for job in jobs[:HOLDERS_MAX]),
    )


def _longest_claimed(job: StoredJob) -> tuple[datetime, JobId]:
    assert job.started_at is not None
    return job.started_at, job.id


def record_starts(
    transaction: Transaction,
    namespace: str,
    started: Sequence[StoredJob],
    rules: Sequence[LimitRule],
) -> None:
    """Count started jobs under each of their keys, and drop starts outside the window."""
    for key, count in Counter(key for job in started for key in job.limit_keys).items():
        record = transaction.limit(namespace, key)
        record.last_start_at = transaction.now
        record.count_until(transaction.now + admission.memory_of(rules, key))
        window = admission.windows(rule for rule in rules if rule.key == key).get(key)
        if window is not None:
            record.starts.append((transaction.now, count))
            record.forget_starts(transaction.now - window)


def bound_limits(transaction: Transaction, places: Iterable[tuple[str, str]]) -> None:
    """Bound what limits count, if the clock was set back since."""
    limits = transaction.state.limits
    for place in places:
        if place in limits and admission.is_ahead(limits[place].latest_at, transaction.now):
            transaction.limit(*place).bound(transaction.now)


def move_start(transaction: Transaction, claim: Claim, within: timedelta) -> bool:
    """Count the start of a claimed job now, or no longer if that is too late."""
    job = transaction.claimed(claim)
    if job is None or not job.limit_keys:
        return False
    assert job.started_at is not None
    is_moved = transaction.now - job.started_at < within
    for key in job.limit_keys:
        if (job.namespace, key) not in transaction.state.limits:
            continue  # pruned
        record = transaction.limit(job.namespace, key)
        is_alone = record.uncount_start(job.started_at)
        if is_moved:
            if is_alone is not None:
                record.starts.append((transaction.now, 1))
            record.last_start_at = transaction.now
            if record.counts_until is not None:
                record.counts_until += transaction.now - job.started_at
        elif is_alone and record.last_start_at == job.started_at:
            record.last_start_at = None
    if is_moved:
        transaction.save(replace(job, started_at=transaction.now))
    else:
        transaction.save(replace(job, limit_keys=()))
        transaction.hint_at_room(job)
    return is_moved


def _usage(transaction: Transaction, namespace: str, rule: LimitRule) -> LimitUsage:
    record = transaction.state.limits.get((namespace, rule.key)) or LimitRecord()
    since = transaction.now - (rule.window or timedelta(0))
    in_window = [(at, count) for at, count in record.starts if at > since]
    return LimitUsage(
        live=transaction.state.under_limit.count_after(transaction.now, (namespace, rule.key)),
        starts=sum(count for _, count in in_window),
        oldest_start_at=in_window[0][0] if in_window else None,
        last_start_at=record.last_start_at,
        closed_until=record.closed_until,
    )


PartitionRules = Mapping[str, tuple[LimitRule, ...]]


def claim(transaction: Transaction, request: ClaimRequest) -> Claimed:
    """Lease the most urgent jobs of the partitions, as many as the limits leave room for."""
    partitions = {
        partition.partition: partition.rules
        for partition in request.partitions
        if (request.namespace, partition.queue) not in transaction.state.paused
    }
    rules = tuple(
        dict.fromkeys(rule for partition_rules in partitions.values() for rule in partition_rules)
    )
    bound_limits(transaction, [(request.namespace, rule.key) for rule in rules])
    usages = {rule: _usage(transaction, request.namespace, rule) for rule in rules}
    rooms = admission.rooms(usages, transaction.now)

    candidates = (
        (job.id, _keys(job, partitions)) for job in _in_order(transaction, request, partitions)
    )
    left = {key: room.count for key, room in rooms.items()}
    chosen = admission.share_out(candidates, left, request.limit)

    started = [_start(transaction, JobId(id), request, partitions) for id in chosen]
    record_starts(transaction, request.namespace, started, rules)
    return Claimed(
        jobs=[job.as_claimed() for job in started],
        now=transaction.now,
        opens_at=admission.opens_at(rooms),
    )


def _in_order(
    transaction: Transaction, request: ClaimRequest, partitions: PartitionRules
) -> Iterator[StoredJob]:
    """The jobs this worker may start, lowest rank first, then oldest id."""

    def startable(partition: str) -> Iterator[tuple[float, JobId]]:
        for rank, id in transaction.state.waiting.entries((request.namespace, partition)):
            if not transaction.state.jobs[id].is_held_off(request.worker, transaction.now):
                yield rank, id

    # Jobs of a partition share its limits: nothing behind the first ``limit`` can be chosen.
    fronts = [islice(startable(partition), request.limit) for partition in partitions]
    return (transaction.state.jobs[id] for _, id in merge(*fronts))


def _start(
    transaction: Transaction, id: JobId, request: ClaimRequest, partitions: PartitionRules
) -> StoredJob:
    job = transaction.state.jobs[id]
    return transaction.move(
        job,
        Transition.CLAIM,
        Status.ACTIVE,
        epoch=job.epoch + 1,
        attempt=job.attempt + 1,
        worker=request.worker,
        started_at=transaction.now,
        lease_until=transaction.now + nearest_duration(request.lease),
        limit_keys=_keys(job, partitions),
        was_claimed_alone=request.is_alone,
        incarnation=request.incarnation,
    )


def _keys(job: StoredJob, partitions: PartitionRules) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule.key for rule in partitions[job.partition_key]))


_OPERATIONS: dict[type[Outcome], Transition] = {
    Completed: Transition.COMPLETE,
    Retried: Transition.RETRY_LATER,
    Failed: Transition.FAIL,
    DeadLettered: Transition.DEAD_LETTER,
    Cancelled: Transition.CANCEL,
    Requeued: Transition.REQUEUE,
    Parked: Transition.PARK,
}


def settle(transaction: Transaction, settlement: Settlement) -> Status | None:
    """Write one outcome under its claim's fence; None, and nothing written, if it is stale."""
    job = transaction.claimed(settlement.claim)
    if job is None:
        return None
    outcome, written = settlement.outcome, written_by(settlement.outcome)
    ready_at = _ready_at(transaction, job, written.delayed)
    is_node = job.node is not None
    is_due = ready_at <= transaction.now
    status = after_settling(job.status, outcome, is_due=is_due, is_node=is_node)
    if status is None:
        return None

    changes: dict[str, Any] = {
        "progress": settlement.progress or job.progress,
        "is_hidden": settlement.is_hidden and status in FINISHED,
    }
    if written.failure is not None:
        changes["history"] = transaction.failed(job, written.failure)
    if job.status is Status.ACTIVE:  # an aborting job ends cancelled whatever its outcome
        changes |= _effects(job, written, changes["progress"], ready_at)
    if written.delayed is not None and written.delayed.closes_limit is not None:
        transaction.limit(job.namespace, written.delayed.closes_limit).close(
            ready_at, transaction.now
        )
    transaction.move(job, _OPERATIONS[type(outcome)], status, **changes)
    return status


def settle_parked(
    transaction: Transaction, settlement: Settlement, worker: WorkerId
) -> Status | None:
    """Claim a parked job and settle it."""
    job = _parked(transaction, settlement.claim)
    if job is None:
        return None
    accepted = transaction.move(
        job,
        Transition.ACCEPT,
        Status.ACTIVE,
        epoch=job.epoch + 1,
        attempt=job.attempt + 1,
        worker=worker,
        lease_until=transaction.now,
    )
    claim = Claim(id=job.id, epoch=accepted.epoch)
    return settle(transaction, replace(settlement, claim=claim))


def _parked(transaction: Transaction, claim: Claim) -> StoredJob | None:
    """The plain job that was parked under this claim."""
    job = transaction.state.jobs.get(claim.id)
    if job is None or (job.status, job.epoch, job.node) != (Status.PAUSED, claim.epoch, None):
        return None
    return job


def _effects(
    job: StoredJob, written: Written, progress: Progress, ready_at: datetime
) -> dict[str, Any]:
    """The columns that an outcome changes besides the status."""
    changes: dict[str, Any] = {
        "failures": job.failures + written.failures,
        "snoozes": job.snoozes + written.snoozes,
        "attempt": job.attempt - written.attempts_back,
    }
    if written.status is Status.COMPLETED:
        changes |= {"output": written.output, "progress": replace(progress, percent=100.0)}
    if written.partition_key is not None:
        changes |= {
            "partition": Partition.parse(written.partition_key),
            "suspicion": suspicion_in(written.partition_key),
            **NOT_STICKY,
        }
    if written.delayed is not None:
        changes |= {
            "ready_at": ready_at,
            "rank": moved_rank(job.rank, job.ready_at, ready_at),
            "avoid_worker": job.worker,
            "avoid_until": ready_at + written.delayed.hold_off,
        }
    return changes


def _ready_at(transaction: Transaction, job: StoredJob, delayed: Delayed | None) -> datetime:
    if delayed is None:
        return job.ready_at
    return delayed.until or transaction.now + delayed.delay


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

    async def settle_parked(self, settlement: Settlement, worker: WorkerId) -> Status | None:
        with self._session.transaction() as transaction:
            return settle_parked(transaction, settlement, worker)

    async def resume_parked(self, claim: Claim, step: StoredStep) -> bool:
        with self._session.transaction() as transaction:
            job = _parked(transaction, claim)
            if job is None:
                return False
            transaction.save_step(job, job.id, step)
            transaction.move(job, Transition.RESUME, Status.WAITING)
            return True

    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        with self._session.transaction() as transaction:
            for claim in claims:
                if (job := transaction.claimed(claim)) is not None:
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
                if (job := transaction.claimed(claim)) is not None:
                    transaction.save(replace(job, progress=latest))
                    transaction.hints.changed([job.id])

    async def move_start(self, claim: Claim, within: timedelta) -> bool:
        with self._session.transaction() as transaction:
            return move_start(transaction, claim, within)

    async def requeue_unknown(
        self, worker: WorkerId, known: Sequence[JobId], incarnation: int | None = None
    ) -> int:
        with self._session.transaction() as transaction:
            jobs = transaction.state.jobs
            claimed = [jobs[id] for id in transaction.state.by_worker.ids(worker)]
            forgotten = [
                job for job in claimed if job.id not in known and job.incarnation == incarnation
            ]
            for job in forgotten:
                _take_back(transaction, job)
            return len(forgotten)


def _renewal(transaction: Transaction, claims: Sequence[Claim]) -> Renewal:
    held = {claim.id: transaction.claimed(claim) for claim in claims}
    lost = [id for id, job in held.items() if job is None]
    stored = transaction.state.jobs
    return Renewal(
        lost=frozenset(lost),
        disabled=frozenset(
            id for id in lost if id in stored and stored[id].status is Status.DISABLED
        ),
        aborting=frozenset(
            id for id, job in held.items() if job is not None and job.status is Status.ABORTING
        ),
    )


def _take_back(transaction: Transaction, job: StoredJob) -> None:
    if job.status is Status.ABORTING:
        transaction.move(job, Transition.REQUEUE, Status.CANCELLED, epoch=job.epoch + 1)
    else:
        transaction.move(
            job,
            Transition.REQUEUE,
            Status.WAITING,
            epoch=job.epoch + 1,
            attempt=job.attempt - 1,
        )
