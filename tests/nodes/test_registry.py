"""The kinds that a flow may name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from perdure.errors import InvalidInput, UnknownNodeType
from perdure.nodes.http import Http
from perdure.nodes.registry import STRUCTURAL, NodeTypes
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType

COME_WITH_IT = {"match", "switch", "check", "note", "external", "http", "script"}


class Translate(NodeType):
    """Translates a text."""

    name = "translate"
    ports = ("unsure",)

    class Config(NodeConfig):
        text: str

    def execute(self, config: Config, ctx: Context) -> Any:
        return config.text


class Tree(NodeConfig):
    left: Tree | None = None
    size: int = 0


class Plant(Translate):
    name = "plant"

    class Config(NodeConfig):
        tree: Tree


def named(name: Any) -> type[NodeType]:
    return type("Odd", (Translate,), {"name": name})


class TestKinds:
    def test_has_those_that_come_with_it(self):
        assert set(NodeTypes()) == COME_WITH_IT

    def test_adds_yours_as_instance_or_class(self):
        own = Translate()

        assert NodeTypes([own])["translate"] is own
        assert isinstance(NodeTypes([Translate])["translate"], Translate)

    def test_suggests_the_nearest_for_an_unknown_name(self):
        with pytest.raises(UnknownNodeType, match="did you mean 'http'") as caught:
            NodeTypes()["htp"]

        assert "translate" not in str(caught.value)

    def test_names_all_that_are_known_for_an_unknown_name(self):
        with pytest.raises(UnknownNodeType) as caught:
            NodeTypes([Translate])["x"]

        assert all(name in str(caught.value) for name in (*STRUCTURAL, *COME_WITH_IT, "translate"))

    @pytest.mark.parametrize("name", ["", "a b", "1st", "x" * 101, "a:b", None, 3, "ä"])
    def test_refuses_a_name_that_flows_could_not_write(self, name):
        with pytest.raises(InvalidInput, match="a name is a letter"):
            NodeTypes([named(name)])

    @pytest.mark.parametrize("name", STRUCTURAL)
    def test_refuses_the_names_of_built_in_nodes(self, name):
        with pytest.raises(InvalidInput, match="that type is built in"):
            NodeTypes([named(name)])

    def test_refuses_a_name_twice(self):
        with pytest.raises(InvalidInput, match="a node type 'translate' already"):
            NodeTypes([Translate(), Translate()])

    def test_refuses_another_kind_under_the_name_of_one_that_is_there(self):
        with pytest.raises(InvalidInput, match="a node type 'http' already"):
            NodeTypes([named("http")])

    def test_lets_one_that_is_there_be_set_up_differently(self):
        own = Http(allow=["10.0.0.0/8"])

        assert NodeTypes([own])["http"] is own

    @pytest.mark.parametrize("given", [3, "http", object(), NodeType, dict])
    def test_refuses_what_is_no_kind(self, given):
        with pytest.raises(InvalidInput):
            NodeTypes([given])

    def test_refuses_one_kind_where_a_list_is_meant(self):
        with pytest.raises(InvalidInput, match="must be a list of node types"):
            NodeTypes(Translate())  # type: ignore[arg-type]

    def test_refuses_a_kind_that_does_nothing(self):
        class Idle(NodeType):
            name = "idle"

        with pytest.raises(InvalidInput, match=r"node type 'idle' has no execute\(\)"):
            NodeTypes([Idle])

    def test_refuses_a_config_that_is_no_settings(self):
        class Loose(NodeType):
            name = "loose"
            Config = dict

            def execute(self, config: Any, ctx: Context) -> Any:
                return config

        with pytest.raises(InvalidInput, match="Config of node type 'loose'"):
            NodeTypes([Loose])

    def test_refuses_a_class_that_needs_arguments(self):
        class Demanding(Translate):
            name = "demanding"

            def __init__(self, key: str) -> None:
                self.key = key

        with pytest.raises(InvalidInput, match="Demanding must be given as an instance"):
            NodeTypes([Demanding])

    def test_is_not_loaded_with_the_library(self):
        program = (
            "import sys, perdure; import perdure.nodes.registry as r; r.NodeTypes(); "
            "print([m for m in ('httpcore', 'h11', 'jsonschema') if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )

        assert done.stdout.strip() == "[]"


class TestDescribe:
    def test_tells_what_each_kind_is_for(self):
        told = {each.name: each for each in NodeTypes([Translate]).describe()}

        assert told.keys() == {*COME_WITH_IT, "translate"}
        assert told["translate"].summary == "Translates a text."
        assert told["translate"].ports == ("unsure",)
        assert all(each.summary for each in told.values())

    def test_gives_schemas_that_hold(self):
        schemas = {each.name: each.schema for each in NodeTypes().describe()}
        for schema in schemas.values():
            Draft202012Validator.check_schema(schema)
            assert "$ref" not in str(schema)
        http = Draft202012Validator(schemas["http"])

        assert http.is_valid({"url": "https://example.org", "timeout": "5s", "max_bytes": 9})
        assert http.is_valid({"url": "{{ u }}", "max_bytes": "{{ n }}", "headers": "{{ h }}"})
        assert not http.is_valid({"url": "https://example.org", "max_bytes": "many"})
        assert not http.is_valid({"url": "https://example.org", "tmeout": "5s"})
        assert not http.is_valid({})

    def test_writes_nested_and_recursive_settings_in_place(self):
        [told] = [each for each in NodeTypes([Plant]).describe() if each.name == "plant"]
        form = Draft202012Validator(told.schema)

        assert form.is_valid({"tree": {"size": 3, "left": {"size": 4}}})
        assert form.is_valid({"tree": {"size": "{{ n }}"}})
        assert not form.is_valid({"tree": {"size": "many"}})
