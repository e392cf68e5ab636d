"""Templates: what they may name, and what is filled in."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure import Flow, task
from perdure.errors import InvalidInput, TemplateMissing
from perdure.expr.template import (
    DEPTH_MAX,
    TEXT_MAX,
    TemplateSkips,
    render,
    template_faults,
    template_names,
)
from perdure.model.graph import Input
from tests.rules.flow_samples import codes, decide, faults, fetch, only_fault, shipping, task_at
from tests.support.refusal import refused

texts = st.text(st.characters(codec="utf-8"))

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from(["{{ x }}", "{{", "}}", "{{{{ x }}", "a {{ value }} b"]),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)

SCOPE: dict[str, Any] = {
    "order": {"total": 120.5, "paid": False, "items": ["a", {"b": 1}], "note": None, "id": "o-7"},
    "sly": "{{ order.id }}",
    "count": 3,
}


def nested(levels: int, inside: Any = "{{ count }}") -> Any:
    for _ in range(levels):
        inside = [inside]
    return inside


class TestAnExactTemplate:
    @pytest.mark.parametrize(
        "text, value",
        [
            ("{{ order.total }}", 120.5),
            ("{{order.paid}}", False),
            ("{{\torder.note\n}}", None),
            ("{{ order.items }}", ["a", {"b": 1}]),
            ("{{ order.items.1.b }}", 1),
            ("{{ order.id }}", "o-7"),
        ],
    )
    def test_keeps_the_type_of_the_value(self, text, value):
        rendered = render(text, SCOPE)
        assert rendered == value
        assert type(rendered) is type(value)

    @given(value=json_values)
    def test_keeps_any_value_as_it_is(self, value):
        assert render("{{ given.value }}", {"given": {"value": value}}) is value


class TestATextWithTemplates:
    @pytest.mark.parametrize(
        "text, rendered",
        [
            ("total: {{ order.total }} EUR", "total: 120.5 EUR"),
            (" {{ count }}", " 3"),
            ("{{ count }}{{ count }}", "33"),
            ("{{ order.id }}/{{ order.paid }}/{{ order.note }}", "o-7/false/null"),
            ("items {{ order.items }}", 'items ["a",{"b":1}]'),
            ('{"a":{{ count }}}', '{"a":3}'),
            ("ends }} and { begins }", "ends }} and { begins }"),
        ],
    )
    def test_becomes_text(self, text, rendered):
        assert render(text, SCOPE) == rendered

    @pytest.mark.parametrize(
        "text, rendered",
        [
            ("{{{{", "{{"),
            ("{{{{ count }}", "{{ count }}"),
            ("{{{{{{ count }}", "{{3"),
            ("{{{{{{{{", "{{{{"),
            ("{{{{{ count }}", "{{{ count }}"),
            ("a {{{{ {{ count }}", "a {{ 3"),
        ],
    )
    def test_has_four_braces_for_two_literal_ones(self, text, rendered):
        assert template_faults(text) == []
        assert render(text, SCOPE) == rendered

    @given(text=texts)
    def test_can_be_any_literal_text(self, text):
        assert render(text.replace("{{", "{{{{"), {}) == text

    @given(value=texts)
    @example(value="{{ value }}")
    @example(value="{{ missing }}")
    @example(value="{{")
    @example(value="{{{{")
    def test_never_reads_data_as_a_template(self, value):
        assert render("<{{ value }}>", {"value": value}) == f"<{value}>"
        assert render("{{ value }}{{ value }}", {"value": value}) == value + value

    def test_does_not_let_two_values_make_a_template(self):
        assert render("{{ a }}{{ b }}", {"a": "{{ order", "b": ".id }}"}) == "{{ order.id }}"


class TestAConfig:
    def test_is_filled_at_any_depth_and_else_unchanged(self):
        config = {
            "message": "order {{ order.id }}",
            "{{ count }}": "keys are not templates",
            "list": [1, 2.5, None, True, "{{ count }}", {"deep": "{{ sly }}"}],
        }

        assert render(config, SCOPE) == {
            "message": "order o-7",
            "{{ count }}": "keys are not templates",
            "list": [1, 2.5, None, True, 3, {"deep": "{{ order.id }}"}],
        }

    @given(config=json_values.filter(lambda value: "{{" not in repr(value)))
    def test_without_templates_is_itself(self, config):
        assert render(config, {}) == config

    def test_may_have_tuples_for_lists(self):
        assert render(({"a": ("{{ n }}",)},), {"n": 1}) == [{"a": [1]}]

    def test_takes_any_mapping_as_scope(self):
        scope = MappingProxyType({"secret": MappingProxyType({"TOKEN": "t"})})
        assert render({"auth": "Bearer {{ secret.TOKEN }}"}, scope) == {"auth": "Bearer t"}

    def test_may_be_nested_just_so_deep(self):
        assert render(nested(DEPTH_MAX), SCOPE) == nested(DEPTH_MAX, 3)
        for levels in (DEPTH_MAX + 1, 100_000):
            with refused("template.too_deep", InvalidInput, most=DEPTH_MAX):
                render(nested(levels), SCOPE)
            with refused("template.too_deep", InvalidInput, most=DEPTH_MAX):
                template_names(nested(levels))
            [fault] = template_faults(nested(levels))
            assert fault.code == "template.too_deep"

    def test_cannot_grow_without_bound(self):
        config = ["{{ big }}, {{ big }}"] * 20
        with refused("template.too_long", InvalidInput, most=TEXT_MAX):
            render(config, {"big": "x" * 1_000_000})

    @pytest.mark.parametrize(
        "big", ["x" * 1_000_000, ["x" * 1_000] * 1_000, {"a": "x" * 1_000_000}]
    )
    def test_values_of_their_own_count_too(self, big):
        """Finding 8: 3.7 kB with a 1 MB input cost 1.15 GB, because exact templates were free."""
        assert render(["{{ big }}"] * 9, {"big": big}) == [big] * 9
        with refused("template.too_long", InvalidInput, most=TEXT_MAX):
            render({f"k{number}": "{{ big }}" for number in range(250)}, {"big": big})

    def test_one_large_value_may_exceed_the_default_payload(self):
        """Finding 8: a worker may allow larger payloads."""
        big = ["x" * 1_000] * 5_000
        assert render("{{ big }}", {"big": big}) is big


class TestWhatIsMissing:
    def test_is_an_error_with_template_place_and_key(self):
        with pytest.raises(TemplateMissing) as caught:
            render({"to": [{"text": "hello {{ order.nmae }}"}]}, SCOPE)
        assert (caught.value.template, caught.value.where) == ("{{ order.nmae }}", "to.0.text")
        with refused("template.missing", TemplateMissing):
            render("{{ order.note.x }}", SCOPE)  # inside null

    def test_is_reported_with_the_node_where_that_is_known(self):
        with pytest.raises(TemplateMissing) as caught:
            render("{{ nothing }}", SCOPE)
        sentence = caught.value.of_node("notify")
        assert (sentence.node, sentence.template, sentence.where) == ("notify", "{{ nothing }}", "")

    @pytest.mark.parametrize(
        "text, rendered", [("{{ nothing.x }}", None), ("<{{ nothing.x }}>", "<>")]
    )
    def test_is_null_or_no_text_by_default(self, text, rendered):
        assert render(text, SCOPE, "default") == rendered

    def test_skips(self):
        with pytest.raises(TemplateSkips) as caught:
            render({"a": ["{{ order.x }}"]}, SCOPE, "skip")
        assert (caught.value.template, caught.value.where) == ("{{ order.x }}", "a.0")

    @pytest.mark.parametrize("on_missing", ["error", "default", "skip"])
    @pytest.mark.parametrize("value", [0, False, "", [], {}, None])
    def test_is_no_empty_value(self, on_missing, value):
        assert render("{{ x.y }}", {"x": {"y": value}}, on_missing) == value


MALFORMED = [
    ("{{", "template.not_closed"),
    ("a {{ b", "template.not_closed"),
    ("{{ a }", "template.not_closed"),
    ("{{}}", "template.empty"),
    ("{{   }}", "template.empty"),
    ("{{ a.b() }}", "template.malformed"),
    ("{{ 1+1 }}", "template.malformed"),
    ("{{ a | upper }}", "template.malformed"),
    ("{{ a b }}", "template.malformed"),
    ("{{ a. }}", "template.malformed"),
    ("{{ .a }}", "template.malformed"),
    ("{{ a..b }}", "template.malformed"),
    ("{{ a . b }}", "template.malformed"),
    ("{{ a[0] }}", "template.malformed"),
    ("{{ 'a' }}", "template.malformed"),
    ("{{{ a }}}", "template.malformed"),
    ("{{ {{ a }} }}", "template.malformed"),
    ("{{ a\nb }}", "template.malformed"),
    ("{{ a\n.b }}", "template.malformed"),
]


class TestAMalformedTemplate:
    @pytest.mark.parametrize("text, code", MALFORMED)
    def test_is_refused_with_its_place(self, text, code):
        config = {"body": ["fine {{ count }}", text]}
        [fault] = template_faults(config)
        assert (fault.where, fault.code) == (("body", 1), code)
        with refused(code, InvalidInput, where=("body", 1)):
            render(config, {"a": {"b": 1}, **SCOPE}, "default")

    def test_is_reported_with_all_others(self):
        faults = template_faults({"a": "{{ }} {{ x }} {{ y! }}", "b": "{{"})
        assert [fault.where for fault in faults] == [("a",), ("a",), ("b",)]

    def test_is_shortened(self):
        [fault] = template_faults("{{ " + "a b" * 1000 + " }}")
        assert len(str(fault)) < 300

    def test_is_none_where_there_are_only_sound_ones(self):
        assert template_faults(["{{ a-b.c_d.0 }}", "{{größe}}", 7, None]) == []

    @given(config=json_values)
    def test_is_reported_exactly_where_rendering_refuses(self, config):
        if template_faults(config):
            with pytest.raises(InvalidInput):
                render(config, {}, "default")
        else:
            render(config, {}, "default")


class TestTemplateNames:
    def test_are_all_in_order_with_path_and_place(self):
        found = template_names({"a": ["{{ x }} and {{ y.b.0 }}", 7], "b": {"c": "{{ x.z }}"}})
        assert [(use.name, use.path, use.where) for use in found] == [
            ("x", (), ("a", 0)),
            ("y", ("b", "0"), ("a", 0)),
            ("x", ("z",), ("b", "c")),
        ]
        assert [use.text for use in found] == ["{{ x }}", "{{ y.b.0 }}", "{{ x.z }}"]

    def test_leave_out_keys_literals_and_malformed_ones(self):
        assert template_names({"{{ a }}": "{{{{ b }} {{ c() }}"}) == []


class TestALongText:
    """A megabyte of whatever might make a matcher go back: the suite's timeout is the measure."""

    @pytest.mark.parametrize(
        "text",
        [
            "{{ " + "a" * 1_000_000 + "! }}",
            "{{ " + "a." * 500_000 + " }}",
            "{{" * 500_000,
            "{{ a " * 200_000,
            "{{" + " " * 1_000_000,
            "{{" + " " * 1_000_000 + "}}",
            "{{}}" * 250_000,
            "{" * 1_000_001,
        ],
    )
    def test_is_read_in_one_pass(self, text):
        faults = template_faults(text)
        assert all(len(str(fault)) < 300 for fault in faults)

    def test_is_filled_in_one_pass(self):
        assert render("{{ a }}," * 125_000, {"a": "{{"}) == "{{," * 125_000


# What templates of a flow may name, and which inputs count as used.


@task
def takes_all(**fields: Any) -> Any:
    return fields


def with_config(text: Any, **inputs: str) -> Flow:
    flow = Flow("o").then(fetch)
    return flow.then(takes_all, name="send", inputs=inputs, config={"a": [{"b": text}]})


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
            ("{{ y }}", "template.undeclared_input"),
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
        flow = with_config(nested(DEPTH_MAX, "{{ x }}"), x="input")
        assert "template.too_deep" in codes(flow)

    def test_report_all_faults_at_once(self):
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

    def test_are_all_that_continue_together(self):
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

    def test_value_is_not_available_with_inputs(self):
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

        sentence = faults(flow)
        assert [each.code for each in sentence] == ["template.secret"] * 5
        assert sentence[-1].where == ("nodes", "go", "where", "value")

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
        "options, code",
        [
            ({}, "flow.one_of"),
            ({"delay": "1s", "until": "{{ value }}"}, "flow.one_of"),
            ({"until": "tomorrow"}, "argument.type"),
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
