"""Nodes of kinds in the builder, and decisions that are told as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from perdure import Flow
from perdure.flows.built import BuiltFlow
from perdure.model.graph import Input, LoopNode, RouteNode
from perdure.tasks.node_type import NodeConfig, NodeType
from tests.unit.flow_samples import (
    charge,
    codes,
    decide,
    faults,
    fetch,
    links,
    only_fault,
    score,
    task_at,
)

IS_LARGE: Any = {"conditions": {"property": "total", "op": "gt", "value": 100}}


class Translate(NodeType):
    """Says it in other words."""

    name = "translate"
    ports = ("unsure",)

    class Config(NodeConfig):
        text: str
        to: str = "en"

    def execute(self, config: Any, ctx: Any) -> Any: ...

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return (*self.ports, f"in_{config.get('to', 'en')}")


class Nameless(NodeType):
    def execute(self, config: Any, ctx: Any) -> Any: ...


class TestKinds:
    @pytest.mark.parametrize("found_type", [Translate, Translate()])
    def test_may_be_yours(self, found_type):
        flow = (
            Flow("o").use(found_type, {"text": "{{ text }}"}, inputs={"text": "input.text"}).build()
        )

        node = task_at(flow, "translate")
        assert node.type == "translate"
        assert node.config == {"text": "{{ text }}"}
        assert node.inputs == (Input(name="text", path=("text",)),)
        assert node.ports == ("unsure", "in_en")
        assert node.call.task == "o.translate"
        assert list(flow.tasks) == ["o.translate"]

    def test_may_be_those_that_come_with_it_by_name(self):
        flow = (
            Flow("o")
            .then(fetch)
            .use("match", IS_LARGE, inputs={"total": "fetch.output.total"})
            .then(charge, after="match:true")
            .then(decide, after="match:false")
            .build()
        )

        assert task_at(flow, "match").ports == ("true", "false")
        assert ("match:true", "charge") in links(flow)

    def test_have_ports_by_their_config_and_more(self):
        flow = Flow("o").use(Translate, {"text": "a", "to": "de"}, ports=["else"]).build()

        assert task_at(flow, "translate").ports == ("unsure", "in_de", "else")

    def test_stand_where_they_are_told(self):
        flow = (
            Flow("o")
            .then(score)
            .use(Translate, {"text": "a"}, name="one", retries=2, timeout="5s", undo=charge)
            .use(Translate, {"text": "b"}, after="score")
            .use(Translate, {"text": "c"}, queue="other", priority=2)
            .build()
        )

        assert links(flow) == {
            ("score", "one"),
            ("score", "translate"),
            ("translate", "translate-2"),
        }
        assert (task_at(flow, "one").call.queue, task_at(flow, "one").call.priority) == ("slow", 1)
        assert task_at(flow, "translate-2").call.queue == "other"
        undo = task_at(flow, "one").undo
        assert undo is not None
        assert undo.task == "charge"

    def test_need_no_config_if_there_is_nothing_to_set(self):
        class Idle(NodeType):
            name = "idle"

            def execute(self, config: Any, ctx: Any) -> Any: ...

        assert task_at(Flow("o").use(Idle).build(), "idle").config == {}

    @pytest.mark.parametrize(
        "found_type, config, code",
        [
            (Translate, {}, "config.missing_setting"),
            (Translate, {"txt": "a", "text": "b"}, "config.unknown_setting"),
            (Translate, {"text": 7}, "config.type"),
            (Translate, ["text"], "argument.type"),
            ("match", {"conditions": {"op": "eq"}}, "condition.needs_property"),
            ("translate", {}, "flow.unknown_node_type"),
            ("htp", {}, "flow.unknown_node_type"),
            ("delay", {}, "flow.structural_type"),
            (Nameless, {}, "node_type.invalid_name"),
            (7, {}, "node_type.invalid"),
            (fetch, {}, "node_type.invalid"),
        ],
    )
    def test_are_refused_where_they_cannot_work(self, found_type, config, code):
        assert codes(Flow("o").use(found_type, config))[0] == code

    def test_are_told_of_everything_at_once(self):
        options: Any = {"ports": ["unsure"], "output_schema": {"type": "x"}, "retrys": 1}
        flow = Flow("o").use(Translate, {"text": "{{ a }}"}, on_error="bad", **options)

        assert sorted((each.code, each.where[2]) for each in faults(flow)) == [
            ("argument.unknown", "retrys"),
            ("flow.duplicate_name", "ports"),
            ("flow.unused_port", "on_error"),
            ("form.any_of", "output_schema"),
            ("template.undeclared_input", "config"),
        ]

    def test_that_are_added_as_tasks_are_refused(self):
        body: Any = Translate
        assert codes(Flow("o").then(body, name="a")) == ["flow.node_type_as_task"]

    def test_count_inputs_that_they_look_at_as_used(self):
        inputs = {"total": "fetch.output.total", "other": "fetch.output"}

        unused = only_fault(Flow("o").then(fetch).use("match", IS_LARGE, inputs=inputs))
        assert (unused.code, unused.where[-1]) == ("flow.unused_input", "other")
        checked = Flow("o").then(fetch).use("check", {"schema": {"type": "object"}}, inputs=inputs)
        assert checked.build().name == "o"

    def test_look_at_declared_inputs_only(self):
        fault = only_fault(Flow("o").use("match", IS_LARGE))

        assert (fault.code, fault.args["name"]) == ("flow.undeclared_input", "total")
        assert fault.where == ("nodes", "match", "config")

    def test_may_look_at_the_input_of_the_run(self):
        conditions = {"property": "input.total", "op": "gt", "value": 1}

        node = task_at(Flow("o").use("match", {"conditions": conditions}).build(), "match")
        assert node.inputs == (Input(name="input"),)


class TestDecisionsAsData:
    def test_routes_keep_their_key(self):
        assert route_of(Flow("o").route("kind", {"a": charge}).build()).key == "kind"
        assert route_of(Flow("o").route(lambda order: "a", {"a": charge}).build()).key == ""

    def test_loops_keep_their_key_or_condition(self):
        condition = {"property": "done", "op": "eq", "value": True}

        assert loop_of(Flow("o").loop(fetch, until="done").build()).until == "done"
        assert loop_of(Flow("o").loop(fetch, until=condition).build()).until == condition
        assert loop_of(Flow("o").loop(fetch, until=[condition]).build()).until == [condition]
        assert loop_of(Flow("o").loop(fetch, until=lambda order: True).build()).until is None

    def test_a_condition_is_asked_about_the_output(self):
        condition = {"property": "order.total", "op": "ge", "value": 3}
        flow = Flow("o").loop(fetch, until=condition).build()

        is_done = flow.tasks[loop_of(flow).check.task]
        assert [is_done({"order": {"total": n}}) for n in (2, 3)] == [False, True]
        assert is_done("text") is False

    def test_functions_of_two_conditions_have_two_names(self):
        def check_of(value: int) -> str:
            condition = {"property": "total", "op": "ge", "value": value}
            return loop_of(Flow("o").loop(fetch, until=condition).build()).check.task

        assert check_of(1) == check_of(1)
        assert check_of(1) != check_of(2)
        assert check_of(1).startswith("o.fetch.until:")

    @pytest.mark.parametrize(
        "until, code, where",
        [
            (
                {"property": "a", "op": "is", "value": 1},
                "condition.unknown_operator",
                ("until", "op"),
            ),
            ({"property": "a", "op": "eq"}, "condition.needs_value", ("until",)),
            ({"all": {}}, "condition.not_a_list", ("until", "all")),
            (
                {"property": "a", "op": "eq", "value": object()},
                "payload.not_serializable",
                ("until",),
            ),
        ],
    )
    def test_conditions_are_checked(self, until, code, where):
        fault = only_fault(Flow("o").loop(fetch, until=until))

        assert (fault.code, fault.where) == (code, ("nodes", "fetch", *where))


def route_of(flow: BuiltFlow) -> RouteNode:
    node = flow.graph.nodes["route"]
    assert isinstance(node, RouteNode)
    return node


def loop_of(flow: BuiltFlow) -> LoopNode:
    node = flow.graph.nodes["fetch"]
    assert isinstance(node, LoopNode)
    return node
