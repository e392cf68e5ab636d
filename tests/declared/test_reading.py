"""Reading YAML: what scalars mean, where things are, and what is refused before it does harm."""

from __future__ import annotations

import textwrap

import pytest

from perdure import InvalidFlow
from perdure.flows.yaml import parse
from perdure.flows.yaml.parse import Mark, read_json, read_yaml


def refused(text: str) -> list[tuple[int, str]]:
    """The line and code of each fault."""
    with pytest.raises(InvalidFlow) as caught:
        read_yaml(textwrap.dedent(text), "f.yaml")
    found = []
    for fault in caught.value.faults:
        assert fault.source is not None
        assert fault.source.file == "f.yaml"
        found.append((fault.source.line, fault.code))
    return found


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
    def test_are_those_of_yaml_1_2(self, text, value):
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
    def test_that_yaml_1_1_takes_for_something_else_are_texts(self, text):
        assert read_yaml(f"a: {text}").data == {"a": text}

    @pytest.mark.parametrize("text", ['"12"', "'12'", '"true"', "'~'", "|-\n  12"])
    def test_in_quotes_are_texts(self, text):
        assert read_yaml(f"a: {text}").data["a"] in ("12", "true", "~")

    @pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1e999", str(2**64), str(-(2**70))])
    def test_that_json_cannot_carry_are_refused(self, text):
        assert refused(f"a: 1\nb: {text}") == [(2, "yaml.number")]

    def test_of_very_many_digits_are_texts(self):
        assert read_yaml(f"a: {'9' * 10_000}").data == {"a": "9" * 10_000}


class TestKeys:
    def test_are_texts_as_they_are_written(self):
        data = read_yaml("{no: 1, on: 2, 404: 3, true: 4, 1.50: 5, 2031-05-17: 6, ~: 7}").data

        assert list(data) == ["no", "on", "404", "true", "1.50", "2031-05-17", "~"]

    def test_may_be_there_once(self):
        with pytest.raises(InvalidFlow) as caught:
            read_yaml("a: 1\nb: 2\na: 3", "f.yaml")

        assert caught.value.errors == ("f.yaml:3: key 'a' is already there, in line 1",)

    @pytest.mark.parametrize(
        "text, code",
        [
            ("? [1, 2]\n: x", "yaml.not_a_key"),
            ("? {a: 1}\n: x", "yaml.not_a_key"),
            ("x: &k y\n*k : z", "yaml.not_a_key"),
            ("<<: {a: 1}", "yaml.merge_key"),
            ("a: &a {x: 1}\nb: {<<: *a}", "yaml.merge_key"),
            ("? \n: x", "yaml.empty_key"),
            ("!!str a: x", "yaml.decorated_key"),
            ("&k a: x", "yaml.decorated_key"),
            ('"a\\0": 1', "yaml.unstorable"),
        ],
    )
    def test_of_other_shapes_are_refused(self, text, code):
        assert refused(text)[0][1] == code

    def test_may_be_empty_where_that_is_said(self):
        assert read_yaml('{"": 1}').data == {"": 1}


class TestAnchors:
    def test_stand_for_what_they_name(self):
        assert read_yaml("a: &x [1, {b: 2}]\nc: *x").data["c"] == [1, {"b": 2}]

    @pytest.mark.parametrize("text", ["a: *x", "a: &x [*x]", "a: *x\nb: &x 1"])
    def test_that_are_not_there_before_are_refused(self, text):
        assert [code for _, code in refused(text)] == ["yaml.no_anchor"]

    def test_cannot_grow_without_bound(self):
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

        assert [code for _, code in refused("\n".join(lines))] == ["yaml.too_many_values"]

    def test_cannot_nest_without_bound(self):
        deep = "[" * 90 + "]" * 90
        lines = [f"a0: &a0 {deep}", f"a1: {'[' * 20}*a0{']' * 20}"]

        assert refused("\n".join(lines)) == [(2, "yaml.too_deep")]


class TestFiles:
    @pytest.mark.parametrize(
        "text, line, code",
        [
            ("", 1, "yaml.empty"),
            ("# only a remark\n", 1, "yaml.empty"),
            ("a: 1\n---\nb: 2", 2, "yaml.second_document"),
            ("a: [1, 2", 1, "yaml.syntax"),
            ("a: 1\n\tb: 2", 2, "yaml.syntax"),
            ("a: 1\nb: c: d", 2, "yaml.syntax"),
            ("%YAML 7.0\n---\na: 1", 1, "yaml.syntax"),
            ("a: !!python/object/apply:os.system [ls]", 1, "yaml.tag"),
            ("a: !mine x", 1, "yaml.tag"),
            ('a: "x\\0y"', 1, "yaml.unstorable"),
            ("a: \x07", 0, "yaml.syntax"),
            ("a: \ud800", 0, "yaml.syntax"),
            ("[" * 2_000 + "]" * 2_000, 1, "yaml.too_deep"),
            ("- " * 2_000 + "x", 1, "yaml.too_deep"),
        ],
    )
    def test_that_cannot_be_read_are_refused_with_the_line(self, text, line, code):
        assert refused(text)[0] == (line, code)

    def test_that_are_too_long_are_not_looked_at(self):
        assert refused("a" * (parse.TEXT_MAX + 1)) == [(0, "yaml.too_long")]

    def test_tell_all_that_is_wrong_at_once(self):
        text = """
            a: .inf
            a: 2
            b: !x 3
            c: "\\0"
            d: [
        """

        assert [line for line, _ in refused(text)[:4]] == [2, 3, 4, 5]

    def test_know_where_everything_is(self):
        text = "flow: x\nnodes:\n  - id: a\n    next:\n      no: b\n      yes: [c,\n        d]\n"

        document = read_yaml(text)

        assert document.mark_of(("nodes", 0)) == Mark(3, 5)
        assert document.mark_of(("nodes", 0, "next", "no")) == Mark(5, 7)
        assert document.mark_of(("nodes", 0, "next", "yes", 1)) == Mark(7, 9)
        assert document.mark_of(("nodes", 0, "next", "maybe")) == Mark(4, 5)
        assert document.mark_of(("nowhere",)) == Mark(1, 1)


class TestJson:
    def test_is_read_with_tabs_and_escapes(self):
        text = '{\n\t"a": "\\ud83d\\ude00 \\\\ud83d\\u00e9\\/",\n\t"b": [1, null, true]\n}'

        document = read_json(text)

        assert document.data == {"a": "😀 \\ud83dé/", "b": [1, None, True]}
        assert document.mark_of(("b",)) == Mark(3, 2)
