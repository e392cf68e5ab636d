"""Jobs of runs: written by commits, paused with their run, commanded only through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.errors import InvalidInput, JobBelongsToRun
from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, Claim, ClaimedJob, Job, JobFilter, NodeRef, Progress, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Requeued,
    Retried,
    Settlement,
)
from perdure.model.partition import UNSUSPECTED, Suspicion
from perdure.model.run import CommitResult, CommitState
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    CANCELLED,
    CHILD,
    COMPLETED,
    DONE,
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    NODE_PARTITION,
    OTHER_NAMESPACE,
    OTHER_WORKER,
    PAUSED,
    RUN,
    SECOND,
    SUSPECTED,
    WORKER,
    child_wait,
    claim,
    claim_new,
    claim_new_node,
    claim_node,
    claim_nodes,
    commit,
    commit_next,
    continues,
    due_keys,
    failure,
    finishes,
    insert,
    is_still_claimed,
    job_record,
    jobs_by_key,
    new_child,
    node_job,
    node_partition,
    read_job,
    read_run,
    retries,
    settle,
    step,
    submit,
    timer,
    waits_by_key,
)

# Settled and inserted by a commit


FAR = datetime.max.replace(tzinfo=UTC)
LONG = timedelta.max


class TestAJobThatFinishes:
    async def test_leaves_the_queue(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        result = await commit(store, settlements=(finishes(claimed),))

        assert result == CommitResult(state=DONE)
        assert await job_record(store, claimed.id) == (None, None, [])
        assert await store.queries.run_jobs(NAMESPACE, RUN) == []
        assert not await is_still_claimed(store, claimed)

    async def test_leaves_no_history_behind(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        await commit_next(store, settlements=(retries(claimed, Retried(failure=failure())),))
        claimed = await claim_node(store)

        await commit_next(store, settlements=(finishes(claimed),))

        assert await store.queries.failed_attempts(claimed.id) == []

    async def test_makes_room_under_its_limits(self, store: Store) -> None:
        rules = (LimitRule(key="scale", live_max=1),)
        await submit(store, jobs=(node_job("pack[0]"), node_job("pack[1]")))
        claimed = await claim_node(store, rules=rules)
        assert await claim_nodes(store, rules=rules) == []

        await commit_next(store, settlements=(finishes(claimed),))

        assert len(await claim_nodes(store, rules=rules)) == 1

    async def test_may_end_with_others_of_its_run(self, store: Store) -> None:
        await submit(store, jobs=tuple(node_job(f"pack[{item}]") for item in range(5)))
        jobs = await claim_nodes(store)

        await commit_next(store, settlements=tuple(finishes(job.claim) for job in jobs[:4]))

        assert [job.id for job in await store.queries.run_jobs(NAMESPACE, RUN)] == [
            jobs[4].claim.id
        ]


class TestAJobThatContinues:
    async def test_takes_all_of_the_new_job_but_its_id(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new_node(store)
        leased_until = (await read_job(store, claimed.id)).lease_until
        clock.advance(SECOND)
        partition = node_partition("send_parcel", tags=("truck",))
        new = node_job(
            "send#2", partition=partition, priority=1, input=b'[["parcel"],{}]', policy=b"p"
        )

        await commit_next(store, settlements=(continues(claimed, new),))

        assert await read_job(store, claimed.id) == Job(
            id=claimed.id,
            namespace=NAMESPACE,
            queue="packing",
            task="send_parcel",
            tags=("truck",),
            status=Status.ACTIVE,
            priority=1,
            group=None,
            fingerprint=None,
            attempt=1,
            failures=0,
            snoozes=0,
            crashes=0,
            max_attempts=None,
            worker=WORKER,
            epoch=claimed.epoch,
            progress=Progress(percent=0),
            created_at=clock(),
            ready_at=clock(),
            deadline_at=None,
            started_at=clock(),
            finished_at=None,
            lease_until=leased_until,
            input=b'[["parcel"],{}]',
            node=NodeRef(run=RUN, key="send#2"),
        )
        assert await store.queries.get_job(None, new.id) is None

    async def test_stays_with_its_worker_under_the_same_claim(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        await commit_next(store, settlements=(continues(claimed, node_job("next")),))

        assert await is_still_claimed(store, claimed)
        assert await claim_nodes(store) == []
        await commit_next(store, settlements=(finishes(claimed),))
        assert await store.queries.run_jobs(NAMESPACE, RUN) == []

    async def test_is_as_if_just_started(self, store: Store, clock: ManualClock) -> None:
        await submit(store, jobs=(node_job(max_attempts=3),))
        for crashes in range(2):
            await claim_node(store, suspicion=Suspicion(crashes=crashes))
            clock.advance(LEASE)
            await store.maintenance.take_over_expired(NAMESPACE, 10)
        suspicion = Suspicion(crashes=2)
        claimed = await claim_node(store, suspicion=suspicion)
        await commit_next(
            store,
            settlements=(retries(claimed, Retried(failure=failure(), is_snoozed=True)),),
        )
        claimed = await claim_node(store, suspicion=suspicion)
        await store.jobs.save_progress([(claimed, Progress(percent=40, message="half"))])
        await commit_next(store, settlements=(retries(claimed, Retried(failure=failure())),))
        claimed = await claim_node(store, suspicion=suspicion, is_alone=True)
        before = await read_job(store, claimed.id)
        assert (before.attempt, before.failures, before.crashes) == (5, 1, 2)

        await commit_next(store, settlements=(continues(claimed, node_job("next")),))

        after = await read_job(store, claimed.id)
        assert (after.attempt, after.failures, after.crashes) == (1, 0, 0)
        assert after.suspicion == UNSUSPECTED
        assert (after.max_attempts, after.progress) == (None, Progress(percent=0))
        assert await store.queries.failed_attempts(claimed.id) == []
        await settle(store, claimed, Requeued())
        [again] = await claim_nodes(store)
        assert (again.attempt, again.failures, again.snoozes, again.crashes) == (1, 0, 0, 0)

    async def test_goes_back_to_the_queue_as_what_it_became(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new_node(store)
        clock.advance(MINUTE)
        partition = node_partition("send_parcel")
        new = node_job("send", partition=partition, priority=2, policy=b"p", input=b'[["x"],{}]')
        await submit(store, id=RunId("other"), jobs=(node_job(partition=partition, priority=2),))
        clock.advance(SECOND)
        await commit_next(store, settlements=(continues(claimed, new),))

        await settle(store, claimed, Requeued())

        [first, second] = await claim_nodes(store, partition)
        assert second.claim.id == claimed.id, "its rank is that of a job which came now"
        assert (second.partition, second.node, second.priority) == (partition, new.node, 2)
        assert (second.input, second.policy) == (new.input, b"p")
        assert (second.attempt, second.claim.epoch) == (1, claimed.epoch + 1)
        assert first.claim.id != claimed.id

    async def test_keeps_its_lease(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new_node(store)
        clock.advance(LEASE - SECOND)
        await commit_next(store, settlements=(continues(claimed, node_job("next")),))
        clock.advance(SECOND)

        [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10)

        assert (taken.id, taken.partition, taken.attempt) == (claimed.id, NODE_PARTITION, 1)

    async def test_frees_the_limits_that_it_counted_under(self, store: Store) -> None:
        """Only a claim counts a job under limits, so it continues only where there are none."""
        rules = (LimitRule(key="scale", live_max=1),)
        await submit(store, jobs=(node_job("pack[0]"), node_job("pack[1]")))
        claimed = await claim_node(store, rules=rules)

        await commit_next(
            store,
            settlements=(continues(claimed, node_job("n", partition=node_partition("free"))),),
        )

        assert len(await claim_nodes(store, rules=rules)) == 1

    async def test_is_no_longer_held_off_from_the_worker_that_failed_it(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        retried = Retried(failure=failure(), hold_off=HOUR)
        await commit_next(store, settlements=(retries(claimed, retried),))
        claimed = await claim_node(store, worker=OTHER_WORKER)
        await commit_next(store, settlements=(continues(claimed, node_job("next")),))

        await settle(store, claimed, Requeued())

        assert len(await claim_nodes(store, worker=WORKER)) == 1

    async def test_is_found_under_its_new_key_alone(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        await commit_next(store, settlements=(continues(claimed, node_job("next")),))

        await commit_next(store, cancel_keys=("pack",))
        assert await is_still_claimed(store, claimed)
        await commit_next(store, cancel_keys=("next",))
        assert not await is_still_claimed(store, claimed)


class TestAJobThatIsRetried:
    async def test_goes_back_to_the_queue_with_its_failure(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new_node(store)
        clock.advance(SECOND)

        await commit_next(
            store, settlements=(retries(claimed, Retried(failure=failure("jammed"))),)
        )

        job = await read_job(store, claimed.id)
        assert (job.status, job.attempt, job.failures) == (Status.WAITING, 1, 1)
        assert (job.worker, job.lease_until, job.ready_at) == (None, None, clock())
        [failed] = await store.queries.failed_attempts(claimed.id)
        assert (failed.attempt, failed.worker, failed.at) == (1, WORKER, clock())
        assert failed.failure == failure("jammed")
        assert not await is_still_claimed(store, claimed)
        [again] = await claim_nodes(store)
        assert (again.attempt, again.failures, again.node) == (2, 1, NodeRef(run=RUN, key="pack"))

    async def test_waits_out_its_delay(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new_node(store)

        await commit_next(
            store, settlements=(retries(claimed, Retried(failure=failure(), delay=MINUTE)),)
        )

        job = await read_job(store, claimed.id)
        assert (job.status, job.ready_at) == (Status.SCHEDULED, clock() + MINUTE)
        clock.advance(MINUTE)
        assert await store.maintenance.promote_due(NAMESPACE, 10) == 1
        assert len(await claim_nodes(store)) == 1

    async def test_counts_a_postponement_and_closes_the_limit_it_names(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await claim_new_node(store)
        retried = Retried(
            failure=failure("429"), delay=MINUTE, is_snoozed=True, closes_limit="smtp"
        )

        await commit_next(store, settlements=(retries(held, retried),), jobs=(node_job("beside"),))

        claimed = await claim(
            store,
            NODE_PARTITION,
            namespace=NAMESPACE,
            rules=(LimitRule(key="smtp", live_max=9),),
        )
        assert (claimed.jobs, claimed.opens_at) == ([], clock() + MINUTE)
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 10)
        again = {job.claim.id: job for job in await claim_nodes(store)}[held.id]
        assert (again.failures, again.snoozes) == (0, 1)

    async def test_is_left_to_other_workers_for_a_while(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        retried = Retried(failure=failure(), hold_off=MINUTE)

        await commit_next(store, settlements=(retries(claimed, retried),))

        assert await claim_nodes(store, worker=WORKER) == []
        assert len(await claim_nodes(store, worker=OTHER_WORKER)) == 1


class TestNewJobsOfACommit:
    async def test_are_inserted_beside_what_it_settles(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new_node(store)
        soon, later = node_job("a"), node_job("b", delay=HOUR)

        await commit_next(store, settlements=(finishes(claimed),), jobs=(soon, later))

        jobs = await jobs_by_key(store)
        assert {key: (job.id, job.status, job.epoch) for key, job in jobs.items()} == {
            "a": (soon.id, Status.WAITING, 0),
            "b": (later.id, Status.SCHEDULED, 0),
        }
        assert jobs["b"].ready_at == clock() + HOUR
        assert await claim_node(store) == Claim(id=soon.id, epoch=1)

    async def test_are_inserted_by_the_thousand(self, store: Store) -> None:
        await submit(store)

        await commit_next(store, jobs=tuple(node_job(f"pack[{item}]") for item in range(2000)))

        assert len(await store.queries.run_jobs(NAMESPACE, RUN)) == 2000
        assert len(await claim_nodes(store, limit=1500)) == 1500


class TestATimeOutOfReach:
    @pytest.mark.parametrize("change", [{"deadline_at": FAR}, {"run_at": FAR}, {"delay": LONG}])
    async def test_of_a_job_that_continues_is_refused(
        self, store: Store, change: dict[str, Any]
    ) -> None:
        """Finding 32: PostgreSQL did not check the times of a job that continues in place."""
        claimed = await claim_new_node(store)
        before = await job_record(store, claimed.id)

        result = await commit(store, settlements=(continues(claimed, node_job("next", **change)),))

        assert (result.state, type(result.refusal)) == (CommitState.REFUSED, InvalidInput)
        assert await job_record(store, claimed.id) == before
        assert (await read_run(store)).number == 1

    async def test_fails_its_own_commit_only(self, store: Store, clock: ManualClock) -> None:
        """Finding 32: one out-of-range time failed a whole batch of commits."""
        other, third = RunId("other"), RunId("third")
        rules = (LimitRule(key="scale", live_max=5),)
        claimed = await claim_new_node(store)
        await submit(store, id=other)
        await submit(store, id=third)
        retried = Retried(failure=failure(), delay=HOUR, closes_limit="scale")
        child = new_child(jobs=(node_job("deep", run=CHILD, delay=LONG),))

        answer = await store.runs.commit(
            [
                step(1, run=third, waits=(child_wait(),), children=(child,)),
                step(1, settlements=(retries(claimed, retried),)),
                step(1, run=other, jobs=(node_job("next", run=other, delay=LONG),)),
            ]
        )

        refused, done = CommitState.REFUSED, CommitState.DONE
        assert [each.state for each in answer.results] == [refused, done, refused]
        numbers = [(await read_run(store, id)).number for id in (RUN, other, third)]
        assert numbers == [2, 1, 1]
        [usage] = await store.queries.limit_usage(NAMESPACE, rules)
        assert usage.usage.closed_until == clock() + HOUR


# Paused and resumed with their run


class TestPausingARun:
    async def test_parks_its_jobs_as_paused(self, store: Store) -> None:
        await submit(store, jobs=(node_job("now"), node_job("later", delay=MINUTE)))
        before = await jobs_by_key(store)

        await commit_next(store, suspend=True, status=PAUSED)

        assert await jobs_by_key(store) == {
            key: replace(job, status=Status.PAUSED) for key, job in before.items()
        }
        assert await claim_nodes(store) == []

    async def test_takes_claimed_jobs_from_their_workers_with_their_attempt_back(
        self, store: Store
    ) -> None:
        claimed = await claim_new_node(store)
        before = await read_job(store, claimed.id)

        await commit_next(store, suspend=True, status=PAUSED)

        assert await read_job(store, claimed.id) == replace(
            before,
            status=Status.PAUSED,
            attempt=0,
            epoch=claimed.epoch + 1,
            worker=None,
            lease_until=None,
        )
        assert not await is_still_claimed(store, claimed)
        assert (await commit(store, 2, settlements=(finishes(claimed),))).stale == (claimed,)

    async def test_makes_room_under_limits(self, store: Store) -> None:
        rules = (LimitRule(key="scale", live_max=1),)
        await submit(store, jobs=(node_job(),))
        await claim_node(store, rules=rules)
        other = RunId("other")
        await submit(store, id=other, jobs=(node_job(run=other),))

        await commit_next(store, suspend=True, status=PAUSED)

        [claimed] = await claim_nodes(store, rules=rules)
        assert claimed.node is not None
        assert claimed.node.run == other

    async def test_keeps_its_jobs_from_being_promoted(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job(delay=SECOND),))
        await commit_next(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        assert await store.maintenance.promote_due(NAMESPACE, 10) == 0
        assert (await store.maintenance.poll(NAMESPACE)).next_due_at is None

    async def test_keeps_its_waits_from_becoming_due(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(timer(delay=MINUTE), timer("due", delay=SECOND)))
        before = await waits_by_key(store)
        clock.advance(SECOND)
        await commit_next(store, suspend=True, status=PAUSED)
        clock.advance(HOUR)

        assert await due_keys(store) == []
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at is None
        assert await waits_by_key(store) == before

    async def test_keeps_the_end_of_a_child_for_later(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        await commit_next(store, suspend=True, status=PAUSED)
        await commit_next(store, run=CHILD, status=COMPLETED)
        ended_at = clock()
        clock.advance(SECOND)

        assert await due_keys(store) == []
        await commit_next(store, suspend=False)
        [wait] = await store.maintenance.due_waits(NAMESPACE, 10)
        assert (wait.key, wait.due_at) == ("ship", ended_at)

    async def test_leaves_other_runs_alone(self, store: Store, clock: ManualClock) -> None:
        other = RunId("other")
        await submit(store, jobs=(node_job(),), waits=(timer(delay=SECOND),))
        await submit(
            store, id=other, jobs=(node_job(run=other),), waits=(timer("theirs", delay=SECOND),)
        )

        await commit_next(store, suspend=True, status=PAUSED)
        clock.advance(SECOND)

        [claimed] = await claim_nodes(store)
        assert claimed.node is not None
        assert claimed.node.run == other
        assert await due_keys(store) == ["theirs"]

    async def test_changes_nothing_more_when_done_twice(self, store: Store) -> None:
        await claim_new_node(store)
        await commit_next(store, suspend=True, status=PAUSED)
        before = await jobs_by_key(store)

        await commit_next(store, suspend=True, status=PAUSED)

        assert await jobs_by_key(store) == before

    async def test_lasts_over_other_commits(self, store: Store, clock: ManualClock) -> None:
        await submit(store, jobs=(node_job(),), waits=(timer(delay=SECOND),))
        await commit_next(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        await commit_next(store, status=PAUSED)

        assert await claim_nodes(store) == []
        assert await due_keys(store) == []


class TestResumingARun:
    async def test_puts_jobs_back_in_their_place(self, store: Store, clock: ManualClock) -> None:
        other = RunId("other")
        await submit(store, jobs=(node_job("first"), node_job("second")))
        clock.advance(SECOND)
        await submit(store, id=other, jobs=(node_job("third", run=other),))
        claimed = await claim_node(store)
        before = await jobs_by_key(store)
        await commit_next(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        await commit_next(store, suspend=False)

        after = await jobs_by_key(store)
        assert after["second"] == before["second"]
        assert (after["first"].status, after["first"].ready_at) == (
            Status.WAITING,
            before["first"].ready_at,
        )
        again = await claim_nodes(store)
        assert [job.node.key for job in again if job.node] == ["first", "second", "third"]
        assert (again[0].attempt, again[0].claim.id) == (1, claimed.id)
        assert again[0].claim.epoch > claimed.epoch

    async def test_schedules_jobs_whose_time_lies_ahead(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job("soon", delay=MINUTE), node_job("late", delay=HOUR)))
        await commit_next(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        await commit_next(store, suspend=False)

        assert {key: job.status for key, job in (await jobs_by_key(store)).items()} == {
            "soon": Status.WAITING,
            "late": Status.SCHEDULED,
        }

    async def test_lets_waits_become_due_again(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer(delay=MINUTE), timer("late", delay=HOUR)))
        before = await waits_by_key(store)
        await commit_next(store, suspend=True, status=PAUSED)
        clock.advance(2 * MINUTE)

        await commit_next(store, suspend=False)

        assert await due_keys(store) == ["delay"]
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == before["delay"].due_at
        assert await waits_by_key(store) == before

    async def test_takes_back_jobs_that_a_worker_released(self, store: Store) -> None:
        """No operator command reaches it: those act on the run."""
        claimed = await claim_new_node(store)
        assert await settle(store, claimed, Parked()) is Status.PAUSED

        await commit_next(store, suspend=False)

        assert (await read_job(store, claimed.id)).status is Status.WAITING

    async def test_changes_nothing_where_nothing_is_suspended(self, store: Store) -> None:
        await submit(
            store,
            jobs=(
                node_job("a"),
                node_job("b", delay=HOUR),
                node_job("c", partition=node_partition("c")),
            ),
            waits=(timer(delay=HOUR),),
        )
        claimed = await claim_node(store, node_partition("c"))
        before = await jobs_by_key(store), await waits_by_key(store)

        await commit_next(store, suspend=False)

        assert (await jobs_by_key(store), await waits_by_key(store)) == before
        assert await is_still_claimed(store, claimed)


class TestCancellingAPausedRun:
    async def test_takes_everything_away_and_lets_its_children_be_looked_after(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(
            store,
            jobs=(node_job(),),
            waits=(timer(delay=SECOND), child_wait()),
            children=(new_child(),),
        )
        await commit_next(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        await commit_next(store, cancel_all=True, status=CANCELLED)

        assert await store.queries.run_jobs(NAMESPACE, RUN) == []
        assert await due_keys(store) == ["ship"]

    async def test_holds_nothing_that_is_started_afterwards(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job(),), waits=(timer(delay=SECOND),))
        await commit_next(store, suspend=True, status=PAUSED)

        await commit_next(store, cancel_all=True, jobs=(node_job("undo:pack"),))
        await commit_next(store, waits=(timer("again", delay=SECOND),))
        clock.advance(SECOND)

        assert len(await claim_nodes(store)) == 1
        assert await due_keys(store) == ["again"]


# Claimed and taken over as any other job, but commanded only through their run


MAX_CRASHES = 3

Command = Callable[[Store, list[JobId]], Awaitable[object]]
COMMANDS: dict[str, Command] = {
    "abort": lambda store, ids: store.admin.change_jobs(Transition.ABORT, None, ids),
    "abort here": lambda store, ids: store.admin.change_jobs(Transition.ABORT, NAMESPACE, ids),
    "disable": lambda store, ids: store.admin.change_jobs(Transition.DISABLE, None, ids),
    "enable": lambda store, ids: store.admin.change_jobs(Transition.ENABLE, None, ids),
    "retry": lambda store, ids: store.admin.change_jobs(Transition.RETRY, None, ids),
    "resume": lambda store, ids: store.admin.change_jobs(Transition.RESUME, None, ids),
}


class TestClaimingAJobOfARun:
    async def test_returns_all_of_its_fields(self, store: Store, clock: ManualClock) -> None:
        job = node_job("pack#2[7]", priority=2, max_attempts=5, policy=b"p", group="g")
        await submit(store, jobs=(job,))
        created_at = clock()
        clock.advance(SECOND)

        [claimed] = await claim_nodes(store)

        assert claimed == ClaimedJob(
            claim=claimed.claim,
            namespace=NAMESPACE,
            partition=NODE_PARTITION,
            input=job.input,
            attempt=1,
            failures=0,
            snoozes=0,
            max_attempts=5,
            policy=b"p",
            group="g",
            deadline_at=None,
            created_at=created_at,
            priority=2,
            crashes=0,
            node=NodeRef(run=RUN, key="pack#2[7]"),
        )

    async def test_is_left_to_workers_that_have_its_version(self, store: Store) -> None:
        await submit(store, jobs=(node_job(),))

        assert await claim_nodes(store, node_partition(version="v2")) == []
        assert await claim_nodes(store, node_partition(flow="")) == []
        assert len(await claim_nodes(store, node_partition())) == 1

    async def test_comes_in_one_order_with_others_by_urgency(self, store: Store) -> None:
        partition = node_partition(flow="")
        await submit(store, jobs=(node_job(priority=3),))
        plain = await insert(store, namespace=NAMESPACE, partition=partition, priority=4)
        urgent = await insert(store, namespace=NAMESPACE, partition=partition, priority=2)

        claimed = await claim_nodes(store, NODE_PARTITION, partition)

        assert [job.claim.id for job in claimed][::2] == [urgent, plain]
        assert [job.node for job in claimed] == [None, NodeRef(run=RUN, key="pack"), None]
        assert [job.priority for job in claimed] == [2, 3, 4]

    async def test_is_undone_by_requeuing_it(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        assert await settle(store, claimed, Requeued()) is Status.WAITING

        [again] = await claim_nodes(store)
        assert (again.claim.id, again.attempt) == (claimed.id, 1)
        assert again.node == NodeRef(run=RUN, key="pack")

    @pytest.mark.parametrize(
        "outcome",
        [
            Completed(output=b"1"),
            Failed(failure=failure()),
            DeadLettered(failure=failure()),
            Cancelled(),
        ],
        ids=lambda outcome: type(outcome).__name__,
    )
    async def test_is_ended_only_by_a_commit_of_its_run(
        self, store: Store, outcome: Outcome
    ) -> None:
        claimed = await claim_new_node(store)
        plain = await claim_new(store, namespace=NAMESPACE, partition=node_partition(flow=""))

        settlements = [Settlement(claim=each, outcome=outcome) for each in (claimed, plain)]
        [refused, settled] = await store.jobs.settle(settlements)

        assert refused is None
        assert settled in FINISHED
        assert await is_still_claimed(store, claimed)
        assert await store.queries.failed_attempts(claimed.id) == []

    async def test_is_requeued_if_its_worker_does_not_know_it(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        assert await store.jobs.requeue_unknown(WORKER, []) == 1

        assert not await is_still_claimed(store, claimed)
        assert len(await claim_nodes(store)) == 1

    async def test_returns_the_crashes_of_a_plain_job_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        await claim_new(store, namespace=NAMESPACE, partition=node_partition(flow=""), priority=5)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)

        [again] = await claim_nodes(store, node_partition(flow=""), suspicion=SUSPECTED)

        assert (again.crashes, again.priority, again.node) == (1, 5, None)


class TestInsertingAJobOfARun:
    async def test_keeps_what_it_executes(self, store: Store) -> None:
        job = node_job("check:poll#3")

        await store.jobs.insert([job])

        assert (await read_job(store, job.id)).node == NodeRef(run=RUN, key="check:poll#3")
        [listed] = await store.queries.list_jobs(JobFilter(), 10)
        assert listed.node == job.node


class TestTakingOverAJobOfARun:
    async def test_never_dead_letters_it_and_counts_its_crashes(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job(),))
        afters, crashes = [], []
        for number in range(5):
            [job] = await claim_nodes(store, suspicion=Suspicion(crashes=number))
            crashes.append(job.crashes)
            clock.advance(LEASE)
            [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10)
            afters.append(taken.after)

        assert set(afters) == {Status.WAITING}
        assert crashes == [0, 1, 2, 3, 4]
        [job_left] = await store.queries.run_jobs(NAMESPACE, RUN)
        assert (job_left.status, job_left.crashes) == (Status.WAITING, 5)

    async def test_treats_plain_jobs_alike(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new_node(store)
        plain = await claim_new(store, namespace=NAMESPACE)
        clock.advance(MINUTE)

        taken = await store.maintenance.take_over_expired(NAMESPACE, 10)

        nodes = {each.id: each.node for each in taken}
        assert nodes == {claimed.id: NodeRef(run=RUN, key="pack"), plain.id: None}
        assert {each.id: each.after for each in taken} == {
            claimed.id: Status.WAITING,
            plain.id: Status.WAITING,
        }

    async def test_makes_the_old_claim_stale(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new_node(store)
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10)

        assert not await is_still_claimed(store, claimed)
        again = await claim_node(store, suspicion=SUSPECTED)
        assert (again.id, again.epoch > claimed.epoch) == (claimed.id, True)


class TestTheDeadlineOfAJobOfARun:
    async def test_is_left_to_its_run(self, store: Store, clock: ManualClock) -> None:
        await submit(store, jobs=(node_job(deadline=MINUTE),))
        assert (await store.maintenance.poll(NAMESPACE)).next_deadline_at is None
        clock.advance(MINUTE)

        assert list(await store.maintenance.expire_deadlines(NAMESPACE, 10)) == []

        [job] = await store.queries.run_jobs(NAMESPACE, RUN)
        assert job.status is Status.WAITING


class TestCommandsOnAJobOfARun:
    @pytest.mark.parametrize("name", COMMANDS)
    @pytest.mark.parametrize("status", [Status.WAITING, Status.ACTIVE, Status.PAUSED])
    async def test_is_refused_and_nothing_is_written(
        self, store: Store, name: str, status: Status
    ) -> None:
        plain = await insert(store, namespace=NAMESPACE)
        claimed = await claim_new_node(store)
        if status is Status.PAUSED:
            await settle(store, claimed, Parked())
        elif status is Status.WAITING:
            await settle(store, claimed, Requeued())
        before = await job_record(store, claimed.id), await job_record(store, plain)

        with pytest.raises(JobBelongsToRun) as raised:
            await COMMANDS[name](store, [plain, claimed.id])

        assert (raised.value.job_id, raised.value.run_id) == (claimed.id, RUN)
        assert (await job_record(store, claimed.id), await job_record(store, plain)) == before

    async def test_is_refused_for_its_group_too(self, store: Store) -> None:
        await submit(store, jobs=(node_job(group="batch"),))
        plain = await insert(store, namespace=NAMESPACE, group="batch")

        with pytest.raises(JobBelongsToRun):
            await store.admin.change_jobs(Transition.ABORT, NAMESPACE, group="batch")

        assert (await read_job(store, plain)).status is Status.WAITING

    async def test_finds_none_in_another_namespace(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        assert await store.admin.change_jobs(Transition.ABORT, OTHER_NAMESPACE, [claimed.id]) == []
        assert await is_still_claimed(store, claimed)

    async def test_does_not_concern_jobs_of_no_run(self, store: Store) -> None:
        await submit(store, id=RunId("beside"), jobs=(node_job(run=RunId("beside")),))
        plain = await insert(store, namespace=NAMESPACE)

        [moved] = await store.admin.change_jobs(Transition.ABORT, None, [plain])

        assert moved.after is Status.CANCELLED
