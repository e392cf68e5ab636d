"""Built flows run in process: what they give is what one expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from perdure import Flow, RunFailed, run_flow, task
from perdure.flows.built import BuiltFlow
from perdure.model.graph import Input, LoopNode, RouteNode
from perdure.tasks.node_type import NodeConfig, NodeType
from tests.rules.flow_samples import (
    charge,
    codes,
    decide,
    edges,
    faults,
    fetch,
    links,
    only_fault,
    score,
    task_at,
)


@task
def double(number: int) -> int:
    return number * 2


@task
def add_one(number: int) -> int:
    return number + 1


@task
def square(number: int) -> int:
    return number * number


@task
def collect(parts: dict[str, Any]) -> dict[str, Any]:
    return parts


@task
def fail(value: Any) -> Any:
    raise ValueError(f"no {value}")


@task
def name_kind(number: int) -> str:
    return "even" if number % 2 == 0 else "odd"


def show(value: Any) -> Any:
    return {"shown": value}


doubled = Flow("doubled").then(double).build()


def result_of(flow: BuiltFlow, input: Any, **signals: Any) -> Any:
    return run_flow(flow, input, signals=signals, skip_delays=True)


class TestResult:
    def test_an_empty_branch_of_a_fork_hands_on_what_came_before(self):
        flow = Flow("f").then(add_one).fork(it=None, twice=double).join(collect).build()
        assert result_of(flow, 1) == {"it": 2, "twice": 4}

    @pytest.mark.parametrize("number,expected", [(4, 16), (5, 5)])
    def test_a_route_that_ends_a_flow_gives_the_output_of_the_branch(self, number, expected):
        flow = Flow("f").route(name_kind, {"even": square, "odd": None}).build()
        assert result_of(flow, number) == expected

    def test_a_default_may_go_straight_on(self):
        flow = Flow("f").route(lambda number: number, {1: double, "default": None}).build()
        assert result_of(flow, 9) == 9

    def test_a_route_by_a_key_of_its_input(self):
        shown = Flow().then(show, name="show")
        flow = Flow("f").route("kind", {"a": shown, "b": collect}).build()
        assert result_of(flow, {"kind": "a"}) == {"shown": {"kind": "a"}}
        with pytest.raises(RunFailed) as caught:
            result_of(flow, {"sort": "a"})
        assert caught.value.failure is not None
        assert caught.value.failure.code == "node.no_key"

    def test_a_map_keeps_the_order_of_items(self):
        flow = Flow("f").fork(a=Flow().map(double, over="lines", concurrency=2), b=collect)
        built = flow.join(show, name="show").build()
        assert result_of(built, {"lines": [3, 1, 2]})["shown"]["a"] == [6, 2, 4]

    def test_a_loop_leaves_from_the_port_of_its_bound(self):
        flow = (
            Flow("f")
            .loop(double, until=lambda number: number > 50, max_iterations=2, on_max="slow")
            .node("gave_up", show, after="double:slow")
            .build()
        )
        assert result_of(flow, 1) == {"shown": 4}
        assert result_of(flow, 20) == 80

    def test_a_timeout_leads_on_from_its_port(self):
        flow = (
            Flow("f")
            .wait_for_signal("approval", timeout="1d", on_timeout="late")
            .node("remind", show, after="approval:late")
            .then(collect, after={"yes": "approval", "no": "remind"})
            .build()
        )

        assert result_of(flow, 1) == {"no": {"shown": None}}
        assert result_of(flow, 1, approval="ok") == {"yes": "ok"}

    def test_a_port_that_is_followed_does_not_hide_the_result_of_the_other(self):
        flow = (
            Flow("f")
            .wait_for_signal("approval", timeout="1d", on_timeout="late")
            .node("remind", show, after="approval:late")
            .build()
        )
        assert result_of(flow, 1, approval="ok") == "ok"
        assert result_of(flow, 1) == {"shown": None}

    def test_a_graph_of_named_predecessors(self):
        flow = (
            Flow("f")
            .node("e", collect, after={"left": "b", "right": "d"})
            .node("d", collect, after=["b", "c"])
            .node("c", square, after="a")
            .node("b", double, after="a")
            .node("a", add_one)
            .build()
        )

        assert result_of(flow, 2) == {"left": 6, "right": {"b": 6, "c": 9}}

    def test_several_starts_all_get_the_input(self):
        flow = Flow("f").node("a", double).node("b", square).then(collect, after=["a", "b"]).build()
        assert result_of(flow, 3) == {"a": 6, "b": 9}

    def test_a_skipped_branch_is_left_out_of_what_a_join_gets(self):
        flow = (
            Flow("f")
            .route(name_kind, {"even": None, "odd": None})
            .node("x", double, after="route:even")
            .node("y", square, after="route:odd")
            .node("z", collect, after=["x", "y"])
            .build()
        )
        assert result_of(flow, 3) == {"y": 9}

    def test_a_task_without_parameters_is_called_with_nothing(self):
        flow = Flow("f").then(lambda: 7, name="seven").then(double).build()
        assert result_of(flow, {"ignored": True}) == 14


# Nodes of kinds in the builder, and decisions that are told as data.


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

    def test_stand_where_requested(self):
        flow = (
            Flow("o")
            .then(score)
            .use(Translate, {"text": "a"}, name="one", retries=2, timeout="5s", undo=charge)
            .use(Translate, {"text": "b"}, after="score")
            .use(Translate, {"text": "c"}, queue="other", priority=2)
            .build()
        )

        assert links(flow) == edges("score one, score translate, translate translate-2")
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

    def test_report_everything_at_once(self):
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
