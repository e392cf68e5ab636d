"""What templates of a flow may name, and which inputs count as used."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Flow, task
from perdure.expr.template import DEPTH_MAX
from perdure.model.graph import Input
from tests.unit.flow_samples import codes, decide, faults, fetch, only_fault, shipping, task_at


@task
def takes_all(**fields: Any) -> Any:
    return fields


def with_config(text: Any, **inputs: str) -> Flow:
    flow = Flow("o").then(fetch)
    return flow.then(takes_all, name="send", inputs=inputs, config={"a": [{"b": text}]})


def nested(depth: int) -> Any:
    found: Any = "{{ x }}"
    for _ in range(depth):
        found = [found]
    return found


class TestConfigs:
    @pytest.mark.parametrize(
        "text",
        [
            "{{ x }}",
            "{{x.a.0}} and {{ x }}",
            "{{ x }} {{ input.a }}",
            "{{ x }} {{ run.id }} {{ run.flow }} {{ run.version }} {{ run }}",
            "{{ x }} {{ node.id }}",
            "{{ x }} {{ secret.API_KEY }}",
            "{{ x }} {{{{ not a template }}",
        ],
    )
    def test_may_name_inputs_and_what_is_built_in(self, text):
        assert task_at(with_config(text, x="fetch.output").build(), "send").config

    @pytest.mark.parametrize(
        "text, code",
        [
            (
                "{{ y }}",
                "template.undeclared_input",
            ),
            ("{{ runn.id }}", "template.undeclared_input"),
            ("{{ value }}", "template.undeclared_input"),
            ("{{ run.name }}", "template.unknown_key"),
            ("{{ node.name }}", "template.unknown_key"),
            ("{{ secret }}", "template.one_secret"),
            ("{{ secret.a.b }}", "template.one_secret"),
            ("{{ x | upper }}", "template.malformed"),
            ("{{ }}", "template.empty"),
            ("{{ x", "template.not_closed"),
        ],
    )
    def test_name_nothing_else(self, text, code):
        fault = only_fault(with_config(["{{ x }}", text], x="input").then(decide))

        where = ("nodes", "send", "config", "a", 0, "b", 1)
        assert (fault.code, fault.where) == (code, where)

    def test_without_inputs_have_none_to_name(self):
        assert codes(with_config("{{ y }}")) == ["template.undeclared_input"]
        assert codes(with_config("{{ value }}")) == ["template.undeclared_input"]

    def test_have_a_depth(self):
        flow = with_config(nested(DEPTH_MAX), x="input")

        assert "template.too_deep" in codes(flow)

    def test_tell_all_faults_at_once(self):
        assert len(faults(with_config("{{ y }} {{ z }} {{ ! }}", x="input"))) == 4

    @pytest.mark.parametrize("text", ["{{ input }}", "{{ input.a.b }}", "{{ x }} {{ input.a }}"])
    def test_that_name_the_input_of_the_run_get_it(self, text):
        inputs = {"x": "fetch.output"} if "x" in text else {}

        node = task_at(with_config(text, **inputs).build(), "send")
        assert Input(name="input") in node.inputs
        assert len(node.inputs) == 1 + len(inputs)

    def test_that_do_not_name_it_do_not(self):
        node = task_at(with_config("{{ x }} {{{{ input }}", x="fetch.output").build(), "send")

        assert node.inputs == (Input(name="x", source="fetch"),)


class TestUsedInputs:
    def test_are_named_by_a_template(self):
        fault = only_fault(with_config("{{ x }}", x="input", y="fetch.output"))

        assert (fault.code, fault.where) == ("flow.unused_input", ("nodes", "send", "inputs", "y"))

    def test_are_all_that_go_on_together(self):
        inputs = {"x": "input", "y": "fetch.output"}
        flow = (
            Flow("o")
            .then(fetch)
            .then(takes_all, inputs=inputs)
            .loop(decide, until="done", inputs=inputs)
            .flow(shipping, inputs=inputs)
            .approve("Go?", inputs=inputs)
            .approve("Go?", name="b", inputs=inputs, show=["x"])
            .approve("Go?", name="c", inputs=inputs, data="{{ x }}")
        )

        assert flow.build().name == "o"

    def test_of_approvals_are_shown_named_or_open_to_change(self):
        inputs = {"x": "input", "y": "fetch.output", "z": "input.z"}
        flow = Flow("o").then(fetch).approve("{{ x }}?", inputs=inputs, show=["y"], data={})

        fault = only_fault(flow)
        assert (fault.code, fault.args["input"]) == ("flow.unused_input", "z")

    def test_of_signals_are_named_by_their_conditions(self):
        where = {"property": "id", "op": "eq", "value": "{{ x.id }}"}
        flow = Flow("o").wait_for_signal("go", where=where, inputs={"x": "input", "y": "input"})

        fault = only_fault(flow)
        assert (fault.code, fault.args["input"]) == ("flow.unused_input", "y")

    def test_of_delays_are_named_by_their_times(self):
        assert codes(Flow("o").delay("1s", inputs={"x": "input"})) == ["flow.unused_input"]


class TestWhereTheEngineRenders:
    def test_value_is_what_comes_before_if_no_inputs_are_declared(self):
        where = {"property": "id", "op": "eq", "value": "{{ value.id }}"}
        flow = (
            Flow("o")
            .then(fetch)
            .approve("{{ value.title }}?", message="{{ value }}", data={"a": "{{ value.a }}"})
            .delay(until="{{ value.due_at }}")
            .wait_for_signal("go", where=where)
        )

        assert flow.build().name == "o"

    def test_value_is_not_there_beside_inputs(self):
        flow = Flow("o").then(fetch).approve("{{ value.title }}?", inputs={"x": "input"})

        fault = only_fault(flow)
        assert (fault.code, fault.where[2:]) == ("template.undeclared_input", ("title",))

    def test_the_input_of_the_run_changes_nothing_else(self):
        flow = Flow("o").then(fetch).approve("{{ input.title }} {{ value.a }}").build()

        assert flow.graph.nodes["approve"].inputs == ()  # type: ignore[union-attr]

    def test_there_are_no_secrets(self):
        where = {"property": "id", "op": "eq", "value": "{{ secret.ID }}"}
        flow = (
            Flow("o")
            .approve("{{ secret.A }}", message="{{ secret.B }}", data="{{ secret.C }}")
            .delay(until="{{ secret.D }}")
            .wait_for_signal("go", where=where)
        )

        told = faults(flow)
        assert [each.code for each in told] == ["template.secret"] * 5
        assert told[-1].where == ("nodes", "go", "where", "value")

    def test_no_input_is_a_secret(self):
        inputs = {"x": "secret.KEY"}
        flow = (
            Flow("o")
            .approve("{{ x }}", inputs=inputs)
            .delay(until="{{ x }}", inputs=inputs)
            .loop(decide, until="done", inputs=inputs)
            .flow(shipping, inputs=inputs)
        )

        assert codes(flow) == ["flow.secret_input"] * 4

    @pytest.mark.parametrize(
        "given, code, where",
        [
            ({"op": "eq", "value": 1}, "condition.needs_property", ("where",)),
            (
                {"all": [{"property": "a", "op": "is", "value": 1}]},
                "condition.unknown_operator",
                ("where", "all", 0, "op"),
            ),
            ("status", "condition.type", ("where",)),
            ({"property": "a", "op": "in", "value": 1}, "condition.value", ("where", "value")),
        ],
    )
    def test_conditions_are_checked(self, given, code, where):
        fault = only_fault(Flow("o").wait_for_signal("go", where=given))

        assert (fault.code, fault.where) == (code, ("nodes", "go", *where))

    @pytest.mark.parametrize(
        "options, code",
        [
            ({}, "flow.one_of"),
            ({"delay": "1s", "until": "{{ value }}"}, "flow.one_of"),
            (
                {"until": "tomorrow"},
                "argument.type",
            ),
            ({"until": "2030-01-31T08:00:00"}, "argument.naive"),
            ({"until": "{{ whenn }}"}, "template.undeclared_input"),
            ({"until": "{{ a b }}"}, "template.malformed"),
            (
                {"until": "{{ when }} {{ value }}", "inputs": {"when": "input"}},
                "template.undeclared_input",
            ),
            ({"until": 7}, "argument.type"),
        ],
    )
    def test_times_to_wait_for_are_checked(self, options, code):
        assert codes(Flow("o").delay(**options)) == [code]

    def test_a_time_is_kept_as_text(self):
        flow = Flow("o").delay(until="2030-01-31T09:00:00+01:00").build()

        assert flow.graph.nodes["delay"].until == "2030-01-31T08:00:00+00:00"  # type: ignore[union-attr]
