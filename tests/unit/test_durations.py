"""Durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.times import ago, ahead, rough


class TestAsDuration:
    @pytest.mark.parametrize(
        "written, meant",
        [
            ("30s", timedelta(seconds=30)),
            ("5m", timedelta(minutes=5)),
            ("1h30m", timedelta(minutes=90)),
            ("1h 30m", timedelta(minutes=90)),
            ("250ms", timedelta(milliseconds=250)),
            ("1.5s", timedelta(seconds=1.5)),
            ("2d", timedelta(days=2)),
            ("1w", timedelta(weeks=1)),
            ("0s", timedelta(0)),
            (5, timedelta(seconds=5)),
            (0.25, timedelta(seconds=0.25)),
            (timedelta(hours=1), timedelta(hours=1)),
        ],
    )
    def test_reads_what_people_write(self, written, meant):
        assert check.span(written, "delay") == meant

    @pytest.mark.parametrize(
        "written",
        ["", "5", "5 minutes", "m", "-5s", "1h-3m", "s5", "5S", None, True, [5], b"5s"],
    )
    def test_refuses_what_is_none_and_names_the_argument(self, written):
        with pytest.raises(InvalidInput, match="delay must be"):
            check.span(written, "delay")

    @pytest.mark.parametrize("written", [-1, -0.001, timedelta(seconds=-1)])
    def test_refuses_what_is_negative(self, written):
        with pytest.raises(InvalidInput, match="negative"):
            check.span(written, "delay")

    @pytest.mark.parametrize("written", [float("nan"), float("inf"), 1e300, "99999999999999w"])
    def test_refuses_what_no_clock_can_measure(self, written):
        with pytest.raises(InvalidInput, match="delay must be"):
            check.span(written, "delay")

    @pytest.mark.parametrize("written", ["9999999d", 1e11, timedelta.max])
    def test_refuses_what_is_a_mistake_in_the_unit(self, written):
        with pytest.raises(InvalidInput, match="delay must be at most 36500 days"):
            check.span(written, "delay")

    @given(parts=st.tuples(*[st.integers(0, 1000)] * 4))
    def test_adds_up_the_parts(self, parts):
        days, hours, minutes, seconds = parts

        read = check.span(f"{days}d{hours}h{minutes}m{seconds}s", "delay")

        assert read == timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


class TestInOneUnit:
    @pytest.mark.parametrize(
        "seconds, said",
        [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (200_000, "2d")],
    )
    def test_rough_has_one_unit(self, seconds, said):
        assert rough(timedelta(seconds=seconds)) == said

    @pytest.mark.parametrize(
        "left, said",
        [
            ({"days": 3, "seconds": -1}, "3d"),
            ({"days": 2, "hours": 4}, "2d"),
            ({"days": 1, "minutes": -10}, "1d"),
            ({"hours": 2, "milliseconds": -3}, "2h"),
            ({"minutes": 59, "seconds": 45}, "1h"),
            ({"minutes": 5, "milliseconds": -3}, "5m"),
            ({"seconds": 59.2}, "59s"),
            ({"seconds": -5}, "0s"),
        ],
    )
    def test_ahead_is_the_nearest_that_one_unit_can_say(self, left, said):
        assert ahead(NOW + timedelta(**left), NOW) == said

    def test_ago_takes_a_clock_that_is_ahead_for_now(self):
        assert ago(NOW + timedelta(seconds=3), NOW) == "0s"
