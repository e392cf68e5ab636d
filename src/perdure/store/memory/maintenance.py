"""Polling, and the maintenance that any worker may do."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as replace_record
from datetime import datetime, timedelta
from heapq import nsmallest
from itertools import islice

from msgspec.structs import replace

from perdure.model.failure import Failure
from perdure.model.graph import children_in
from perdure.model.ids import RUN_START, WorkerId
from perdure.model.job import Expired, Status, TakenOver
from perdure.model.partition import suspicion_in
from perdure.model.run import RunStatus, Wait, WaitType
from perdure.model.schedule import Schedule, scheduled_flows
from perdure.model.times import nearest_duration
from perdure.model.worker import PollResult, TaskCounts, WorkerInfo, counted_since, counts_of
from perdure.store.contract import POLL_PARTITIONS_MAX, SUBSCRIBER_LEASE, MaintenanceStore
from perdure.store.failures import deadline_expired, lease_expired, worker_restarted
from perdure.store.lifecycle import Transition, after_take_over
from perdure.store.memory.jobs import bound_limits
from perdure.store.memory.records import NOT_STICKY, Place, StoredJob
from perdure.store.memory.state import MaintenanceLease, MemoryState, StoredWorker
from perdure.store.memory.submit import forget_steps, make_due, remove_tree
from perdure.store.memory.transaction import Session, Transaction


class MemoryMaintenance(MaintenanceStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def poll(self, namespace: str, after_partition: str = "") -> PollResult:
        with self._session.transaction() as transaction:
            state = transaction.state
            partitions = (
                partition
                for place, partition in state.waiting.groups()
                if place == namespace and partition > after_partition
            )
            return PollResult(
                now=transaction.now,
                partitions=tuple(nsmallest(POLL_PARTITIONS_MAX, partitions)),
                next_due_at=state.scheduled.first(namespace),
                next_lease_end_at=state.claimed.first(namespace),
                next_deadline_at=state.deadlines.first(namespace),
                next_sticky_at=state.sticky.first(namespace),
                next_wait_at=state.records.due.first(namespace),
                next_tick_at=state.schedules.due.first(namespace),
                paused=tuple(sorted(name for place, name in state.paused if place == namespace)),
                last_seen_at=max(
                    (
                        worker.seen_at
                        for worker in state.workers.values()
                        if worker.info.namespace == namespace
                    ),
                    default=None,
                ),
                has_subscribers=any(
                    place == namespace and until > transaction.now
                    for (place, _), (_, until) in state.subscribers.items()
                ),
            )

    async def acquire_lease(self, name: str, worker: WorkerId, lease: timedelta) -> bool:
        with self._session.transaction() as transaction:
            maintenance_leases, now = transaction.state.maintenance_leases, transaction.now
            holder = maintenance_leases.get(name)
            if (
                holder is not None
                and holder.worker != worker
                and now < holder.until <= now + holder.lease
            ):
                return False
            span = nearest_duration(lease)
            maintenance_leases[name] = MaintenanceLease(worker, now + span, span)
            return True

    async def promote_due(self, namespace: str, limit: int) -> int:
        with self._session.transaction() as transaction:
            due = transaction.state.scheduled.up_to(transaction.now, limit, namespace)
            for id in due:
                job = transaction.state.jobs[id]
                transaction.move(job, Transition.PROMOTE, Status.WAITING)
            return len(due)

    async def release_sticky(self, namespace: str, limit: int) -> int:
        with self._session.transaction() as transaction:
            state = transaction.state
            late = state.sticky.up_to(transaction.now, limit, namespace)
            orphaned = [
                id
                for group in state.awaiting.groups()
                if group[0] == namespace and not _is_live(transaction, group[1])
                for id in state.awaiting.ids(group)
            ]
            over = list(dict.fromkeys([*late, *orphaned]))[:limit]
            for id in over:
                released = replace(state.jobs[id], **NOT_STICKY)
                transaction.save(released)
                transaction.hint_if_queued(released)
            return len(over)

    async def take_over_expired(self, namespace: str, limit: int) -> list[TakenOver]:
        with self._session.transaction() as transaction:
            expired = transaction.state.claimed.up_to(transaction.now, limit, namespace)
            jobs = [transaction.state.jobs[id] for id in expired]
            return [_take_over(transaction, job, lease_expired(job.worker)) for job in jobs]

    async def take_over_former(
        self, namespace: str, worker: WorkerId, incarnation: int, limit: int
    ) -> list[TakenOver]:
        with self._session.transaction() as transaction:
            claimed = (transaction.state.jobs[id] for id in transaction.state.by_worker.ids(worker))
            former = [
                job
                for job in claimed
                if job.namespace == namespace and job.incarnation not in (None, incarnation)
            ]
            failure = worker_restarted(worker)
            return [_take_over(transaction, job, failure) for job in former[:limit]]

    async def bound_times(self, namespace: str, lease: timedelta) -> int:
        with self._session.transaction() as transaction:
            state, now = transaction.state, transaction.now
            bounded = 0
            for until, id in list(state.claimed.entries(namespace)):
                job = state.jobs[id]
                holder = None if job.worker is None else state.workers.get(job.worker)
                latest = now + nearest_duration(lease if holder is None else holder.info.lease)
                if until > latest:
                    transaction.save(replace(job, lease_until=latest))
                    bounded += 1
            for place in list(state.records.due.after(now, namespace)):
                wait = state.records.wait(*place)
                if wait is None:
                    continue
                is_for_place = wait.key == RUN_START and state.records.runs[place[:2]].rank
                if wait.type is WaitType.CHILD or is_for_place:
                    make_due(transaction, wait)
            bound_limits(transaction, [place for place in state.limits if place[0] == namespace])
            for id in list(state.sticky.after(now, namespace)):
                if state.jobs[id].ready_at > now:
                    transaction.save(replace(state.jobs[id], sticky_until=now))
            for subscriber, (filter, until) in list(state.subscribers.items()):
                if subscriber[0] == namespace and until > now + SUBSCRIBER_LEASE:
                    state.subscribers[subscriber] = (filter, now + SUBSCRIBER_LEASE)
            state.live_events = deque(
                (number, place, min(at, now) if place == namespace else at, event)
                for number, place, at, event in state.live_events
            )
            for worker, record in list(state.workers.items()):
                if record.info.namespace == namespace and record.seen_at > now:
                    state.workers[worker] = replace_record(record, seen_at=now)
            return bounded

    async def expire_deadlines(self, namespace: str, limit: int) -> list[Expired]:
        with self._session.transaction() as transaction:
            late = transaction.state.deadlines.up_to(transaction.now, limit, namespace)
            return [_expire(transaction, transaction.state.jobs[id]) for id in late]

    async def prune_jobs(self, namespace: str, keep: Mapping[Status, timedelta], limit: int) -> int:
        with self._session.transaction() as transaction:
            removed = 0
            for status, kept_for in keep.items():
                until = transaction.now - nearest_duration(kept_for)
                group, state = (namespace, status), transaction.state
                index = state.disabled if status is Status.DISABLED else state.finished
                old = index.up_to(until, limit - removed, group)
                for id in old:
                    if status is not Status.DISABLED:
                        transaction.record_pruned(f"job.{status}", transaction.state.jobs[id])
                    transaction.remove(id)
                    forget_steps(transaction, id)
                removed += len(old)
            return removed

    async def prune_limits(self, namespace: str, idle: timedelta, limit: int) -> int:
        with self._session.transaction() as transaction:
            limits, until = transaction.state.limits, transaction.now - nearest_duration(idle)
            over = (
                place
                for place, record in limits.items()
                if place[0] == namespace and not record.has_effect_after(until)
            )
            gone = list(islice(over, limit))
            for place in gone:
                del limits[place]
            return len(gone)

    async def prune_definitions(self, namespace: str, idle: timedelta, limit: int) -> int:
        with self._session.transaction() as transaction:
            records, now = transaction.state.records, transaction.now
            schedules = transaction.state.schedules.by_place.items()
            scheduled = scheduled_flows(
                each for (place, _), each in schedules if place == namespace
            )
            if scheduled is None:
                return 0
            ages = ((use.at, place) for place, use in records.definition_uses.items())
            until = now - nearest_duration(idle)
            old = [place for at, place in sorted(ages) if place[0] == namespace and at <= until][
                :limit
            ]
            versions = {
                (run.flow, run.version)
                for run in records.runs.values()
                if run.namespace == namespace
            }
            used = {f"{flow}@{version}" for flow, version in versions}.union(scheduled)
            for (home, _, _), data in records.definitions.items():
                if home == namespace:
                    used.update(children_in(data) or ())
            for place in old:
                _, flow, version = place
                use = records.definition_uses[place]
                is_left = use.was_left and any(flow == name for name, _ in versions)
                if is_left or f"{flow}@{version}" in used:
                    records.definition_uses[place] = use._replace(at=now)
                else:
                    del records.definition_uses[place], records.definitions[place]
            return len(old)

    async def register_worker(
        self, info: WorkerInfo, counts: Sequence[TaskCounts] = (), *, starts: bool = False
    ) -> bool:
        with self._session.transaction() as transaction:
            workers, now = transaction.state.workers, transaction.now
            known = workers.get(info.id)
            if known is None:
                workers[info.id] = StoredWorker(info, now, now, counts, counts)
                return True
            if not starts and known.info.incarnation != info.incarnation:
                return False
            if starts:
                _keep_counts(transaction.state, known)
            started_at, before = (
                (now, counts) if starts else (known.started_at, known.counts_before)
            )
            seen_at = max(known.seen_at, now)
            workers[info.id] = StoredWorker(info, started_at, seen_at, counts, before)
            return True

    async def remove_worker(self, id: WorkerId, incarnation: int | None = None) -> None:
        with self._session.transaction() as transaction:
            known = transaction.state.workers.get(id)
            if known is not None and known.info.incarnation == incarnation:
                _remove_worker(transaction.state, id)

    async def prune_workers(self, namespace: str, idle: timedelta) -> int:
        with self._session.transaction() as transaction:
            workers, now = transaction.state.workers, transaction.now
            span = nearest_duration(idle)
            gone = [
                id
                for id, record in workers.items()
                if record.info.namespace == namespace
                and record.seen_at <= now - max(span, 2 * nearest_duration(record.info.lease))
            ]
            for id in gone:
                _remove_worker(transaction.state, id)
            return len(gone)

    async def prune_runs(
        self, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
    ) -> int:
        with self._session.transaction() as transaction:
            removed = 0
            for status, kept_for in keep.items():
                until = transaction.now - nearest_duration(kept_for)
                over = _over(transaction, (namespace, status), until)
                for root in list(islice(over, limit - removed)):
                    records = transaction.state.records
                    for run in (records.runs[place] for place in records.tree(root)):
                        transaction.record_pruned(f"run.{run.status}", run)
                    remove_tree(transaction, root)
                    removed += 1
            return removed

    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        with self._session.transaction() as transaction:
            records = transaction.state.records
            due = records.due.up_to(transaction.now, limit, namespace)
            return [records.waits[place, run][key].as_wait() for place, run, key in due]

    async def due_schedules(self, namespace: str, limit: int) -> list[Schedule]:
        with self._session.transaction() as transaction:
            schedules = transaction.state.schedules
            due = schedules.due.up_to(transaction.now, limit, namespace)
            return [schedules.by_place[place] for place in due]


def _remove_worker(state: MemoryState, id: WorkerId) -> None:
    if (worker := state.workers.pop(id, None)) is not None:
        _keep_counts(state, worker)


def _keep_counts(state: MemoryState, worker: StoredWorker) -> None:
    past = state.past_counts.get(worker.info.namespace, [])
    counted = counted_since(worker.counts, worker.counts_before)
    state.past_counts[worker.info.namespace] = counted_since(counts_of([*past, *counted]), ())


def _is_live(transaction: Transaction, id: WorkerId) -> bool:
    worker = transaction.state.workers.get(id)
    return worker is not None and worker.is_live(transaction.now)


def _take_over(transaction: Transaction, job: StoredJob, failure: Failure) -> TakenOver:
    after, key = after_take_over(job.status, job.partition_key, was_alone=job.was_claimed_alone)
    transaction.move(
        job,
        Transition.TAKE_OVER,
        after,
        crashes=job.crashes + 1,
        suspicion=suspicion_in(key),
        **NOT_STICKY,
        epoch=job.epoch + 1,
        history=transaction.failed(job, failure),
    )
    return TakenOver(
        id=job.id,
        namespace=job.namespace,
        partition=job.partition,
        worker=job.worker,
        epoch=job.epoch,
        attempt=job.attempt,
        after=after,
        failure=failure,
        node=job.node,
    )


def _expire(transaction: Transaction, job: StoredJob) -> Expired:
    assert job.deadline_at is not None
    failure = deadline_expired(job.deadline_at)
    transaction.move(
        job, Transition.EXPIRE, Status.FAILED, history=transaction.failed(job, failure)
    )
    return Expired(
        id=job.id,
        namespace=job.namespace,
        partition=job.partition,
        attempt=job.attempt,
        failure=failure,
    )


def _over(
    transaction: Transaction, group: tuple[str, RunStatus], until: datetime
) -> Iterator[Place]:
    """Runs that ended by ``until``, earliest first, without those with unfinished children."""
    records = transaction.state.records
    for ended_at, root in records.ended.entries(group):
        if ended_at > until:
            return
        if all(records.runs[place].is_ended for place in records.tree(root)):
            yield root
