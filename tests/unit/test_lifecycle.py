"""The transition table, and that every decision about a status stays within it."""

from __future__ import annotations

import pytest

from perdure.model.failure import Failure
from perdure.model.job import CLAIMED, FINISHED, Status
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Requeued,
    Retried,
)
from perdure.store.lifecycle import (
    TRANSITIONS,
    Operation,
    after_settling,
    after_take_over,
    allows,
    starts_from,
)

FAILURE = Failure(type="OSError", message="no route")
OUTCOMES: dict[Operation, Outcome] = {
    Operation.COMPLETE: Completed(output=b"1"),
    Operation.RETRY_LATER: Retried(failure=FAILURE),
    Operation.FAIL: Failed(failure=FAILURE),
    Operation.DEAD_LETTER: DeadLettered(failure=FAILURE),
    Operation.CANCEL: Cancelled(),
    Operation.REQUEUE: Requeued(),
    Operation.PARK: Parked(),
}


class TestTransitions:
    def test_name_every_operation(self):
        assert set(TRANSITIONS) == set(Operation)

    def test_lead_out_of_a_finished_job_only_by_an_explicit_retry(self):
        leaving = {
            (operation, before)
            for operation, ways in TRANSITIONS.items()
            for before in ways
            if before in FINISHED
        }

        assert leaving == {
            (Operation.RETRY, Status.FAILED),
            (Operation.RETRY, Status.DEAD),
            (Operation.RETRY, Status.CANCELLED),
        }

    def test_lead_to_an_active_job_only_by_a_claim(self):
        entering = {
            operation
            for operation, ways in TRANSITIONS.items()
            for afters in ways.values()
            if Status.ACTIVE in afters
        }

        assert entering == {Operation.CLAIM}

    def test_let_an_aborting_job_end_cancelled_and_in_no_other_way(self):
        afters = {
            after
            for ways in TRANSITIONS.values()
            for after in ways.get(Status.ABORTING, frozenset())
        }

        assert afters == {Status.CANCELLED}

    def test_change_the_status_whenever_they_apply(self):
        for ways in TRANSITIONS.values():
            for before, afters in ways.items():
                assert afters
                assert before not in afters

    def test_reach_every_status_from_the_two_a_job_begins_in(self):
        reached = {Status.WAITING, Status.SCHEDULED}
        for _ in Status:
            reached |= {
                after
                for ways in TRANSITIONS.values()
                for before in reached & set(ways)
                for after in ways[before]
            }

        assert reached == set(Status)


class TestAllows:
    def test_says_what_the_table_says(self):
        assert allows(Operation.CLAIM, Status.WAITING, Status.ACTIVE)
        assert not allows(Operation.CLAIM, Status.WAITING, Status.COMPLETED)
        assert not allows(Operation.CLAIM, Status.COMPLETED, Status.ACTIVE)


class TestStartsFrom:
    def test_says_in_which_statuses_an_operation_applies(self):
        assert starts_from(Operation.PROMOTE) == {Status.SCHEDULED}
        assert starts_from(Operation.RETRY) == {Status.FAILED, Status.DEAD, Status.CANCELLED}


class TestAfterSettling:
    @pytest.mark.parametrize("operation", OUTCOMES)
    @pytest.mark.parametrize("before", Status)
    @pytest.mark.parametrize("is_due", [True, False])
    def test_stays_within_the_table(self, operation, before, is_due):
        after = after_settling(before, OUTCOMES[operation], is_due=is_due)

        if before in CLAIMED:
            assert after is not None
            assert allows(operation, before, after)
        else:
            assert after is None
            assert before not in starts_from(operation)

    def test_schedules_a_retried_job_whose_time_lies_ahead(self):
        retried = Retried(failure=FAILURE)

        assert after_settling(Status.ACTIVE, retried, is_due=False) is Status.SCHEDULED
        assert after_settling(Status.ACTIVE, retried, is_due=True) is Status.WAITING


class TestAfterTakeOver:
    def test_puts_the_job_back_until_it_has_killed_too_often(self):
        afters = [after_take_over(Status.ACTIVE, crashes, 3) for crashes in (1, 2, 3, 4)]

        assert afters == [Status.WAITING, Status.WAITING, Status.DEAD, Status.DEAD]

    @pytest.mark.parametrize("crashes", [1, 3])
    def test_cancels_an_aborting_job(self, crashes):
        assert after_take_over(Status.ABORTING, crashes, 3) is Status.CANCELLED

    @pytest.mark.parametrize("before", sorted(CLAIMED))
    @pytest.mark.parametrize("crashes", [1, 3])
    def test_stays_within_the_table(self, before, crashes):
        assert allows(Operation.TAKE_OVER, before, after_take_over(before, crashes, 3))
