"""Paths into JSON values: what they lead to, and what is told when they lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidInput
from perdure.expr.path import MISSING, MissingKey, look_up, parse_path, path_text, value_at

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
        with pytest.raises(InvalidInput) as caught:
            parse_path(text)

        assert repr(text) in str(caught.value)


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
        "path, at, told",
        [
            ("ordr.total", 0, "there is no 'ordr' in what is given; did you mean 'order'?"),
            ("order.totla", 1, "there is no 'totla' in 'order'; did you mean 'total'?"),
            ("order.xyz", 1, "known: 'total', 'items', '0', 'note'"),
            ("empty.x.y", 1, "there is no 'x' in 'empty', which is empty"),
            ("order.items.2.price", 2, "'order.items' is a list of 2, so there is no '2' in it"),
            ("order.items.first", 2, "'order.items' is a list of 2"),
            ("order.items.-1", 2, "'order.items' is a list of 2"),
            ("order.items.²", 2, "'order.items' is a list of 2"),
            (f"order.items.{'9' * 5000}", 2, "'order.items' is a list of 2"),
            ("order.total.x", 2, "'order.total' is a number"),
            ("order.note.x", 2, "'order.note' is a text"),
            ("order.items.1.price.x", 4, "'order.items.1.price' is null"),
        ],
    )
    def test_says_which_part_is_missing(self, path, at, told):
        with pytest.raises(MissingKey) as caught:
            look_up(ORDER, parse_path(path))

        assert caught.value.at == at
        assert told in str(caught.value)
        assert len(str(caught.value)) < 300
        assert value_at(ORDER, parse_path(path)) is MISSING
        assert value_at(ORDER, parse_path(path), None) is None

    def test_names_a_dozen_keys_at_most_the_nearest_first(self):
        many = {f"key{number}": number for number in range(150)} | {"total": 1}

        with pytest.raises(MissingKey) as caught:
            look_up(many, ("totla",))

        assert len(caught.value.known) == 12
        assert caught.value.known[0] == "total"

    def test_tells_no_values(self):
        with pytest.raises(MissingKey) as caught:
            look_up({"secret": {"TOKEN": "hunter2"}}, ("secret", "TOKEN", "x"))

        assert "hunter2" not in str(caught.value)

    def test_asks_a_lazy_mapping_only_for_what_is_named(self):
        lazy = Lazy()

        assert look_up({"secret": lazy}, ("secret", "TOKEN")) == "value of TOKEN"
        with pytest.raises(MissingKey, match="did you mean 'TOKEN'"):
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
