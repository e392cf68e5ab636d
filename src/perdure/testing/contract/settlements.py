"""Settling jobs, and saving their progress; a stale claim changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.model.failure import Cause, Failure
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, Claim, FailedAttempt, JobFilter, Progress, Status
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
from perdure.model.partition import Partition, with_suspicion
from perdure.model.run import StoredStep
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    SECOND,
    SUSPECTED,
    WORKER,
    claim,
    claim_ids,
    claim_new,
    claim_one,
    close_limit,
    failure,
    insert,
    insert_in_status,
    insert_many,
    job_record,
    read_job,
    settle,
    status_of,
)

# Outcomes


OUTCOMES: dict[str, tuple[Outcome, Status]] = {
    "completed": (Completed(output=b"1"), Status.COMPLETED),
    "retried": (Retried(failure=failure()), Status.WAITING),
    "retried later": (Retried(failure=failure(), delay=MINUTE), Status.SCHEDULED),
    "failed": (Failed(failure=failure()), Status.FAILED),
    "dead-lettered": (DeadLettered(failure=failure()), Status.DEAD),
    "cancelled": (Cancelled(), Status.CANCELLED),
    "requeued": (Requeued(), Status.WAITING),
    "requeued later": (Requeued(delay=MINUTE), Status.SCHEDULED),
    "parked": (Parked(), Status.PAUSED),
}
every_outcome = pytest.mark.parametrize("name", OUTCOMES)


class TestJobsSettle:
    @every_outcome
    async def test_answers_and_writes_the_new_status(self, store: Store, name: str) -> None:
        outcome, status = OUTCOMES[name]
        claimed = await claim_new(store)

        assert await settle(store, claimed, outcome) is status
        assert await status_of(store, claimed.id) is status

    @every_outcome
    async def test_ends_the_lease(self, store: Store, clock: ManualClock, name: str) -> None:
        outcome, status = OUTCOMES[name]
        claimed = await claim_new(store)
        clock.advance(SECOND)

        await settle(store, claimed, outcome)

        job = await read_job(store, claimed.id)
        assert job.lease_until is None
        assert job.finished_at == (clock() if status in FINISHED else None)
        assert job.epoch == claimed.epoch

    async def test_answers_in_the_order_of_the_settlements(self, store: Store) -> None:
        await insert_many(store, len(OUTCOMES))
        claimed = [job.claim for job in (await claim(store)).jobs]
        wanted = list(OUTCOMES.values())

        answer = await store.jobs.settle(
            [
                Settlement(claim=claim, outcome=outcome)
                for claim, (outcome, _) in reversed(list(zip(claimed, wanted, strict=True)))
            ]
        )

        assert answer == [status for _, status in reversed(wanted)]
        assert await store.jobs.settle([]) == []


class TestSettleJobsUnderAStaleClaim:
    @every_outcome
    async def test_writes_nothing_once_another_worker_has_the_job(
        self, store: Store, clock: ManualClock, name: str
    ) -> None:
        outcome, _ = OUTCOMES[name]
        stale = await claim_new(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)
        await claim_one(store, worker=OTHER_WORKER, suspicion=SUSPECTED)
        before = await job_record(store, stale.id)

        progress = Progress(percent=77)
        answer = await settle(store, stale, outcome, progress=progress, is_hidden=True)

        assert answer is None
        assert await job_record(store, stale.id) == before

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.ACTIVE, Status.ABORTING}))
    async def test_writes_nothing_to_an_unclaimed_job(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)

        for outcome, _ in OUTCOMES.values():
            assert await settle(store, there, outcome) is None

        assert await job_record(store, there.id) == before

    async def test_writes_nothing_for_an_epoch_yet_to_come(self, store: Store) -> None:
        claimed = await claim_new(store)
        ahead = Claim(id=claimed.id, epoch=claimed.epoch + 1)

        assert await settle(store, ahead, Completed(output=b"1")) is None
        assert await status_of(store, claimed.id) is Status.ACTIVE

    async def test_closes_no_limit(self, store: Store) -> None:
        claimed = await claim_new(store)
        stale = Claim(id=claimed.id, epoch=0)
        retried = Retried(failure=failure(), delay=HOUR, closes_limit="mailer")
        await settle(store, stale, retried)
        await insert(store)

        assert len(await claim_ids(store, rules=(LimitRule(key="mailer", live_max=5),))) == 1

    async def test_does_not_stop_the_others(self, store: Store) -> None:
        first = await claim_new(store)
        second = await claim_new(store)
        gone = Claim(id=second.id, epoch=9)

        answer = await store.jobs.settle(
            [
                Settlement(claim=gone, outcome=Completed(output=b"2")),
                Settlement(claim=first, outcome=Completed(output=b"1")),
            ]
        )

        assert answer == [None, Status.COMPLETED]
        assert (await read_job(store, first.id)).output == b"1"

    async def test_still_counts_after_the_lease_expired_without_a_takeover(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        clock.advance(HOUR)

        assert await settle(store, claimed, Completed(output=b"1")) is Status.COMPLETED


class TestSettleJobsThatAreAborting:
    @every_outcome
    async def test_ends_them_cancelled_whatever_the_outcome(
        self, store: Store, clock: ManualClock, name: str
    ) -> None:
        outcome, _ = OUTCOMES[name]
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])
        clock.advance(SECOND)

        assert await settle(store, claimed, outcome) is Status.CANCELLED

        job = await read_job(store, claimed.id)
        assert (job.status, job.finished_at) == (Status.CANCELLED, clock())
        assert (job.output, job.attempt, job.failures) == (None, 1, 0)

    @pytest.mark.parametrize("name", ["retried", "failed", "dead-lettered"])
    async def test_keeps_the_failure_they_ended_with(self, store: Store, name: str) -> None:
        outcome, _ = OUTCOMES[name]
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        await settle(store, claimed, outcome)

        state = (await store.queries.job_states([claimed.id]))[claimed.id]
        assert state.failure == failure()


class TestSettleJobsAsCompleted:
    async def test_keeps_the_output(self, store: Store) -> None:
        output = bytes(range(256))
        claimed = await claim_new(store)

        await settle(store, claimed, Completed(output=output))

        job, state, history = await job_record(store, claimed.id)
        assert job is not None
        assert state is not None
        assert (job.output, state.output, state.failure) == (output, output, None)
        assert (job.worker, history) == (WORKER, [])

    async def test_keeps_an_empty_output_apart_from_none(self, store: Store) -> None:
        claimed = await claim_new(store)

        await settle(store, claimed, Completed(output=b""))

        assert (await read_job(store, claimed.id)).output == b""

    async def test_sets_progress_to_100_and_keeps_its_message(self, store: Store) -> None:
        claimed = await claim_new(store)
        await store.jobs.save_progress(
            [(claimed, Progress(percent=40, message="half", details=[1]))]
        )

        await settle(store, claimed, Completed(output=b"1"))

        progress = Progress(percent=100, message="half", details=[1])
        assert (await read_job(store, claimed.id)).progress == progress

    async def test_keeps_the_last_progress_that_came_with_it(self, store: Store) -> None:
        claimed = await claim_new(store)
        await store.jobs.save_progress([(claimed, Progress(percent=40, message="half"))])
        last = Progress(percent=90, message="nearly", details={"done": 9})

        await settle(store, claimed, Completed(output=b"1"), progress=last)

        job = await read_job(store, claimed.id)
        assert job.progress == Progress(percent=100, message="nearly", details={"done": 9})


class TestSettleJobsAsRetried:
    async def test_makes_them_waiting_when_they_are_ready_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        clock.advance(SECOND)

        await settle(store, claimed, Retried(failure=failure()))

        job = await read_job(store, claimed.id)
        assert (job.status, job.ready_at, job.worker) == (Status.WAITING, clock(), None)

    async def test_schedules_them_after_a_delay(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new(store)
        clock.advance(SECOND)

        await settle(store, claimed, Retried(failure=failure(), delay=MINUTE))

        job = await read_job(store, claimed.id)
        assert (job.status, job.ready_at) == (Status.SCHEDULED, clock() + MINUTE)

    async def test_lets_until_win_over_the_delay(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new(store)

        until = clock() + HOUR
        await settle(store, claimed, Retried(failure=failure(), delay=MINUTE, until=until))

        assert (await read_job(store, claimed.id)).ready_at == until

    async def test_moves_the_rank_with_the_time_they_are_ready_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        retried = await claim_new(store, priority=2, aging=MINUTE)
        clock.advance(10 * SECOND)
        await settle(store, retried, Retried(failure=failure(), delay=20 * SECOND))
        clock.advance(20 * SECOND)
        await store.maintenance.promote_due(NAMESPACE, 10)
        earlier = await insert(store, priority=2, aging=MINUTE, run_at=clock() - SECOND)
        clock.advance(SECOND)
        later = await insert(store, priority=2, aging=MINUTE)

        assert await claim_ids(store) == [earlier, retried.id, later]

    async def test_counts_a_failure(self, store: Store) -> None:
        await settle(store, await claim_new(store), Retried(failure=failure()))

        [job] = (await claim(store)).jobs

        assert (job.attempt, job.failures, job.snoozes) == (2, 1, 0)

    @pytest.mark.parametrize("outcome", [Failed, DeadLettered])
    async def test_counts_the_last_failure_too(
        self, store: Store, outcome: type[Failed | DeadLettered]
    ) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Retried(failure=failure()))
        again = (await claim(store)).jobs[0].claim
        await settle(store, again, outcome(failure=failure()))

        assert (await read_job(store, claimed.id)).failures == 2

    async def test_counts_a_postponement_instead_when_it_is_one(self, store: Store) -> None:
        await settle(store, await claim_new(store), Retried(failure=failure(), is_snoozed=True))

        [job] = (await claim(store)).jobs

        assert (job.attempt, job.failures, job.snoozes) == (2, 0, 1)

    async def test_closes_the_limit_it_names_until_it_is_ready_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        retried = Retried(failure=failure(), delay=MINUTE, closes_limit="mailer")
        await settle(store, claimed, retried)
        other = await insert(store)
        rules = (LimitRule(key="mailer", live_max=5),)

        limited = await claim(store, rules=rules)
        assert (limited.jobs, limited.opens_at) == ([], clock() + MINUTE)
        clock.advance(MINUTE)
        assert await claim_ids(store, rules=rules) == [other]

    async def test_does_not_open_a_limit_that_is_closed_for_longer(
        self, store: Store, clock: ManualClock
    ) -> None:
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)
        claimed = await claim_new(store)

        await settle(store, claimed, Retried(failure=failure(), closes_limit="mailer"))

        rules = (LimitRule(key="mailer", live_max=5),)
        assert (await claim(store, rules=rules)).opens_at == clock() + HOUR


class TestSettleJobsWithAFailure:
    FULL = Failure(
        type="httpx.ReadTimeout",
        message="no answer ☃",
        traceback="Traceback (most recent call last):\n  ...",
        causes=(Cause(type="OSError", message="cut"), Cause(type="KeyError", message="'x'")),
    )

    @pytest.mark.parametrize("outcome_type", [Retried, Failed, DeadLettered])
    async def test_keeps_it_in_the_history(
        self,
        store: Store,
        clock: ManualClock,
        outcome_type: type[Retried] | type[Failed] | type[DeadLettered],
    ) -> None:
        claimed = await claim_new(store)
        clock.advance(SECOND)

        await settle(store, claimed, outcome_type(failure=self.FULL))

        assert await store.queries.failed_attempts(claimed.id) == [
            FailedAttempt(attempt=1, worker=WORKER, at=clock(), failure=self.FULL)
        ]

    async def test_keeps_one_for_each_attempt_oldest_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store)
        for number in range(3):
            claimed = await claim_one(store)
            clock.advance(SECOND)
            await settle(store, claimed, Retried(failure=failure(f"try {number}")))
        claimed = await claim_one(store)
        clock.advance(SECOND)
        await settle(store, claimed, DeadLettered(failure=failure("the end")))

        history = await store.queries.failed_attempts(claimed.id)

        assert [(each.attempt, each.failure.message) for each in history] == [
            (1, "try 0"),
            (2, "try 1"),
            (3, "try 2"),
            (4, "the end"),
        ]


class TestSettleJobsBackToTheQueue:
    async def test_takes_the_attempt_back_when_requeued(self, store: Store) -> None:
        await settle(store, await claim_new(store), Requeued())

        [job] = (await claim(store)).jobs

        assert (job.attempt, job.claim.epoch) == (1, 2)

    async def test_keeps_the_rank_when_requeued(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new(store)
        ready_at = clock()
        clock.advance(MINUTE)
        behind = await insert(store)

        await settle(store, claimed, Requeued())

        assert (await read_job(store, claimed.id)).ready_at == ready_at
        assert await claim_ids(store) == [claimed.id, behind]

    async def test_waits_at_no_cost_when_requeued_for_later(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        clock.advance(SECOND)

        await settle(store, claimed, Requeued(delay=MINUTE))

        job = await read_job(store, claimed.id)
        assert (job.status, job.ready_at) == (Status.SCHEDULED, clock() + MINUTE)
        assert (job.attempt, job.failures, job.snoozes, job.crashes) == (0, 0, 0, 0)
        assert await store.queries.failed_attempts(claimed.id) == []
        clock.advance(MINUTE)
        assert await store.maintenance.promote_due(NAMESPACE, 10) == 1
        assert await claim_ids(store) == [claimed.id]

    async def test_moves_to_another_partition_when_requeued_there(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 21: a job gets its limit keys from the first worker that can compute them."""
        keyed = Partition(queue=PARTITION.queue, task=PARTITION.task, keys=("acme",))
        claimed = await claim_new(store)
        clock.advance(MINUTE)
        behind = await insert(store, partition=keyed)

        suspected = with_suspicion(keyed.text, SUSPECTED)
        await settle(store, claimed, Requeued(partition_key=suspected))
        job = await read_job(store, claimed.id)
        poll = await store.maintenance.poll(NAMESPACE)
        [again] = (await claim(store, keyed, suspicion=SUSPECTED)).jobs
        await settle(store, again.claim, Requeued(partition_key=keyed.text))

        assert (job.limit_keys, job.attempt) == (("acme",), 0)
        assert set(poll.partitions) == {keyed.text, suspected}
        assert again.suspicion == SUSPECTED
        assert await claim_ids(store, PARTITION) == []
        assert await claim_ids(store, keyed) == [claimed.id, behind]

    async def test_leaves_an_aborting_job_where_it_is(self, store: Store) -> None:
        keyed = Partition(queue=PARTITION.queue, task=PARTITION.task, keys=("acme",))
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        await settle(store, claimed, Requeued(partition_key=keyed.text))

        job = await read_job(store, claimed.id)
        assert (job.status, job.limit_keys) == (Status.CANCELLED, ())

    async def test_takes_the_attempt_back_when_released(self, store: Store) -> None:
        claimed = await claim_new(store)

        await settle(store, claimed, Parked())

        job = await read_job(store, claimed.id)
        assert (job.status, job.attempt, job.worker) == (Status.PAUSED, 0, None)
        assert await claim_ids(store) == []


class TestSettleJobsThatAreDropped:
    @pytest.mark.parametrize("name", ["completed", "failed", "dead-lettered", "cancelled"])
    async def test_hides_them_from_readers(self, store: Store, name: str) -> None:
        outcome, status = OUTCOMES[name]
        claimed = await claim_new(store, group="run-1")

        await settle(store, claimed, outcome, is_hidden=True)

        assert await store.queries.get_job(None, claimed.id) is None
        assert await store.queries.list_jobs(JobFilter(status=status), 10) == []
        assert await store.queries.count_jobs(JobFilter(group="run-1")) == 0
        assert await store.admin.queue_stats(None) == []
        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 1, b"{}") is None
        assert await store.admin.change_jobs(Transition.RETRY, None, [claimed.id]) == []

    async def test_still_gives_them_to_their_waiters(self, store: Store) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Completed(output=b"1"), is_hidden=True)
        failed = await claim_new(store)
        await settle(store, failed, Failed(failure=failure()), is_hidden=True)

        states = await store.queries.job_states([claimed.id, failed.id])

        assert (states[claimed.id].status, states[claimed.id].output) == (Status.COMPLETED, b"1")
        assert states[failed.id].failure == failure()

    async def test_drops_no_job_that_continues(self, store: Store) -> None:
        claimed = await claim_new(store)

        await settle(store, claimed, Retried(failure=failure()), is_hidden=True)

        assert await status_of(store, claimed.id) is Status.WAITING

    async def test_removes_them_with_the_others(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Completed(output=b"1"), is_hidden=True)
        clock.advance(HOUR)

        assert (
            await store.maintenance.prune_jobs(NAMESPACE, {Status.COMPLETED: timedelta(0)}, 10) == 1
        )
        assert await store.queries.job_states([claimed.id]) == {}


# Progress


class TestJobsSaveProgress:
    async def test_keeps_the_latest_of_claimed_jobs(self, store: Store) -> None:
        first, second = await claim_new(store), await claim_new(store)
        await store.jobs.save_progress(
            [(first, Progress(percent=10)), (second, Progress(percent=20))]
        )

        latest = Progress(percent=55.5, message="half way ☃", details={"done": 1})
        await store.jobs.save_progress([(first, latest)])

        job, state, _ = await job_record(store, first.id)
        assert job is not None
        assert state is not None
        assert (job.progress, state.progress) == (latest, latest)
        assert (await read_job(store, second.id)).progress == Progress(percent=20)

    @pytest.mark.parametrize("details", [None, 0, False, "", [], {}, [None], {"a": [1, 2.5]}])
    async def test_keeps_details_as_they_are(self, store: Store, details: Any) -> None:
        claimed = await claim_new(store)

        await store.jobs.save_progress([(claimed, Progress(percent=1, details=details))])

        kept = (await read_job(store, claimed.id)).progress.details
        assert (kept, type(kept)) == (details, type(details))

    async def test_replaces_message_and_details_by_nothing(self, store: Store) -> None:
        claimed = await claim_new(store)
        progress = Progress(percent=1, message="half way", details={"done": 1})
        await store.jobs.save_progress([(claimed, progress)])

        await store.jobs.save_progress([(claimed, Progress(percent=2))])

        assert (await read_job(store, claimed.id)).progress == Progress(percent=2)

    async def test_ignores_that_of_a_stale_claim_and_keeps_the_others(
        self, store: Store, clock: ManualClock
    ) -> None:
        stale = await claim_new(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)
        await claim_ids(store, worker=OTHER_WORKER, suspicion=SUSPECTED)
        claimed = await claim_new(store)
        before = await job_record(store, stale.id)

        await store.jobs.save_progress(
            [(stale, Progress(percent=99)), (claimed, Progress(percent=3))]
        )

        assert await job_record(store, stale.id) == before
        assert (await read_job(store, claimed.id)).progress.percent == 3

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.ACTIVE, Status.ABORTING}))
    async def test_ignores_that_of_an_unclaimed_job(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)

        await store.jobs.save_progress([(there, Progress(percent=99))])

        assert await job_record(store, there.id) == before

    async def test_keeps_that_of_a_job_asked_to_stop(self, store: Store) -> None:
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        await store.jobs.save_progress([(claimed, Progress(percent=70, message="stopping"))])

        assert (await read_job(store, claimed.id)).progress.message == "stopping"

    async def test_takes_no_progress_at_all(self, store: Store) -> None:
        await store.jobs.save_progress([])

    async def test_ignores_a_job_that_is_gone(self, store: Store) -> None:
        claimed = await claim_new(store)

        gone = Claim(id=type(claimed.id)("gone"), epoch=1)
        await store.jobs.save_progress(
            [(gone, Progress(percent=1)), (claimed, Progress(percent=2))]
        )

        assert (await read_job(store, claimed.id)).progress.percent == 2


# Parked jobs


OTHER_PARTITION = Partition(queue="mail", task="bounce")


async def parked(store: Store, **changes: Any) -> Claim:
    claimed = await claim_new(store, **changes)
    await settle(store, claimed, Parked())
    return claimed


class TestJobsSettleParked:
    @every_outcome
    async def test_claims_and_settles_it(self, store: Store, clock: ManualClock, name: str) -> None:
        outcome, status = OUTCOMES[name]
        claimed = await parked(store)
        clock.advance(MINUTE)

        settlement = Settlement(claim=claimed, outcome=outcome)
        assert await store.jobs.settle_parked(settlement, OTHER_WORKER) is status

        job = await read_job(store, claimed.id)
        assert (job.status, job.epoch, job.lease_until) == (status, claimed.epoch + 1, None)
        assert job.attempt == (0 if name in ("requeued", "requeued later", "parked") else 1)
        if status in FINISHED:
            assert (job.worker, job.finished_at) == (OTHER_WORKER, clock())
        history = await store.queries.failed_attempts(claimed.id)
        failed = {"retried", "retried later", "failed", "dead-lettered"}
        assert [entry.worker for entry in history] == [OTHER_WORKER] * (name in failed)

    async def test_is_refused_unless_it_is_parked_under_this_claim(self, store: Store) -> None:
        active = await claim_new(store)
        done = Completed(output=b"1")
        for other in (
            active,
            await insert_in_status(store, Status.COMPLETED),
            await insert_in_status(store, Status.WAITING),
            Claim(id=JobId("missing"), epoch=1),
        ):
            settlement = Settlement(claim=other, outcome=done)
            assert await store.jobs.settle_parked(settlement, OTHER_WORKER) is None

        again = await parked(store, partition=OTHER_PARTITION)
        await store.admin.change_jobs(Transition.RESUME, NAMESPACE, [again.id])
        later = await claim_one(store, OTHER_PARTITION)
        await settle(store, later, Parked())
        settlement = Settlement(claim=again, outcome=done)
        assert await store.jobs.settle_parked(settlement, OTHER_WORKER) is None
        assert await status_of(store, again.id) is Status.PAUSED
        assert await status_of(store, active.id) is Status.ACTIVE


class TestJobsResumeParked:
    async def test_requeues_it_and_stores_a_step(self, store: Store) -> None:
        claimed = await parked(store)
        step = StoredStep(name="answer", value=b"yes")

        assert await store.jobs.resume_parked(claimed, step)

        assert await store.runs.load_steps(claimed.id) == [step]
        assert await claim_ids(store) == [claimed.id]

    async def test_is_refused_unless_it_is_parked_under_this_claim(self, store: Store) -> None:
        active = await claim_new(store)
        again = await parked(store, partition=OTHER_PARTITION)
        await store.admin.change_jobs(Transition.RESUME, NAMESPACE, [again.id])
        step = StoredStep(name="answer", value=b"yes")
        for other in (active, again, Claim(id=JobId("missing"), epoch=1)):
            assert not await store.jobs.resume_parked(other, step)
            assert await store.runs.load_steps(other.id) == []
        assert await status_of(store, active.id) is Status.ACTIVE
