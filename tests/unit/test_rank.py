"""The constant rank gives the order that aging asks for, at any moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from perdure.store.admission import moved_rank, rank_of

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
