"""What was sent is committed although its sender was cut off, and only while the next try waits."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from perdure.model.job import JobFilter
from perdure.model.run import NewWait, RunFilter, WaitType
from perdure.model.schedule import ScheduleCommitState
from tests.backends.postgres.waiting import until_somebody_waits
from tests.conformance.builders import new_job
from tests.conformance.run_builders import RUN, new_run
from tests.conformance.schedule_builders import TICK, save, start

WAITS = (NewWait(key="ask", type=WaitType.SIGNAL, name="go"),)


@pytest.mark.parametrize("policy", ["fail", "use_existing", "replace"])
async def test_a_submitted_run_is_neither_refused_nor_replaced_by_its_own_next_try(
    wired, line, admin, schema, policy
):
    run = new_run(waits=WAITS, on_existing=policy)
    line.hold_back_from("COMMIT")

    submitting = asyncio.create_task(wired.runs.submit(run))
    await until_somebody_waits(admin, schema)
    waiting_at: datetime = await admin.fetchval("SELECT clock_timestamp()")
    line.let_through()
    submitted = await submitting

    assert submitted.is_new
    assert submitted.run.created_at < waiting_at
    assert [kept.created_at for kept in await wired.queries.list_runs(RunFilter(), 10)] == [
        submitted.run.created_at
    ]


async def test_a_run_takes_the_place_of_another_once(wired, line, admin, schema):
    first = await wired.runs.submit(new_run(waits=WAITS))
    line.hold_back_from("COMMIT")

    again = new_run(waits=WAITS, on_existing="replace", summary=b'{"by":"bob"}')
    submitting = asyncio.create_task(wired.runs.submit(again))
    await until_somebody_waits(admin, schema)
    waiting_at: datetime = await admin.fetchval("SELECT clock_timestamp()")
    line.let_through()
    submitted = await submitting

    assert first.run.created_at < submitted.run.created_at < waiting_at
    [kept] = await wired.queries.list_runs(RunFilter(), 10)
    assert (kept.id, kept.summary) == (RUN, b'{"by":"bob"}')


@pytest.mark.parametrize("policy", ["return", "raise", "replace"])
async def test_a_job_does_not_conflict_with_itself(wired, line, admin, schema, policy):
    line.hold_back_from("COMMIT")

    job = new_job(fingerprint="once", on_conflict=policy)
    inserting = asyncio.create_task(wired.jobs.insert([job]))
    await until_somebody_waits(admin, schema)
    line.let_through()
    [inserted] = await inserting

    assert (inserted.id, inserted.is_new) == (job.id, True)
    assert await wired.queries.count_jobs(JobFilter()) == 1


async def test_a_tick_starts_one_run_and_its_next_try_says_which(wired, line, admin, schema):
    before = await save(wired)
    line.hold_back_from("COMMIT")

    starting = asyncio.create_task(start(wired, before))
    await until_somebody_waits(admin, schema)
    line.let_through()
    answer = await starting

    assert answer.state is ScheduleCommitState.DONE
    assert answer.submitted is not None
    assert (answer.submitted.is_new, answer.submitted.run.id) == (True, TICK)
