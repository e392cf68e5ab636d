"""What happens when two get hold of the same job, forced rather than hoped for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure import AsyncClient, Worker, task
from perdure.clock import ManualClock
from perdure.model.ids import RunId
from perdure.model.job import JobFilter, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed, Failed
from perdure.model.partition import Partition
from perdure.model.run import NewWait, RunFilter, RunStatus, WaitType
from perdure.model.schedule import ScheduleCommit, ScheduleCommitState
from perdure.operations import events
from perdure.store.lifecycle import Transition
from perdure.store.postgres.store import PostgresStore
from perdure.testing.contract.builders import (
    NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    RUN,
    TICK,
    advanced,
    claim,
    claim_ids,
    claim_new,
    commit_tick,
    cooling_run,
    failure,
    insert,
    insert_in_status,
    insert_many,
    new_job,
    new_run,
    new_schedule,
    read_schedule,
    save_schedule,
    settle,
    status_of,
)
from tests.backends.postgres.line import Line, row_held, until_blocked
from tests.support.stores import opened
from tests.worker.watched_store import StoreWatch

OTHER_PARTITION = Partition(queue="mail", task="receive")


@task
async def note() -> None: ...


MOVES = {
    Status.WAITING: "lease_until = NULL, worker = NULL, finished_at = NULL",
    Status.ACTIVE: "lease_until = now() + interval '1 minute', worker = 'other',"
    " finished_at = NULL, epoch = epoch + 1, attempt = attempt + 1",
    Status.ABORTING: "finished_at = NULL",
    Status.PAUSED: "lease_until = NULL, worker = NULL, finished_at = NULL",
    Status.DISABLED: "lease_until = NULL, worker = NULL, finished_at = NULL, epoch = epoch + 1",
    Status.COMPLETED: "lease_until = NULL, finished_at = now(), output = '1'",
    Status.FAILED: "lease_until = NULL, finished_at = now()",
    Status.CANCELLED: "lease_until = NULL, finished_at = now(), epoch = epoch + 1",
}
S = Status

# A concurrent change, and the result of an operation that waits for it.
RACES = [
    ("abort", S.WAITING, S.ACTIVE, S.ABORTING),
    ("abort", S.ACTIVE, S.WAITING, S.CANCELLED),
    ("abort", S.ACTIVE, S.COMPLETED, S.COMPLETED),
    ("abort", S.FAILED, S.WAITING, S.CANCELLED),
    ("disable", S.WAITING, S.ACTIVE, S.DISABLED),
    ("disable", S.ACTIVE, S.COMPLETED, S.COMPLETED),
    ("disable", S.ACTIVE, S.ABORTING, S.ABORTING),
    ("disable", S.CANCELLED, S.WAITING, S.DISABLED),
    ("enable", S.ACTIVE, S.DISABLED, S.WAITING),
    ("enable", S.DISABLED, S.CANCELLED, S.CANCELLED),
    ("retry", S.ACTIVE, S.FAILED, S.WAITING),
    ("retry", S.WAITING, S.CANCELLED, S.WAITING),
    ("retry", S.FAILED, S.WAITING, S.WAITING),
    ("resume", S.ACTIVE, S.PAUSED, S.WAITING),
    ("resume", S.PAUSED, S.CANCELLED, S.CANCELLED),
]


class TestOperators:
    @pytest.mark.parametrize("act,before,meanwhile,after", RACES)
    async def test_act_on_what_the_row_has_become(self, store, race, act, before, meanwhile, after):
        id = (await insert_in_status(store, before)).id
        acting = store.admin.change_jobs(Transition(act), None, [id])
        [moved] = await race(to(meanwhile), acting, meanwhile.value, id)
        assert (moved.before, moved.after) == (meanwhile, after)
        assert await status_of(store, id) is after


class TestHolders:
    @pytest.mark.parametrize(
        "meanwhile,after", [(S.ABORTING, S.CANCELLED), (S.DISABLED, None), (S.CANCELLED, None)]
    )
    @pytest.mark.parametrize("outcome", [Completed(output=b"1"), Failed(failure=failure())])
    async def test_settle_what_the_row_has_become(self, store, race, meanwhile, after, outcome):
        held = await claim_new(store)
        settling = settle(store, held, outcome)
        assert await race(to(meanwhile), settling, meanwhile.value, held.id) is after
        assert await status_of(store, held.id) is (after or meanwhile)


class TestClaims:
    async def test_pass_by_a_job_that_another_transaction_has_locked(self, store, admin, schema):
        first, second = await insert_many(store, 2)
        async with row_held(admin, schema, first):
            assert await claim_ids(store) == [second]
        assert await claim_ids(store) == [first]

    async def test_from_several_partitions_look_behind_what_others_have_in_hand(
        self, store, admin, schema
    ):
        first = await insert(store)
        await insert(store, partition=OTHER_PARTITION)
        await insert(store, partition=OTHER_PARTITION)
        second = await insert(store)

        # Both fronts are taken, so everything within the bound of a claim of one is.
        async with admin.transaction():
            await admin.execute(f"SELECT FROM {schema}.jobs WHERE id <> $1 FOR UPDATE", second)
            taken = await claim_ids(store, PARTITION, OTHER_PARTITION, limit=1, worker=OTHER_WORKER)

        assert taken == [second]
        assert await claim_ids(store, limit=1) == [first]

    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("partitions", [[PARTITION], [PARTITION, OTHER_PARTITION]])
    @pytest.mark.parametrize("rules", [(), (LimitRule(key="mail", live_max=5),)])
    async def test_report_that_they_skipped_jobs(
        self, store, admin, schema, count, partitions, rules
    ):
        """Finding 15: a claim that skipped a locked job left it to the next poll."""
        first, *others = await insert_many(store, count)

        async with row_held(admin, schema, first):
            claimed = await claim(store, *partitions, rules=rules)
        after = await claim(store, *partitions, rules=rules)
        empty = await claim(store, *partitions, rules=rules)

        assert [job.claim.id for job in claimed.jobs] == others
        assert claimed.has_skipped
        assert [job.claim.id for job in after.jobs] == [first]
        assert not after.has_skipped
        assert not empty.has_skipped

    async def test_of_a_paused_queue_skip_nothing(self, store, admin, schema):
        id = await insert(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, by=None)
        async with row_held(admin, schema, id):
            assert not (await claim(store, PARTITION)).has_skipped

    async def test_of_a_worker_are_repeated_for_skipped_jobs(self, postgres_url, admin, schema):
        """Finding 15: no hint woke the worker when the lock was gone; only the poll did."""
        watch = StoreWatch(postgres_url)
        claimed = asyncio.Event()

        async def note_claim() -> None:
            claimed.set()

        watch.after["jobs.claim"] = note_claim
        worker = Worker(watch.store, tasks=[note], poll="10m")
        async with AsyncClient(postgres_url) as client, asyncio.timeout(20):
            job = await client.enqueue(note)
            async with row_held(admin, schema, job.id):
                serving = asyncio.create_task(worker.serve())
                await claimed.wait()
            await job.result()
            worker.shutdown(grace=0)
            await serving

    async def test_from_many_partitions_keep_the_order_of_the_queue(self, store):
        partitions = [Partition(queue="mail", task=f"task-{number}") for number in range(20)]
        dense = await insert_many(store, 30, partition=partitions[7], priority=1)
        for partition in partitions:
            await insert_many(store, 3, partition=partition, priority=5)
        assert await claim_ids(store, *partitions, limit=20) == dense[:20]
        assert await claim_ids(store, *partitions, limit=10) == dense[20:]

    async def test_from_many_partitions_lock_little_more_than_they_take(self, store, admin, schema):
        partitions = [Partition(queue="mail", task=f"task-{number}") for number in range(20)]
        for _ in range(10):
            await store.jobs.insert([new_job(partition=partition) for partition in partitions])

        await claim_ids(store, *partitions, limit=20)

        # xmax tells who locked or changed a row last.
        touched = await admin.fetchval(
            f"SELECT count(*) FROM {schema}.jobs WHERE status = 'waiting' AND xmax <> '0'"
        )
        assert touched <= 20


class TestFingerprints:
    async def test_wait_for_an_insert_that_is_under_way_elsewhere(
        self, store, target, admin, schema
    ):
        theirs = new_job(fingerprint="once")
        async with admin.transaction():
            await store.insert_in_transaction(admin, [theirs])
            inserting = asyncio.create_task(target.jobs.insert([new_job(fingerprint="once")]))
            await until_blocked(admin, schema)
        [inserted] = await inserting
        assert (inserted.id, inserted.is_new) == (theirs.id, False)


def to(status: Status) -> str:
    """What another process would do to a job."""
    return f"UPDATE {{schema}}.jobs SET status = $1, {MOVES[status]} WHERE id = $2"


# What was sent is committed although its sender was cut off, and only while the next try waits.


WAITS = (NewWait(key="ask", type=WaitType.SIGNAL, name="go"),)


@pytest.fixture
def held_back(line: Line, admin: Any, schema: str) -> Any:
    """Has an act commit late, while its next try waits; also gives the time of that."""

    async def act_late(act: Coroutine[Any, Any, Any]) -> tuple[Any, datetime]:
        line.hold_back_from("COMMIT")
        acting = asyncio.create_task(act)
        await until_blocked(admin, schema)
        waiting_at: datetime = await admin.fetchval("SELECT clock_timestamp()")
        line.let_through()
        return await acting, waiting_at

    return act_late


@pytest.mark.parametrize("policy", ["fail", "use_existing", "replace"])
async def test_a_submitted_run_is_neither_refused_nor_replaced_by_its_own_next_try(
    wired, held_back, policy
):
    run = new_run(waits=WAITS, on_existing=policy)
    submitted, waiting_at = await held_back(wired.runs.submit(run))
    assert submitted.is_new
    assert submitted.run.created_at < waiting_at
    [kept] = await wired.queries.list_runs(RunFilter(), 10)
    assert kept.created_at == submitted.run.created_at


async def test_a_run_takes_the_place_of_another_once(wired, held_back):
    first = await wired.runs.submit(new_run(waits=WAITS))
    again = new_run(waits=WAITS, on_existing="replace", summary=b'{"by":"bob"}')
    submitted, waiting_at = await held_back(wired.runs.submit(again))
    assert first.run.created_at < submitted.run.created_at < waiting_at
    [kept] = await wired.queries.list_runs(RunFilter(), 10)
    assert (kept.id, kept.summary) == (RUN, b'{"by":"bob"}')


@pytest.mark.parametrize("policy", ["return", "raise", "replace"])
async def test_a_job_does_not_conflict_with_itself(wired, held_back, policy):
    job = new_job(fingerprint="once", on_conflict=policy)
    [inserted], _ = await held_back(wired.jobs.insert([job]))
    assert (inserted.id, inserted.is_new) == (job.id, True)
    assert await wired.queries.count_jobs(JobFilter()) == 1


async def test_a_tick_starts_one_run_and_its_next_try_says_which(wired, held_back):
    before = await save_schedule(wired)
    answer, _ = await held_back(commit_tick(wired, before))
    assert answer.state is ScheduleCommitState.DONE
    assert answer.submitted is not None
    assert (answer.submitted.is_new, answer.submitted.run.id) == (True, TICK)


# Ticks on a server that is shared: lost answers, and locks that are waited for.


DONE, CONFLICT = ScheduleCommitState.DONE, ScheduleCommitState.CONFLICT


class TestLostAnswers:
    async def test_a_tick_counts_once(self, store, wired, line):
        before = await save_schedule(store)

        line.lose_answer_to("COMMIT")
        answer = await commit_tick(wired, before)

        assert answer.state is DONE
        assert answer.submitted is not None
        assert (answer.submitted.is_new, answer.submitted.run.id) == (True, TICK)
        assert line.accepted == 2
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 1
        assert (await commit_tick(wired, before)).state is CONFLICT

    async def test_a_tick_of_a_task_counts_once(self, store, wired, line):
        before, job = await save_schedule(store), new_job(namespace=NAMESPACE)
        line.lose_answer_to("COMMIT")
        answer = await commit_tick(wired, before, run=None, job=job)
        assert answer.state is DONE
        assert answer.inserted is not None
        assert (answer.inserted.id, line.accepted) == (job.id, 2)
        assert await store.queries.count_jobs(JobFilter(namespace=NAMESPACE)) == 1

    async def test_a_tick_that_was_not_written_is_written_then(self, store, wired, line):
        before = await save_schedule(store)

        line.lose_answer_to("lost on the way back")
        after = advanced(before, paused_by="lost on the way back")
        answer = await commit_tick(wired, before, schedule=after)

        assert answer.state is DONE
        assert line.accepted == 2
        assert await read_schedule(store) == after
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 1

    async def test_a_new_schedule_is_no_conflict_with_itself(self, store, wired, line):
        new = new_schedule()
        line.lose_answer_to("COMMIT")
        answer = await wired.schedules.commit(ScheduleCommit(schedule=new, expected=None))
        assert answer.state is DONE
        assert line.accepted == 2
        assert await read_schedule(store) == new

    async def test_a_run_of_a_cooling_flow_is_not_skipped_for_itself(self, store, wired, line):
        line.lose_answer_to("COMMIT")
        submitted = await wired.runs.submit(cooling_run())
        assert line.accepted == 2
        assert (submitted.is_new, submitted.run.status) == (True, RunStatus.RUNNING)
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 1


class TestLocks:
    async def test_who_comes_second_waits_and_starts_nothing(self, store, race):
        before = await save_schedule(store)
        second = commit_tick(store, before, run=new_run(id=RunId("late")))
        assert (await race("UPDATE {schema}.schedules SET revision = 1", second)).state is CONFLICT
        assert await store.queries.count_runs(RunFilter(namespace=NAMESPACE)) == 0

    async def test_flows_without_a_cooldown_do_not_wait(self, store, schema, admin):
        async with admin.transaction():
            place = f'perdure cooldown "{schema}" {NAMESPACE} orders'
            await admin.fetch("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", place)
            await asyncio.wait_for(store.runs.submit(new_run(id=RunId("free"))), 5)
            cooled = asyncio.create_task(store.runs.submit(cooling_run()))
            await until_blocked(admin, schema)
        assert (await cooled).run.status is RunStatus.RUNNING


# Ends that become visible later than the time that they wrote.


async def test_an_end_is_delivered_though_a_later_one_was_visible_first(
    postgres_url, admin, schema, monkeypatch
):
    monkeypatch.setattr(events, "POLL_SECONDS", 0.02)
    clock = ManualClock()
    async with opened(PostgresStore(postgres_url, clock=clock)) as store:
        late = await claim_new(store, namespace="default")
        async with AsyncClient(store) as client, asyncio.timeout(30):
            seen: asyncio.Queue[str | None] = asyncio.Queue()
            await client.events.subscribe(lambda event: seen.put_nowait(event.job))
            async with admin.transaction():
                await admin.execute(f"SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE", late.id)
                settling = asyncio.create_task(settle(store, late, Completed(output=b"1")))
                await until_blocked(admin, schema)
                clock.advance(timedelta(seconds=4))
                early = await claim_new(store, namespace="default")
                await settle(store, early, Completed(output=b"1"))
                assert await seen.get() == early.id
            await settling
            clock.advance(timedelta(seconds=2))
            assert await seen.get() == late.id
