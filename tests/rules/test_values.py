"""Durations, payloads, paths and events: what goes in comes back the same, or is refused."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import (
    EventLogCorrupt,
    InvalidInput,
    PayloadNotSerializable,
    PayloadTooLarge,
    UnknownEvent,
)
from perdure.expr.path import MISSING, MissingKey, look_up, parse_path, path_text, value_at
from perdure.model import check
from perdure.model.event import Effects, NodeCompleted, decode_event, encode_event
from perdure.model.ids import RunId
from perdure.model.payload import NESTING_MAX, as_type, converter, from_json, input_hash, to_json
from perdure.model.times import ago, ahead, rough
from tests.support.refusal import refused

# Durations as people write them.


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
        "code, refusals",
        [
            ("argument.duration", ["", "5", "5 minutes", "m", "-5s", "1h-3m", "s5", "5S"]),
            ("argument.duration", [None, True, [5], b"5s"]),
            ("argument.duration", [float("nan"), float("inf"), 1e300, "99999999999999w"]),
            ("argument.negative", [-1, -0.001, timedelta(seconds=-1)]),
            ("argument.range", ["9999999d", 1e11, timedelta.max]),  # a mistake in the unit
        ],
    )
    def test_refuses_what_is_none_and_names_the_argument(self, code, refusals):
        for written in refusals:
            with refused(code, InvalidInput, name="delay"):
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


def nested(depth: int, leaf: Any) -> Any:
    for level in range(depth):
        leaf = [leaf] if level % 3 else {"[": leaf}
    return leaf


class TestToJson:
    @pytest.mark.parametrize("leaf", [None, 1, "[{"])
    @pytest.mark.parametrize("is_input", [True, False])
    def test_refuses_deep_nesting(self, leaf, is_input):
        """Finding 14: 400 to 990 levels around a null raised ``RecursionError``."""
        deepest = nested(NESTING_MAX, leaf)
        assert from_json(to_json(deepest, "value", is_input=is_input)) == deepest
        for depth in (NESTING_MAX + 1, 500, 990, 5_000):
            with refused("payload.not_serializable", PayloadNotSerializable):
                to_json(nested(depth, leaf), "value", is_input=is_input)

    def test_takes_long_lists_whatever_their_strings_contain(self):
        """Finding 14: only nesting counts, not brackets."""
        value = [{"a": ["[[", '"{', "\\"]}] * 1_000
        assert from_json(to_json(value, "value")) == value

    @pytest.mark.parametrize("is_input", [True, False])
    @pytest.mark.parametrize("value", [{1: 1, "1": 2}, [{"a": {1.5: 1, "1.5": 2}}]])
    def test_refuses_keys_that_are_equal_as_strings(self, value, is_input):
        """Finding 14: one of the two values was lost without an error."""
        with refused("payload.not_serializable", PayloadNotSerializable):
            to_json(value, "value", is_input=is_input)
        assert to_json({1: 1, "2": 2}, "value", is_input=is_input) == b'{"1":1,"2":2}'

    @given(value=json_values)
    def test_returns_any_json_value_unchanged(self, value):
        assert from_json(to_json(value, "value")) == value

    @pytest.mark.parametrize("value", [0, False, "", [], {}, None, 0.0])
    def test_returns_empty_values_in_their_type(self, value):
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
    def test_returns_keys_other_than_strings_where_a_type_says_so(self, value, wanted, is_input):
        back = from_json(to_json(value, "value", is_input=is_input))
        assert all(isinstance(key, str) for key in back)
        assert as_type(back, wanted) == value

    @pytest.mark.parametrize("is_input", [True, False])
    @pytest.mark.parametrize("key", [(1, 2), None, True, frozenset({1})])
    def test_refuses_keys_that_json_has_not(self, key, is_input):
        with refused("payload.not_serializable", PayloadNotSerializable):
            to_json({key: 1}, "value", is_input=is_input)

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
    def test_returns_typed_values_where_a_type_says_so(self, value):
        wanted = tuple[int, str] if isinstance(value, tuple) else type(value)
        assert as_type(from_json(to_json(value, "value")), wanted) == value

    @pytest.mark.parametrize(
        "value",
        [object(), {1, object()}, lambda: None, float("nan"), [float("inf")], {"a": float("-inf")}],
    )
    def test_refuses_what_json_cannot_carry_and_says_what(self, value):
        with refused("payload.not_serializable", PayloadNotSerializable, what="the result"):
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


class TestPayload:
    """Payloads: what goes in as JSON comes back the same, and nothing else goes in."""

    def test_an_object_in_a_hint_is_anything(self):
        read = converter(dict[str, object])
        assert read is not None
        assert read({"a": [1, "x"], "b": None}) == {"a": [1, "x"], "b": None}


# Paths into JSON values: what they lead to, and what is told when they lead nowhere.


ORDER: dict[str, Any] = {
    "order": {"total": 0, "items": [{"price": 7}, {"price": None}], "0": "a key", "note": ""},
    "empty": {},
}


class Lazy(Mapping[str, Any]):
    """Looks a value up only when it is asked for it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getitem__(self, key: str) -> Any:
        self.asked.append(key)
        if key != "TOKEN":
            raise KeyError(key)
        return "value of TOKEN"

    def __iter__(self) -> Iterator[str]:
        return iter(["TOKEN"])

    def __len__(self) -> int:
        return 1


class TestParsePath:
    @pytest.mark.parametrize(
        "text, parts",
        [
            ("order", ("order",)),
            ("order.items.0.price", ("order", "items", "0", "price")),
            ("a b.ü-1._", ("a b", "ü-1", "_")),
        ],
    )
    def test_splits_at_dots(self, text, parts):
        assert parse_path(text) == parts
        assert path_text(parts) == text

    @pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b"])
    def test_refuses_empty_parts_and_names_the_text(self, text):
        with refused("path.invalid", InvalidInput, path=text):
            parse_path(text)


class TestLookUp:
    @pytest.mark.parametrize(
        "path, value",
        [
            ("order.total", 0),
            ("order.note", ""),
            ("order.items.0.price", 7),
            ("order.items.1.price", None),
            ("order.0", "a key"),
            ("empty", {}),
        ],
    )
    def test_finds_values_also_empty_ones(self, path, value):
        assert look_up(ORDER, parse_path(path)) == value
        assert value_at(ORDER, parse_path(path)) == value

    def test_takes_numbers_as_parts(self):
        assert look_up(ORDER, ("order", "items", 0, "price")) == 7
        assert look_up(ORDER, ("order", 0)) == "a key"

    def test_gives_the_value_itself_for_no_path(self):
        assert look_up(ORDER, ()) is ORDER

    @pytest.mark.parametrize(
        "path, at, args",
        [
            ("ordr.total", 0, {"missing": "ordr", "nearest": ("order",)}),
            ("order.totla", 1, {"missing": "totla", "nearest": ("total",)}),
            ("order.xyz", 1, {"others": ("total", "items", "0", "note")}),
            ("empty.x.y", 1, {"missing": "x", "known": ()}),
            ("order.items.2.price", 2, {"missing": "2", "found": "a list of 2"}),
            ("order.items.first", 2, {"found": "a list of 2"}),
            ("order.items.-1", 2, {"found": "a list of 2"}),
            ("order.items.²", 2, {"found": "a list of 2"}),
            (f"order.items.{'9' * 5000}", 2, {"found": "a list of 2"}),
            ("order.total.x", 2, {"found": "a number"}),
            ("order.note.x", 2, {"found": "a string"}),
            ("order.items.1.price.x", 4, {"found": "null"}),
        ],
    )
    def test_says_which_part_is_missing(self, path, at, args):
        with refused("path.missing", MissingKey, at=at, **args) as caught:
            look_up(ORDER, parse_path(path))
        assert len(str(caught.value)) < 300
        assert value_at(ORDER, parse_path(path)) is MISSING
        assert value_at(ORDER, parse_path(path), None) is None

    def test_names_a_dozen_keys_at_most_the_nearest_first(self):
        many = {f"key{number}": number for number in range(150)} | {"total": 1}
        with pytest.raises(MissingKey) as caught:
            look_up(many, ("totla",))
        assert len(caught.value.known) == 12
        assert caught.value.known[0] == "total"

    def test_quotes_no_values(self):
        with pytest.raises(MissingKey) as caught:
            look_up({"secret": {"TOKEN": "hunter2"}}, ("secret", "TOKEN", "x"))
        assert "hunter2" not in str(caught.value)

    def test_asks_a_lazy_mapping_only_for_what_is_named(self):
        lazy = Lazy()
        assert look_up({"secret": lazy}, ("secret", "TOKEN")) == "value of TOKEN"
        with refused("path.missing", MissingKey, nearest=("TOKEN",)):
            look_up({"secret": lazy}, ("secret", "TOKN"))
        assert lazy.asked == ["TOKEN", "TOKN"]

    @given(
        value=st.recursive(
            st.none() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text("ab01", min_size=1), inner),
        ),
        path=st.lists(st.text("ab01", min_size=1) | st.integers(0, 3), max_size=4).map(tuple),
    )
    def test_finds_or_says_what_is_missing(self, value, path):
        found = value_at(value, path)
        if found is MISSING:
            with pytest.raises(MissingKey):
                look_up(value, path)
        else:
            assert look_up(value, path) is found


RUN = RunId("order-3")


class TestStoredEvent:
    """Events as they are stored: read back as they were, or refused."""

    def test_comes_back_as_it_was_written(self):
        event = NodeCompleted(
            node="charge", port="paid", iteration=2, effects=Effects(started=("ship",))
        )
        assert decode_event(RUN, 4, encode_event(event)) == event

    def test_of_a_newer_version_is_refused_rather_than_skipped(self):
        with refused(
            "run.unknown_event", UnknownEvent, run_id="order-3", number=4, type="NodeDreamt"
        ):
            decode_event(RUN, 4, b'{"type":"NodeDreamt","node":"charge"}')

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"null",
            b"[1]",
            b'{"node":"charge"}',
            b'{"type":"NodeCompleted"}',
            b'{"type":7}',
            b"[" * 100_000,
        ],
    )
    def test_that_is_none_is_corruption(self, data):
        with refused("run.log_corrupt", EventLogCorrupt, run_id="order-3"):
            decode_event(RUN, 4, data)
