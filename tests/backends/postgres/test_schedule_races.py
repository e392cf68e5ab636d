"""Ticks on a server that is shared: lost answers, and locks that are waited for."""

from __future__ import annotations

import asyncio

from perdure.model.ids import RunId
from perdure.model.job import JobFilter
from perdure.model.run import RunFilter, RunStatus
from perdure.model.schedule import ScheduleCommit, ScheduleCommitState
from tests.backends.postgres.waiting import until_somebody_waits
from tests.conformance.builders import new_job
from tests.conformance.run_builders import NAMESPACE, new_run
from tests.conformance.schedule_builders import (
    TICK,
    advanced,
    cooling_run,
    read,
    save,
    schedule,
    start,
)

DONE, CONFLICT = ScheduleCommitState.DONE, ScheduleCommitState.CONFLICT


class TestLostAnswers:
    async def test_a_tick_counts_once(self, store, wired, line):
        before = await save(store)

        line.lose_answer_to("COMMIT")
        answer = await start(wired, before)

        assert answer.state is DONE
        assert answer.submitted is not None
        assert (answer.submitted.is_new, answer.submitted.run.id) == (True, TICK)
        assert line.accepted == 2
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 1
        assert (await start(wired, before)).state is CONFLICT

    async def test_a_tick_of_a_task_counts_once(self, store, wired, line):
        before, job = await save(store), new_job(namespace=NAMESPACE)

        line.lose_answer_to("COMMIT")
        answer = await start(wired, before, run=None, job=job)

        assert answer.state is DONE
        assert answer.inserted is not None
        assert (answer.inserted.id, line.accepted) == (job.id, 2)
        assert await store.queries.count_jobs(JobFilter(namespace=NAMESPACE)) == 1

    async def test_a_tick_that_was_not_written_is_written_then(self, store, wired, line):
        before = await save(store)

        line.lose_answer_to("lost on the way back")
        after = advanced(before, paused_by="lost on the way back")
        answer = await start(wired, before, schedule=after)

        assert answer.state is DONE
        assert line.accepted == 2
        assert await read(store) == after
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 1

    async def test_a_new_schedule_is_no_conflict_with_itself(self, store, wired, line):
        new = schedule()

        line.lose_answer_to("COMMIT")
        answer = await wired.schedules.commit(ScheduleCommit(schedule=new, expected=None))

        assert answer.state is DONE
        assert line.accepted == 2
        assert await read(store) == new

    async def test_a_run_of_a_cooling_flow_is_not_skipped_for_itself(self, store, wired, line):
        line.lose_answer_to("COMMIT")
        submitted = await wired.runs.submit(cooling_run())

        assert line.accepted == 2
        assert (submitted.is_new, submitted.run.status) == (True, RunStatus.RUNNING)
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 1


class TestLocks:
    async def test_who_comes_second_waits_and_starts_nothing(self, store, schema, admin):
        before = await save(store)
        async with admin.transaction():
            await admin.execute(f"SELECT FROM {schema}.schedules FOR UPDATE")
            second = asyncio.create_task(start(store, before, run=new_run(id=RunId("late"))))
            await until_somebody_waits(admin, schema)
            await admin.execute(f"UPDATE {schema}.schedules SET revision = 1")

        assert (await second).state is CONFLICT
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 0

    async def test_flows_that_do_not_cool_down_wait_for_nobody(self, store, schema, admin):
        async with admin.transaction():
            place = f'perdure cooldown "{schema}" {NAMESPACE} orders'
            await admin.fetch("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", place)
            await asyncio.wait_for(store.runs.submit(new_run(id=RunId("free"))), 5)
            cooled = asyncio.create_task(store.runs.submit(cooling_run()))
            await until_somebody_waits(admin, schema)

        assert (await cooled).run.status is RunStatus.RUNNING
