"""Values at hand: bounded, and read again where they are needed."""

from __future__ import annotations

import pytest

from perdure.engine.cached_run import VALUES_MAX_BYTES, RunValues
from perdure.errors import ValueMissing
from perdure.model.payload import PlainCodec

MEGABYTE = b"x" * 1_000_000


def test_lets_go_of_the_oldest_when_there_are_too_many():
    values = RunValues(PlainCodec())

    for number in range(1, 101):
        values.put(number, MEGABYTE)
        values.trim()
        assert values.size_bytes <= VALUES_MAX_BYTES

    assert values.json(100) == MEGABYTE
    with pytest.raises(ValueMissing):
        values.json(1)
    assert values.missing([1, 100]) == [1]


def test_keeps_everything_while_a_decision_is_made():
    values = RunValues(PlainCodec())

    for number in range(1, 101):
        values.put(number, MEGABYTE)

    assert values.missing(range(1, 101)) == []


def test_counts_the_items_of_maps():
    values = RunValues(PlainCodec())
    values.put(1, b"1")
    values.lists["each"] = [MEGABYTE] * 50

    values.trim()

    assert values.lists == {}
    assert values.size_bytes <= VALUES_MAX_BYTES
