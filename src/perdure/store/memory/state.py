"""The contents of an in-memory store, with its indexes."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import CLAIMED, FINISHED, QueueInfo, Status
from perdure.model.run import RunStatus, StoredStep, WaitType
from perdure.model.schedule import Schedule
from perdure.model.times import nearest_duration
from perdure.model.worker import CountRow, TaskCounts, WorkerInfo
from perdure.store.memory.records import (
    Place,
    StoredJob,
    StoredRun,
    StoredRunEvent,
    StoredWait,
    WaitPlace,
)
from perdure.store.wakeups import Hub

Item = TypeVar("Item")

Id = TypeVar("Id")

Groups = tuple[Hashable, ...]

ALL = ""
"""The group key of an ungrouped index."""


class Index(Generic[Item, Id]):
    """Items by group, each group sorted by ``order`` and then by id.

    ``groups`` returns the groups of an item; an item without any is left out, as in a partial
    index.
    """

    def __init__(
        self,
        groups: Callable[[Item], Groups],
        order: Callable[[Item], Any],
        id: Callable[[Item], Id] = attrgetter("id"),
    ) -> None:
        self._groups = groups
        self._order = order
        self._id = id
        self._entries: dict[Hashable, list[tuple[Any, Id]]] = {}

    def move(self, before: Item | None, after: Item | None) -> None:
        """Update the index for one write: an item added, changed or removed."""
        old_groups = () if before is None else self._groups(before)
        new_groups = () if after is None else self._groups(after)
        if not old_groups and not new_groups:
            return
        old, new = self._entry(before), self._entry(after)
        if old_groups == new_groups and old == new:
            return
        for group in old_groups:
            self._remove(group, old)
        for group in new_groups:
            insort(self._entries.setdefault(group, []), new)

    def groups(self) -> Iterator[Any]:
        return iter(self._entries)

    def entries(self, group: Hashable = ALL) -> Sequence[tuple[Any, Id]]:
        return self._entries.get(group, ())

    def ids(self, group: Hashable = ALL) -> list[Id]:
        return [id for _, id in self.entries(group)]

    def first(self, group: Hashable = ALL) -> Any:
        """The lowest order value in the group, or None."""
        entries = self.entries(group)
        return entries[0][0] if entries else None

    def up_to(self, order: Any, limit: int, group: Hashable = ALL) -> list[Id]:
        """The first ids whose order value is at most ``order``."""
        return [id for _, id in islice(self.entries(group), min(limit, self._end(order, group)))]

    def after(self, order: Any, group: Hashable = ALL) -> Iterator[Id]:
        """The ids whose order value is above ``order``; None is below all."""
        entries = self.entries(group)
        start = 0 if order is None else self._end(order, group)
        return (entries[number][1] for number in range(start, len(entries)))

    def count_after(self, order: Any, group: Hashable = ALL) -> int:
        return len(self.entries(group)) - self._end(order, group)

    def _end(self, order: Any, group: Hashable) -> int:
        return bisect_right(self.entries(group), order, key=lambda entry: entry[0])

    def _entry(self, item: Item | None) -> Any:
        return None if item is None else (self._order(item), self._id(item))

    def _remove(self, group: Hashable, entry: tuple[Any, Id]) -> None:
        entries = self._entries[group]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._entries[group]


StepOwner = JobId | Place
"""The standalone job or the run that steps belong to and are deleted with."""


@dataclass(slots=True)
class StepRecords:
    holder: StepOwner
    by_name: dict[str, StoredStep] = field(default_factory=dict)


DefinitionPlace = tuple[str, str, str]
"""Namespace, flow and version."""


class DefinitionUse(NamedTuple):
    at: datetime
    """When it was last saved, or found to be in use by pruning."""
    was_left: bool = False
    """A run was migrated to another version: its log still refers to this one."""


class RunRecords:
    """Runs, their events, waits and steps, and definitions of flows."""

    def __init__(self) -> None:
        self.definitions: dict[DefinitionPlace, bytes] = {}
        self.definition_uses: dict[DefinitionPlace, DefinitionUse] = {}
        self.runs: dict[Place, StoredRun] = {}
        self.events: dict[Place, list[StoredRunEvent]] = {}
        self.waits: dict[Place, dict[str, StoredWait]] = {}
        self.steps: dict[str, StepRecords] = {}
        self.step_owners: dict[StepOwner, set[str]] = {}

        place = attrgetter("place")
        self.by_age: Index[StoredRun, Place] = Index(
            lambda run: (ALL,), lambda run: (run.created_at, run.id), place
        )
        self.by_name: Index[StoredRun, Place] = Index(
            lambda run: (run.id,), lambda run: run.namespace, place
        )
        self.children: Index[StoredRun, Place] = Index(
            _child_of, lambda run: (run.created_at, run.id), place
        )
        self.ended: Index[StoredRun, Place] = Index(_ended_as, lambda run: run.finished_at, place)
        self.live: Index[StoredRun, Place] = Index(_live_as, lambda run: run.id, place)
        self.due: Index[StoredWait, WaitPlace] = Index(
            _wait_due_in, lambda wait: wait.due_at, place
        )
        self.listed: Index[StoredWait, WaitPlace] = Index(_listed_in, lambda wait: wait.age, place)
        self.started: Index[StoredRun, Place] = Index(
            _started_as, lambda run: (run.created_at, run.id), place
        )
        self.completed: Index[StoredRun, Place] = Index(
            _completed_as, lambda run: (run.finished_at, run.id), place
        )
        self.holders: Index[StoredRun, Place] = Index(
            _holds_place_of, lambda run: (run.started_at, run.id), place
        )
        self.queued: Index[StoredRun, Place] = Index(
            _queued_for, lambda run: (run.rank, run.id), place
        )
        self._of_runs = (
            self.by_age,
            self.by_name,
            self.children,
            self.ended,
            self.live,
            self.started,
            self.completed,
            self.holders,
            self.queued,
        )

    # Each ``put`` writes a whole row; None removes it.

    def put_definition_use(self, place: DefinitionPlace, use: DefinitionUse | None) -> None:
        if use is None:
            del self.definition_uses[place]
        else:
            self.definition_uses[place] = use

    def put_run(self, place: Place, run: StoredRun | None) -> None:
        before = self.runs.pop(place, None)
        if run is not None:
            self.runs[place] = run
        if _is_found_alike(before, run):
            return
        for index in self._of_runs:
            index.move(before, run)

    def put_events(self, place: Place, events: list[StoredRunEvent] | None) -> None:
        if events is None:
            self.events.pop(place, None)
        else:
            self.events[place] = events

    def truncate_events(self, place: Place, count: int) -> None:
        """Keep only the first ``count`` events: the undo of adding more."""
        del self.events[place][count:]

    def put_wait(self, place: WaitPlace, wait: StoredWait | None) -> None:
        namespace, run, key = place
        waits = self.waits.setdefault((namespace, run), {})
        before = waits.pop(key, None)
        if wait is not None:
            waits[key] = wait
        elif not waits:
            del self.waits[namespace, run]
        self.due.move(before, wait)
        self.listed.move(before, wait)

    def put_steps(self, owner: str, steps: StepRecords | None) -> None:
        before = self.steps.pop(owner, None)
        if before is not None:
            owners = self.step_owners[before.holder]
            owners.discard(owner)
            if not owners:
                del self.step_owners[before.holder]
        if steps is not None:
            self.steps[owner] = steps
            self.step_owners.setdefault(steps.holder, set()).add(owner)

    def wait(self, namespace: str, run: RunId, key: str) -> StoredWait | None:
        return self.waits.get((namespace, run), {}).get(key)

    def waits_of(self, place: Place) -> list[StoredWait]:
        return list(self.waits.get(place, {}).values())

    def tree(self, root: Place) -> list[Place]:
        """A run and all its descendants."""
        found = [root]
        for place in found:
            found += self.children.ids(place)
        return found


def _is_found_alike(before: StoredRun | None, after: StoredRun | None) -> bool:
    """Whether a change affects no index."""
    return (
        before is not None
        and after is not None
        and before.status is after.status
        and before.version == after.version
        and before.finished_at == after.finished_at
        and before.created_at == after.created_at
        and before.started_at == after.started_at
        and before.rank == after.rank
    )


def _child_of(run: StoredRun) -> Groups:
    return () if run.parent is None else ((run.namespace, run.parent.run),)


def _ended_as(run: StoredRun) -> Groups:
    """Child runs are in a group of their own: they are pruned with their parent."""
    if not run.is_ended:
        return ()
    is_root = run.parent is None
    return ((run.namespace, run.status) if is_root else (run.namespace, run.status, "child"),)


def _live_as(run: StoredRun) -> Groups:
    return () if run.is_ended else ((run.namespace, run.flow, run.version),)


def _started_as(run: StoredRun) -> Groups:
    """Runs that count for a cooldown: not children, and not skipped."""
    counts = run.has_cooldown and run.parent is None and run.status is not RunStatus.SKIPPED
    return ((run.namespace, run.flow),) if counts else ()


def _completed_as(run: StoredRun) -> Groups:
    return _started_as(run) if run.status is RunStatus.COMPLETED else ()


def _holds_place_of(run: StoredRun) -> Groups:
    holds = run.place_key is not None and run.started_at is not None and run.finished_at is None
    return ((run.namespace, run.place_key),) if holds else ()


def _queued_for(run: StoredRun) -> Groups:
    is_queued = run.rank is not None and run.status is RunStatus.QUEUED
    return ((run.namespace, run.place_key),) if is_queued else ()


def _wait_due_in(wait: StoredWait) -> Groups:
    return () if wait.due_at is None or wait.is_suspended else (wait.namespace,)


def _listed_in(wait: StoredWait) -> Groups:
    """Waits for external input; signals by name, for broadcasts."""
    match wait.type:
        case WaitType.SIGNAL:
            return ((wait.type, wait.name),)
        case WaitType.EXTERNAL | WaitType.APPROVAL:
            return (wait.type,)
        case _:
            return ()


SchedulePlace = tuple[str, str]
"""Namespace and name."""


class ScheduleRecords:
    def __init__(self) -> None:
        self.by_place: dict[SchedulePlace, Schedule] = {}
        self.due: Index[Schedule, SchedulePlace] = Index(
            _schedule_due_in,
            lambda each: each.state.due_at,
            lambda each: (each.namespace, each.name),
        )

    def put(self, place: SchedulePlace, schedule: Schedule | None) -> None:
        """Write a whole schedule; None removes it."""
        before = self.by_place.pop(place, None)
        if schedule is not None:
            self.by_place[place] = schedule
        self.due.move(before, schedule)


def _schedule_due_in(schedule: Schedule) -> Groups:
    return () if schedule.state.due_at is None else (schedule.namespace,)


_EXPIRING = frozenset({Status.WAITING, Status.SCHEDULED, Status.PAUSED})

JobIndex = Index[StoredJob, JobId]


@dataclass(slots=True)
class LimitRecord:
    """The state of a limit key; live jobs are counted from their leases instead."""

    closed_until: datetime | None = None
    closed_at: datetime | None = None
    last_start_at: datetime | None = None
    counts_until: datetime | None = None
    """When the last start is out of every window and spacing."""
    starts: deque[tuple[datetime, int]] = field(default_factory=deque)
    """When a claim started jobs under a rate, and how many, oldest first."""

    def close(self, until: datetime, now: datetime) -> None:
        if self.closed_until is None or self.closed_until < until:
            self.closed_until, self.closed_at = until, now

    def count_until(self, until: datetime) -> None:
        if self.counts_until is None or self.counts_until < until:
            self.counts_until = until

    def has_effect_after(self, moment: datetime) -> bool:
        ends = (self.closed_until, self.counts_until)
        return any(end is not None and end > moment for end in ends)

    @property
    def latest_at(self) -> datetime | None:
        """The latest time at which anything was recorded."""
        times = (self.closed_at, self.last_start_at, *(at for at, _ in self.starts))
        return max((at for at in times if at is not None), default=None)

    def bound(self, now: datetime) -> None:
        """Record what happened after ``now``, by a clock that was set back since, as of now."""
        self.starts = deque((min(at, now), count) for at, count in self.starts)
        if self.last_start_at is not None and self.last_start_at > now:
            if self.counts_until is not None:
                self.counts_until -= self.last_start_at - now
            self.last_start_at = now
        if self.closed_until is not None and self.closed_at is not None and self.closed_at > now:
            self.closed_until -= self.closed_at - now
            self.closed_at = now

    def uncount_start(self, at: datetime) -> bool | None:
        """Remove one start at this time. Return whether it was the only one; None without any."""
        for number, (started_at, count) in enumerate(self.starts):
            if started_at == at:
                if count > 1:
                    self.starts[number] = at, count - 1
                else:
                    del self.starts[number]
                return all(started_at != at for started_at, _ in self.starts)
        return None

    def forget_starts(self, until: datetime) -> None:
        while self.starts and self.starts[0][0] <= until:
            self.starts.popleft()


@dataclass(frozen=True, slots=True)
class StoredWorker:
    info: WorkerInfo
    started_at: datetime
    seen_at: datetime
    counts: Sequence[TaskCounts] = ()
    counts_before: Sequence[TaskCounts] = ()
    """The part of ``counts`` that is counted elsewhere."""

    def is_live(self, now: datetime) -> bool:
        return now - self.seen_at <= nearest_duration(self.info.lease)


@dataclass(frozen=True, slots=True)
class MaintenanceLease:
    worker: WorkerId
    until: datetime
    lease: timedelta


class MemoryState:
    """The contents of one store. Every access requires ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.hub = Hub()
        self.jobs: dict[JobId, StoredJob] = {}
        self.paused: dict[tuple[str, str], QueueInfo] = {}
        self.limits: dict[tuple[str, str], LimitRecord] = {}
        self.workers: dict[WorkerId, StoredWorker] = {}
        self.past_counts: dict[str, list[CountRow]] = {}
        """Counts of removed workers, by namespace."""
        self.maintenance_leases: dict[str, MaintenanceLease] = {}
        self.records = RunRecords()
        self.schedules = ScheduleRecords()
        self.subscribers: dict[tuple[str, str], tuple[bytes, datetime]] = {}
        """The filter and the end of the lease, by namespace and id."""
        self.live_number = 0
        self.live_events: deque[tuple[int, str, datetime, bytes]] = deque()
        """Number, namespace, time and event."""
        self.pruned_ends: dict[tuple[str, str], datetime] = {}
        """By namespace and event type."""

        self.by_id: JobIndex = Index(lambda job: (ALL,), lambda job: job.id)
        self.waiting: JobIndex = Index(_waiting_in, lambda job: job.rank)
        self.scheduled: JobIndex = Index(_when(Status.SCHEDULED), lambda job: job.ready_at)
        self.sticky: JobIndex = Index(_sticky_in, lambda job: job.sticky_until)
        self.awaiting: JobIndex = Index(_awaited_worker, lambda job: job.id)
        self.claimed: JobIndex = Index(_when(*CLAIMED), lambda job: job.lease_until)
        self.deadlines: JobIndex = Index(_expiring, lambda job: job.deadline_at)
        self.finished: JobIndex = Index(_finished_as, lambda job: job.finished_at)
        self.disabled: JobIndex = Index(_disabled_in, lambda job: job.disabled_at)
        self.results: JobIndex = Index(_result_of, lambda job: job.finished_at)
        self.fingerprints: JobIndex = Index(_live_fingerprint, lambda job: job.id)
        self.groups: JobIndex = Index(_member_of, lambda job: job.id)
        self.by_worker: JobIndex = Index(_claimed_by, lambda job: job.id)
        self.under_limit: JobIndex = Index(_live_under, lambda job: job.lease_until)
        self.of_run: JobIndex = Index(_job_of, lambda job: job.id)
        self.of_node: JobIndex = Index(_execution_of, lambda job: job.id)
        self._everywhere = (self.fingerprints, self.groups, self.of_run, self.of_node)
        self._only_in: tuple[tuple[JobIndex, frozenset[Status]], ...] = (
            (self.waiting, frozenset({Status.WAITING})),
            (self.scheduled, frozenset({Status.SCHEDULED})),
            (self.sticky, frozenset({Status.WAITING})),
            (self.awaiting, frozenset({Status.WAITING})),
            (self.claimed, CLAIMED),
            (self.by_worker, CLAIMED),
            (self.under_limit, CLAIMED),
            (self.deadlines, _EXPIRING),
            (self.finished, FINISHED),
            (self.disabled, frozenset({Status.DISABLED})),
            (self.results, frozenset({Status.COMPLETED})),
        )
        self._concerned: dict[tuple[Status | None, Status | None], tuple[JobIndex, ...]] = {}

    def put(self, id: JobId, job: StoredJob | None) -> None:
        """Write a whole job; None removes it."""
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
        """The indexes that a job with either status can be in; most writes touch few."""
        found = [index for index, only_in in self._only_in if not only_in.isdisjoint(statuses)]
        if None in statuses:  # added or removed: only this changes the index of ids
            found.append(self.by_id)
        concerned = self._concerned[statuses] = (*self._everywhere, *found)
        return concerned

    def put_limit(self, place: tuple[str, str], record: LimitRecord | None) -> None:
        if record is None:
            self.limits.pop(place, None)
        else:
            self.limits[place] = record


_states: WeakValueDictionary[str, MemoryState] = WeakValueDictionary()

_states_lock = threading.Lock()


def state_of(name: str) -> MemoryState:
    """The state shared by all handles of one name, while any exists."""
    if not name:
        return MemoryState()
    with _states_lock:
        state = _states.get(name)
        if state is None:
            state = _states[name] = MemoryState()
        return state


_NONE: Groups = ()


def _when(*statuses: Status) -> Callable[[StoredJob], Groups]:
    return lambda job: (job.namespace,) if job.status in statuses else _NONE


def _waiting_in(job: StoredJob) -> Groups:
    return ((job.namespace, job.partition_key),) if job.status is Status.WAITING else _NONE


def _sticky_in(job: StoredJob) -> Groups:
    is_sticky = job.sticky_until is not None and job.status is Status.WAITING
    return (job.namespace,) if is_sticky else _NONE


def _awaited_worker(job: StoredJob) -> Groups:
    is_sticky = job.sticky_until is not None and job.status is Status.WAITING
    return ((job.namespace, job.sticky_worker),) if is_sticky else _NONE


def _expiring(job: StoredJob) -> Groups:
    # Whether a node's job has failed is decided by its run.
    is_expiring = job.deadline_at is not None and job.node is None and job.status in _EXPIRING
    return (job.namespace,) if is_expiring else _NONE


def _finished_as(job: StoredJob) -> Groups:
    return ((job.namespace, job.status),) if job.status in FINISHED else _NONE


def _disabled_in(job: StoredJob) -> Groups:
    is_own = job.status is Status.DISABLED and job.node is None
    return ((job.namespace, job.status),) if is_own else _NONE


def _result_of(job: StoredJob) -> Groups:
    return (job.input_hash,) if job.status is Status.COMPLETED else _NONE


def _live_fingerprint(job: StoredJob) -> Groups:
    if job.fingerprint is None or job.status in FINISHED:
        return _NONE
    return ((job.namespace, job.partition.queue, job.fingerprint),)


def _member_of(job: StoredJob) -> Groups:
    return ((job.namespace, job.group),) if job.group is not None else _NONE


def _claimed_by(job: StoredJob) -> Groups:
    return (job.worker,) if job.status in CLAIMED else _NONE


def _live_under(job: StoredJob) -> Groups:
    if job.status not in CLAIMED:
        return _NONE
    return tuple((job.namespace, key) for key in job.limit_keys)


def _job_of(job: StoredJob) -> Groups:
    return _NONE if job.node is None else ((job.namespace, job.node.run),)


def _execution_of(job: StoredJob) -> Groups:
    return _NONE if job.node is None else ((job.namespace, job.node.run, job.node.key),)
