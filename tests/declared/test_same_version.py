"""Python and YAML forms of a flow have the same version, and each can be made from the other."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

from perdure import Flow, task
from perdure.flows.built import BuiltFlow
from perdure.flows.yaml.load import load_flow
from perdure.model.graph import Definition
from tests.cli import sample_flows
from tests.declared.pairs import PAIRS
from tests.declared.tasks import TASKS, Translate, child, load, pay, price, take_back, tell, tick
from tests.flows.catalogue import CASES, FLOWS, PARALLEL


def in_yaml(text: str) -> BuiltFlow:
    return Flow.from_yaml(textwrap.dedent(text), tasks=TASKS, node_types=[Translate], flows=[child])


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


@pytest.mark.parametrize("name", CASES)
def test_every_flow_of_the_catalogue_comes_back(name):
    flow = CASES[name].flow

    assert {found.version for found in again(flow)} == {flow.version}


@pytest.mark.parametrize(
    "flow",
    [*PARALLEL, sample_flows.orders, sample_flows.longer, sample_flows.shipping],
    ids=lambda flow: str(flow.name),
)
def test_other_flows_come_back(flow):
    assert {found.version for found in again(flow)} == {flow.version}


def test_several_flows_can_give_the_tasks_of_one(tmp_path):
    """Even where they use plain functions, or kinds, under names that others have too."""
    for flow in FLOWS:
        file = tmp_path / "flow.yaml"
        file.write_text(flow.to_yaml(), encoding="utf-8")

        assert load_flow(file, tasks=FLOWS, flows=FLOWS).version == flow.version


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

    def test_are_told_from_tasks_of_the_same_name(self):
        looks_so = task(name="placed.same")(lambda order: order)
        flow = Flow("placed").then(price).then(looks_so, name="same").build()

        assert {found.version for found in again(flow)} == {flow.version}

    def test_of_a_kind_run_where_their_node_does(self):
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
