"""Inputs by name: what a source means when a flow is built, and what a node gets when it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

import perdure
from perdure import Flow
from perdure.flows.built import BuiltFlow
from perdure.model.graph import DelayNode, Input, OnMissing, OutputCheck, TaskNode, inputs_of
from perdure.model.run import NodeStatus, RunStatus, WaitType
from tests.rules.flow_samples import (
    call_of,
    charge,
    codes,
    decide,
    edges,
    faults,
    fetch,
    links,
    only_fault,
    pack,
    path_of,
    shipping,
    task_at,
)
from tests.rules.graphs import chain, child, graph, loop, mapped, named, route, signal, task
from tests.rules.played import Played


@perdure.task
def send(order: Any, who: str = "nobody", *, urgent: bool = False) -> Any:
    return order, who, urgent


@perdure.task
def takes_all(**fields: Any) -> Any:
    return fields


@perdure.task
def by_position(order: Any, /, who: str = "") -> Any:
    return order


def sent(inputs: Any, **options: Any) -> Flow:
    flow: Flow = Flow("orders").then(fetch)
    return flow.then(takes_all, name="send", inputs=inputs, **options)


def input_named(flow: BuiltFlow, name: str, id: str = "send") -> Input:
    [found] = [each for each in inputs_of(flow.graph.nodes[id]) if each.name == name]
    return found


class TestSources:
    @pytest.mark.parametrize(
        "source,expected",
        [
            ("fetch.output", Input(name="x", source="fetch")),
            ("fetch.output.a.0.b", Input(name="x", source="fetch", path=("a", "0", "b"))),
            ("fetch.output.output", Input(name="x", source="fetch", path=("output",))),
            ("fetch.output.outputs", Input(name="x", source="fetch", path=("outputs",))),
            ("input", Input(name="x")),
            ("input.customer.name", Input(name="x", path=("customer", "name"))),
            ("input.output.name", Input(name="x", path=("output", "name"))),
            ("secret.API_KEY", Input(name="x", secret="API_KEY")),
        ],
    )
    def test_are_a_node_the_input_of_the_run_or_a_secret(self, source, expected):
        assert input_named(sent({"x": source}).build(), "x") == expected

    @pytest.mark.parametrize(
        "source,node,path",
        [
            ("a.output", "a", ()),
            ("a.output.b", "a", ("b",)),
            ("a.b.output", "a.b", ()),
            ("a.output.output", "a.output", ()),
            ("a.output.output.output", "a.output", ("output",)),
            ("input.output.x", "input", ("x",)),
            ("secret.output", "secret", ()),
        ],
    )
    def test_mean_the_node_with_the_longest_id_that_fits(self, source, node, path):
        flow = Flow("orders")
        for id in ("a", "a.b", "a.output", "input", "secret"):
            flow.then(decide, name=id)
        flow.then(takes_all, name="send", inputs={"x": source})
        assert input_named(flow.build(), "x") == Input(name="x", source=node, path=path)

    def test_may_be_nodes_that_are_added_later(self):
        flow = (
            Flow("orders")
            .node("send", takes_all, after="last", inputs={"x": "first.output"})
            .node("first", fetch)
            .node("last", decide, after="first")
        )
        assert input_named(flow.build(), "x").source == "first"

    def test_may_have_a_default(self):
        flow = sent({"x": {"from": "fetch.output.a", "default": [1]}}, on_missing="default").build()
        assert input_named(flow, "x") == Input(name="x", source="fetch", path=("a",), default=[1])
        assert task_at(flow, "send").on_missing == "default"

    def test_are_kept_in_the_order_of_their_names(self):
        flow = sent({"b": "input.b", "a": "input.a"}).build()
        assert [each.name for each in task_at(flow, "send").inputs] == ["a", "b"]
        assert flow.version == sent({"a": "input.a", "b": "input.b"}).build().version

    @pytest.mark.parametrize(
        "inputs, code, where",
        [
            ({"x": "fetch.total"}, "flow.no_output", "inputs.x"),
            ({"x": "fetch"}, "flow.no_output", "inputs.x"),
            ({"x": "fetched"}, "flow.not_a_source", "inputs.x"),
            ({"x": ".output"}, "flow.not_a_source", "inputs.x"),
            ({"x": ""}, "flow.not_a_source", "inputs.x"),
            ({"x": "secret"}, "flow.not_a_source", "inputs.x"),
            ({"x": "secret."}, "flow.secret_name", "inputs.x"),
            ({"x": "secret.a.b"}, "flow.secret_name", "inputs.x"),
            ({"x": "fetch.output..a"}, "flow.invalid_path", "inputs.x"),
            ({"x": "input."}, "flow.invalid_path", "inputs.x"),
            ({"x": 7}, "flow.not_a_source", "inputs.x"),
            ({"x": {"default": 0}}, "flow.not_a_source", "inputs.x"),
            ({"x": {"from": "input", "defualt": 0}}, "flow.unknown_input_field", "inputs.x"),
            ({7: "input"}, "flow.input_name", "inputs.7"),
            ({"a..b": "input"}, "flow.input_characters", "inputs.a..b"),
            ({".a": "input"}, "flow.input_characters", "inputs..a"),
            ({"run.a": "input"}, "flow.reserved_input", "inputs.run.a"),
            ({"a": "input", "a.b": "input"}, "flow.input_within", "inputs.a.b"),
            (["fetch.output"], "argument.type", "inputs"),
            ({"run": "input"}, "flow.reserved_input", "inputs.run"),
            ({"input": "input.a"}, "flow.reserved_input", "inputs.input"),
            ({"x": {"from": "input.a", "default": 0}}, "flow.unused_default", "inputs.x"),
        ],
    )
    def test_are_refused_where_they_mean_nothing(self, inputs, code, where):
        fault = only_fault(sent(inputs))
        assert (fault.code, path_of(fault)) == (code, f"send.{where}")
        assert call_of(fault) == ".then number 2"

    def test_are_reported_how_they_would_be_written_and_secrets_have_no_default(self):
        assert only_fault(sent({"x": "fetch.total"})).args["correct"] == "fetch.output.total"
        default = {"from": "secret.KEY", "default": "x"}
        assert codes(sent({"x": default}, on_missing="default")) == ["flow.secret_default"]

    def test_that_are_missing_mean_one_of_three_things(self):
        fault = only_fault(sent({"x": "input"}, on_missing="ignore"))
        assert (fault.code, fault.where[2:]) == ("argument.choice", ("on_missing",))

    def test_all_faults_are_reported_at_once(self):
        refused = faults(sent({"a": "fetch", "b": 7, "c": "later.output", "run": "input"}))
        assert sorted((each.where[-1], each.code) for each in refused) == [
            ("a", "flow.no_output"),
            ("b", "flow.not_a_source"),
            ("c", "flow.unknown_node"),
            ("run", "flow.reserved_input"),
        ]


class TestUpstream:
    def test_is_everything_that_an_edge_leads_from(self):
        flow = (
            Flow("orders")
            .then(fetch)
            .fork(a=charge, b=[decide, pack])
            .join(takes_all, name="send", inputs={"x": "fetch.output", "y": "decide.output"})
        )
        assert input_named(flow.build(), "y").source == "decide"

    @pytest.mark.parametrize("source", ["charge", "send", "last"])
    def test_is_nothing_beside_it_behind_it_or_itself(self, source):
        flow = (
            Flow("orders")
            .then(fetch)
            .then(takes_all, name="send", inputs={"x": f"{source}.output"})
            .then(decide, name="last")
            .then(charge, after="fetch")
        )

        fault = only_fault(flow)
        assert (fault.code, fault.args["source"]) == ("flow.not_upstream", source)
        assert fault.where == ("nodes", "send", "inputs", "x")

    def test_has_only_nodes_that_there_are(self):
        near, other = only_fault(sent({"x": "fetsh.output.a"})), only_fault(sent({"x": "b.output"}))
        assert near.code == other.code == "flow.unknown_node"
        assert near.args["nearest"] == ("fetch",)
        assert other.args["known"] == ("fetch",)

    def test_may_be_skipped_on_a_way_to_it(self):
        flow = (
            Flow("orders")
            .route("kind", {"a": charge, "b": decide})
            .then(takes_all, name="send", inputs={"x": "charge.output"}, on_missing="skip")
        )
        assert input_named(flow.build(), "x").source == "charge"

    def test_is_not_asked_for_behind_a_cycle(self):
        flow = (
            Flow("orders")
            .node("a", fetch, after="b")
            .node("b", decide, after="a")
            .node("send", takes_all, after="b", inputs={"x": "a.output"})
        )
        assert codes(flow) == ["flow.cycle", "flow.unreachable"]

    def test_is_found_in_large_flows_in_time(self):
        flow = Flow("large").then(decide, name="n0")
        for number in range(1, 3_000):
            source = f"n{number // 2}.output"
            flow.then(takes_all, name=f"n{number}", inputs={"x": source if number > 1 else "input"})
        assert len(flow.build().graph.nodes) == 3_000


class TestArguments:
    def test_are_the_inputs_by_name(self):
        flow = Flow("o").then(fetch).then(send, inputs={"order": "fetch.output", "who": "input"})
        node = task_at(flow.build(), "send")
        assert not node.is_plain
        assert node.config is None

    def test_are_the_config_by_name_if_there_is_one_which_is_a_storable_object(self):
        config = {"order": "{{ o.id }}", "urgent": True}
        flow = Flow("o").then(fetch).then(send, inputs={"o": "fetch.output"}, config=config)
        assert task_at(flow.build(), "send").config == config
        assert task_at(Flow("o").then(takes_all, config={}).build(), "takes_all").config == {}
        wrong: Any
        for wrong in (7, ["a"], "text"):
            assert codes(Flow("o").then(takes_all, config=wrong)) == ["argument.type"]
        unstorable = Flow("o").then(takes_all, config={"a": object()})
        assert codes(unstorable) == ["payload.not_serializable"]

    @pytest.mark.parametrize(
        "options, code",
        [
            ({"inputs": {"ordr": "input"}}, "flow.no_parameter"),
            ({"inputs": {"x": "input"}}, "flow.no_parameter"),
            ({"inputs": {"who": "input"}}, "flow.no_argument"),
            ({"config": {"who": "me"}}, "flow.no_argument"),
            ({"config": {}}, "flow.no_argument"),
            ({"config": {"order": 1, "when": 2}}, "flow.no_parameter"),
            ({"inputs": {"a": "input", "b": "input"}}, "flow.no_parameter"),
        ],
    )
    def test_must_fit_the_parameters(self, options, code):
        found = faults(Flow("o").then(send, **options))
        assert code in [fault.code for fault in found]
        assert {fault.where for fault in found} == {("nodes", "send", "body")}

    def test_that_are_misspelled_are_reported_with_the_nearest(self):
        [unknown, missing] = faults(Flow("o").then(send, inputs={"ordr": "input"}))
        assert unknown.args["nearest"] == ("order",)
        assert (missing.code, missing.args["name"]) == ("flow.no_argument", "order")

    def test_are_not_given_by_name_where_they_go_by_position(self):
        flow = Flow("o").then(by_position, inputs={"order": "input"})
        assert "flow.positional_parameter" in codes(flow)

    def test_do_not_count_the_context(self):
        def body(order: Any, ctx: Any) -> Any: ...

        flow = Flow("o").then(body, name="body", inputs={"order": "input"})
        assert task_at(flow.build(), "body").call.task == "o.body"

    def test_of_a_task_with_several_need_names(self):
        @perdure.task
        def two(one: Any, other: Any) -> Any: ...

        assert codes(Flow("o").then(two)) == ["flow.one_value"]
        named = Flow("o").then(two, inputs={"one": "input.a", "other": "input.b"}).build()
        assert len(task_at(named, "two").inputs) == 2


class TestNodesWithInputs:
    def test_gather_nothing_along_their_edges(self):
        flow = (
            Flow("orders")
            .fork(a=fetch, b=charge)
            .join(takes_all, name="send", inputs={"x": "fetch.output"})
            .build()
        )
        assert not task_at(flow, "send").gathers
        assert links(flow) == edges("fetch send, charge send")

    def test_may_follow_several_that_are_there_together(self):
        after = ["fetch", "charge"]
        inputs = {"x": "fetch.output"}
        flow = (
            Flow("orders")
            .fork(a=fetch, b=charge)
            .loop(decide, until="done", name="loop", after=after, inputs=inputs)
            .map(decide, over="x", name="map", after=after, inputs=inputs)
            .flow(shipping, after=after, inputs=inputs)
            .wait_for_signal("go", after=after, inputs=inputs, where=where_x())
            .approve("Go?", after=after, inputs=inputs)
            .build()
        )

        taking = [id for id, node in flow.graph.nodes.items() if inputs_of(node)]
        assert sorted(taking) == ["approve", "go", "loop", "map", "shipping"]

    def test_that_wait_for_a_time_still_hand_on_one_value(self):
        inputs = {"x": "fetch.output"}
        one = Flow("o").then(fetch).delay(until="{{ x.due_at }}", inputs=inputs).build()
        several = (
            Flow("o")
            .fork(a=fetch, b=charge)
            .delay(until="{{ x.due_at }}", after=["fetch", "charge"], inputs=inputs)
        )

        assert input_named(one, "x", "delay").source == "fetch"
        assert codes(several) == ["flow.takes_one_value"]

    def test_may_be_child_flows_after_then(self):
        flow = Flow("o").then(fetch).then(shipping, inputs={"x": "fetch.output"}).build()
        assert input_named(flow, "x", "shipping").source == "fetch"

    @pytest.mark.parametrize("option", ["config", "ports", "check", "input_schema", "on_timeout"])
    def test_that_are_child_flows_have_no_settings_of_tasks(self, option):
        options: Any = {option: {}}
        fault = only_fault(Flow("o").then(shipping, **options))
        assert (fault.code, fault.where[2:]) == ("flow.task_option", (option,))

    def test_that_map_name_the_list(self):
        def mapped(**options: Any) -> Flow:
            return Flow("o").then(fetch).map(decide, **options)

        assert mapped(inputs={"lines": "fetch.output.lines"}, over="lines").build().name == "o"
        assert codes(mapped(inputs={"a": "input"})) == ["flow.over_missing"]
        assert codes(mapped(inputs={"a": "input"}, over="b")) == ["flow.over_missing"]
        unused = only_fault(mapped(inputs={"a": "input", "b": "input"}, over="a"))
        assert (unused.code, unused.where[-1]) == ("flow.unused_map_input", "b")


class TestSettings:
    def test_become_part_of_the_node(self):
        schema = {"type": "object"}
        condition = {"property": "total", "op": "gt", "value": 0}
        flow = (
            Flow("o")
            .then(
                fetch,
                ports=["late"],
                on_timeout="overdue",
                input_schema=schema,
                output_schema=True,
                check={"schema": schema, "condition": condition, "advisory": True},
            )
            .then(charge, after="fetch:late")
            .then(pack, after="fetch:overdue")
            .build()
        )

        assert task_at(flow, "fetch") == TaskNode(
            id="fetch",
            call=task_at(Flow("o").then(fetch).build(), "fetch").call,
            ports=("late",),
            on_timeout="overdue",
            input_schema=schema,
            output_schema=True,
            check=OutputCheck(schema=schema, condition=condition, is_advisory=True),
        )
        assert task_at(flow, "fetch").is_plain

    @pytest.mark.parametrize(
        "options, code, where",
        [
            ({"check": {"type": "object"}}, "argument.unknown", "check.type"),
            ({"check": {"shema": {}}}, "argument.unknown", "check.shema"),
            ({"check": {}}, "flow.empty_check", "check"),
            ({"check": {"advisory": True}}, "flow.empty_check", "check"),
            ({"check": {"schema": {}, "advisory": 1}}, "argument.type", "check.advisory"),
            ({"check": {"schema": 7}}, "argument.type", "check.schema"),
            ({"check": {"schema": {"type": "objekt"}}}, "form.any_of", "check.schema.type"),
            (
                {"check": {"condition": {"property": "a"}}},
                "condition.needs_operator",
                "check.condition",
            ),
            ({"check": 7}, "argument.type", "check"),
            ({"input_schema": {"type": "objekt"}}, "form.any_of", "input_schema.type"),
            ({"output_schema": {"minimum": "a"}}, "form.type", "output_schema.minimum"),
            ({"output_schema": [1]}, "argument.type", "output_schema"),
            ({"ports": "late"}, "argument.type", "ports"),
            ({"ports": ["a", "a"]}, "flow.duplicate_name", "ports.1"),
            ({"ports": ["default"]}, "flow.reserved_port", "ports.0"),
            ({"ports": [""]}, "argument.name", "ports.0"),
            ({"on_timeout": "late"}, "flow.unused_port", "on_timeout"),
        ],
    )
    def test_are_refused_where_they_cannot_work(self, options, code, where):
        fault = only_fault(Flow("o").then(fetch, **options))
        assert (fault.code, path_of(fault)) == (code, f"fetch.{where}")
        assert call_of(fault) == ".then number 1"

    def test_a_port_that_nothing_follows_ends_there(self):
        flow = Flow("o").then(fetch, ports=["late"]).then(charge).build()
        assert flow.graph.ends == ["fetch", "charge"]
        assert not flow.graph.definition.gathers


def where_x() -> dict[str, Any]:
    return {"property": "id", "op": "eq", "value": "{{ x }}"}


# Inputs that nodes name: from the outputs before them, the run's input, or not there at all.


class TestNamedInputs:
    def test_are_gathered_from_outputs_and_the_runs_input(self):
        takes = named(total="price.output.sum", who="input.customer.name", whole="load.output")
        run = Played(
            graph(
                task("load"),
                task("price"),
                task("ship", inputs=takes),
                edges="load price, price ship",
            ),
            {"customer": {"name": "Ann"}},
        )
        run.finish("load", [1, 2])
        run.finish("price", {"sum": 3})

        assert run.inputs["ship"] == {"total": 3, "who": "Ann", "whole": [1, 2]}

    @pytest.mark.parametrize("value", [0, False, "", [], {}, None])
    def test_what_is_empty_is_not_missing(self, value):
        run = Played(chain(task("a"), task("b", inputs=named(x="a.output.x"))))
        run.finish("a", {"x": value})
        assert run.inputs["b"] == {"x": value}

    def test_are_the_input_of_maps_loops_and_children(self):
        run = Played(
            graph(
                mapped("m", over="rows", inputs=named(rows="input.rows")),
                loop("l", inputs=named(n="input.n")),
                child("f", inputs=named(n="input.n")),
            ),
            {"rows": [1, 2], "n": 5},
        )

        assert run.inputs["m[1]"] == 2
        assert run.inputs["l#1"] == {"n": 5}
        assert run.inputs["f"] == {"n": 5}

    def test_secrets_are_left_to_the_worker(self):
        key = Input(name="key", secret="API_KEY")
        run = Played(chain(task("a", inputs=(key, *named(n="input")))), 1)
        assert run.inputs["a"] == {"n": 1}


def _skipping(on_missing: OnMissing, default: Any = None) -> Played:
    """``b`` wants the output of ``x``, a branch that the run does not take."""
    takes = (Input(name="got", source="x", path=("v",), default=default),)
    run = Played(
        graph(
            route("r", "left", "right"),
            task("x"),
            task("y"),
            task("b", inputs=takes, on_missing=on_missing),
            task("end"),
            edges="r.left x, r.right y, x b, y b, b end",
        )
    )
    run.finish("r", "right")
    run.finish("y")
    return run


class TestWhatIsMissing:
    def test_fails_the_node(self):
        run = _skipping("error")
        assert run.status == RunStatus.FAILED
        assert run.failure.code == "node.input_missing"

    def test_may_have_a_default(self):
        assert _skipping("default", default=7).inputs["b"] == {"got": 7}
        assert _skipping("default").inputs["b"] == {"got": None}

    def test_may_skip_the_node_and_what_follows_only_it(self):
        run = _skipping("skip")
        assert run.nodes["b"] is NodeStatus.SKIPPED
        assert run.nodes["end"] is NodeStatus.SKIPPED
        assert run.status == RunStatus.COMPLETED
        assert "NodeSkipped" in run.types

    def test_continues_from_the_port_for_errors_if_there_is_one(self):
        run = Played(
            graph(
                task("a"),
                task("b", inputs=named(x="a.output.x"), on_error="oops"),
                task("mend"),
                edges="a b, b.oops mend",
            )
        )
        run.finish("a", {"xs": 1})

        assert run.inputs["mend"]["type"] == "perdure.errors.InvalidInput"


class TestPorts:
    def test_a_result_chooses_which_edges_are_taken(self):
        run = Played(
            graph(
                task("a", ports=("big", "small")),
                task("b"),
                task("c"),
                task("join", inputs=named(a="a.output")),
                edges="a.big b, a.small c, b join, c join",
            )
        )
        run.finish("a", 1, port="big")

        assert run.nodes["c"] is NodeStatus.SKIPPED
        run.finish("b")
        assert run.inputs["join"] == {"a": 1}

    def test_a_port_without_an_edge_ends_the_branch(self):
        run = Played(graph(task("a", ports=("none",)), task("b"), edges="a b"))
        run.finish("a", "end", port="none")
        assert run.nodes["b"] is NodeStatus.SKIPPED
        assert run.result == "end"

    def test_a_port_that_the_node_does_not_have_fails_it(self):
        run = Played(chain(task("a", ports=("x",)), task("b")))
        run.finish("a", 1, port="y")
        assert run.failure.code == "node.ended_on_unknown_port"


class TestSkipping:
    def test_a_body_may_have_its_node_skipped(self):
        run = Played(graph(task("a"), task("b"), task("c"), task("j"), edges="a b, a c, b j, c j"))
        run.finish("a")
        run.skip("b", "nothing to do")
        run.finish("c", 3)
        assert run.nodes["b"] is NodeStatus.SKIPPED
        assert run.inputs["j"] == 3

    def test_a_skipped_item_is_null_in_the_list(self):
        run = Played(graph(mapped("m")), [1, 2])
        run.skip("m[0]")
        run.finish("m[1]", 4)
        assert run.result == [None, 4]


class TestDelaysUntilATime:
    @pytest.mark.parametrize("at", ["x", "2027-01-01T08:00:00"])  # of no zone
    def test_fail_where_a_template_gives_no_time(self, at):
        run = Played(graph(DelayNode(id="d", delay_ms=0, until="{{ value.at }}")), {"at": at})
        assert run.failure.code == "node.invalid_time"

    def test_are_over_at_that_time(self):
        at = "2027-01-01T08:00:00+01:00"
        run = Played(graph(DelayNode(id="d", delay_ms=0, until="{{ value.at }}")), {"at": at})
        [wait] = run.decision.waits
        assert (wait.type, wait.due_at) == (WaitType.TIMER, datetime(2027, 1, 1, 7, tzinfo=UTC))
        run.due("d")
        assert run.result == {"at": at}


class TestFilteredSignals:
    WHERE: ClassVar[dict[str, str]] = {"property": "order", "op": "eq", "value": "{{ id }}"}

    def _run(self) -> Played:
        node = replace(signal("s"), where=self.WHERE, inputs=named(id="input.id"))
        return Played(chain(node, task("end")), {"id": 7})

    def test_take_only_a_payload_that_fits(self):
        run = self._run()
        [wait] = run.decision.waits
        assert b'"value":7' in wait.detail

        run.signal("go", {"order": 8})
        run.signal("go", "no object")
        assert run.status == RunStatus.WAITING
        run.signal("go", {"order": 7, "paid": True})

        assert run.inputs["end"] == {"order": 7, "paid": True}
        assert dict(run.state.signals) == {"go": (2, 3)}

    def test_a_payload_that_is_no_object_has_no_properties(self):
        first = {"property": "0", "op": "eq", "value": "x"}
        none = {"property": "0", "op": "exists", "value": False}
        run = Played(graph(signal("s", where=first), signal("other", where=none)))
        run.signal("go", ["x"])
        assert list(run.live) == ["s"]
        assert run.output("other") == ["x"]

    def test_two_waits_each_get_their_own(self):
        nodes = [
            replace(signal(f"s{n}"), where={"property": "n", "op": "eq", "value": n})
            for n in (1, 2)
        ]
        run = Played(graph(*nodes))
        run.signal("go", {"n": 2})
        run.signal("go", {"n": 1})
        assert (run.output("s1"), run.output("s2")) == ({"n": 1}, {"n": 2})
