"""Limits as workers make them known: plain data that the same limits can be made of."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from perdure import Concurrency, Rate, Spacing
from perdure.model.limit import LimitInfo, info_of, limit_of
from perdure.model.times import DURATION_MAX


def stored(info: LimitInfo) -> LimitInfo:
    return msgspec.json.decode(msgspec.json.encode(info), type=LimitInfo)


@pytest.mark.parametrize(
    "limit",
    [
        Concurrency(3, key="api"),
        Concurrency(1, queue="mail"),
        Rate(10, per="1m", evenly=True, task="send"),
        Rate(10, per=timedelta(milliseconds=1)),
        Spacing(DURATION_MAX, key="api"),
    ],
)
def test_a_limit_is_made_anew_from_what_was_stored(limit):
    assert limit_of(stored(info_of(limit))) == limit


def test_a_key_that_is_computed_stays_computed():
    limit = limit_of(stored(info_of(Concurrency(1, key=lambda tenant: tenant))))

    assert limit is not None
    assert callable(limit.key)


def test_a_limit_of_another_kind_is_left_out():
    assert limit_of(LimitInfo(key="cost")) is None
