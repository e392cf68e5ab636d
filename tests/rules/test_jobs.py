"""Jobs: the transitions there are, their order, their retries, and their partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.engine.retry import Budget, after_error, backoff
from perdure.errors import DeadlineExceeded, InvalidInput, Permanent, RetryLater
from perdure.model.failure import Failure, type_name
from perdure.model.ids import JobId
from perdure.model.job import CLAIMED, FINISHED, MAX_SNOOZES, Claim, ClaimedJob, Status
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
from perdure.model.partition import (
    UNREADABLE,
    UNSUSPECTED,
    Partition,
    Suspicion,
    suspicion_in,
    with_suspicion,
)
from perdure.model.retry import Retry, decode_policy, encode_policy
from perdure.model.worker import can_run
from perdure.store.admission import moved_rank, rank_of
from perdure.store.lifecycle import (
    TRANSITIONS,
    Transition,
    after_settling,
    after_take_over,
    allows,
    starts_from,
)
from tests.support.refusal import refused

# The transition table, and that every decision about a status stays within it.


FAILURE = Failure(type="OSError", message="no route")

OUTCOMES: dict[Transition, Outcome] = {
    Transition.COMPLETE: Completed(output=b"1"),
    Transition.RETRY_LATER: Retried(failure=FAILURE),
    Transition.FAIL: Failed(failure=FAILURE),
    Transition.DEAD_LETTER: DeadLettered(failure=FAILURE),
    Transition.CANCEL: Cancelled(),
    Transition.REQUEUE: Requeued(),
    Transition.PARK: Parked(),
}


class TestTransitions:
    def test_name_every_operation(self):
        assert set(TRANSITIONS) == set(Transition)

    def test_lead_out_of_a_finished_job_only_by_an_explicit_retry(self):
        leaving = {
            (operation, before)
            for operation, ways in TRANSITIONS.items()
            for before in ways
            if before in FINISHED
        }

        assert leaving == {
            (Transition.RETRY, Status.FAILED),
            (Transition.RETRY, Status.DEAD),
            (Transition.RETRY, Status.CANCELLED),
        }

    def test_lead_to_an_active_job_only_by_a_claim(self):
        entering = {
            operation
            for operation, ways in TRANSITIONS.items()
            for afters in ways.values()
            if Status.ACTIVE in afters
        }
        assert entering == {Transition.CLAIM, Transition.ACCEPT}

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
        assert allows(Transition.CLAIM, Status.WAITING, Status.ACTIVE)
        assert not allows(Transition.CLAIM, Status.WAITING, Status.COMPLETED)
        assert not allows(Transition.CLAIM, Status.COMPLETED, Status.ACTIVE)
        assert starts_from(Transition.PROMOTE) == {Status.SCHEDULED}
        assert starts_from(Transition.RETRY) == {Status.FAILED, Status.DEAD, Status.CANCELLED}


class TestAfterSettling:
    @pytest.mark.parametrize("operation", OUTCOMES)
    @pytest.mark.parametrize("before", Status)
    @pytest.mark.parametrize("is_due", [True, False])
    def test_stays_within_the_table(self, operation, before, is_due):
        after = after_settling(before, OUTCOMES[operation], is_due=is_due, is_node=False)
        if before in CLAIMED:
            assert after is not None
            assert allows(operation, before, after)
        else:
            assert after is None
            assert before not in starts_from(operation)

    def test_schedules_a_retried_job_whose_time_lies_ahead(self):
        retried = Retried(failure=FAILURE)
        later = after_settling(Status.ACTIVE, retried, is_due=False, is_node=False)
        assert later is Status.SCHEDULED
        now = after_settling(Status.ACTIVE, retried, is_due=True, is_node=False)
        assert now is Status.WAITING

    @pytest.mark.parametrize("operation", OUTCOMES)
    @pytest.mark.parametrize("before", sorted(CLAIMED))
    def test_leaves_the_end_of_a_node_to_its_run(self, operation, before):
        after = after_settling(before, OUTCOMES[operation], is_due=True, is_node=True)
        assert after is None or after not in FINISHED


KEY = '["mail","send",[],[]]'


class TestAfterTakeOver:
    """Finding 35: a crash is charged to every job of the worker, so it condemns none of them."""

    @pytest.mark.parametrize(
        "before, was_alone, after",
        [
            (KEY, False, f"{KEY}~1.0"),
            (KEY, True, f"{KEY}~1.0"),  # the first is never one alone
            (f"{KEY}~1.0", False, f"{KEY}~2.0"),
            (f"{KEY}~1.0", True, f"{KEY}~2.1"),
            (f"{KEY}~9.7", True, f"{KEY}~10.8"),
            (f"{KEY}~30.2", True, f"{KEY}~30.3"),  # a bounded number of partitions
            ("unreadable~1.0", True, "unreadable~1.0"),
        ],
    )
    def test_requeues_the_job_under_a_suspicion(self, before, was_alone, after):
        found = after_take_over(Status.ACTIVE, before, was_alone=was_alone)
        assert found == (Status.WAITING, after)

    def test_cancels_an_aborting_job(self):
        found = after_take_over(Status.ABORTING, f"{KEY}~2.1", was_alone=True)
        assert found == (Status.CANCELLED, f"{KEY}~2.1")

    @pytest.mark.parametrize("before", sorted(CLAIMED))
    def test_stays_within_the_table(self, before):
        after, _ = after_take_over(before, KEY, was_alone=False)
        assert allows(Transition.TAKE_OVER, before, after)


class TestSuspicions:
    @pytest.mark.parametrize("queue", ["mail", "]~2.0", "a]", '"]~1.1'])
    @pytest.mark.parametrize("suspicion", [UNSUSPECTED, Suspicion(crashes=12, alone=3)])
    def test_are_a_suffix_of_the_key_and_no_part_of_the_partition(self, queue, suspicion):
        partition = Partition(queue=queue, task="send", flow="orders@v1")
        key = with_suspicion(partition.text, suspicion)
        assert (Partition.parse(key), suspicion_in(key)) == (partition, suspicion)
        assert with_suspicion(key, UNSUSPECTED) == partition.text
        assert key.rstrip("~.0123456789") == partition.text, "as the statements remove it"

    @pytest.mark.parametrize("suffix", ["~0.0", "~01.0", "~1", "~1.", "~-1.0", "~1.0~1.0", "~1.0 "])
    def test_are_not_read_from_other_suffixes(self, suffix):
        assert Partition.parse(KEY + suffix) == UNREADABLE

    @pytest.mark.parametrize(
        "concurrency, slots", [(1, [1, 1, 1]), (2, [2, 1, 1]), (10, [6, 3, 2, 1, 1])]
    )
    def test_say_how_many_jobs_a_worker_may_have_at_once(self, concurrency, slots):
        crashes = range(1, len(slots) + 1)
        assert [Suspicion(crashes=each).slots(concurrency) for each in crashes] == slots


# The constant rank gives the order that aging asks for, at any moment.


EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
AGING = timedelta(minutes=5)


# Whole milliseconds, far enough apart for a double: the order is exact, not nearly so.
moments = st.integers(0, 10**9).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
priorities = st.integers(1, 5)
jobs = st.tuples(moments, priorities)


def aged(job: tuple[datetime, int], now: datetime) -> timedelta:
    """``(priority - waited / aging) * aging``: the formula, without a division to round."""
    ready_at, priority = job
    return priority * AGING - (now - ready_at)


class TestRankOf:
    @given(first=jobs, second=jobs, now=moments)
    def test_orders_as_aging_does_at_any_moment(self, first, second, now):
        by_rank = rank_of(first[0], first[1], AGING) < rank_of(second[0], second[1], AGING)
        assert by_rank == (aged(first, now) < aged(second, now))

    @given(first=jobs, second=jobs)
    def test_is_the_same_only_for_jobs_that_aging_holds_equal(self, first, second):
        same = rank_of(first[0], first[1], AGING) == rank_of(second[0], second[1], AGING)
        assert same == (aged(first, EPOCH) == aged(second, EPOCH))

    def test_lets_a_job_overtake_one_priority_in_one_aging_interval(self):
        patient = rank_of(EPOCH, 3, AGING)
        assert rank_of(EPOCH + AGING, 2, AGING) == patient
        assert rank_of(EPOCH + AGING - timedelta(microseconds=1), 2, AGING) < patient
        assert rank_of(EPOCH + AGING + timedelta(microseconds=1), 2, AGING) > patient

    def test_ignores_priority_when_aging_takes_no_time(self):
        assert rank_of(EPOCH, 1, timedelta(0)) == rank_of(EPOCH, 5, timedelta(0))

    def test_does_not_depend_on_the_time_zone(self):
        elsewhere = EPOCH.astimezone(timezone(timedelta(hours=5, minutes=30)))
        assert rank_of(elsewhere, 3, AGING) == rank_of(EPOCH, 3, AGING)


class TestMovedRank:
    @given(before=moments, after=moments, priority=priorities)
    def test_is_the_rank_of_a_job_that_became_ready_then(self, before, after, priority):
        moved = moved_rank(rank_of(before, priority, AGING), before, after)
        assert abs(moved - rank_of(after, priority, AGING)) < 1e-6


# Retry policies: what they accept, how they are stored, and what a failed attempt leads to.


SECOND = timedelta(seconds=1)

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
            ({"retries": 1, "first": "9999999d"}, "argument.range", "first"),
            ({"retries": 1, "max": timedelta.max}, "argument.range", "max"),
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

    def test_dead_letters_immediately_what_has_no_retries_to_use(self):
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
            (Own(), Retry(5, on=(KeyError, "ConnectionError")), Retried),
            (ValueError(), Retry(5, on=ConnectionError), Failed),
            (Own(), Retry(5, on=OSError, never_on="ConnectionError"), Failed),
            (Own(), Retry(5, never_on=OSError), Failed),
            (ValueError(), Retry(5, never_on=OSError), Retried),
            (Own(), Retry(5, on=OSError, never_on=Own), Failed),
        ],
    )
    def test_looks_at_the_type_of_the_error_and_its_bases(self, error, retry, expected):
        assert type(self.after(error, retry)) is expected

    def test_snoozes_when_the_task_says_not_now(self):
        until = datetime(2030, 1, 2, tzinfo=UTC)

        outcome = self.after(RetryLater(until=until, limit="smtp"), None)

        assert isinstance(outcome, Retried)
        assert (outcome.until, outcome.closes_limit) == (until, "smtp")
        assert outcome.is_snoozed
        later = self.after(RetryLater(after="7s"), None)
        assert isinstance(later, Retried)
        assert later.delay == 7 * SECOND

    @pytest.mark.parametrize(
        "retry, counts, expected",
        [
            # Neither retries nor max_attempts: a bound of the task.
            (None, {"snoozes": MAX_SNOOZES - 1}, Retried),
            (None, {"snoozes": MAX_SNOOZES}, DeadLettered),
            # Within retries, together with failures, however many there are.
            (Retry(3), {"snoozes": 2}, Retried),
            (Retry(3), {"snoozes": 3}, DeadLettered),
            (Retry(3), {"failures": 2, "snoozes": 1}, DeadLettered),
            (Retry(0), {}, DeadLettered),
            (Retry(99), {"snoozes": 98}, Retried),
            (Retry(99), {"snoozes": 99}, DeadLettered),
            # Within max_attempts, which comes before retries.
            (Retry(99), {"snoozes": 2, "max_attempts": 3}, DeadLettered),
            (None, {"snoozes": 1, "max_attempts": 3}, Retried),
            (None, {"failures": 1, "snoozes": 1, "max_attempts": 3}, DeadLettered),
        ],
    )
    def test_bounds_snoozes_by_what_bounds_attempts(self, retry, counts, expected):
        assert type(self.after(RetryLater(), retry, **counts)) is expected

    def test_bounds_failures_together_with_snoozes(self):
        assert type(self.after(ValueError(), Retry(3), failures=1, snoozes=1)) is Retried
        assert type(self.after(ValueError(), Retry(3), failures=1, snoozes=2)) is DeadLettered


# Partitions: how they are written, and who may run what is in them.


texts = st.text(st.characters(codec="utf-8"))

partitions = st.builds(
    Partition,
    queue=texts,
    task=texts,
    tags=st.lists(texts, max_size=3).map(tuple),
    keys=st.lists(texts, max_size=3).map(tuple),
)


class TestPartition:
    @given(partition=partitions)
    def test_comes_back_as_it_was_written(self, partition):
        assert Partition.parse(partition.text) == partition

    @given(first=partitions, second=partitions)
    def test_has_a_text_of_its_own(self, first, second):
        assert (first.text == second.text) == (first == second)

    def test_distinguishes_tags_and_keys(self):
        tagged = Partition(queue="mail", task="send", tags=("gpu",))
        keyed = Partition(queue="mail", task="send", keys=("gpu",))
        assert tagged.text != keyed.text


class TestCanRun:
    PARTITION = Partition(queue="mail", task="send", tags=("gpu", "eu"), keys=("user-7",))

    @pytest.mark.parametrize(
        "queues, tags, expected",
        [
            (["mail"], None, True),
            (["default", "mail"], ["eu", "gpu", "big"], True),
            (["default"], None, False),
            (["mail"], ["gpu"], False),
            (["mail"], [], False),
        ],
    )
    def test_asks_for_the_queue_and_all_tags(self, queues, tags, expected):
        assert can_run(self.PARTITION, queues=queues, tags=tags) is expected

    def test_lets_any_worker_run_what_has_no_tags(self):
        partition = Partition(queue="mail", task="send")
        for tags in (None, [], ["gpu"]):
            assert can_run(partition, queues=["mail"], tags=tags)


class TestATextThatIsNoPartition:
    @pytest.mark.parametrize(
        "text", ["", "null", "7", "[]", '["mail"]', '["mail",', "{}", "[" * 9_999]
    )
    def test_is_a_partition_that_no_worker_has_code_for(self, text):
        partition = Partition.parse(text)
        assert (partition.queue, partition.task) == ("", "")
