"""When the supervisor starts a dead worker process again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.worker.supervisor import (
    DELAY_MAX,
    FIRST_DELAY,
    STEADY_AFTER,
    crashes_in_a_row,
    restart_delay,
)

SHORT_OF_STEADY = STEADY_AFTER - timedelta(milliseconds=1)


class TestRestartDelay:
    def test_is_short_after_the_first_death(self):
        assert restart_delay(1) == FIRST_DELAY

    def test_grows_with_every_further_death(self):
        delays = [restart_delay(crashes) for crashes in range(1, 6)]

        assert delays == sorted(set(delays))

    def test_is_capped_however_often_it_died(self):
        assert restart_delay(10) == DELAY_MAX
        assert restart_delay(10**9) == DELAY_MAX

    def test_refuses_a_count_of_none(self):
        with pytest.raises(ValueError, match="crashes=0"):
            restart_delay(0)


class TestDeathsInARow:
    def test_counts_up_while_it_dies_soon_after_its_start(self):
        assert crashes_in_a_row(0, timedelta(0)) == 1
        assert crashes_in_a_row(3, SHORT_OF_STEADY) == 4

    def test_starts_anew_once_it_was_up_for_a_while(self):
        assert crashes_in_a_row(7, STEADY_AFTER) == 1
