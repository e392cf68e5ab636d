"""What happens when two write to the same runs or jobs at once, forced rather than hoped for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import CONTEXT, AsyncClient, AsyncContext, Flow, task
from perdure.errors import RunExists
from perdure.model.ids import RunId
from perdure.model.job import Claim, ClaimedJob
from perdure.model.outcome import Retried
from perdure.model.run import NodeSettlement, RunStatus
from perdure.store.postgres.store import PostgresStore
from perdure.testing.contract.builders import (
    CHILD,
    CONFLICT,
    DONE,
    FLOW,
    LEASE,
    MINUTE,
    NAMESPACE,
    RUN,
    STALE,
    WORKER,
    child_wait,
    claim_new_node,
    claim_nodes,
    commit,
    continues,
    event,
    failure,
    finishes,
    jobs_by_key,
    load,
    new_child,
    new_run,
    node_job,
    node_partition,
    read_run,
    retries,
    step,
    submit,
    timer,
    waits_by_key,
)
from perdure.testing.contract.places import due, queued_run, start
from tests.backends.postgres.line import row_held, until_blocked
from tests.client.harness import until, worker_at
from tests.support.stores import postgres_at

OTHER_RUN = RunId("order-43")
HOLDS_PLACE = """
    SELECT pg_advisory_xact_lock(
        hashtextextended('perdure place "{schema}" ' || $1 || ' ' || $2, 0)
    )
"""
ADVANCE = "UPDATE {schema}.runs SET number = number + 1, token = 1, updated_at = now()"
TAKES_AWAY = "UPDATE {schema}.jobs SET epoch = epoch + 1"
HOLDS_RUN = "SELECT FROM {schema}.runs WHERE id = $1 FOR UPDATE"
HOLDS_JOB = "SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE"
RENEWS = "UPDATE {schema}.jobs SET lease_until = lease_until + interval '1 minute'"


def settlement(held: Claim, fate: str) -> NodeSettlement:
    if fate == "ends":
        return finishes(held)
    if fate == "continues":
        return continues(held, node_job("label", partition=node_partition("print_label")))
    return retries(held, Retried(failure=failure()))


FATES = ["ends", "continues", "repeats"]


class TestCommit:
    """Each waits for a row, and has to judge by what the row has become meanwhile."""

    @pytest.mark.parametrize("fate", FATES)
    async def test_is_a_conflict_if_the_run_continued_meanwhile(self, store, race, fate):
        held = await claim_new_node(store)
        before = await jobs_by_key(store)
        settled = (settlement(held, fate),)
        result = await race(ADVANCE, commit(store, settlements=settled, jobs=(node_job(),)))
        assert result.state is CONFLICT
        assert len((await load(store)).events) == 1
        assert await jobs_by_key(store) == before

    @pytest.mark.parametrize("fate", FATES)
    async def test_is_stale_if_the_claim_was_taken_away_meanwhile(self, store, race, fate):
        held = await claim_new_node(store)
        run = await read_run(store)
        settled = (settlement(held, fate),)
        result = await race(TAKES_AWAY, commit(store, settlements=settled))
        assert (result.state, result.stale) == (STALE, (held,))
        assert await read_run(store) == run
        assert len((await load(store)).events) == 1
        assert list(await jobs_by_key(store)) == ["pack"]

    async def test_is_stale_if_the_job_was_removed_meanwhile(self, store, race):
        held = await claim_new_node(store)
        removes = "DELETE FROM {schema}.jobs"
        assert (await race(removes, commit(store, settlements=(finishes(held),)))).stale == (held,)
        assert (await read_run(store)).number == 1

    @pytest.mark.parametrize("fate,left", [("ends", []), ("continues", ["label"])])
    async def test_is_done_to_rows_that_changed_in_nothing_that_matters(
        self, store, race, fate, left
    ):
        held = await claim_new_node(store)
        changes = f"{RENEWS}; UPDATE {{schema}}.runs SET summary = 'theirs'"
        settled = (settlement(held, fate),)
        assert (await race(changes, commit(store, settlements=settled))).state is DONE
        run = await read_run(store)
        assert (run.number, run.summary) == (2, b"theirs")
        jobs = await jobs_by_key(store)
        assert list(jobs) == left
        assert all(job.lease_until for job in jobs.values())

    async def test_does_not_stop_others_of_its_batch(self, store, race):
        await submit(store)
        await submit(store, id=OTHER_RUN)
        steps = [step(), step(run=OTHER_RUN)]
        answer = await race(f"{ADVANCE} WHERE id = $1", store.runs.commit(steps), RUN)
        assert [result.state for result in answer.results] == [CONFLICT, DONE]
        assert len((await load(store, OTHER_RUN)).events) == 2

    async def test_makes_a_wait_due_that_changed_meanwhile(self, store, race, admin, schema):
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        suspends = "UPDATE {schema}.waits SET suspended = true"
        ending = commit(store, run=CHILD, status=RunStatus.COMPLETED)
        assert (await race(suspends, ending)).state is DONE
        [(suspended, due_at)] = await admin.fetch(f"SELECT suspended, due_at FROM {schema}.waits")
        assert suspended
        assert due_at is not None


class TestJobsOfTheRun:
    """Which jobs a commit locks: a claim skips them, so no more than it takes from the run."""

    async def test_are_not_locked_by_a_commit_that_is_too_late(self, store, admin, schema):
        """Finding 15: the loser of a race locked the jobs that the winner had just queued."""
        held = await claim_new_node(store)
        await commit(store, jobs=(node_job("label"),))

        async with row_held(admin, schema, (await jobs_by_key(store))["label"].id):
            late = step(settlements=(finishes(held),), cancel_all=True)
            async with asyncio.timeout(10):
                [result] = (await store.runs.commit([late])).results

        assert result.state is CONFLICT

    async def test_are_not_locked_by_a_commit_that_is_repeated(self, store, admin, schema):
        """Finding 15: its first try was written, and others have queued jobs since."""
        await submit(store)
        clearing = step(cancel_all=True, jobs=(node_job("label"),))
        await store.runs.commit([clearing])

        async with row_held(admin, schema, (await jobs_by_key(store))["label"].id):
            async with asyncio.timeout(10):
                [result] = (await store.runs.commit([clearing])).results

        assert result.state is DONE

    async def test_are_locked_only_if_their_keys_are_cancelled(self, store, admin, schema):
        """Finding 15: cancelling one key locked all jobs, and claims skipped the others."""
        await submit(store, jobs=(node_job("pack"), node_job("label")))
        async with row_held(admin, schema, (await jobs_by_key(store))["label"].id):
            async with asyncio.timeout(10):
                result = await commit(store, cancel_keys=("pack",))
        assert result.state is DONE
        assert list(await jobs_by_key(store)) == ["label"]

    async def test_are_not_locked_if_the_run_was_replaced_meanwhile(
        self, store, target, admin, schema
    ):
        """Finding 37: jobs of the new run were locked before the run itself: a deadlock."""
        await submit(store, jobs=(node_job("pack"),))
        replacing = new_run(on_existing="replace", jobs=(node_job("label"),))

        async with admin.transaction():
            await admin.execute(HOLDS_RUN.format(schema=schema), RUN)
            submitting = asyncio.create_task(target.runs.submit(replacing))
            await until_blocked(admin, schema)
            steps = [step(cancel_all=True), step(run=OTHER_RUN, cancel_all=True)]
            committing = asyncio.create_task(store.runs.commit(steps))
            await until_blocked(admin, schema, least=2)
        async with asyncio.timeout(10):
            await submitting
            answer = await committing

        assert [result.state for result in answer.results] == [CONFLICT, CONFLICT]
        assert list(await jobs_by_key(store)) == ["label"]


class TestActsAtOnce:
    """Two clients act on one run; the loser of the race must not delay what follows."""

    @pytest.fixture
    async def clients(self, postgres_url: str) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
        async with AsyncClient(postgres_url) as one, AsyncClient(postgres_url) as other:
            yield one, other

    @pytest.mark.parametrize("act", ["report", "decide"])
    async def test_start_the_next_node_within_a_second(self, postgres_url, clients, act):
        """Finding 15: 34 of 60 pairs of reports, and 11 of 60 of decisions, waited for the poll."""
        started: asyncio.Queue[None] = asyncio.Queue()

        @task
        async def work(_: Any, ctx: AsyncContext = CONTEXT) -> None:
            await ctx.pause()

        @task
        async def follow(_: Any) -> None:
            started.put_nowait(None)

        first = Flow("raced")
        if act == "report":
            flow = first.then(work).then(follow).build()
        else:
            asked = first.approve("Go?", name="ok", deciders=["ann"], escalate={"2d": ["bob"]})
            flow = asked.then(follow).build()
        async with worker_at(postgres_url, [flow], poll="10m"):
            for _ in range(20):
                run = await clients[0].submit(flow)
                await until(run, RunStatus.WAITING)
                acts = [
                    client.runs.report(run.id, "work", status="completed")
                    if act == "report"
                    else client.approvals.decide(f"{run.id}:ok", "approve", by="ann")
                    for client in clients
                ]
                ended = await asyncio.gather(*acts, return_exceptions=True)
                assert not all(isinstance(each, Exception) for each in ended)
                await asyncio.wait_for(started.get(), 1)
                await run.result(10)


class TestReplacing:
    async def test_the_same_ids_at_once_deadlocks_nowhere(self, postgres_url, admin):
        """Finding 37: replacing and cancelling runs of the same ids, also under a worker."""
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        before = await admin.fetchval(deadlocks)

        async def replace_in_turn(number: int) -> None:
            store = PostgresStore(postgres_url)
            await store.open()
            for at in range(60):
                run = RunId(f"order-{at % 3}")
                jobs = tuple(node_job(f"{number}#{each}", run=run) for each in range(3))
                await store.runs.submit(new_run(id=run, jobs=jobs, on_existing="replace"))
                await store.runs.commit([step(run=run, cancel_all=True)])
            await store.close()  # a connection adds its count to the server's when it ends

        claimed = 0

        async def work() -> None:
            nonlocal claimed
            async with postgres_at(postgres_url) as store:
                while not is_over.is_set():
                    jobs = await claim_nodes(store, limit=5)
                    claimed += len(jobs)
                    await store.jobs.renew(WORKER, [job.claim for job in jobs], LEASE)
                    steps = [
                        step(run=node_of(job), settlements=(finishes(job.claim),)) for job in jobs
                    ]
                    await store.runs.commit(steps)
                    await store.runs.save_definition(NAMESPACE, FLOW, f"v{claimed}", b"{}")
                    await store.maintenance.prune_definitions(NAMESPACE, timedelta(0), 5)

        is_over = asyncio.Event()
        working = [asyncio.create_task(work()) for _ in range(2)]
        await asyncio.gather(*(replace_in_turn(number) for number in range(6)))
        is_over.set()
        await asyncio.gather(*working)

        assert claimed > 0
        assert await admin.fetchval(deadlocks) == before


class TestBatches:
    """A transaction that holds one row and waits for the next must not deadlock with its holder.

    The server breaks up no deadlock of these stores, so that one would last.
    """

    @pytest.fixture
    async def store(self, postgres_url: str) -> AsyncIterator[PostgresStore]:
        async with postgres_at(postgres_url, options="-c deadlock_timeout=1h") as store:
            yield store

    async def test_lock_runs_in_one_order(self, store, target, admin, schema):
        runs = [RunId(f"order-{number}") for number in range(1, 6)]
        for run in runs:
            await submit(store, id=run)
        steps, opposite = ([step(run=run) for run in order] for order in (runs, runs[::-1]))

        async with admin.transaction():
            await admin.execute(HOLDS_RUN.format(schema=schema), runs[2])
            first = asyncio.create_task(store.runs.commit(steps))
            await until_blocked(admin, schema)
            second = asyncio.create_task(target.runs.commit(opposite))
            await until_blocked(admin, schema, least=2)
        async with asyncio.timeout(10):
            answers = await asyncio.gather(first, second)

        states = [{result.state for result in answer.results} for answer in answers]
        assert states == [{DONE}, {CONFLICT}]

    async def test_lock_settled_jobs_in_one_order(self, store, target, admin, schema):
        runs = [RunId(f"order-{number}") for number in range(1, 6)]
        for run in reversed(runs):  # so that ids of jobs and of runs are in opposite orders
            await submit(store, id=run, jobs=(node_job(run=run),))
        held = await claim_nodes(store)
        steps = [step(run=node_of(job), settlements=(finishes(job.claim),)) for job in held]
        claims = [job.claim for job in held]

        async with admin.transaction():
            await admin.execute(HOLDS_JOB.format(schema=schema), claims[2].id)
            committing = asyncio.create_task(store.runs.commit(steps))
            await until_blocked(admin, schema)
            renewing = asyncio.create_task(target.jobs.renew(WORKER, claims, LEASE))
            await until_blocked(admin, schema, least=2)
        async with asyncio.timeout(10):
            answer, renewal = await asyncio.gather(committing, renewing)

        assert {result.state for result in answer.results} == {DONE}
        assert renewal.lost == {claim.id for claim in claims}

    async def test_lock_jobs_that_are_taken_away_in_the_same_order(
        self, store, target, admin, schema
    ):
        await submit(store, jobs=tuple(node_job(f"pack#{number}") for number in range(5)))
        claims = [job.claim for job in await claim_nodes(store)]

        async with admin.transaction():
            await admin.execute(HOLDS_JOB.format(schema=schema), claims[2].id)
            renewing = asyncio.create_task(target.jobs.renew(WORKER, claims, LEASE))
            await until_blocked(admin, schema)
            settled = (finishes(claims[-1]),)
            clearing = asyncio.create_task(commit(store, settlements=settled, cancel_all=True))
            await until_blocked(admin, schema, least=2)
        async with asyncio.timeout(10):
            renewal, result = await asyncio.gather(renewing, clearing)

        assert renewal.lost == frozenset()
        assert result.state is DONE
        assert await jobs_by_key(store) == {}

    async def test_of_one_run_come_one_after_the_other(self, store):
        await submit(store)
        answer = await store.runs.commit([step(1), step(2), step(2)])
        assert [result.state for result in answer.results] == [DONE, DONE, CONFLICT]
        assert (await read_run(store)).number == 3


class TestSubmit:
    @pytest.mark.parametrize("is_committed", [True, False])
    async def test_waits_for_one_of_the_same_id_that_is_under_way(
        self, store, admin, schema, is_committed
    ):
        await submit(store, id=OTHER_RUN)
        transaction = admin.transaction()
        await transaction.start()
        await admin.execute(f"UPDATE {schema}.runs SET id = $1", RUN)
        submitting = asyncio.create_task(store.runs.submit(new_run(events=(event("mine"),))))
        await until_blocked(admin, schema)
        await (transaction.commit() if is_committed else transaction.rollback())

        if is_committed:
            with pytest.raises(RunExists):
                await submitting
        else:
            assert (await submitting).is_new

    async def test_replaces_a_run_that_is_being_replaced(self, store, target, admin, schema):
        held = await claim_new_node(store)
        mine, theirs = (
            new_run(on_existing="replace", events=(event(name),), jobs=(node_job(name),))
            for name in ("mine", "theirs")
        )

        async with admin.transaction():
            await admin.execute(f"SELECT FROM {schema}.runs FOR UPDATE")
            submitting = [
                asyncio.create_task(store.runs.submit(mine)),
                asyncio.create_task(target.runs.submit(theirs)),
            ]
            await until_blocked(admin, schema)
        submitted = await asyncio.gather(*submitting)

        assert all(each.is_new for each in submitted)
        assert (await store.jobs.check([held])).lost == {held.id}
        loaded = await load(store)
        [key] = await jobs_by_key(store)
        assert loaded.events[0].data == event(key).data
        assert await admin.fetchval(f"SELECT count(*) FROM {schema}.events") == 1

    async def test_frees_the_place_of_a_run_that_replaced_the_one_it_was_to_replace(
        self, store, target, admin, schema
    ):
        await submit(store)
        replacing = queued_run(RUN, key="mine", on_existing="replace")

        async with admin.transaction():
            await admin.execute(HOLDS_PLACE.format(schema=schema), NAMESPACE, replacing.place_key)
            submitting = asyncio.create_task(target.runs.submit(replacing))
            await until_blocked(admin, schema)
            theirs = queued_run(RUN, key="theirs", on_existing="replace")
            await store.runs.submit(theirs)
            await store.runs.submit(queued_run(OTHER_RUN, key="theirs"))
            assert await start(store, RUN, "theirs") is DONE
            assert await due(store) == set()
        async with asyncio.timeout(10):
            await submitting

        assert await due(store) == {RUN, OTHER_RUN}


class TestLostAnswers:
    async def test_a_commit_whose_answer_was_lost_counts_once(self, store, wired, line):
        held = await claim_new_node(store)
        settled = (continues(held, node_job("label")),)

        line.lose_answer_to("lost on the way back")
        result = await commit(
            wired,
            settlements=settled,
            jobs=(node_job("stamp"),),
            events=(event("lost on the way back"),),
        )

        assert result.state is DONE
        assert line.accepted == 2
        assert len((await load(store)).events) == 2
        assert sorted(await jobs_by_key(store)) == ["label", "stamp"]

    async def test_a_commit_that_opens_waits_counts_once(self, store, wired, line):
        held = await claim_new_node(store)
        waits, children = (child_wait(), timer(delay=MINUTE)), (new_child(),)

        line.lose_answer_to("COMMIT")
        result = await commit(wired, settlements=(finishes(held),), waits=waits, children=children)

        assert result.state is DONE
        assert line.accepted == 2
        assert len((await load(store)).events) == 2
        assert len((await load(store, CHILD)).events) == 1
        assert sorted(await waits_by_key(store)) == ["delay", "ship"]

    async def test_a_submission_whose_answer_was_lost_is_new(self, store, wired, line):
        run = new_run(events=(event("lost on the way back"),), jobs=(node_job(),))

        line.lose_answer_to("lost on the way back")
        submitted = await wired.runs.submit(run)

        assert submitted.is_new
        assert line.accepted == 2
        assert list(await jobs_by_key(store)) == ["pack"]
        with pytest.raises(RunExists):
            await wired.runs.submit(run)

    async def test_a_commit_is_recognised_after_others_have_followed(self, store):
        await submit(store)
        first = step()
        await store.runs.commit([first])
        await commit(store, 2)
        answer = await store.runs.commit([first, step(3, run=OTHER_RUN)])
        assert [result.state for result in answer.results] == [DONE, CONFLICT]
        assert (await read_run(store)).number == 3


def node_of(job: ClaimedJob) -> RunId:
    assert job.node is not None
    return job.node.run
