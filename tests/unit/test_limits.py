"""Limits as users declare them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.errors import InvalidInput
from perdure.model.limit import Concurrency, Rate, Spacing
from tests.support.refusal import refused


class TestConcurrency:
    def test_is_a_number_of_jobs_at_once(self):
        limit = Concurrency(4, key="smtp", queue="mail")

        assert (limit.count, limit.key, limit.queue, limit.task) == (4, "smtp", "mail", None)


class TestRate:
    def test_is_a_number_of_starts_in_a_window(self):
        limit = Rate(100, per="1m", key="openai")

        assert (limit.count, limit.per, limit.evenly) == (100, timedelta(minutes=1), False)


class TestSpacing:
    def test_is_a_time_between_starts(self):
        assert Spacing("2s").every == timedelta(seconds=2)


@pytest.mark.parametrize(
    "declare, code",
    [
        (lambda: Concurrency(0), "argument.range"),
        (lambda: Concurrency(-1), "argument.range"),
        (lambda: Concurrency(True), "argument.type"),
        (lambda: Concurrency(1.5), "argument.type"),  # type: ignore[arg-type]  # what is refused
        (lambda: Rate(0, per="1m"), "argument.range"),
        (lambda: Rate(1, per="0s"), "argument.not_positive"),
        (lambda: Rate(1, per="often"), "argument.duration"),
        (lambda: Spacing(0), "argument.not_positive"),
        (lambda: Spacing(-1), "argument.negative"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(declare, code):
    with refused(code, InvalidInput):
        declare()
