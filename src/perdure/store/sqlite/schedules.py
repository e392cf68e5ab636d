"""Schedules, committed together with the jobs and runs that they start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.model.run import RunStatus
from perdure.model.schedule import (
    Schedule,
    ScheduleAnswer,
    ScheduleCommit,
    ScheduleCommitState,
    UnreadableSchedule,
    encode_definition,
    encode_state,
)
from perdure.store.contract import ScheduleStore
from perdure.store.sql.rows import read_schedule
from perdure.store.sqlite.jobs import insert_jobs
from perdure.store.sqlite.rows import micros, moment_or_none
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.submit import submit_run
from perdure.store.sqlite.transaction import Transaction


class SqliteSchedules(ScheduleStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def commit(self, commit: ScheduleCommit) -> ScheduleAnswer:
        return await self._session.write(lambda transaction: _commit(transaction, commit))

    async def delete(self, namespace: str, name: str) -> bool:
        place = {"namespace": namespace, "schedule": name}
        deleted = await self._session.write(
            lambda transaction: transaction.write("delete_schedule", **place)
        )
        return deleted > 0

    async def list(
        self, namespace: str | None, name: str | None = None
    ) -> Sequence[Schedule | UnreadableSchedule]:
        rows = await self._session.rows("list_schedules", namespace=namespace, schedule=name)
        return [read_schedule((*row[:5], moment_or_none(row[5]))) for row in rows]


def _commit(transaction: Transaction, commit: ScheduleCommit) -> ScheduleAnswer:
    schedule = commit.schedule
    if _revision_of(transaction, schedule) != commit.expected:
        return ScheduleAnswer(state=ScheduleCommitState.CONFLICT)
    submitted = inserted = None
    if commit.run is not None:
        if transaction.rows("get_run", namespace=commit.run.namespace, run=commit.run.id):
            return ScheduleAnswer(state=ScheduleCommitState.TAKEN)
        submitted = submit_run(transaction, commit.run)
        if submitted.run.status is RunStatus.SKIPPED and commit.if_skipped is not None:
            schedule = commit.if_skipped
    if commit.job is not None:
        [inserted] = insert_jobs(transaction, [commit.job])
    if commit.expected is None:
        transaction.write("insert_schedule", **_row_of(schedule))
    else:
        transaction.write("update_schedule", **_row_of(schedule), expected=commit.expected)
    if schedule.state.due_at is not None:
        transaction.hints.due()
    return ScheduleAnswer(state=ScheduleCommitState.DONE, submitted=submitted, inserted=inserted)


def _revision_of(transaction: Transaction, schedule: Schedule) -> int | None:
    rows = transaction.rows("get_schedule", namespace=schedule.namespace, schedule=schedule.name)
    return rows[0][2] if rows else None


def _row_of(schedule: Schedule) -> dict[str, Any]:
    due_at = schedule.state.due_at
    return {
        "namespace": schedule.namespace,
        "schedule": schedule.name,
        "revision": schedule.revision,
        "due_at": None if due_at is None else micros(due_at),
        "definition": encode_definition(schedule.definition),
        "state": encode_state(schedule.state),
    }
