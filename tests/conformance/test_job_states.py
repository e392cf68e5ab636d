"""What waiters need to know, and the history of failures."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import JobId
from perdure.model.job import JobState, Progress, Status
from perdure.model.outcome import Cancelled, Completed, DeadLettered, Failed, Retried
from perdure.store.contract import Store
from perdure.store.failures import lease_expired
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    LEASE,
    NAMESPACE,
    OTHER_WORKER,
    SECOND,
    WORKER,
    claim_one,
    failure,
    hold,
    insert,
    put_in,
    settle,
)


class TestQueriesJobStates:
    async def test_tells_status_progress_and_outcome(self, store: Store) -> None:
        held = await hold(store)
        progress = Progress(percent=50, message="half")
        await settle(store, held, Completed(output=b"1"), progress=progress)
        waiting = await insert(store)

        states = await store.queries.job_states([held.id, waiting, JobId("gone")])

        assert states == {
            held.id: JobState(
                id=held.id,
                status=Status.COMPLETED,
                attempt=1,
                progress=Progress(percent=100, message="half"),
                output=b"1",
            ),
            waiting: JobState(
                id=waiting, status=Status.WAITING, attempt=0, progress=Progress(percent=0)
            ),
        }
        assert await store.queries.job_states([]) == {}

    @pytest.mark.parametrize("outcome_type", [Failed, DeadLettered])
    async def test_tells_the_last_failure_when_it_ended_badly(
        self, store: Store, clock: ManualClock, outcome_type: type[Failed] | type[DeadLettered]
    ) -> None:
        held = await hold(store)
        await settle(store, held, Retried(failure=failure("an earlier one")))
        clock.advance(SECOND)
        again = await claim_one(store)
        await settle(store, again, outcome_type(failure=failure("the last one")))

        state = (await store.queries.job_states([held.id]))[held.id]

        assert state.failure == failure("the last one")

    async def test_tells_why_a_job_was_cancelled_when_its_body_said_so(self, store: Store) -> None:
        held = await hold(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [held.id])
        await settle(store, held, Cancelled(failure=failure("cleaned up")))

        state = (await store.queries.job_states([held.id]))[held.id]

        assert (state.status, state.failure) == (Status.CANCELLED, failure("cleaned up"))

    @pytest.mark.parametrize("status", sorted(Status))
    async def test_tells_no_failure_while_a_job_may_still_succeed(
        self, store: Store, status: Status
    ) -> None:
        there = await put_in(store, status)

        state = (await store.queries.job_states([there.id]))[there.id]

        assert (state.failure is not None) == (status in {Status.FAILED, Status.DEAD})

    async def test_tells_no_failure_of_a_job_that_is_retried(self, store: Store) -> None:
        held = await hold(store)
        await settle(store, held, Retried(failure=failure()))

        assert (await store.queries.job_states([held.id]))[held.id].failure is None


class TestQueriesFailedAttempts:
    async def test_shows_each_failure_with_its_attempt_worker_and_time_oldest_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        began_at = clock()
        first = await hold(store, worker=WORKER)
        clock.advance(SECOND)
        await settle(store, first, Retried(failure=failure("one")))
        await claim_one(store, worker=OTHER_WORKER)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10, 3)
        third = await claim_one(store, worker=WORKER)
        clock.advance(SECOND)
        await settle(store, third, DeadLettered(failure=failure("three")))

        history = await store.queries.failed_attempts(first.id)

        assert [(each.attempt, each.worker, each.at) for each in history] == [
            (1, WORKER, began_at + SECOND),
            (2, OTHER_WORKER, began_at + SECOND + LEASE),
            (3, WORKER, began_at + SECOND + LEASE + SECOND),
        ]
        assert [each.failure for each in history] == [
            failure("one"),
            lease_expired(OTHER_WORKER),
            failure("three"),
        ]

    async def test_is_empty_for_a_job_that_never_failed_or_is_not_there(self, store: Store) -> None:
        completed = await put_in(store, Status.COMPLETED)

        assert await store.queries.failed_attempts(completed.id) == []
        assert await store.queries.failed_attempts(JobId("gone")) == []
