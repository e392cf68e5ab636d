"""Payloads: what goes in as JSON comes back the same, and nothing else goes in."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import PayloadNotSerializable, PayloadTooLarge
from perdure.model.payload import as_type, converter, from_json, input_hash, to_json

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@dataclasses.dataclass
class Point:
    x: int
    at: datetime


class Colour(enum.Enum):
    RED = "red"


class TestToJson:
    @given(value=json_values)
    def test_gives_back_any_json_value_as_it_was(self, value):
        assert from_json(to_json(value, "value")) == value

    @pytest.mark.parametrize("value", [0, False, "", [], {}, None, 0.0])
    def test_gives_back_empty_values_as_what_they_are(self, value):
        back = from_json(to_json(value, "value"))

        assert (back, type(back)) == (value, type(value))

    def test_is_the_same_for_equal_inputs(self):
        one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}

        assert to_json(one, "value", is_input=True) == to_json(other, "value", is_input=True)

    def test_is_the_same_for_equal_inputs_with_keys_that_are_no_texts(self):
        one: dict[int, Any] = {10: {"x", "y", "z"}, 9: {uuid.UUID(int=7): 1}}
        other: dict[int, Any] = {9: {uuid.UUID(int=7): 1}, 10: {"z", "y", "x"}}

        assert to_json(one, "value", is_input=True) == to_json(other, "value", is_input=True)

    @pytest.mark.parametrize("is_input", [True, False])
    @pytest.mark.parametrize(
        "value, wanted",
        [
            ({1: "one", -2: "minus two"}, dict[int, str]),
            ({1.5: 1}, dict[float, int]),
            ({uuid.UUID(int=7): 1}, dict[uuid.UUID, int]),
            ({Colour.RED: 1}, dict[Colour, int]),
            ({"a": {1: [2]}}, dict[str, dict[int, list[int]]]),
        ],
    )
    def test_gives_back_keys_that_are_no_texts_where_a_type_says_so(self, value, wanted, is_input):
        back = from_json(to_json(value, "value", is_input=is_input))

        assert all(isinstance(key, str) for key in back)
        assert as_type(back, wanted) == value

    @pytest.mark.parametrize("is_input", [True, False])
    @pytest.mark.parametrize("key", [(1, 2), None, True, frozenset({1})])
    def test_refuses_keys_that_json_has_not(self, key, is_input):
        with pytest.raises(PayloadNotSerializable, match="keys of a dict must be texts, numbers"):
            to_json({key: 1}, "value", is_input=is_input)

    def test_refuses_an_input_whose_keys_would_become_one(self):
        with pytest.raises(PayloadNotSerializable, match="two keys of one dict are the same"):
            to_json({1: "a", "1": "b"}, "value", is_input=True)

    def test_keeps_the_order_of_objects_in_results(self):
        assert list(from_json(to_json({"b": 1, "a": 2}, "value"))) == ["b", "a"]

    @pytest.mark.parametrize(
        "value",
        [
            Point(x=1, at=datetime(2030, 1, 1, tzinfo=UTC)),
            Colour.RED,
            uuid.UUID(int=7),
            b"\x00\xff",
            datetime(2030, 1, 1, tzinfo=UTC),
            (1, "two"),
        ],
    )
    def test_gives_back_typed_values_where_a_type_says_so(self, value):
        wanted = tuple[int, str] if isinstance(value, tuple) else type(value)

        assert as_type(from_json(to_json(value, "value")), wanted) == value

    @pytest.mark.parametrize(
        "value",
        [object(), {1, object()}, lambda: None, float("nan"), [float("inf")], {"a": float("-inf")}],
    )
    def test_refuses_what_json_cannot_carry_and_says_what(self, value):
        with pytest.raises(PayloadNotSerializable, match="the result"):
            to_json(value, "the result")

    def test_refuses_a_value_without_end(self):
        endless: list[Any] = []
        endless.append(endless)

        with pytest.raises(PayloadNotSerializable):
            to_json(endless, "value")

    def test_refuses_what_is_too_large_and_says_how_large(self):
        with pytest.raises(PayloadTooLarge) as caught:
            to_json("x" * 100, "the input", max_bytes=50)

        assert (caught.value.size_bytes, caught.value.limit_bytes) == (102, 50)


class TestInputHash:
    @given(task=st.text(st.characters(codec="utf-8")), data=st.binary())
    def test_fits_a_signed_column_and_is_the_same_each_time(self, task, data):
        value = input_hash(task, data)

        assert 0 <= value < 2**63
        assert value == input_hash(task, data)

    def test_differs_by_task_and_by_input(self):
        hashes = {input_hash(task, data) for task in ("a", "b") for data in (b"1", b"2")}

        assert len(hashes) == 4


def test_an_object_in_a_hint_is_anything():
    read = converter(dict[str, object])

    assert read is not None
    assert read({"a": [1, "x"], "b": None}) == {"a": [1, "x"], "b": None}
