"""A transaction on the in-memory state: atomic, and rolled back on an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as replace_record
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.clock import Clock
from perdure.errors import IllegalTransition
from perdure.model.failure import Failure
from perdure.model.ids import JobId
from perdure.model.job import CLAIMED, FINISHED, Claim, FailedAttempt, Status
from perdure.model.run import StoredStep
from perdure.store.hints import WriteHints
from perdure.store.lifecycle import Transition, allows
from perdure.store.memory.records import StoredJob, StoredRun
from perdure.store.memory.state import LimitRecord, MemoryState, StepRecords


class Transaction:
    """One operation: the state, the time, and an undo log of its changes."""

    def __init__(self, state: MemoryState, now: datetime) -> None:
        self.state = state
        self.now = now
        self._undo: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        self.hints = WriteHints()

    def claimed(self, claim: Claim) -> StoredJob | None:
        """The job of a claim, if the claim is current."""
        job = self.state.jobs.get(claim.id)
        is_current = job is not None and job.epoch == claim.epoch and job.status in CLAIMED
        return job if is_current else None

    def visible(self, namespace: str | None, ids: Sequence[JobId]) -> list[StoredJob]:
        """Those of the jobs that are visible in the namespace, each once."""
        jobs = (self.state.jobs.get(id) for id in dict.fromkeys(ids))
        return [
            job
            for job in jobs
            if job is not None and not job.is_hidden and namespace in (None, job.namespace)
        ]

    def move(
        self, job: StoredJob, operation: Transition, status: Status, **changes: Any
    ) -> StoredJob:
        """Change a job's status by the transition table, with all columns it implies."""
        if not allows(operation, job.status, status):
            raise IllegalTransition(job_id=job.id, operation=operation, status=job.status)
        implied: dict[str, Any] = {"finished_at": self.now if status in FINISHED else None}
        if status not in CLAIMED:
            implied |= {"lease_until": None, "limit_keys": ()}
            if status not in FINISHED:
                implied["worker"] = None
        moved = replace(job, status=status, **implied | changes)
        self.save(moved)
        if status is not Status.ACTIVE:
            frees_limit = bool(job.limit_keys)
            self.hints.moved(job.id, status, moved.partition_key, frees_limit=frees_limit)
        return moved

    def save(self, job: StoredJob) -> None:
        self._put(job.id, job)

    def remove(self, id: JobId) -> None:
        self._put(id, None)

    def save_step(self, job: StoredJob, owner: str, step: StoredStep) -> None:
        """Store a step, unless one of this name exists."""
        records = self.state.records
        if owner not in records.steps:
            holder = job.id if job.node is None else (job.namespace, job.node.run)
            self.put(records.put_steps, owner, None, StepRecords(holder))
        records.steps[owner].by_name.setdefault(step.name, step)

    def failed(self, job: StoredJob, failure: Failure) -> tuple[FailedAttempt, ...]:
        """The job's failed attempts, with this one added."""
        entry = FailedAttempt(attempt=job.attempt, worker=job.worker, at=self.now, failure=failure)
        return (*job.history, entry)

    def put(self, put: Callable[[Any, Any], None], place: Any, before: Any, after: Any) -> None:
        """Write ``after`` at ``place``; restore ``before`` if this operation fails."""
        self._undo.append((put, place, before))
        put(place, after)

    def limit(self, namespace: str, key: str) -> LimitRecord:
        """The record of a limit key, for writing."""
        place = namespace, key
        before = self.state.limits.get(place)
        after = (
            LimitRecord() if before is None else replace_record(before, starts=before.starts.copy())
        )
        self.put(self.state.put_limit, place, before, after)
        return after

    def record_pruned(self, type: str, ended: StoredJob | StoredRun) -> None:
        assert ended.finished_at is not None
        place, known = (ended.namespace, type), self.state.pruned_ends
        until = max(known.get(place, ended.finished_at), ended.finished_at)
        self.put(known.__setitem__, place, known.get(place, until), until)

    def undo(self) -> None:
        for put, place, before in reversed(self._undo):
            put(place, before)

    def on_undo(self, put: Callable[[Any, Any], None], place: Any, before: Any) -> None:
        """Register how to undo a write made by other means."""
        self._undo.append((put, place, before))

    def _put(self, id: JobId, job: StoredJob | None) -> None:
        self.put(self.state.put, id, self.state.jobs.get(id), job)

    def hint_at_room(self, before: StoredJob) -> None:
        """Publish that a job no longer counts under its limits."""
        if before.limit_keys:
            self.hints.frees_limit()

    def hint_if_queued(self, job: StoredJob) -> None:
        self.hints.queued(job.status, job.partition_key)


class Session:
    """The state and clock that all parts of one handle share."""

    def __init__(self, state: MemoryState, clock: Clock) -> None:
        self.state = state
        self.clock = clock

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self.state.lock:
            transaction = Transaction(self.state, self.clock())
            try:
                yield transaction
            except BaseException:
                transaction.undo()
                raise
        for hint in transaction.hints.hints():
            self.state.hub.publish(hint)
