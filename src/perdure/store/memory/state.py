"""Everything that one place in memory keeps, and who shares it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from weakref import WeakValueDictionary

from perdure.model.ids import JobId, WorkerId
from perdure.model.job import FINISHED, HELD, QueueInfo, Status
from perdure.model.worker import WorkerInfo
from perdure.store.memory.index import ALL, Groups, Index
from perdure.store.memory.run_records import RunRecords
from perdure.store.memory.schedule_records import ScheduleRecords
from perdure.store.memory.stored_job import StoredJob
from perdure.store.wakeups import Hub

_EXPIRING = frozenset({Status.WAITING, Status.SCHEDULED, Status.PAUSED})
JobIndex = Index[StoredJob, JobId]


@dataclass(slots=True)
class LimitRecord:
    """What is remembered of one limit key; live jobs are counted from their leases instead."""

    closed_until: datetime | None = None
    last_start_at: datetime | None = None
    counts_until: datetime | None = None
    """When the last start is out of every window and spacing."""
    starts: deque[tuple[datetime, int]] = field(default_factory=deque)
    """When a claim started jobs under a rate, and how many, oldest first."""

    def close(self, until: datetime) -> None:
        if self.closed_until is None or self.closed_until < until:
            self.closed_until = until

    def count_until(self, until: datetime) -> None:
        if self.counts_until is None or self.counts_until < until:
            self.counts_until = until

    def has_effect_after(self, moment: datetime) -> bool:
        ends = (self.closed_until, self.counts_until)
        return any(end is not None and end > moment for end in ends)

    def forget_starts(self, until: datetime) -> None:
        while self.starts and self.starts[0][0] <= until:
            self.starts.popleft()


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    info: WorkerInfo
    started_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class DutyLease:
    worker: WorkerId
    until: datetime


class State:
    """One place. Whoever reads or writes it holds ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.hub = Hub()
        self.jobs: dict[JobId, StoredJob] = {}
        self.paused: dict[tuple[str, str], QueueInfo] = {}
        self.limits: dict[tuple[str, str], LimitRecord] = {}
        self.workers: dict[WorkerId, WorkerRecord] = {}
        self.duties: dict[str, DutyLease] = {}
        self.records = RunRecords()
        self.schedules = ScheduleRecords()

        self.by_id: JobIndex = Index(lambda job: (ALL,), lambda job: job.id)
        self.waiting: JobIndex = Index(_waiting_in, lambda job: job.rank)
        self.scheduled: JobIndex = Index(_when(Status.SCHEDULED), lambda job: job.ready_at)
        self.held: JobIndex = Index(_when(*HELD), lambda job: job.lease_until)
        self.deadlines: JobIndex = Index(_expiring, lambda job: job.deadline_at)
        self.finished: JobIndex = Index(_finished_as, lambda job: job.finished_at)
        self.results: JobIndex = Index(_result_of, lambda job: job.finished_at)
        self.fingerprints: JobIndex = Index(_live_fingerprint, lambda job: job.id)
        self.groups: JobIndex = Index(_member_of, lambda job: job.id)
        self.by_worker: JobIndex = Index(_held_by, lambda job: job.id)
        self.under_limit: JobIndex = Index(_live_under, lambda job: job.lease_until)
        self.of_run: JobIndex = Index(_job_of, lambda job: job.id)
        self.of_node: JobIndex = Index(_execution_of, lambda job: job.id)
        self._everywhere = (self.fingerprints, self.groups, self.of_run, self.of_node)
        self._only_in: tuple[tuple[JobIndex, frozenset[Status]], ...] = (
            (self.waiting, frozenset({Status.WAITING})),
            (self.scheduled, frozenset({Status.SCHEDULED})),
            (self.held, HELD),
            (self.by_worker, HELD),
            (self.under_limit, HELD),
            (self.deadlines, _EXPIRING),
            (self.finished, FINISHED),
            (self.results, frozenset({Status.COMPLETED})),
        )
        self._concerned: dict[tuple[Status | None, Status | None], tuple[JobIndex, ...]] = {}

    def put(self, id: JobId, job: StoredJob | None) -> None:
        """Write a job as a whole; None removes it."""
        before = self.jobs.pop(id, None)
        if job is not None:
            self.jobs[id] = job
        statuses = (
            None if before is None else before.status,
            None if job is None else job.status,
        )
        concerned = self._concerned.get(statuses) or self._indexes_for(statuses)
        for index in concerned:
            index.move(before, job)

    def _indexes_for(self, statuses: tuple[Status | None, Status | None]) -> tuple[JobIndex, ...]:
        """The indexes that a job can be in, before or after; most leave most writes alone."""
        found = [index for index, only_in in self._only_in if not only_in.isdisjoint(statuses)]
        if None in statuses:  # it comes or goes: nothing else changes its id
            found.append(self.by_id)
        concerned = self._concerned[statuses] = (*self._everywhere, *found)
        return concerned

    def limit(self, namespace: str, key: str) -> LimitRecord:
        return self.limits.setdefault((namespace, key), LimitRecord())


_states: WeakValueDictionary[str, State] = WeakValueDictionary()
_states_lock = threading.Lock()


def state_of(name: str) -> State:
    """The state that all handles of one name share, for as long as there is one of them."""
    if not name:
        return State()
    with _states_lock:
        state = _states.get(name)
        if state is None:
            state = _states[name] = State()
        return state


_NONE: Groups = ()


def _when(*statuses: Status) -> Callable[[StoredJob], Groups]:
    return lambda job: (job.namespace,) if job.status in statuses else _NONE


def _waiting_in(job: StoredJob) -> Groups:
    return ((job.namespace, job.lane.text),) if job.status is Status.WAITING else _NONE


def _expiring(job: StoredJob) -> Groups:
    is_expiring = job.deadline_at is not None and job.status in _EXPIRING
    return (job.namespace,) if is_expiring else _NONE


def _finished_as(job: StoredJob) -> Groups:
    return ((job.namespace, job.status),) if job.status in FINISHED else _NONE


def _result_of(job: StoredJob) -> Groups:
    return (job.input_hash,) if job.status is Status.COMPLETED else _NONE


def _live_fingerprint(job: StoredJob) -> Groups:
    if job.fingerprint is None or job.status in FINISHED:
        return _NONE
    return ((job.namespace, job.lane.queue, job.fingerprint),)


def _member_of(job: StoredJob) -> Groups:
    return ((job.namespace, job.group),) if job.group is not None else _NONE


def _held_by(job: StoredJob) -> Groups:
    return (job.worker,) if job.status in HELD else _NONE


def _live_under(job: StoredJob) -> Groups:
    if job.status not in HELD:
        return _NONE
    return tuple((job.namespace, key) for key in job.limit_keys)


def _job_of(job: StoredJob) -> Groups:
    return _NONE if job.node is None else ((job.namespace, job.node.run),)


def _execution_of(job: StoredJob) -> Groups:
    return _NONE if job.node is None else ((job.namespace, job.node.run, job.node.key),)
