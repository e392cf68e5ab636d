"""How held jobs end, and that a stale holder changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.clock import ManualClock
from perdure.model.failure import Cause, Failure
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
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    SECOND,
    WORKER,
    claim,
    claim_ids,
    claim_one,
    close_limit,
    failure,
    hold,
    insert,
    insert_many,
    put_in,
    read,
    record_of,
    settle,
    status_of,
)

OUTCOMES: dict[str, tuple[Outcome, Status]] = {
    "completed": (Completed(output=b"1"), Status.COMPLETED),
    "retried": (Retried(failure=failure()), Status.WAITING),
    "retried later": (Retried(failure=failure(), delay=MINUTE), Status.SCHEDULED),
    "failed": (Failed(failure=failure()), Status.FAILED),
    "buried": (DeadLettered(failure=failure()), Status.DEAD),
    "cancelled": (Cancelled(), Status.CANCELLED),
    "given back": (Requeued(), Status.WAITING),
    "released": (Parked(), Status.PAUSED),
}
every_outcome = pytest.mark.parametrize("name", OUTCOMES)


class TestJobsSettle:
    @every_outcome
    async def test_answers_and_writes_the_new_status(self, store: Store, name: str) -> None:
        outcome, status = OUTCOMES[name]
        held = await hold(store)

        assert await settle(store, held, outcome) is status
        assert await status_of(store, held.id) is status

    @every_outcome
    async def test_ends_the_lease(self, store: Store, clock: ManualClock, name: str) -> None:
        outcome, status = OUTCOMES[name]
        held = await hold(store)
        clock.advance(SECOND)

        await settle(store, held, outcome)

        job = await read(store, held.id)
        assert job.lease_until is None
        assert job.finished_at == (clock() if status in FINISHED else None)
        assert job.epoch == held.epoch

    async def test_answers_in_the_order_of_the_settlements(self, store: Store) -> None:
        await insert_many(store, len(OUTCOMES))
        held = [job.claim for job in (await claim(store)).jobs]
        wanted = list(OUTCOMES.values())

        answer = await store.jobs.settle(
            [
                Settlement(claim=claim, outcome=outcome)
                for claim, (outcome, _) in reversed(list(zip(held, wanted, strict=True)))
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
        stale = await hold(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10, 3)
        await claim_one(store, worker=OTHER_WORKER)
        before = await record_of(store, stale.id)

        progress = Progress(percent=77)
        answer = await settle(store, stale, outcome, progress=progress, is_hidden=True)

        assert answer is None
        assert await record_of(store, stale.id) == before

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.ACTIVE, Status.ABORTING}))
    async def test_writes_nothing_to_a_job_that_nobody_holds(
        self, store: Store, status: Status
    ) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)

        for outcome, _ in OUTCOMES.values():
            assert await settle(store, there, outcome) is None

        assert await record_of(store, there.id) == before

    async def test_writes_nothing_for_an_epoch_yet_to_come(self, store: Store) -> None:
        held = await hold(store)
        ahead = Claim(id=held.id, epoch=held.epoch + 1)

        assert await settle(store, ahead, Completed(output=b"1")) is None
        assert await status_of(store, held.id) is Status.ACTIVE

    async def test_closes_no_limit(self, store: Store) -> None:
        held = await hold(store)
        stale = Claim(id=held.id, epoch=0)
        retried = Retried(failure=failure(), delay=HOUR, closes_limit="mailer")
        await settle(store, stale, retried)
        await insert(store)

        assert len(await claim_ids(store, rules=(LimitRule(key="mailer", live_max=5),))) == 1

    async def test_does_not_stop_the_others(self, store: Store) -> None:
        first = await hold(store)
        second = await hold(store)
        gone = Claim(id=second.id, epoch=9)

        answer = await store.jobs.settle(
            [
                Settlement(claim=gone, outcome=Completed(output=b"2")),
                Settlement(claim=first, outcome=Completed(output=b"1")),
            ]
        )

        assert answer == [None, Status.COMPLETED]
        assert (await read(store, first.id)).output == b"1"

    async def test_still_counts_after_the_lease_ran_out_when_nobody_took_the_job_over(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        clock.advance(HOUR)

        assert await settle(store, held, Completed(output=b"1")) is Status.COMPLETED


class TestSettleJobsThatAreAborting:
    @every_outcome
    async def test_ends_them_cancelled_whatever_the_outcome(
        self, store: Store, clock: ManualClock, name: str
    ) -> None:
        outcome, _ = OUTCOMES[name]
        held = await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])
        clock.advance(SECOND)

        assert await settle(store, held, outcome) is Status.CANCELLED

        job = await read(store, held.id)
        assert (job.status, job.finished_at) == (Status.CANCELLED, clock())
        assert (job.output, job.attempt, job.failures) == (None, 1, 0)

    @pytest.mark.parametrize("name", ["retried", "failed", "buried"])
    async def test_keeps_the_failure_they_ended_with(self, store: Store, name: str) -> None:
        outcome, _ = OUTCOMES[name]
        held = await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])

        await settle(store, held, outcome)

        state = (await store.queries.job_states([held.id]))[held.id]
        assert state.failure == failure()


class TestSettleJobsAsCompleted:
    async def test_keeps_the_output(self, store: Store) -> None:
        output = bytes(range(256))
        held = await hold(store)

        await settle(store, held, Completed(output=output))

        job, state, history = await record_of(store, held.id)
        assert job is not None
        assert state is not None
        assert (job.output, state.output, state.failure) == (output, output, None)
        assert (job.worker, history) == (WORKER, [])

    async def test_keeps_an_empty_output_apart_from_none(self, store: Store) -> None:
        held = await hold(store)

        await settle(store, held, Completed(output=b""))

        assert (await read(store, held.id)).output == b""

    async def test_sets_progress_to_100_and_keeps_its_message(self, store: Store) -> None:
        held = await hold(store)
        await store.jobs.save_progress([(held, Progress(percent=40, message="half", details=[1]))])

        await settle(store, held, Completed(output=b"1"))

        progress = Progress(percent=100, message="half", details=[1])
        assert (await read(store, held.id)).progress == progress

    async def test_keeps_the_last_progress_that_came_with_it(self, store: Store) -> None:
        held = await hold(store)
        await store.jobs.save_progress([(held, Progress(percent=40, message="half"))])
        last = Progress(percent=90, message="nearly", details={"done": 9})

        await settle(store, held, Completed(output=b"1"), progress=last)

        job = await read(store, held.id)
        assert job.progress == Progress(percent=100, message="nearly", details={"done": 9})


class TestSettleJobsAsRetried:
    async def test_makes_them_waiting_when_they_are_ready_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        clock.advance(SECOND)

        await settle(store, held, Retried(failure=failure()))

        job = await read(store, held.id)
        assert (job.status, job.ready_at, job.worker) == (Status.WAITING, clock(), None)

    async def test_schedules_them_after_a_delay(self, store: Store, clock: ManualClock) -> None:
        held = await hold(store)
        clock.advance(SECOND)

        await settle(store, held, Retried(failure=failure(), delay=MINUTE))

        job = await read(store, held.id)
        assert (job.status, job.ready_at) == (Status.SCHEDULED, clock() + MINUTE)

    async def test_lets_until_win_over_the_delay(self, store: Store, clock: ManualClock) -> None:
        held = await hold(store)

        until = clock() + HOUR
        await settle(store, held, Retried(failure=failure(), delay=MINUTE, until=until))

        assert (await read(store, held.id)).ready_at == until

    async def test_moves_the_rank_with_the_time_they_are_ready_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        retried = await hold(store, priority=2, aging=MINUTE)
        clock.advance(10 * SECOND)
        await settle(store, retried, Retried(failure=failure(), delay=20 * SECOND))
        clock.advance(20 * SECOND)
        await store.maintenance.promote_due(NAMESPACE, 10)
        earlier = await insert(store, priority=2, aging=MINUTE, run_at=clock() - SECOND)
        clock.advance(SECOND)
        later = await insert(store, priority=2, aging=MINUTE)

        assert await claim_ids(store) == [earlier, retried.id, later]

    async def test_counts_a_failure(self, store: Store) -> None:
        await settle(store, await hold(store), Retried(failure=failure()))

        [job] = (await claim(store)).jobs

        assert (job.attempt, job.failures, job.snoozes) == (2, 1, 0)

    @pytest.mark.parametrize("outcome", [Failed, DeadLettered])
    async def test_counts_the_last_failure_too(
        self, store: Store, outcome: type[Failed | DeadLettered]
    ) -> None:
        held = await hold(store)
        await settle(store, held, Retried(failure=failure()))
        again = (await claim(store)).jobs[0].claim
        await settle(store, again, outcome(failure=failure()))

        assert (await read(store, held.id)).failures == 2

    async def test_counts_a_postponement_instead_when_it_is_one(self, store: Store) -> None:
        await settle(store, await hold(store), Retried(failure=failure(), is_snoozed=True))

        [job] = (await claim(store)).jobs

        assert (job.attempt, job.failures, job.snoozes) == (2, 0, 1)

    async def test_closes_the_limit_it_names_until_it_is_ready_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        retried = Retried(failure=failure(), delay=MINUTE, closes_limit="mailer")
        await settle(store, held, retried)
        other = await insert(store)
        rules = (LimitRule(key="mailer", live_max=5),)

        held_back = await claim(store, rules=rules)
        assert (held_back.jobs, held_back.opens_at) == ([], clock() + MINUTE)
        clock.advance(MINUTE)
        assert await claim_ids(store, rules=rules) == [other]

    async def test_does_not_open_a_limit_that_is_closed_for_longer(
        self, store: Store, clock: ManualClock
    ) -> None:
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)
        held = await hold(store)

        await settle(store, held, Retried(failure=failure(), closes_limit="mailer"))

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
        held = await hold(store)
        clock.advance(SECOND)

        await settle(store, held, outcome_type(failure=self.FULL))

        assert await store.queries.failed_attempts(held.id) == [
            FailedAttempt(attempt=1, worker=WORKER, at=clock(), failure=self.FULL)
        ]

    async def test_keeps_one_for_each_attempt_oldest_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store)
        for number in range(3):
            held = await claim_one(store)
            clock.advance(SECOND)
            await settle(store, held, Retried(failure=failure(f"try {number}")))
        held = await claim_one(store)
        clock.advance(SECOND)
        await settle(store, held, DeadLettered(failure=failure("the end")))

        history = await store.queries.failed_attempts(held.id)

        assert [(each.attempt, each.failure.message) for each in history] == [
            (1, "try 0"),
            (2, "try 1"),
            (3, "try 2"),
            (4, "the end"),
        ]


class TestSettleJobsBackToTheQueue:
    async def test_takes_the_attempt_back_when_given_back(self, store: Store) -> None:
        await settle(store, await hold(store), Requeued())

        [job] = (await claim(store)).jobs

        assert (job.attempt, job.claim.epoch) == (1, 2)

    async def test_keeps_the_rank_when_given_back(self, store: Store, clock: ManualClock) -> None:
        held = await hold(store)
        ready_at = clock()
        clock.advance(MINUTE)
        behind = await insert(store)

        await settle(store, held, Requeued())

        assert (await read(store, held.id)).ready_at == ready_at
        assert await claim_ids(store) == [held.id, behind]

    async def test_takes_the_attempt_back_when_released(self, store: Store) -> None:
        held = await hold(store)

        await settle(store, held, Parked())

        job = await read(store, held.id)
        assert (job.status, job.attempt, job.worker) == (Status.PAUSED, 0, None)
        assert await claim_ids(store) == []


class TestSettleJobsThatAreDropped:
    @pytest.mark.parametrize("name", ["completed", "failed", "buried", "cancelled"])
    async def test_hides_them_from_readers(self, store: Store, name: str) -> None:
        outcome, status = OUTCOMES[name]
        held = await hold(store, group="run-1")

        await settle(store, held, outcome, is_hidden=True)

        assert await store.queries.get_job(None, held.id) is None
        assert await store.queries.list_jobs(JobFilter(status=status), 10) == []
        assert await store.queries.count_jobs(JobFilter(group="run-1")) == 0
        assert await store.admin.queue_stats(None) == []
        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 1, b"{}") is None
        assert await store.admin.change_jobs(Transition.RETRY, None, [held.id]) == []

    async def test_still_gives_them_to_their_waiters(self, store: Store) -> None:
        held = await hold(store)
        await settle(store, held, Completed(output=b"1"), is_hidden=True)
        failed = await hold(store)
        await settle(store, failed, Failed(failure=failure()), is_hidden=True)

        states = await store.queries.job_states([held.id, failed.id])

        assert (states[held.id].status, states[held.id].output) == (Status.COMPLETED, b"1")
        assert states[failed.id].failure == failure()

    async def test_drops_no_job_that_goes_on(self, store: Store) -> None:
        held = await hold(store)

        await settle(store, held, Retried(failure=failure()), is_hidden=True)

        assert await status_of(store, held.id) is Status.WAITING

    async def test_removes_them_with_the_others(self, store: Store, clock: ManualClock) -> None:
        held = await hold(store)
        await settle(store, held, Completed(output=b"1"), is_hidden=True)
        clock.advance(HOUR)

        assert (
            await store.maintenance.prune_jobs(NAMESPACE, {Status.COMPLETED: timedelta(0)}, 10) == 1
        )
        assert await store.queries.job_states([held.id]) == {}
