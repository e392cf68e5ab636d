"""Retry policies: what they accept, how they are stored, and what a failed attempt leads to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.engine.retry import MAX_SNOOZES, Budget, after_error, backoff
from perdure.errors import DeadlineExceeded, InvalidInput, Permanent, RetryLater
from perdure.model.failure import Failure, type_name
from perdure.model.ids import JobId
from perdure.model.job import Claim, ClaimedJob
from perdure.model.outcome import DeadLettered, Failed, Outcome, Retried
from perdure.model.partition import Partition
from perdure.model.retry import Retry, decode_policy, encode_policy
from tests.support.refusal import refused

SECOND = timedelta(seconds=1)
FAILURE = Failure(type="OSError", message="no route")
JOB = ClaimedJob(
    claim=Claim(id=JobId("job"), epoch=1),
    namespace="default",
    partition=Partition(queue="mail", task="send"),
    input=b"{}",
    attempt=1,
    failures=0,
    snoozes=0,
    max_attempts=None,
    policy=None,
    group=None,
    deadline_at=None,
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
)


class Own(ConnectionError):
    pass


class TestRetry:
    def test_reads_its_durations(self):
        retry = Retry(5, first="1s", max="5m")

        assert (retry.first_delay, retry.delay_max) == (SECOND, timedelta(minutes=5))

    def test_names_exception_types_so_that_it_can_be_stored(self):
        retry = Retry(1, on=ConnectionError, never_on=(Own, "httpx.ReadTimeout"))

        assert retry.retried_names == ("ConnectionError",)
        assert retry.refused_names == (type_name(Own), "httpx.ReadTimeout")

    @pytest.mark.parametrize(
        "arguments, code, name",
        [
            ({"retries": -1}, "argument.range", "retries"),
            ({"retries": 1.5}, "argument.type", "retries"),
            ({"retries": True}, "argument.type", "retries"),
            ({"retries": 10**7}, "argument.range", "retries"),
            ({"retries": 1, "factor": 0.5}, "argument.range", "factor"),
            ({"retries": 1, "factor": float("nan")}, "argument.range", "factor"),
            ({"retries": 1, "first": "soon"}, "argument.duration", "first"),
            ({"retries": 1, "max": -1}, "argument.negative", "max"),
            ({"retries": 1, "factor": "2"}, "argument.type", "factor"),
            ({"retries": 1, "on": 5}, "argument.type", "on"),
            ({"retries": 1, "on": int}, "argument.type", "on"),
            ({"retries": 1, "never_on": (5,)}, "argument.type", "never_on"),
        ],
    )
    def test_refuses_what_it_cannot_follow(self, arguments, code, name):
        with refused(code, InvalidInput, name=name):
            Retry(**arguments)


class TestCallPolicy:
    def test_comes_back_as_it_was_given(self):
        retry = Retry(5, first="250ms", factor=3, max="1h", jitter=False, on=Own, never_on=OSError)

        data = encode_policy(retry, timedelta(seconds=1.5))

        assert data is not None
        policy = decode_policy(data)
        assert (policy.retry, policy.timeout) == (retry, timedelta(seconds=1.5))

    def test_leaves_to_the_task_what_was_not_given(self):
        only_timeout = encode_policy(None, SECOND)
        only_retry = encode_policy(Retry(0), None)

        assert encode_policy(None, None) is None
        assert only_timeout is not None
        assert only_retry is not None
        assert decode_policy(only_timeout).retry is None
        assert decode_policy(only_retry).timeout is None
        assert decode_policy(only_retry).retry == Retry(0)


class TestBackoff:
    def test_grows_by_the_factor_up_to_the_cap(self):
        policy = Retry(9, first="1s", factor=2, max="10s", jitter=False)

        delays = [backoff(policy, tries, 0.0) / SECOND for tries in range(1, 7)]

        assert delays == [1, 2, 4, 8, 10, 10]

    @given(tries=st.integers(1, 10**6), draw=st.floats(0, 1, exclude_max=True))
    def test_waits_between_half_and_all_of_it_with_jitter(self, tries, draw):
        policy = Retry(10**6, first="1s", factor=2, max="5m")

        whole = backoff(Retry(10**6, first="1s", factor=2, max="5m", jitter=False), tries, 0.0)

        assert whole / 2 <= backoff(policy, tries, draw) <= whole


class TestAfterError:
    def after(self, error: BaseException, retry: Retry | None, **job: Any) -> Outcome:
        budget = Budget(policy=retry, hold_off=5 * SECOND)
        return after_error(replace(JOB, **job), error, FAILURE, budget, 0.0)

    def test_fails_for_good_without_a_policy(self):
        assert self.after(OSError(), None) == Failed(failure=FAILURE)

    def test_tries_again_until_the_retries_are_used_up(self):
        retry = Retry(2, jitter=False)

        node_types = [
            type(self.after(OSError(), retry, failures=failures)) for failures in range(3)
        ]

        assert node_types == [Retried, Retried, DeadLettered]

    def test_buries_at_once_what_has_no_retries_to_use(self):
        assert self.after(OSError(), Retry(0)) == DeadLettered(failure=FAILURE)

    def test_holds_the_worker_off_and_waits(self):
        outcome = self.after(OSError(), Retry(2, first="3s", jitter=False))

        assert outcome == Retried(failure=FAILURE, delay=3 * SECOND, hold_off=5 * SECOND)

    def test_counts_tries_rather_than_retries_when_the_job_says_so(self):
        for retry in (None, Retry(99)):
            node_types = [
                type(self.after(OSError(), retry, failures=failures, max_attempts=3))
                for failures in range(3)
            ]

            assert node_types == [Retried, Retried, DeadLettered]

    @pytest.mark.parametrize("error", [Permanent("no"), DeadlineExceeded("late")])
    def test_does_not_retry_what_cannot_succeed(self, error):
        assert self.after(error, Retry(5)) == Failed(failure=FAILURE)

    @pytest.mark.parametrize(
        "error, retry, expected",
        [
            (Own(), Retry(5, on=ConnectionError), Retried),
            (ValueError(), Retry(5, on=ConnectionError), Failed),
            (Own(), Retry(5, never_on=OSError), Failed),
            (ValueError(), Retry(5, never_on=OSError), Retried),
            (Own(), Retry(5, on=OSError, never_on=Own), Failed),
        ],
    )
    def test_looks_at_the_type_of_the_error_and_its_bases(self, error, retry, expected):
        assert type(self.after(error, retry)) is expected

    def test_postpones_when_the_task_says_not_now(self):
        until = datetime(2030, 1, 2, tzinfo=UTC)

        outcome = self.after(RetryLater(until=until, limit="smtp"), None)

        assert isinstance(outcome, Retried)
        assert (outcome.until, outcome.closes_limit) == (until, "smtp")
        assert outcome.is_snoozed
        later = self.after(RetryLater(after="7s"), None)
        assert isinstance(later, Retried)
        assert later.delay == 7 * SECOND

    def test_buries_what_is_postponed_too_often(self):
        last = self.after(RetryLater(), None, snoozes=MAX_SNOOZES - 1)

        assert isinstance(last, Retried)
        assert self.after(RetryLater(), Retry(99), snoozes=MAX_SNOOZES) == DeadLettered(
            failure=FAILURE
        )
