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

from perdure.errors import PayloadNotSerialisable, PayloadTooLarge
from perdure.model.payload import as_type, from_json, input_hash, to_json

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
    def test_gives_back_any_json_value_as_it_was(self, value: Any) -> None:
        assert from_json(to_json(value, "value")) == value

    @pytest.mark.parametrize("value", [0, False, "", [], {}, None, 0.0])
    def test_gives_back_empty_values_as_what_they_are(self, value: Any) -> None:
        back = from_json(to_json(value, "value"))

        assert (back, type(back)) == (value, type(value))

    def test_is_the_same_for_equal_inputs(self) -> None:
        one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}

        assert to_json(one, "value", is_input=True) == to_json(other, "value", is_input=True)

    def test_keeps_the_order_of_objects_in_results(self) -> None:
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
    def test_gives_back_typed_values_where_a_type_says_so(self, value: Any) -> None:
        wanted = tuple[int, str] if isinstance(value, tuple) else type(value)

        assert as_type(from_json(to_json(value, "value")), wanted) == value

    @pytest.mark.parametrize(
        "value",
        [object(), {1, object()}, lambda: None, float("nan"), [float("inf")], {"a": float("-inf")}],
    )
    def test_refuses_what_json_cannot_carry_and_says_what(self, value: Any) -> None:
        with pytest.raises(PayloadNotSerialisable, match="the result"):
            to_json(value, "the result")

    def test_refuses_a_value_without_end(self) -> None:
        endless: list[Any] = []
        endless.append(endless)

        with pytest.raises(PayloadNotSerialisable):
            to_json(endless, "value")

    def test_refuses_what_is_too_large_and_says_how_large(self) -> None:
        with pytest.raises(PayloadTooLarge) as caught:
            to_json("x" * 100, "the input", max_bytes=50)

        assert (caught.value.size_bytes, caught.value.limit_bytes) == (102, 50)


class TestInputHash:
    @given(task=st.text(st.characters(codec="utf-8")), data=st.binary())
    def test_fits_a_signed_column_and_is_the_same_each_time(self, task: str, data: bytes) -> None:
        value = input_hash(task, data)

        assert 0 <= value < 2**63
        assert value == input_hash(task, data)

    def test_differs_by_task_and_by_input(self) -> None:
        hashes = {input_hash(task, data) for task in ("a", "b") for data in (b"1", b"2")}

        assert len(hashes) == 4
