"""Schedules, committed together with the jobs and runs that they start."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.run import RunStatus
from perdure.model.schedule import (
    Schedule,
    ScheduleAnswer,
    ScheduleCommit,
    ScheduleCommitState,
    UnreadableSchedule,
)
from perdure.store.contract import ScheduleStore
from perdure.store.memory.jobs import insert
from perdure.store.memory.submit import submit
from perdure.store.memory.transaction import Session, Transaction


class MemorySchedules(ScheduleStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def commit(self, commit: ScheduleCommit) -> ScheduleAnswer:
        with self._session.transaction() as transaction:
            return _commit(transaction, commit)

    async def delete(self, namespace: str, name: str) -> bool:
        with self._session.transaction() as transaction:
            schedules, place = transaction.state.schedules, (namespace, name)
            before = schedules.by_place.get(place)
            transaction.put(schedules.put, place, before, None)
            return before is not None

    async def list(
        self, namespace: str | None, name: str | None = None
    ) -> Sequence[Schedule | UnreadableSchedule]:
        with self._session.transaction() as transaction:
            kept = sorted(transaction.state.schedules.by_place.items())
            return [
                schedule
                for (place, known), schedule in kept
                if namespace in (None, place) and name in (None, known)
            ]


def _commit(transaction: Transaction, commit: ScheduleCommit) -> ScheduleAnswer:
    schedule = commit.schedule
    place = schedule.namespace, schedule.name
    schedules = transaction.state.schedules
    before = schedules.by_place.get(place)
    if (None if before is None else before.revision) != commit.expected:
        return ScheduleAnswer(state=ScheduleCommitState.CONFLICT)
    submitted = inserted = None
    if commit.run is not None:
        if (commit.run.namespace, commit.run.id) in transaction.state.records.runs:
            return ScheduleAnswer(state=ScheduleCommitState.TAKEN)
        submitted = submit(transaction, commit.run)
        if submitted.run.status is RunStatus.SKIPPED and commit.if_skipped is not None:
            schedule = commit.if_skipped
    if commit.job is not None:
        inserted = insert(transaction, commit.job)
    transaction.put(schedules.put, place, before, schedule)
    if schedule.state.due_at is not None:
        transaction.hints.due()
    return ScheduleAnswer(state=ScheduleCommitState.DONE, submitted=submitted, inserted=inserted)
