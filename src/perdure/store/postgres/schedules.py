"""Schedules, committed together with the jobs and runs that they start."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import randbits
from typing import Any

from perdure.model.check import check_times
from perdure.model.job import Inserted, NewJob
from perdure.model.run import RunStatus, Submitted
from perdure.model.schedule import (
    Schedule,
    ScheduleAnswer,
    ScheduleCommit,
    ScheduleCommitState,
    UnreadableSchedule,
    encode_definition,
    encode_state,
)
from perdure.store.admission import queued_unlocked
from perdure.store.contract import ScheduleStore
from perdure.store.hints import WriteHints
from perdure.store.postgres.connection import Connection, Transacting
from perdure.store.postgres.jobs import Rows, insert_steps, run_steps
from perdure.store.postgres.params import ScheduleParams
from perdure.store.postgres.session import Session
from perdure.store.postgres.submit import add_run, cooled_run, own_run
from perdure.store.sql.rows import read_schedule
from perdure.store.sql.statements import arguments_of


class PostgresSchedules(ScheduleStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def commit(self, commit: ScheduleCommit) -> ScheduleAnswer:
        for job in () if commit.run is None else commit.run.jobs:
            check_times(job)
        submission = randbits(63)

        async def work(
            connection: Connection, is_repeated: bool
        ) -> tuple[ScheduleAnswer, WriteHints]:
            moves = WriteHints()
            try:
                async with Transacting(connection):
                    answer = None
                    if is_repeated:
                        answer = await self._schedule_written(connection, commit, submission)
                    if answer is None:
                        answer = await self._commit_one(connection, commit, submission, moves)
            except _RunTaken:
                return ScheduleAnswer(state=ScheduleCommitState.TAKEN), WriteHints()
            return answer, moves

        answer, moves = await self._session.connections.run(work)
        self._session.publish_moves(moves)
        return answer

    async def delete(self, namespace: str, name: str) -> bool:
        return bool(await self._session.fetch("delete_schedule", namespace, name))

    async def _commit_one(
        self, connection: Connection, commit: ScheduleCommit, submission: int, moves: WriteHints
    ) -> ScheduleAnswer:
        if not await self._is_as_expected(connection, commit):
            return ScheduleAnswer(state=ScheduleCommitState.CONFLICT)
        schedule, submitted, inserted = commit.schedule, None, None
        if commit.run is not None:
            run = queued_unlocked(await cooled_run(self._session, connection, commit.run))
            added = await add_run(self._session, connection, run, submission, moves)
            if added is None:
                raise _RunTaken
            submitted = Submitted(run=added, is_new=True)
            if added.status is RunStatus.SKIPPED and commit.if_skipped is not None:
                schedule = commit.if_skipped
        if commit.job is not None:
            inserted = await self._insert_one(connection, commit.job, moves)
        await connection.fetch(self._session.statements["update_schedule"], *_arguments(schedule))
        if schedule.state.due_at is not None:
            moves.due()
        return ScheduleAnswer(
            state=ScheduleCommitState.DONE, submitted=submitted, inserted=inserted
        )

    async def _is_as_expected(self, connection: Connection, commit: ScheduleCommit) -> bool:
        """Lock the row, or insert it if none is expected; other writers wait."""
        schedule = commit.schedule
        if commit.expected is None:
            insert = self._session.statements["insert_schedule"]
            return bool(await connection.fetch(insert, *_arguments(schedule)))
        return await self._revision_of(connection, schedule) == commit.expected

    async def _revision_of(self, connection: Connection, schedule: Schedule) -> int | None:
        revision: int | None = await connection.fetchval(
            self._session.statements["lock_schedule"], schedule.namespace, schedule.name
        )
        return revision

    async def _schedule_written(
        self, connection: Connection, commit: ScheduleCommit, submission: int
    ) -> ScheduleAnswer | None:
        """The answer of an earlier, unacknowledged attempt; None if it was not committed."""
        run, job = commit.run, commit.job
        submitted = inserted = None
        # First, because it waits for an attempt that is being committed.
        revision = await self._revision_of(connection, commit.schedule)
        if run is not None:
            found = await own_run(self._session, connection, run, submission)
            submitted = None if found is None else Submitted(run=found, is_new=True)
        if job is not None and await connection.fetch(
            self._session.statements["job_is_in"], job.id
        ):
            inserted = Inserted(id=job.id, is_new=True)
        is_ours = submitted is not None or inserted is not None
        if not is_ours and revision != commit.schedule.revision:
            return None
        return ScheduleAnswer(
            state=ScheduleCommitState.DONE, submitted=submitted, inserted=inserted
        )

    async def _insert_one(self, connection: Connection, job: NewJob, moves: WriteHints) -> Inserted:
        async def execute(statement: str, arguments: Sequence[Any]) -> Rows:
            rows: Rows = await connection.fetch(self._session.statements[statement], *arguments)
            return rows

        [inserted] = await run_steps(insert_steps([job], self._session.moment(), moves), execute)
        return inserted

    async def list(
        self, namespace: str | None, name: str | None = None
    ) -> Sequence[Schedule | UnreadableSchedule]:
        rows = await self._session.fetch("list_schedules", namespace, name)
        return [read_schedule(row) for row in rows]


class _RunTaken(Exception):
    """Rolls back the writes made before the conflict was detected."""


def _arguments(schedule: Schedule) -> list[Any]:
    params = ScheduleParams(
        namespace=schedule.namespace,
        name=schedule.name,
        revision=schedule.revision,
        due_at=schedule.state.due_at,
        definition=encode_definition(schedule.definition),
        state=encode_state(schedule.state),
    )
    return arguments_of(params)
