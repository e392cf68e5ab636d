"""What flows write, in both forms of one version; the schema and the page of the format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Flow, InvalidFlow, Retry, task
from perdure.flows.built import BuiltFlow
from perdure.flows.options import FORMS, RETRY
from perdure.flows.yaml.dump import dumped
from perdure.flows.yaml.library import Library
from perdure.flows.yaml.load import compiled, load_flow
from perdure.flows.yaml.parse import INTEGER_MAX, INTEGER_MIN, plain_document, read_yaml
from perdure.flows.yaml.schema import FLOW_KEYS, NODE_KEYS, made_schema, published_schema
from perdure.model import check
from perdure.model.graph import Definition
from perdure.model.times import duration_text
from perdure.nodes.registry import STRUCTURAL, NodeTypes
from tests.cli import sample_flows
from tests.docs.pages import page
from tests.flows.catalogue import CASES, FLOWS, PARALLEL
from tests.yaml.pairs import PAIRS
from tests.yaml.tasks import (
    TASKS,
    Translate,
    ask,
    child,
    collect,
    load,
    pay,
    price,
    take_back,
    tell,
    tick,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))

SCALARS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(
        ["yes", "no", "on", "1e3", "0o17", "0x1", "1:30", "2031-05-17", "~", "", "<<"]
    )
)

DATA: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inside: st.lists(inside) | st.dictionaries(TEXTS, inside), max_leaves=20
)


class TestWriting:
    """What flows write: short, for people, and read back as it was."""

    @given(DATA)
    def test_all_data_is_read_back_as_it_was(self, data):
        found = read_yaml(dumped({"data": data})).data["data"]
        assert found == data
        assert repr(found) == repr(data)  # which tells 1 from 1.0 and from true

    @given(st.timedeltas(timedelta(0), timedelta(days=3650)))
    def test_durations_are_read_back_as_they_were(self, duration):
        assert check.span(duration_text(duration), "x") == duration

    @pytest.mark.parametrize(
        "seconds, text",
        [(0, "0s"), (90, "1m30s"), (3600, "1h"), (0.25, "250ms"), (694_861.5, "8d1h1m1s500ms")],
    )
    def test_durations_are_written_as_people_do(self, seconds, text):
        assert duration_text(timedelta(seconds=seconds)) == text

    def test_a_flow_is_short_and_in_the_order_of_the_work(self):
        flow = (
            Flow("ship", on_failure="finish")
            .then(load, retries=Retry(3, first="2s"), timeout="1m")
            .route("kind", {"pay": pay, "no": None}, default=ask)
            .approve(
                "Ship {{ order.id }}?",
                name="ok",
                inputs={"order": "load.output"},
                message="First line.\nSecond line.",
                deadline="1d",
                on_timeout="timeout",
                on_reject="reject",
            )
            .then(tell, undo=take_back)
            .then(collect, after=["ok:reject", "ok:timeout"], gathers=False)
            .build()
        )

        assert flow.to_yaml() == Path(__file__).with_name("written.yaml").read_text("utf-8")

    def test_what_is_written_is_ones_own(self):
        flow = Flow("f").then(pay, config={"order": {"id": 1}}).build()
        flow.to_dict()["nodes"][0]["config"]["order"]["id"] = 2
        assert flow.to_dict()["nodes"][0]["config"] == {"order": {"id": 1}}

    def test_what_is_written_is_always_the_same(self):
        forwards = Flow("f").node("a", load).node("b", pay, after="a").node("c", ask, after="a")
        backwards = Flow("f").node("c", ask, after="a").node("b", pay, after="a").node("a", load)
        assert forwards.build().to_yaml() == backwards.build().to_yaml()


def in_yaml(text: str) -> BuiltFlow:
    return Flow.from_yaml(text, tasks=TASKS, node_types=[Translate], flows=[child])


def again(flow: BuiltFlow) -> Iterator[BuiltFlow]:
    """The flow as it is made from its own YAML and its own data."""
    yield Flow.from_yaml(flow.to_yaml(), tasks=[flow], node_types=[Translate])
    yield Flow.from_dict(flow.to_dict(), tasks=[flow], node_types=[Translate])


def definition(flow: BuiltFlow) -> Definition:
    return flow.graph.definition


@pytest.mark.parametrize("name", PAIRS)
class TestPairs:
    def test_have_the_same_version(self, name):
        found = in_yaml(PAIRS[name].yaml)
        assert definition(found) == definition(PAIRS[name].python)
        assert found.version == PAIRS[name].python.version

    def test_come_back_from_what_they_write(self, name):
        for found in again(PAIRS[name].python):
            assert definition(found) == definition(PAIRS[name].python)
            assert found.version == PAIRS[name].python.version

    def test_write_the_same_again(self, name):
        python = PAIRS[name].python
        [from_yaml, from_data] = again(python)
        assert from_yaml.to_yaml() == from_data.to_yaml() == python.to_yaml()


class TestPlainFunctions:
    def test_run_where_their_node_does(self):
        flow = (
            Flow("placed")
            .then(price)
            .then(lambda order: order, name="same", undo=lambda order: None)
            .then(lambda order: order, name="other", queue="fast")
            .then(lambda order: order, name="follows", priority=4)
            .loop(pay, until=lambda order: True)
            .approve("Fine?", notify=lambda detail: None)
            .build()
        )

        assert {found.version for found in again(flow)} == {flow.version}
        assert "queue: fast" in flow.to_yaml()
        assert "queue: slow" not in flow.to_yaml()

    def test_are_distinguished_from_tasks_of_the_same_name(self):
        looks_so = task(name="placed.same")(lambda order: order)
        flow = Flow("placed").then(price).then(looks_so, name="same").build()
        assert {found.version for found in again(flow)} == {flow.version}

    def test_of_a_type_run_where_their_node_does(self):
        flow = Flow("placed").then(price).use("note", {"text": "x"}, priority=3).build()
        assert {found.version for found in again(flow)} == {flow.version}
        assert "queue" not in flow.to_yaml()


class TestRareShapes:
    @pytest.mark.parametrize(
        "flow",
        [
            Flow("f").node("a", load).node("b", pay, after=["a"]),
            Flow("f").node("a", load).node("b", pay, after={"x": "a"}),
            Flow("f").node("a", load, ports=["p"]).node("b", pay, after={"x": "a:p", "y": "a"}),
            Flow("f").then(load, tags=[]).then(price, tags=[], queue="slow"),
            Flow("f").then(tick, config={}, inputs={}).then(pay),
            Flow("f").then(load).fork(a=None, b=pay).join(tell),
            Flow("f").then(load, on_error="a:b").then(tell, after="load:a:b"),
            Flow("f").then(load, timeout=0.0015, retries=0),
            Flow("f").route("k", {"a": None, "b": [load, pay]}),
            Flow("f").use("external", {"for": "x"}, ports=["b", "a"], name="outside"),
            Flow("f").use("check", {"condition": [], "value": 1}),
            Flow("f").then(load).then(pay, config={"order": "{{ input }}"}, after=["load"]),
            Flow("a: b # c").then(load, name="no").then(pay, name="1e3", undo=take_back),
        ],
    )
    def test_come_back(self, flow):
        built = flow.build()
        assert {found.version for found in again(built)} == {built.version}

    def test_of_one_name_and_two_versions(self):
        other = Flow("child").then(pay).build()
        flow = Flow("f").flow(child, name="a").flow(other, name="b").build()
        assert {found.version for found in again(flow)} == {flow.version}
        assert f"flow: child@{other.version}" in flow.to_yaml()


class TestSameVersion:
    """Python and YAML forms of a flow have one version; each can be made from the other."""

    @pytest.mark.parametrize("name", CASES)
    def test_every_flow_of_the_catalogue_comes_back(self, name):
        flow = CASES[name].flow
        assert {found.version for found in again(flow)} == {flow.version}

    @pytest.mark.parametrize(
        "flow",
        [*PARALLEL, sample_flows.orders, sample_flows.longer, sample_flows.shipping],
        ids=lambda flow: str(flow.name),
    )
    def test_other_flows_come_back(self, flow):
        assert {found.version for found in again(flow)} == {flow.version}

    def test_several_flows_can_give_the_tasks_of_one(self, tmp_path):
        """Even where they use plain functions, or kinds, under names that others have too."""
        for flow in FLOWS:
            file = tmp_path / "flow.yaml"
            file.write_text(flow.to_yaml(), encoding="utf-8")

            assert load_flow(file, tasks=FLOWS, flows=FLOWS).version == flow.version


SCHEMA = json.loads(published_schema())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def faults(data: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(data)]


WRONG: list[dict[str, Any]] = [
    {"id": "a"},
    {"task": "pay"},
    {"id": "a", "task": "pay", "colour": "red"},
    {"id": "a", "task": 5},
    {"id": "a", "type": "task"},
    {"id": "a", "task": "pay", "config": [1]},
    {"id": "a", "task": "pay", "retry": "x"},
    {"id": "a", "task": "pay", "retry": {"first": "1s"}},
    {"id": "a", "task": "pay", "priority": 99},
    {"id": "a", "task": "pay", "tags": "x"},
    {"id": "a", "task": "pay", "on_missing": "shrug"},
    {"id": "a", "task": "pay", "inputs": {"x": 5}},
    {"id": "a", "task": "pay", "inputs": {"x": {"default": 5}}},
    {"id": "a", "task": "pay", "next": 5},
    {"id": "a", "task": "pay", "next": {"x": 5}},
    {"id": "a", "task": "pay", "after": {"x": None}},
    {"id": "a", "task": "pay", "check": {"condtion": 1}},
    {"id": "a", "type": "route"},
    {"id": "a", "type": "map", "config": {"task": "pay", "concurrency": 0}},
    {"id": "a", "type": "map", "task": "pay", "config": {"task": "pay"}},
    {"id": "a", "type": "loop", "config": {"task": "pay"}},
    {"id": "a", "type": "delay", "config": {"for": []}},
    {"id": "a", "type": "delay", "retry": 3, "config": {"for": "1s"}},
    {"id": "a", "type": "signal", "timeout": "1s"},
    {"id": "a", "type": "approval", "config": {}},
    {"id": "a", "type": "approval", "config": {"title": "x", "deciders": "ann"}},
    {"id": "a", "type": "flow", "config": {}},
    {"id": "a", "type": "http", "config": {}},
    {"id": "a", "type": "http", "config": {"url": "x", "methd": "GET"}},
    {"id": "a", "type": "note", "task": "pay", "config": {"text": "x"}},
]


class TestSchema:
    """The published schema: it is current, and takes and refuses what the reader does."""

    def test_the_published_schema_is_current(self):
        """Regenerate it with ``python -m perdure.flows.yaml.schema``."""
        assert made_schema() == SCHEMA

    def test_it_is_a_schema(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def test_it_has_every_type(self):
        node_types = SCHEMA["$defs"]["node"]["properties"]["type"]["anyOf"][0]["enum"]
        assert set(node_types) == {*STRUCTURAL, *NodeTypes()}
        assert set(FORMS) == set(STRUCTURAL)

    def test_it_describes_every_key(self):
        node = SCHEMA["$defs"]["node"]["properties"]
        assert all(each.get("description") for each in node.values())
        assert set(node) == set(NODE_KEYS)

    def test_kinds_of_ones_own_can_be_added(self):
        schema = made_schema(NodeTypes([Translate]))
        data = {"flow": "f", "nodes": [{"id": "a", "type": "translate", "config": {"txt": 1}}]}
        assert jsonschema.Draft202012Validator(schema).is_valid(data) is False
        assert faults(data) == []

    @pytest.mark.parametrize("name", PAIRS)
    def test_it_takes_flows_that_are_right(self, name):
        assert faults(read_yaml(PAIRS[name].yaml).data) == []

    @pytest.mark.parametrize("name", [*PAIRS, *CASES])
    def test_it_takes_what_flows_write(self, name):
        flow = PAIRS[name].python if name in PAIRS else CASES[name].flow
        assert faults(flow.to_dict()) == []
        assert faults(read_yaml(flow.to_yaml()).data) == []

    @pytest.mark.parametrize("node", WRONG, ids=str)
    def test_it_refuses_what_the_reader_refuses(self, node):
        data = {"flow": "f", "nodes": [node]}
        with pytest.raises(InvalidFlow):
            compiled(plain_document(data), Library(TASKS, [], [child]))
        assert faults(data) != []


PAGE = page("docs/reference/yaml.md")
NAME = re.compile(r"`([^`]+)`")


def names_under(heading: str) -> set[str]:
    return {NAME.findall(row[0])[0] for row in PAGE.table_under(heading)}


class TestReferencePage:
    """The page about the format names every key, and no other."""

    def test_every_key_of_a_flow_is_there(self):
        assert names_under("The flow") == {*FLOW_KEYS, "nodes"}

    def test_every_key_of_a_node_is_there(self):
        assert names_under("A node") == set(NODE_KEYS)

    @pytest.mark.parametrize(
        "found_type", [found_type for found_type in FORMS if found_type != "task"]
    )
    def test_every_key_of_a_config_is_there(self, found_type):
        assert names_under(found_type) == set(FORMS[found_type].settings)

    def test_every_key_of_a_retry_is_there_with_its_default(self):
        keys: dict[str, Any] = RETRY["anyOf"][1]["properties"]
        shown = {NAME.findall(row[0])[0]: NAME.findall(row[1]) for row in PAGE.table_under("Retry")}
        assert shown.keys() == keys.keys()
        for key, described in keys.items():
            if "default" in described:
                assert shown[key] == [str(described["default"]).lower()]
