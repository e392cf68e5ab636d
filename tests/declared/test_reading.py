"""Reading YAML: what scalars mean, where things are, and what is refused before it does harm."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from perdure import InvalidFlow
from perdure.flows.yaml import parse
from perdure.flows.yaml.parse import Mark, read_json, read_yaml


def refused(text: str) -> list[str]:
    with pytest.raises(InvalidFlow) as caught:
        read_yaml(textwrap.dedent(text), "f.yaml")
    return list(caught.value.errors)


class TestScalars:
    @pytest.mark.parametrize(
        "text, value",
        [
            ("null", None),
            ("~", None),
            ("", None),
            ("true", True),
            ("False", False),
            ("12", 12),
            ("-3", -3),
            ("+3", 3),
            ("0644", 644),
            ("0o17", 15),
            ("0x1F", 31),
            ("1.5", 1.5),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("-1.5E-2", -0.015),
        ],
    )
    def test_are_those_of_yaml_1_2(self, text: str, value: Any) -> None:
        found = read_yaml(f"a: {text}").data["a"]

        assert found == value
        assert type(found) is type(value)

    @pytest.mark.parametrize(
        "text",
        [
            "yes",
            "no",
            "on",
            "off",
            "y",
            "Yes",
            "1:30",
            "190:20:30",
            "2031-05-17",
            "1_000",
            "0b11",
            "2031-05-17 10:00:00",
            "=",
            "nul",
            "1.2.3",
            "0x",
            "+",
            ".",
            "-.",
            "1e",
            "tRue",
        ],
    )
    def test_that_yaml_1_1_takes_for_something_else_are_texts(self, text: str) -> None:
        assert read_yaml(f"a: {text}").data == {"a": text}

    @pytest.mark.parametrize("text", ['"12"', "'12'", '"true"', "'~'", "|-\n  12"])
    def test_in_quotes_are_texts(self, text: str) -> None:
        assert read_yaml(f"a: {text}").data["a"] in ("12", "true", "~")

    @pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1e999", str(2**64), str(-(2**70))])
    def test_that_json_cannot_carry_are_refused(self, text: str) -> None:
        [fault] = refused(f"a: 1\nb: {text}")

        assert fault.startswith("f.yaml:2: ")
        assert "write it as a text" in fault

    def test_of_very_many_digits_are_texts(self) -> None:
        assert read_yaml(f"a: {'9' * 10_000}").data == {"a": "9" * 10_000}


class TestKeys:
    def test_are_texts_as_they_are_written(self) -> None:
        data = read_yaml("{no: 1, on: 2, 404: 3, true: 4, 1.50: 5, 2031-05-17: 6, ~: 7}").data

        assert list(data) == ["no", "on", "404", "true", "1.50", "2031-05-17", "~"]

    def test_may_be_there_once(self) -> None:
        [fault] = refused("a: 1\nb: 2\na: 3")

        assert fault == "f.yaml:3: the key 'a' is there already, in line 1"

    @pytest.mark.parametrize(
        "text, told",
        [
            ("? [1, 2]\n: x", "a key must be a text"),
            ("? {a: 1}\n: x", "a key must be a text"),
            ("x: &k y\n*k : z", "a key must be a text"),
            ("<<: {a: 1}", "does not merge"),
            ("a: &a {x: 1}\nb: {<<: *a}", "does not merge"),
            ("? \n: x", "a key is missing"),
            ("!!str a: x", "no tag"),
            ("&k a: x", "no anchor"),
            ('"a\\0": 1', "cannot be stored"),
        ],
    )
    def test_of_other_shapes_are_refused(self, text: str, told: str) -> None:
        faults = refused(text)

        assert told in faults[0]

    def test_may_be_empty_where_that_is_said(self) -> None:
        assert read_yaml('{"": 1}').data == {"": 1}


class TestAnchors:
    def test_stand_for_what_they_name(self) -> None:
        assert read_yaml("a: &x [1, {b: 2}]\nc: *x").data["c"] == [1, {"b": 2}]

    @pytest.mark.parametrize("text", ["a: *x", "a: &x [*x]", "a: *x\nb: &x 1"])
    def test_that_are_not_there_before_are_refused(self, text: str) -> None:
        [fault] = refused(text)

        assert "there is no &x before this" in fault

    def test_cannot_grow_without_bound(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

        [fault] = refused("\n".join(lines))

        assert f"more than {parse.VALUES_MAX} values" in fault

    def test_cannot_nest_without_bound(self) -> None:
        deep = "[" * 90 + "]" * 90
        lines = [f"a0: &a0 {deep}", f"a1: {'[' * 20}*a0{']' * 20}"]

        [fault] = refused("\n".join(lines))

        assert fault.startswith("f.yaml:2: ")
        assert "nested deeper" in fault


class TestFiles:
    @pytest.mark.parametrize(
        "text, line, told",
        [
            ("", 1, "it is empty"),
            ("# only a remark\n", 1, "it is empty"),
            ("a: 1\n---\nb: 2", 2, "a second document"),
            ("a: [1, 2", 1, "this is not YAML"),
            ("a: 1\n\tb: 2", 2, "this is not YAML"),
            ("a: 1\nb: c: d", 2, "this is not YAML"),
            ("%YAML 7.0\n---\na: 1", 1, "this is not YAML"),
            ("a: !!python/object/apply:os.system [ls]", 1, "a flow has no tags"),
            ("a: !mine x", 1, "a flow has no tags"),
            ('a: "x\\0y"', 1, "cannot be stored"),
            ("a: \x07", 0, "this is not YAML"),
            ("a: \ud800", 0, "this is not YAML"),
            ("[" * 2_000 + "]" * 2_000, 1, "nested deeper"),
            ("- " * 2_000 + "x", 1, "nested deeper"),
        ],
    )
    def test_that_cannot_be_read_are_refused_with_the_line(
        self, text: str, line: int, told: str
    ) -> None:
        faults = refused(text)

        place = f"f.yaml:{line}: " if line else "f.yaml: "
        assert faults[0].startswith(place)
        assert told in faults[0]

    def test_that_are_too_long_are_not_looked_at(self) -> None:
        [fault] = refused("a" * (parse.TEXT_MAX + 1))

        assert f"more than {parse.TEXT_MAX} characters" in fault

    def test_tell_all_that_is_wrong_at_once(self) -> None:
        text = """
            a: .inf
            a: 2
            b: !x 3
            c: "\\0"
            d: [
        """

        assert [fault.split(":")[1] for fault in refused(text)[:4]] == ["2", "3", "4", "5"]

    def test_know_where_everything_is(self) -> None:
        text = "flow: x\nnodes:\n  - id: a\n    next:\n      no: b\n      yes: [c,\n        d]\n"

        document = read_yaml(text)

        assert document.mark_of(("nodes", 0)) == Mark(3, 5)
        assert document.mark_of(("nodes", 0, "next", "no")) == Mark(5, 7)
        assert document.mark_of(("nodes", 0, "next", "yes", 1)) == Mark(7, 9)
        assert document.mark_of(("nodes", 0, "next", "maybe")) == Mark(4, 5)
        assert document.mark_of(("nowhere",)) == Mark(1, 1)


class TestJson:
    def test_is_read_with_tabs_and_escapes(self) -> None:
        text = '{\n\t"a": "\\ud83d\\ude00 \\\\ud83d\\u00e9\\/",\n\t"b": [1, null, true]\n}'

        document = read_json(text)

        assert document.data == {"a": "😀 \\ud83dé/", "b": [1, None, True]}
        assert document.mark_of(("b",)) == Mark(3, 2)
