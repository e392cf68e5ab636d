"""Configs before templates are filled in: everything that is wrong, with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from perdure.diagnostics import Fault, declare, render
from perdure.expr.path import Path
from perdure.nodes.config import config_faults, has_template
from perdure.nodes.http import Http
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType


class Address(NodeConfig):
    street: str
    number: int = 1


WORST = declare("test.worst", "the worst")


class Send(NodeType):
    name = "send"

    class Config(NodeConfig, rename={"from_": "from"}):
        to: Address
        from_: str
        copies: int = 1
        parts: list[Address] = []  # noqa: RUF012  # msgspec copies it
        labels: dict[str, int] = {}  # noqa: RUF012
        extra: Any = None

    def execute(self, config: Config, ctx: Context) -> Any:
        return config.copies

    def faults_of(self, config: Mapping[str, Any]) -> list[str | tuple[Path, str] | Fault]:
        if config.get("extra") == "bad":
            return ["extra is bad", (("extra",), "worse"), WORST.fault(("extra",))]
        return []


FITS = {"to": {"street": "Main"}, "from": "Ann"}


def faults(**changed: Any) -> list[tuple[Path, str]]:
    return told(config_faults(Send(), {**FITS, **changed}))


def told(faults: list[Fault]) -> list[tuple[Path, str]]:
    return [(fault.where, render(fault)) for fault in faults]


class TestConfigFaults:
    def test_finds_none_where_all_fits(self):
        assert faults(copies=3, parts=[{"street": "x"}], labels={"a": 1}, extra=[None]) == []

    def test_names_every_fault_with_its_place(self):
        found = config_faults(
            Send(),
            {"too": 1, "copies": "many", "to": {"street": 3, "nmber": 2}, "labels": {"a": ""}},
        )

        assert [fault.code for fault in found] == [
            "config.unknown_setting",
            "config.unknown_setting",
            "config.type",
            "config.missing_setting",
            "config.type",
            "config.type",
        ]
        assert told(found) == [
            (("too",), "unknown setting 'too'; did you mean 'to'?"),
            (("to", "nmber"), "unknown setting 'nmber'; did you mean 'number'?"),
            (("to", "street"), "expected str, got int"),
            ((), "needs 'from'"),
            (("copies",), "expected int, got str"),
            (("labels", "a"), "expected int, got str"),
        ]

    @pytest.mark.parametrize(
        "changed",
        [
            {"copies": "{{ n }}"},
            {"to": "{{ address }}"},
            {"to": {"street": "{{ s }}", "number": "{{ n }}"}},
            {"parts": "{{ all }}"},
            {"parts": ["{{ one }}", {"street": "x"}]},
            {"labels": {"a": "{{ n }}"}},
            {"labels": {"a": "1{{ n }}"}},
        ],
    )
    def test_leaves_alone_what_templates_stand_for(self, changed):
        assert faults(**changed) == []

    def test_looks_beside_templates(self):
        found = faults(
            to={"street": "{{ s }}", "number": "one", "zip": 3},
            parts=["{{ one }}", {"number": 2}, {"street": "{{ s }}", "number": None}],
            labels={"a": "{{ n }}", "b": "two"},
        )

        assert [where for where, _ in found] == [
            ("to", "zip"),
            ("to", "number"),
            ("parts", 1),
            ("parts", 2, "number"),
            ("labels", "b"),
        ]

    def test_a_template_for_the_whole_may_be_anything(self):
        assert config_faults(Send(), "{{ all }}") == []

    @pytest.mark.parametrize("config", [3, [], "text", True])
    def test_what_is_no_object_is_told(self, config):
        [fault] = config_faults(Send(), config)

        assert fault.where == ()
        assert fault.code == "config.not_an_object"

    def test_no_config_lacks_what_is_needed(self):
        assert told(config_faults(Send(), None)) == [((), "needs 'to'"), ((), "needs 'from'")]

    def test_asks_the_kind_itself(self):
        assert faults(extra="bad") == [
            ((), "extra is bad"),
            (("extra",), "worse"),
            (("extra",), "the worst"),
        ]

    def test_asks_the_kind_about_single_settings_also_where_types_of_others_are_wrong(self):
        assert faults(extra="bad", copies="x") == [
            (("copies",), "expected int, got str"),
            (("extra",), "worse"),
            (("extra",), "the worst"),
        ]

    def test_asks_the_kind_nothing_about_what_is_wrong_already(self):
        found = config_faults(Http(), {"url": 5, "timeout": -4, "headers": {"X Y": [[]]}})

        assert [fault.where for fault in found] == [("url",), ("headers", "X Y"), ("timeout",)]

    def test_leaves_it_at_the_types_where_the_kind_relies_on_them(self):
        class Relies(Send):
            def faults_of(self, config: Mapping[str, Any]) -> list[str | tuple[Path, str] | Fault]:
                return [(("from",), f"{len(config['to'])}")]

        assert told(config_faults(Relies(), {"from": "Ann"})) == [((), "needs 'to'")]

    def test_says_that_keys_are_no_templates(self):
        assert faults(**{"{{ key }}": 1}) == [
            (
                ("{{ key }}",),
                "'{{ key }}' is a key, which is never a template: only a value is",
            )
        ]

    def test_keys_that_yaml_reads_as_numbers_are_texts(self):
        assert faults(labels={404: 1}) == []
        assert faults(labels={404: "x"}) == [(("labels", "404"), "expected int, got str")]

    def test_what_json_cannot_carry_is_told(self):
        [(where, reason)] = faults(extra=object())

        assert where == ()
        assert "cannot be written as JSON" in reason

    def test_survives_what_is_nested_without_end(self):
        deep: Any = "x"
        for _ in range(100_000):
            deep = [deep]

        [(_, reason)] = faults(extra=deep)

        assert "JSON" in reason


class TestHasTemplate:
    @pytest.mark.parametrize("value", ["{{ a }}", ["x", {"y": "a {{ b }}"}], {"k": ["{{"]}])
    def test_finds_one_anywhere(self, value):
        assert has_template(value)

    @pytest.mark.parametrize("value", ["a", 3, None, ["x", {"{{ k }}": "y"}], "{ {"])
    def test_finds_none_where_none_is(self, value):
        assert not has_template(value)
