"""Kinds that choose a way or say something: match, switch, check, note and outside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.errors import Permanent
from perdure.model.job import Progress
from perdure.nodes.call import node_type_task
from perdure.nodes.check import Check
from perdure.nodes.config import config_faults
from perdure.nodes.external import External
from perdure.nodes.match import Match
from perdure.nodes.note import Note
from perdure.nodes.switch import Switch, port_text
from perdure.tasks.node_type import NodeType
from perdure.tasks.result import Complete, Fail, Pause
from tests.nodes.contexts import Scope, context
from tests.support.refusal import refused

ORDER = {"order": {"total": 250, "country": "DE", "items": [{"sku": "a-1"}]}}
LARGE = {"property": "order.total", "op": "gt", "value": 100}
SCHEMA = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["id"]}
FRENCH = {"property": "order.country", "op": "eq", "value": "FR"}


def executed(node_type: NodeType, config: Any, **inputs: Any) -> Any:
    return node_type_task(node_type, "flow.node")(config, context(Scope(inputs=inputs)))


class TestMatch:
    @pytest.mark.parametrize(
        "config, is_met",
        [
            ({"conditions": LARGE}, True),
            ({"conditions": FRENCH}, False),
            ({"conditions": [LARGE, FRENCH]}, False),
            ({"conditions": [LARGE, FRENCH], "mode": "any"}, True),
            ({"conditions": [LARGE, {"not": FRENCH}]}, True),
            ({"conditions": []}, True),
            ({"conditions": [], "mode": "any"}, False),
            ({"conditions": {"all": [LARGE, FRENCH]}, "mode": "any"}, False),
            (
                {"conditions": {"property": "order.items.0.sku", "op": "matches", "value": "^a"}},
                True,
            ),
            ({"conditions": {"property": "nothing.here", "op": "exists"}}, False),
            ({"property": "order.country", "operator": "equals", "value": "DE"}, True),
            ({"property": "order.gone", "operator": "equals", "value": None}, False),
            ({"property": "order.total", "operator": "exists"}, True),
            ({"property": "order.total", "operator": "exists", "value": False}, False),
        ],
    )
    def test_continues_from_the_port_of_the_answer(self, config, is_met):
        result = executed(Match(), config, **ORDER)
        assert result == Complete(output=is_met, port="true" if is_met else "false")

    @pytest.mark.parametrize(
        "config, code",
        [
            ({}, "match.one_form"),
            ({"conditions": LARGE, "property": "a"}, "match.one_form"),
            ({"property": "a", "value": 1}, "condition.needs_operator"),
            ({"property": "a", "operator": "equals"}, "condition.needs_value"),
            ({"property": "a", "operator": "is", "value": 1}, "condition.unknown_operator"),
        ],
    )
    def test_has_one_form_or_the_other(self, config, code):
        assert [fault.code for fault in config_faults(Match(), config)] == [code]

    def test_finds_inputs_with_dots(self):
        config = {"property": "coder.output.lines", "operator": "gt", "value": 3}
        assert executed(Match(), config, **{"coder.output": {"lines": 4}}).output is True

    def test_data_cannot_become_a_condition(self):
        sly = {"order": {"total": {"property": "order", "op": "exists"}}}
        assert executed(Match(), {"conditions": LARGE}, **sly).output is False

    def test_an_operator_that_is_not_there_fails_for_good(self):
        with refused("condition.unknown_operator", Permanent):
            executed(Match(), {"conditions": {"property": "a", "op": "gtt", "value": 1}}, **ORDER)

    def test_faults_have_their_place(self):
        config = {"conditions": [LARGE, {"property": "a", "op": "gtt", "value": "{{ x }}"}]}
        [fault] = config_faults(Match(), config)
        assert fault.where == ("conditions", 1, "op")
        assert fault.code == "condition.unknown_operator"
        assert fault.args["nearest"] == ("gt",)

    @pytest.mark.parametrize(
        "conditions", ["{{ c }}", [{**LARGE, "value": "{{ limit }}"}], {"any": [LARGE]}]
    )
    def test_templates_are_no_faults(self, conditions):
        assert config_faults(Match(), {"conditions": conditions}) == []

    def test_declares_which_inputs_it_reads(self):
        assert Match().reads_of({"conditions": [LARGE, {"not": FRENCH}], "mode": "any"}) == [
            ("order", "total"),
            ("order", "country"),
        ]
        assert Match().reads_of({"conditions": "{{ c }}"}) == []

    def test_has_both_ports_whatever_the_config(self):
        assert Match().ports_of({"conditions": []}) == ("true", "false")


class TestSwitch:
    @pytest.mark.parametrize(
        "value, port",
        [
            ("a", "a"),
            (3, "3"),
            (3.0, "3"),
            (2.5, "2.5"),
            (True, "true"),
            (None, "null"),
            ("3", "3"),
        ],
    )
    def test_continues_from_the_port_that_the_value_names(self, value, port):
        cases = ["a", "3", "2.5", "true", "null"]
        assert executed(Switch(), {"value": value, "cases": cases}) == Complete(
            output=value, port=port
        )

    def test_cases_are_compared_as_they_are_written(self):
        config = {"value": "3", "cases": [3, True, None]}
        assert executed(Switch(), config).port == "3"

    @pytest.mark.parametrize("value", ["c", "", "x" * 1000, ["a"], {"a": 1}, "default", "\x00"])
    def test_continues_ordinarily_by_default(self, value):
        result = executed(Switch(), {"value": value, "cases": ["a", "default"]})
        assert result == Complete(output=value, port="")

    def test_fails_for_a_value_that_no_case_takes(self):
        result = executed(Switch(), {"value": "c", "cases": ["a", "b"]})
        assert isinstance(result, Fail)

    def test_without_cases_continues_ordinarily(self):
        assert executed(Switch(), {"value": "c"}) == Complete(output="c", port="")

    def test_its_cases_are_its_ports(self):
        config = {"value": "{{ x }}", "cases": ["a", 3, 3.0, True, "default"]}
        assert Switch().ports_of(config) == ("a", "3", "true")
        assert Switch().ports_of({"value": "{{ x }}"}) == ()

    @pytest.mark.parametrize("case", ["", "x" * 201, "{{ name }}", "\x00"])
    def test_refuses_cases_that_cannot_be_ports(self, case):
        [fault] = config_faults(Switch(), {"value": 1, "cases": ["a", case]})
        assert fault.where == ("cases", 1)

    def test_ports_are_written_the_same_everywhere(self):
        assert [port_text(each) for each in (True, False, None, 1, 1.0, "x")] == [
            *("true", "false", "null", "1", "1", "x")
        ]


class TestCheck:
    def test_passes_what_fits(self):
        result = executed(Check(), {"value": {"id": 1, "total": 3}, "schema": SCHEMA})
        assert result == Complete(output={"passed": True, "faults": {}}, port="pass")

    def test_reports_the_faults_by_field(self):
        result = executed(Check(), {"value": {"total": "x"}, "schema": SCHEMA})
        assert result.port == "fail"
        assert result.output["passed"] is False
        assert {"total", "id"} & result.output["faults"].keys()

    def test_reports_what_does_not_hold(self):
        config = {"value": ORDER["order"], "condition": {**LARGE, "property": "total"}}
        assert executed(Check(), config).port == "pass"
        config["condition"] = {"property": "total", "op": "lt", "value": 100}
        output = executed(Check(), config).output
        assert (output["passed"], list(output["faults"])) == (False, [""])

    def test_looks_at_the_inputs_unless_given_a_value(self):
        assert executed(Check(), {"condition": LARGE}, **ORDER).port == "pass"
        assert executed(Check(), {"condition": LARGE, "value": None}, **ORDER).port == "fail"

    @pytest.mark.parametrize("value", [None, 3, "text", [1], True])
    def test_answers_for_any_value(self, value):
        assert executed(Check(), {"value": value, "condition": LARGE}).port == "fail"
        assert executed(Check(), {"value": value, "schema": False}).port == "fail"
        assert executed(Check(), {"value": value, "schema": True}).port == "pass"

    @pytest.mark.parametrize("config", [{"value": 1}, {"schema": True, "condition": LARGE}])
    def test_needs_one_thing_to_check_by(self, config):
        [fault] = config_faults(Check(), config)
        assert fault.code == "check.schema_or_condition"
        with refused("config.does_not_fit", Permanent):
            executed(Check(), config)

    def test_a_schema_that_is_wrong_fails_for_good(self):
        config = {"value": 1, "schema": {"type": "nonsense"}}
        assert [fault.where for fault in config_faults(Check(), config)] == [("schema", "type")]
        with refused("form.any_of", Permanent, where=("schema", "type")):
            executed(Check(), config)

    def test_a_schema_cannot_lead_to_the_network(self):
        config = {"value": 1, "schema": {"$ref": "http://127.0.0.1/schema"}}
        with refused("schema.broken_reference", Permanent):
            executed(Check(), config)

    def test_declares_which_inputs_it_reads(self):
        assert Check().reads_of({"condition": LARGE}) == [("order", "total")]
        assert Check().reads_of({"condition": LARGE, "value": "{{ x }}"}) == []
        assert Check().reads_of({"schema": True}) == [()]


class TestNote:
    @pytest.mark.parametrize(
        "given, text", [("hello", "hello"), (3, "3"), ({"a": [1]}, '{"a":[1]}'), (None, "null")]
    )
    def test_says_the_text_and_gives_it(self, given, text):
        reported: list[Progress] = []
        output = node_type_task(Note(), "flow.node")({"text": given}, context(progress=reported))
        assert output == text
        assert reported == [Progress(percent=100, message=text)]


class TestOutside:
    def test_waits_for_the_named_party(self):
        config = {"for": "printer", "data": {"pages": 3}, "deadline": "2h"}
        assert executed(External(), config) == Pause(
            checkpoint={"for": "printer", "data": {"pages": 3}},
            name="printer",
            deadline=timedelta(hours=2),
        )

    def test_waits_for_ever_by_default(self):
        assert executed(External(), {"for": "printer"}).deadline is None

    @pytest.mark.parametrize(
        "changed", [{"for": ""}, {"for": "x" * 201}, {"deadline": "soon"}, {"deadline": "0s"}]
    )
    def test_refuses_what_it_cannot_wait_for(self, changed):
        with pytest.raises(Permanent):
            executed(External(), {"for": "printer", **changed})

    def test_faults(self):
        [fault] = config_faults(External(), {"for": "{{ who }}", "deadline": "soon"})
        assert fault.where == ("deadline",)
