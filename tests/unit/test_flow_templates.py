"""What templates of a flow may name, and which inputs count as used."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Flow, task
from perdure.errors import InvalidFlow
from perdure.expr.template import DEPTH_MAX
from perdure.model.graph import Input
from tests.unit.flow_samples import decide, fetch, shipping, task_at


@task
def takes_all(**fields: Any) -> Any:
    return fields


def faults(flow: Flow) -> list[str]:
    with pytest.raises(InvalidFlow) as caught:
        flow.build()
    return list(caught.value.errors)


def only_fault(flow: Flow) -> str:
    [fault] = faults(flow)
    return fault


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
    def test_may_name_inputs_and_what_is_built_in(self, text: str) -> None:
        assert task_at(with_config(text, x="fetch.output").build(), "send").config

    @pytest.mark.parametrize(
        "text,told",
        [
            (
                "{{ y }}",
                "template '{{ y }}' in config.a.0.b: 'y' is none of its inputs; it has 'x'",
            ),
            ("{{ runn.id }}", "'runn' is none of its inputs; did you mean 'run'?"),
            ("{{ value }}", "'value' is none of its inputs"),
            ("{{ run.name }}", "'run' has 'id', 'flow', 'version', and no 'name'"),
            ("{{ node.name }}", "'node' has 'id', and no 'name'"),
            ("{{ secret }}", "name one secret: {{ secret.NAME }}"),
            ("{{ secret.a.b }}", "name one secret: {{ secret.NAME }}"),
            ("{{ x | upper }}", "config.a.0.b: '{{ x | upper }}' is not a template"),
            ("{{ }}", "config.a.0.b: '{{ }}' is empty"),
            ("{{ x", "has no closing '}}'"),
        ],
    )
    def test_name_nothing_else(self, text: str, told: str) -> None:
        fault = only_fault(with_config(["{{ x }}", text], x="input").then(decide))

        assert fault.startswith("node 'send' (.then number 2): ")
        assert told in fault.replace("a.0.b.1", "a.0.b")

    def test_without_inputs_have_none_to_name(self) -> None:
        assert 'as it declares none; declare it: inputs={"y": ...}' in only_fault(
            with_config("{{ y }}")
        )
        assert 'declare it: inputs={"value": ...}' in only_fault(with_config("{{ value }}"))

    def test_have_a_depth(self) -> None:
        flow = with_config(nested(DEPTH_MAX), x="input")

        assert any("nested deeper than" in fault for fault in faults(flow))

    def test_tell_all_faults_at_once(self) -> None:
        assert len(faults(with_config("{{ y }} {{ z }} {{ ! }}", x="input"))) == 4

    @pytest.mark.parametrize("text", ["{{ input }}", "{{ input.a.b }}", "{{ x }} {{ input.a }}"])
    def test_that_name_the_input_of_the_run_get_it(self, text: str) -> None:
        inputs = {"x": "fetch.output"} if "x" in text else {}

        node = task_at(with_config(text, **inputs).build(), "send")
        assert Input(name="input") in node.inputs
        assert len(node.inputs) == 1 + len(inputs)

    def test_that_do_not_name_it_do_not(self) -> None:
        node = task_at(with_config("{{ x }} {{{{ input }}", x="fetch.output").build(), "send")

        assert node.inputs == (Input(name="x", source="fetch"),)


class TestUsedInputs:
    def test_are_named_by_a_template(self) -> None:
        assert only_fault(with_config("{{ x }}", x="input", y="fetch.output")) == (
            "node 'send' (.then number 2): input 'y' is never used: no template of its config "
            "names it"
        )

    def test_are_all_that_go_on_together(self) -> None:
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

    def test_of_approvals_are_shown_named_or_open_to_change(self) -> None:
        inputs = {"x": "input", "y": "fetch.output", "z": "input.z"}
        flow = Flow("o").then(fetch).approve("{{ x }}?", inputs=inputs, show=["y"], data={})

        assert only_fault(flow).endswith(
            "input 'z' is never used: no template names it, and it is not shown"
        )

    def test_of_signals_are_named_by_their_conditions(self) -> None:
        where = {"property": "id", "op": "eq", "value": "{{ x.id }}"}
        flow = Flow("o").wait_for_signal("go", where=where, inputs={"x": "input", "y": "input"})

        assert only_fault(flow).endswith("'y' is never used: where= has no template that names it")

    def test_of_delays_are_named_by_their_times(self) -> None:
        assert only_fault(Flow("o").delay("1s", inputs={"x": "input"})).endswith(
            "input 'x' is never used: until= has no template that names it"
        )


class TestWhereTheEngineRenders:
    def test_value_is_what_comes_before_if_no_inputs_are_declared(self) -> None:
        where = {"property": "id", "op": "eq", "value": "{{ value.id }}"}
        flow = (
            Flow("o")
            .then(fetch)
            .approve("{{ value.title }}?", message="{{ value }}", data={"a": "{{ value.a }}"})
            .delay(until="{{ value.due_at }}")
            .wait_for_signal("go", where=where)
        )

        assert flow.build().name == "o"

    def test_value_is_not_there_beside_inputs(self) -> None:
        flow = Flow("o").then(fetch).approve("{{ value.title }}?", inputs={"x": "input"})

        assert "template '{{ value.title }}' in title: 'value' is none of its" in only_fault(flow)

    def test_the_input_of_the_run_changes_nothing_else(self) -> None:
        flow = Flow("o").then(fetch).approve("{{ input.title }} {{ value.a }}").build()

        assert flow.graph.nodes["approve"].inputs == ()  # type: ignore[union-attr]

    def test_there_are_no_secrets(self) -> None:
        where = {"property": "id", "op": "eq", "value": "{{ secret.ID }}"}
        flow = (
            Flow("o")
            .approve("{{ secret.A }}", message="{{ secret.B }}", data="{{ secret.C }}")
            .delay(until="{{ secret.D }}")
            .wait_for_signal("go", where=where)
        )

        told = faults(flow)
        assert len(told) == 5
        assert all("there are no secrets here" in each for each in told)
        assert "template '{{ secret.ID }}' in where.value: " in told[-1]

    def test_no_input_is_a_secret(self) -> None:
        inputs = {"x": "secret.KEY"}
        flow = (
            Flow("o")
            .approve("{{ x }}", inputs=inputs)
            .delay(until="{{ x }}", inputs=inputs)
            .loop(decide, until="done", inputs=inputs)
            .flow(shipping, inputs=inputs)
        )

        told = faults(flow)
        assert len(told) == 4
        assert all("input 'x' is a secret; only tasks and kinds can have one" in x for x in told)

    @pytest.mark.parametrize(
        "where,told",
        [
            ({"op": "eq", "value": 1}, "where: needs 'property'"),
            (
                {"all": [{"property": "a", "op": "is", "value": 1}]},
                'where at all.0.op: "is" is not',
            ),
            ("status", "where: must be an object or a list"),
            ({"property": "a", "op": "in", "value": 1}, "where at value: must be a list"),
        ],
    )
    def test_conditions_are_checked(self, where: Any, told: str) -> None:
        assert told in only_fault(Flow("o").wait_for_signal("go", where=where))

    @pytest.mark.parametrize(
        "options,told",
        [
            ({}, "give either how long to wait, or until=... when"),
            ({"delay": "1s", "until": "{{ value }}"}, "give either how long to wait, or until="),
            (
                {"until": "tomorrow"},
                "until must be a time such as 2030",
            ),
            ({"until": "2030-01-31T08:00:00"}, "needs a time zone"),
            ({"until": "{{ whenn }}"}, "'whenn' is none of its inputs"),
            ({"until": "{{ a b }}"}, "until: '{{ a b }}' is not a template"),
            ({"until": "{{ when }} {{ value }}", "inputs": {"when": "input"}}, "'value' is none"),
            ({"until": 7}, "until must be a datetime (got 7)"),
        ],
    )
    def test_times_to_wait_for_are_checked(self, options: Any, told: str) -> None:
        assert told in only_fault(Flow("o").delay(**options))

    def test_a_time_is_kept_as_text(self) -> None:
        flow = Flow("o").delay(until="2030-01-31T09:00:00+01:00").build()

        assert flow.graph.nodes["delay"].until == "2030-01-31T08:00:00+00:00"  # type: ignore[union-attr]
