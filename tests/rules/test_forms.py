"""Forms: faults are reported per field, and no schema reaches the network or stalls a process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from perdure.errors import InvalidInput, fault_text
from perdure.expr.path import Path, path_text
from perdure.forms.schema import (
    DEFAULTS_MAX,
    FAULTS_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_MAX_BYTES,
    SUBSCHEMAS_MAX,
    by_field,
    check_schema,
    faults_of,
    merge_answer,
    with_defaults,
)
from tests.support.refusal import refused


def field_faults(schema: Any, data: Any) -> dict[str, list[str]]:
    """The codes of the faults by field path, without ``form.``; "" is the whole value."""
    found: dict[str, list[str]] = {}
    for fault in faults_of(schema, data):
        found.setdefault(path_text(fault.where), []).append(fault.code.removeprefix("form."))
    return found


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab0"), inner, max_size=3),
    max_leaves=8,
)

subschemas: st.SearchStrategy[Any] = st.deferred(lambda: some_schemas())
names = st.sampled_from(["a", "b", "0"])
counts = st.integers(0, 3)
numbers = st.integers(-3, 3) | st.floats(-3, 3)

keywords: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["string", "number", "integer", "object", "array", "null", "boolean"]),
    "enum": st.lists(json_values, max_size=3),
    "const": json_values,
    "minimum": numbers,
    "exclusiveMaximum": numbers,
    "minLength": counts,
    "pattern": st.sampled_from(["a", "^b", "(a|b)+$"]),
    "format": st.just("not-known"),
    "maxItems": counts,
    "uniqueItems": st.booleans(),
    "contains": subschemas,
    "items": subschemas,
    "prefixItems": st.lists(subschemas, min_size=1, max_size=2),
    "properties": st.dictionaries(names, subschemas, max_size=2),
    "patternProperties": st.dictionaries(st.sampled_from(["a", "."]), subschemas, max_size=2),
    "additionalProperties": subschemas,
    "propertyNames": subschemas,
    "required": st.lists(names, unique=True, max_size=2),
    "dependentRequired": st.dictionaries(names, st.lists(names, unique=True), max_size=2),
    "dependentSchemas": st.dictionaries(names, subschemas, max_size=2),
    "anyOf": st.lists(subschemas, min_size=1, max_size=2),
    "oneOf": st.lists(subschemas, min_size=1, max_size=2),
    "not": subschemas,
    "if": subschemas,
    "then": subschemas,
    "$ref": st.sampled_from(["#", "#/$defs/a"]),
    "default": json_values,
}


def some_schemas() -> st.SearchStrategy[Any]:
    chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True)
    return st.booleans() | chosen.flatmap(
        lambda names: st.fixed_dictionaries({name: keywords[name] for name in names})
    )


EXPENSE: dict[str, Any] = {
    "title": "Expense",
    "type": "object",
    "required": ["amount", "reason"],
    "additionalProperties": False,
    "properties": {
        "amount": {"type": "number", "minimum": 1},
        "reason": {"type": "string", "minLength": 3},
        "kind": {"enum": ["travel", "meal"], "default": "travel"},
        "payer": {"$ref": "#/$defs/person"},
        "receipts": {"type": "array", "items": {"type": "object", "required": ["id"]}},
    },
    "$defs": {
        "person": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "role": {"default": "staff"}},
            "required": ["name"],
        }
    },
}


class TestFaultsOf:
    def test_are_none_for_what_fits(self):
        answer = {"amount": 1.5, "reason": "taxi", "payer": {"name": "Ann"}, "receipts": []}
        assert field_faults(EXPENSE, answer) == {}

    def test_are_reported_for_every_field_at_once(self):
        answer = {"amount": 0, "kind": "x", "payer": {}, "receipts": [{"id": 1}, {}], "tip": 2}

        assert field_faults(EXPENSE, answer) == {
            "amount": ["minimum"],
            "reason": ["required"],
            "kind": ["enum"],
            "payer.name": ["required"],
            "receipts.1.id": ["required"],
            "tip": ["unknown_field"],
        }

    def test_are_reported_for_the_whole_where_no_field_is_wrong(self):
        assert field_faults(EXPENSE, [1]) == {"": ["type"]}

    def test_gather_several_of_one_field(self):
        faults = faults_of({"minLength": 3, "pattern": "^x"}, "a")
        assert by_field(faults) == {"": [fault_text(each) for each in faults]}
        assert [each.code for each in faults] == ["form.min_length", "form.pattern"]

    @pytest.mark.parametrize(
        "schema, value, code",
        [
            ({"type": "string"}, 7, "form.type"),
            ({"type": "integer"}, 7.5, "form.type"),
            ({"type": "integer"}, True, "form.type"),
            ({"type": "boolean"}, 1, "form.type"),
            ({"type": ["number", "null"]}, "7", "form.type"),
            ({"type": "array"}, {}, "form.type"),
            ({"enum": [1, "a", None]}, 2, "form.enum"),
            ({"enum": [1]}, True, "form.enum"),
            ({"const": {"a": 1}}, {"a": True}, "form.const"),
            ({"minimum": 1}, 0.5, "form.minimum"),
            ({"maximum": 9}, 10, "form.maximum"),
            ({"exclusiveMinimum": 1}, 1, "form.exclusive_minimum"),
            ({"exclusiveMaximum": 9}, 9, "form.exclusive_maximum"),
            ({"multipleOf": 0.01}, 1.005, "form.multiple_of"),
            ({"minLength": 1}, "", "form.empty"),
            ({"minLength": 2}, "a", "form.min_length"),
            ({"maxLength": 1}, "ab", "form.max_length"),
            ({"pattern": "^a+$"}, "b", "form.pattern"),
            ({"minItems": 1}, [], "form.min_items"),
            ({"maxItems": 2}, [1, 2, 3], "form.max_items"),
            ({"uniqueItems": True}, [1, 2, 1.0], "form.unique_items"),
            ({"uniqueItems": True}, [{"a": [1]}, {"a": [1]}], "form.unique_items"),
            ({"contains": {"type": "string"}}, [1], "form.contains"),
            ({"contains": {}, "minContains": 2}, [1], "form.min_contains"),
            ({"contains": {}, "maxContains": 1}, [1, 2], "form.max_contains"),
            ({"prefixItems": [{}], "items": False}, [1, 2], "form.items"),
            ({"minProperties": 1}, {}, "form.min_properties"),
            ({"maxProperties": 1}, {"a": 1, "b": 2}, "form.max_properties"),
            ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "form.property_names"),
            ({"not": {"type": "string"}}, "a", "form.not"),
            ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, 3, "form.any_of"),
            ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, "form.any_of"),
            ({"oneOf": [{"type": "string"}, {"type": "null"}]}, 3, "form.any_of"),
            ({"oneOf": [{}, {}]}, 3, "form.one_of"),
            (False, 3, "form.forbidden"),
            ({"if": {"minimum": 5}, "then": {"maximum": 7}}, 9, "form.maximum"),
        ],
    )
    def test_have_a_code_for_each_keyword(self, schema, value, code):
        assert [(each.where, each.code) for each in faults_of(schema, value)] == [((), code)]

    @pytest.mark.parametrize(
        "schema, value",
        [
            ({"type": "integer"}, 7.0),
            ({"multipleOf": 0.01}, 19.99),
            ({"multipleOf": 3}, 10**400 * 3),
            ({"multipleOf": 1e-300}, 1e300),
            ({"enum": [1]}, 1.0),
            ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}, None, 0, False]),
            ({"minimum": 5}, "a text"),
            ({"minimum": 5}, float("inf")),
            ({"pattern": "a"}, 7),
            ({"format": "nothing-known"}, "x"),
            (True, None),
            ({}, {"a": object()}),
        ],
    )
    def test_are_none_where_nothing_is_wrong(self, schema, value):
        assert field_faults(schema, value) == {}

    @pytest.mark.parametrize(
        "schema, value, path, code",
        [
            ({"properties": {"a": False}}, {"a": 1}, "a", "form.forbidden"),
            ({"patternProperties": {"^x": False}}, {"xy": 1}, "xy", "form.forbidden"),
            ({"patternProperties": {"^x": {"minimum": 2}}}, {"xy": 1}, "xy", "form.minimum"),
            ({"additionalProperties": {"type": "null"}}, {"a": 1}, "a", "form.type"),
            (
                {"patternProperties": {"^x": {}}, "additionalProperties": False},
                {"x1": 1, "y1": 1},
                "y1",
                "form.unknown_field",
            ),
            ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "b", "form.dependent_required"),
            ({"items": {"items": {"minimum": 2}}}, [[2], [3, 1]], "1.1", "form.minimum"),
            ({"prefixItems": [{}, {"const": 1}]}, [2, 2], "1", "form.const"),
        ],
    )
    def test_are_reported_at_the_field(self, schema, value, path, code):
        assert [(path_text(each.where), each.code) for each in faults_of(schema, value)] == [
            (path, code)
        ]

    @pytest.mark.parametrize(
        "schema, value",
        [
            ({"items": {"maximum": 5}}, [10**5000]),
            ({"multipleOf": 5}, float("inf")),
            ({"multipleOf": 5}, float("nan")),
            ({"uniqueItems": True}, [object()]),
        ],
    )
    def test_say_that_what_is_no_json_cannot_be_checked(self, schema, value):
        assert field_faults(schema, value) == {"": ["not_checkable"]}

    def test_do_not_show_large_values(self):
        huge = "x" * 1_000_000
        schemas: list[Any] = [
            {"enum": [huge[:1000]]},
            {"const": huge[:1000]},
            {"anyOf": [{"const": huge[:1000]}]},
            {"propertyNames": {"maxLength": 1}},
            {"additionalProperties": False},
            {"dependentSchemas": {huge: False}, "type": "null"},
        ]
        for schema in schemas:
            for data in (huge, {huge: huge}):
                for path, messages in by_field(faults_of(schema, data)).items():
                    assert len(path) < 300
                    assert all(len(message) < 300 for message in messages)

    def test_are_not_reported_without_end(self):
        faults = field_faults({"items": {"type": "string"}}, [1] * 5_000)
        assert len(faults) == FAULTS_MAX

    @pytest.mark.parametrize("schema", [7, None, "x", {"type": "strin"}, {"$ref": "#/nowhere"}])
    def test_report_a_form_that_is_wrong_itself(self, schema):
        assert field_faults(schema, {}) == {"": ["invalid"]}

    @given(schema=subschemas, data=json_values)
    def test_are_all_that_jsonschema_finds_or_none(self, schema, data):
        whole = {"$defs": {"a": {"type": "string"}}, "allOf": [schema]}
        faults = field_faults(whole, data)
        assert check_schema(whole) == []
        if faults != {"": ["too_much_work"]}:
            assert bool(faults) is not Draft202012Validator(whole).is_valid(data)

    @given(schema=json_values | subschemas, data=json_values)
    def test_never_raise(self, schema, data):
        faults = field_faults(schema, data)
        if check_schema(schema):
            assert list(faults) == [""]
        assert all(messages for messages in faults.values())


class TestFormats:
    @pytest.mark.parametrize(
        "name, good, bad",
        [
            ("date", "2031-05-17", "17.5.2031"),
            ("date", "2032-02-29", "2031-02-29"),
            ("date-time", "2031-05-17T14:30:00+02:00", "2031-05-17T14:30:00"),
            ("date-time", "2031-05-17T14:30:00Z", "2031-05-17"),
            ("time", "14:30", "25:00"),
            ("email", "ann@example.org", "ann@@example.org"),
            ("email", "a.b+c@sub.example.org", "ann example.org"),
            ("hostname", "example.org", "-example.org"),
            ("uri", "https://example.org/a?b=c", "example.org/a"),
            ("uri", "mailto:ann@example.org", "https://exa mple.org"),
            ("uuid", "3f2c1a90-1111-4222-8333-944445555666", "3f2c1a90"),
            ("ipv4", "192.0.2.1", "192.0.2.256"),
            ("ipv6", "2001:db8::1", "2001:db8::g"),
            ("regex", "^a+$", "("),
        ],
    )
    def test_distinguish_valid_from_invalid(self, name, good, bad):
        schema = {"format": name}
        assert field_faults(schema, good) == {}
        assert list(field_faults(schema, bad)) == [""]
        assert list(field_faults(schema, good * 10_000)) == [""]
        assert field_faults(schema, 7) == {}

    def test_say_what_is_wanted(self):
        [fault] = faults_of({"format": "date"}, "soon")
        assert (fault.code, fault.args["format"]) == ("form.format", "date")

    @given(
        name=st.sampled_from(["date", "date-time", "time", "email", "uri", "uuid"]), text=st.text()
    )
    def test_never_raise(self, name, text):
        assert len(field_faults({"format": name}, text)) <= 1


NOTED = {"properties": {"note": True}}
SHOWN = {"kind": "a", "limit": 1, "payee": {"iban": "DE1", "note": "a"}, "lines": [{"price": 9}]}
IS_B: dict[str, Any] = {"properties": {"kind": {"const": "b"}}}
LIMIT = {"properties": {"limit": True}}
OPEN = {"additionalProperties": True}
DRAFT: dict[str, Any] = {"properties": {"status": {"const": "draft"}}}
AMOUNT = {"properties": {"amount": True}}
NEED = {"required": ["a"]}
NEED_A: list[tuple[str, Path]] = [("form.required", ("a",))]
UNKNOWN_Y = [("form.unknown_field", ("x", "y"))]
A: dict[str, Any] = {"properties": {"a": {}}}
CLOSED = {"additionalProperties": False}
IS_Z = {"const": {"z": 5}}
IS_ONE = {"patternProperties": {"^x_": {"const": 1}}, "minProperties": 1}
UNIQUE = {"properties": {"a": {"uniqueItems": True, "items": {**A, **CLOSED}}}}
ROWS = [{"a": 2, "z": 1}, {"a": 2, "z": 2}]
SIZES = {"enum": [{"a": 1}, {"a": 2}]}
ONLY_NUMBERS = {"additionalProperties": {"type": "number"}}
answers = st.dictionaries(st.text("ab0"), json_values, max_size=3)


def found(form: Any, answer: Any, current: Any = SHOWN) -> list[tuple[str, Path]]:
    return [(each.code, each.where) for each in merge_answer(form, answer, current)[1]]


class TestMergeAnswer:
    """Finding 2: an answer changes only what its form names, where that applies."""

    @pytest.mark.parametrize(
        "form",
        [
            {"if": DRAFT, "then": AMOUNT},
            {"if": {"not": DRAFT}, "else": AMOUNT},
            {"if": {"required": ["status"]}, "else": AMOUNT},
            {"if": {"allOf": [{"$ref": "#/$defs/d"}]}, "then": AMOUNT, "$defs": {"d": DRAFT}},
            {"anyOf": [{**DRAFT, "properties": DRAFT["properties"] | {"amount": {}}}, {}]},
            {"allOf": [{"if": DRAFT, "then": AMOUNT}]},
        ],
    )
    def test_its_branches_depend_on_fields_that_an_answer_omits(self, form):
        """A condition on a field that is missing holds: a paid amount could be changed."""
        current = {"status": "paid", "amount": 1}
        _, faults = merge_answer(form, {"amount": 1_000_000}, current)
        assert [each.code for each in faults] == ["form.unknown_field"]

    @pytest.mark.parametrize(
        "form, current, answer, faults",
        [
            ({**A, "dependentRequired": {"a": ["b"]}}, {"b": 2}, {"a": 1}, []),
            ({"if": IS_ONE, "then": NEED}, {"x_1": 5}, {}, []),
            ({"if": IS_ONE, "then": NEED}, {"x_1": 1}, {}, NEED_A),
            ({"if": IS_Z, "then": NEED}, {"z": 5}, {}, NEED_A),
            ({"not": IS_Z}, {"z": 5}, {}, [("form.not", ())]),
            ({"if": CLOSED, "else": NEED}, {"z": 5}, {}, NEED_A),
            ({**A, **CLOSED, "if": DRAFT, "then": NEED}, {"status": "paid"}, {}, []),
            ({"if": {"required": ["z"]}, "then": {**NEED, **CLOSED}}, {"z": 5}, {}, NEED_A),
            (
                {"properties": {"in": {"if": IS_Z, "then": NEED, **NOTED}}},
                {"in": {"z": 5}},
                {"in": {}},
                [("form.required", ("in", "a"))],
            ),
        ],
    )
    def test_its_conditions_are_judged_with_all_current_data(self, form, current, answer, faults):
        assert found(form, answer, current) == faults

    @pytest.mark.parametrize(
        "keyword",
        [
            {"additionalProperties": False},
            {"propertyNames": {"maxLength": 1}},
            {"maxProperties": 1},
            {"minProperties": 2},
            {"allOf": [{**A, **CLOSED}]},
            {"if": {"required": ["zz"]}, "then": {"maxProperties": 1}},
            {"patternProperties": {"b": {"const": 7}}},
        ],
    )
    def test_it_does_not_refuse_data_that_no_decider_may_change(self, keyword):
        inner = {"properties": {"a": {}}, **keyword}
        form = {**inner, "properties": {"a": inner}}
        current = {"zz": 1, "a": {"zz": 1, "a": 1}}
        data, faults = merge_answer(form, {"a": {"a": 2}}, current)
        assert (data["a"], faults) == ({"zz": 1, "a": 2}, [])
        listed = {"properties": {"a": {"items": inner}}}
        data, faults = merge_answer(listed, {"a": [{"a": 2}]}, {"a": [{"zz": 1}]})
        assert (data, faults) == ({"a": [{"zz": 1, "a": 2}]}, [])

    @pytest.mark.parametrize(
        "form, answer, current, codes",
        [
            ({**A, **OPEN, "maxProperties": 1}, {"b": 1}, {"a": 1}, ["form.max_properties"]),
            (UNIQUE, {"a": [{"a": 2}] * 2}, {"a": ROWS}, ["form.unique_items"]),
            (UNIQUE, {}, {"a": ROWS}, []),
            ({**A, "const": {"a": 1}}, {}, {"a": 1, "z": 1}, []),
            ({**A, "const": {"a": 1}}, {"a": 2}, {"a": 1, "z": 1}, ["form.const"]),
            ({**A, **SIZES}, {"a": 2}, {"a": 1, "z": 1}, []),
            ({"properties": {"a": {**A, **SIZES}}}, {}, {"a": {"a": 1, "z": 1}}, []),
            ({"properties": {"a": {"type": "object", **SIZES}}}, {}, {"a": {"a": 1}}, []),
            ({"properties": {"a": SIZES}}, {"a": {"a": 2}}, {"a": {"a": 1}}, []),
            ({"properties": {"a": {"maxProperties": 0}}}, {}, {"a": {}}, []),
            ({**A, **ONLY_NUMBERS}, {}, {"z": "x"}, []),
            ({**A, "patternProperties": {"z": False}}, {}, {"z": "x"}, []),
            ({**A, **ONLY_NUMBERS}, {"z": "y"}, {"z": "x"}, ["form.type"]),
            ({"required": ["z"], **ONLY_NUMBERS}, {}, {"z": "x"}, ["form.type"]),
            ({"properties": {"a": ONLY_NUMBERS}}, {}, {"a": {"z": "x"}}, ["form.type"]),
        ],
    )
    def test_counts_fields_that_it_gives_or_that_are_recorded(self, form, answer, current, codes):
        """Other fields do not distinguish elements, and are not compared with the form."""
        assert [code for code, _ in found(form, answer, current)] == codes

    def test_a_branch_that_applies_may_be_edited(self):
        current = {"status": "draft", "amount": 1}
        data, faults = merge_answer({"if": DRAFT, "then": AMOUNT}, {"amount": 2}, current)
        assert (data, faults) == ({"status": "draft", "amount": 2}, [])

    @pytest.mark.parametrize(
        "schema, answer, faults",
        [
            ({"items": NOTED}, [{"price": 0}], [("form.unknown_field", (0, "price"))]),
            ({"prefixItems": [NOTED]}, [{"price": 0}], [("form.unknown_field", (0, "price"))]),
            ({"items": {"type": "object"}}, [{"x": 0}], [("form.unknown_field", (0, "x"))]),
            (
                {"items": NOTED},
                [{"price": 9}, {"price": 9}],
                [("form.unknown_field", (1, "price"))],
            ),
            ({"items": NOTED}, [7], [("form.type", (0,))]),
            ({"items": NOTED}, {"price": 0}, [("form.type", ())]),
            ({"items": NOTED}, [{"price": 9}, {"note": ""}], []),
            ({"items": {"additionalProperties": True}}, [{"price": 0}], []),
            ({"items": True}, [{"price": 0}], []),
        ],
    )
    def test_closes_the_elements_of_lists(self, schema, answer, faults):
        assert found({"properties": {"lines": schema}}, {"lines": answer}) == [
            (code, ("lines", *where)) for code, where in faults
        ]

    @pytest.mark.parametrize(
        "schema, answer, faults",
        [
            ({"type": "object"}, {"iban": "DE2"}, [("form.unknown_field", ("iban",))]),
            ({"type": "object"}, {"iban": "DE1"}, []),
            ({"type": ["object", "null"]}, {"x": 1}, [("form.unknown_field", ("x",))]),
            ({"type": "object", "additionalProperties": True}, {"iban": "DE2"}, []),
            ({"additionalProperties": NOTED}, {"x": {"y": 1}}, UNKNOWN_Y),
            ({"patternProperties": {"x": NOTED}}, {"x": {"y": 1}}, UNKNOWN_Y),
            (True, {"iban": "DE2"}, []),
            (NOTED, "none", [("form.type", ())]),
            (NOTED, None, [("form.type", ())]),
            ({"type": ["object", "null"], **NOTED}, None, []),
            ({"anyOf": [NOTED | {"type": "object"}, {"type": "null"}]}, None, []),
            ({"anyOf": [NOTED, {"required": ["x"]}]}, None, [("form.type", ())]),
        ],
    )
    def test_closes_nested_objects(self, schema, answer, faults):
        assert found({"properties": {"payee": schema}}, {"payee": answer}) == [
            (code, ("payee", *where)) for code, where in faults
        ]

    @pytest.mark.parametrize(
        "branches, answer, is_allowed",
        [
            ({"if": IS_B, "then": LIMIT}, {"limit": 2}, False),
            ({"if": IS_B, "then": LIMIT}, {"limit": 2, "kind": "b"}, True),
            ({"if": IS_B, "else": LIMIT}, {"limit": 2}, True),
            ({"if": IS_B, "else": LIMIT}, {"limit": 2, "kind": "b"}, False),
            ({"then": LIMIT}, {"limit": 2}, False),
            ({"anyOf": [IS_B | OPEN, True]}, {"limit": 2}, False),
            ({"anyOf": [IS_B | OPEN, True]}, {"limit": 2, "kind": "b"}, True),
            (
                {"oneOf": [IS_B | {"allOf": [LIMIT]}, {"properties": {"kind": {"const": "a"}}}]},
                {"limit": 2},
                False,
            ),
            ({"dependentSchemas": {"limit": LIMIT}}, {"limit": 2}, True),
            ({"dependentSchemas": {"other": OPEN}}, {"limit": 2}, False),
            (
                {"anyOf": [{"$ref": "#/$defs/b"}, True], "$defs": {"b": IS_B | OPEN}},
                {"limit": 2},
                False,
            ),
        ],
    )
    def test_counts_only_branches_that_apply(self, branches, answer, is_allowed):
        form = {"properties": {"kind": True}, **branches}
        faults = [] if is_allowed else [("form.unknown_field", ("limit",))]
        assert found(form, answer) == faults

    def test_does_not_call_a_field_unknown_that_only_has_a_wrong_value(self):
        form = {"anyOf": [{"properties": {"limit": {"minimum": 1}}}]}
        assert found(form, {"limit": 0}) == [("form.any_of", ())]

    def test_is_bounded(self):
        form = {"properties": {"a": {"$ref": "#"}}}
        deep: dict[str, Any] = {}
        for _ in range(400):
            deep = {"a": deep}
        assert found(form, deep, deep) == [("form.too_much_work", ())]

    @pytest.mark.parametrize(
        "schemas, codes",
        [
            ([{"title": "x"}] * 900, []),
            ([{"additionalProperties": {}}] * 480, ["form.too_much_work"]),
            ([{"propertyNames": {}}] * 480, ["form.too_much_work"]),
        ],
    )
    def test_is_bounded_for_many_fields_and_schemas(self, schemas, codes):
        """It took a minute for 900 schemas, and did not count toward the budget."""
        form = {**A, **OPEN, "allOf": schemas}
        data = {f"z{number}": number for number in range(40_000)}
        started = time.process_time()
        inside = found({"properties": {"in": form}}, {"in": {"a": 1}}, {"in": data})
        assert [code for code, _ in inside] == codes
        assert [code for code, _ in found(form, data, data)] == codes
        assert time.process_time() - started < 20

    def test_is_bounded_for_defaults_that_many_elements_lack(self):
        names = {f"z{number}": {"title": "x"} for number in range(900)}
        form = {"properties": {"in": {"items": {"properties": names}}}}
        started = time.process_time()
        assert with_defaults(form, {"in": [{}] * 200_000}) == {"in": [{}] * 200_000}
        assert time.process_time() - started < 10

    @given(schema=subschemas, answer=answers, current=json_values)
    def test_never_raises(self, schema, answer, current):
        merge_answer({"$defs": {"a": {"type": "string"}}, "allOf": [schema]}, answer, current)


class TestWithDefaults:
    def test_fills_what_is_absent_at_every_level(self):
        answer = {"amount": 3, "payer": {"name": "Ann"}}
        assert with_defaults(EXPENSE, answer) == {
            "amount": 3,
            "kind": "travel",
            "payer": {"name": "Ann", "role": "staff"},
        }
        assert answer == {"amount": 3, "payer": {"name": "Ann"}}

    @pytest.mark.parametrize("given_value", [None, 0, False, "", [], {}])
    def test_leaves_what_is_there(self, given_value):
        schema = {"properties": {"a": {"default": 7}}}
        assert with_defaults(schema, {"a": given_value}) == {"a": given_value}
        assert with_defaults(schema, {}) == {"a": 7}

    def test_goes_into_lists_and_into_what_it_filled(self):
        schema = {
            "properties": {
                "rows": {"items": {"properties": {"count": {"default": 1}}}},
                "options": {"default": {}, "properties": {"dry": {"default": False}}},
                "absent": {"properties": {"x": {"default": 1}}},
            }
        }

        assert with_defaults(schema, {"rows": [{}, {"count": 2}, 7]}) == {
            "rows": [{"count": 1}, {"count": 2}, 7],
            "options": {"dry": False},
        }

    def test_gives_each_its_own_copy(self):
        schema: dict[str, Any] = {"properties": {"tags": {"default": []}}}
        one, other = with_defaults(schema, {}), with_defaults(schema, {})
        one["tags"].append("x")
        assert other == {"tags": []}
        assert schema == {"properties": {"tags": {"default": []}}}

    def test_prefers_a_default_next_to_a_reference(self):
        schema = {
            "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x", "default": 2}},
            "$defs": {"x": {"default": 1}},
        }
        assert with_defaults(schema, {}) == {"a": 1, "b": 2}

    @given(schema=json_values, data=json_values)
    def test_changes_nothing_without_properties(self, schema, data):
        assert with_defaults(schema, data) == data


class TestImporting:
    def test_does_not_load_jsonschema(self):
        program = "import sys, perdure.forms.schema; print('jsonschema' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "False"


# Schemas from a network: they reach nothing outside, and cannot stall or crash a process.


TOO_MUCH = {"": ["too_much_work"]}


def nested(levels: int, inside: Any) -> Any:
    for _ in range(levels):
        inside = {"items": inside}
    return inside


def lists(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class TestCheckSchema:
    @pytest.mark.parametrize(
        "schema",
        [
            True,
            {},
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
            {"$id": "https://example.org/form", "$defs": {"a": {}}, "$ref": "#/$defs/a"},
            {"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": {"type": "null"}}},
            {"properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}}},
            {"const": {"$ref": "https://example.org/"}, "enum": [{"pattern": "("}]},
            {"default": {"$schema": "x", "$ref": "x"}, "x-own": "anything"},
            {"x-show": {"type": "slider", "pattern": "(", "$ref": "x", "items": 7}},
            nested(SCHEMA_DEPTH_MAX, {}),
            {"properties": {"children": {"items": {"$ref": "#"}}}},
        ],
    )
    def test_finds_nothing_wrong_with_sound_schemas(self, schema):
        assert check_schema(schema) == []

    @pytest.mark.parametrize(
        "schema, path, code",
        [
            (7, "", "schema.not_an_object"),
            ([], "", "schema.not_an_object"),
            ({"type": "strin"}, "type", "form.any_of"),
            ({"properties": {"a": {"minLength": -1}}}, "properties.a.minLength", "form.minimum"),
            ({"properties": {"a": 7}}, "properties.a", "form.type"),
            ({"items": [{}]}, "items", "form.type"),
            ({"properties": [{}]}, "properties", "form.type"),
            ({"allOf": {}}, "allOf", "form.type"),
            ({"anyOf": []}, "anyOf", "form.min_items"),
            ({"required": "a"}, "required", "form.type"),
            ({"properties": {"a": {"pattern": "("}}}, "properties.a", "schema.pattern"),
            ({"items": {"pattern": "(?=a)"}}, "items", "schema.pattern"),
            ({"patternProperties": {"(": {}}}, "", "schema.pattern"),
            ({"$ref": "https://example.org/x.json"}, "", "schema.broken_reference"),
            ({"anyOf": [{"$ref": "other.json#/a"}]}, "anyOf.0", "schema.broken_reference"),
            ({"$ref": "file:///etc/passwd"}, "", "schema.broken_reference"),
            ({"$ref": "#/$defs/missing"}, "", "schema.broken_reference"),
            ({"$ref": "#/const", "const": {"minimum": "x"}}, "", "schema.broken_reference"),
            ({"$ref": "#/x-own", "x-own": {"minimum": "x"}}, "", "schema.broken_reference"),
            ({"$ref": "#/$defs/a", "$defs": []}, "", "schema.broken_reference"),
            ({"$dynamicRef": "#x"}, "", "schema.refused_keyword"),
            ({"unevaluatedProperties": False}, "", "schema.refused_keyword"),
            (
                {"items": {"$schema": "http://json-schema.org/draft-07/schema#"}},
                "items",
                "schema.only_at_top",
            ),
            ({"items": {"$id": "https://example.org/"}}, "items", "schema.only_at_top"),
            ({"$schema": "http://json-schema.org/draft-04/schema#"}, "", "schema.unknown_dialect"),
            ({"$schema": 7}, "", "schema.unknown_dialect"),
            ({"default": "x" * SCHEMA_MAX_BYTES}, "", "payload.too_large"),
            ({"default": float("nan")}, "", "payload.not_serializable"),
            ({"default": object()}, "", "payload.not_serializable"),
            (nested(SCHEMA_DEPTH_MAX + 1, {}), "", "schema.too_deep"),
            (nested(10_000, {}), "", "payload.not_serializable"),
            ({"allOf": [{}] * SUBSCHEMAS_MAX}, "", "schema.too_many"),
        ],
    )
    def test_names_what_is_wrong_and_where(self, schema, path, code):
        faults = check_schema(schema)
        assert (path, code) in [(path_text(each.where), each.code) for each in faults]
        assert all(len(fault_text(each)) < 400 for each in faults)
        assert list(field_faults(schema, {})) == [""]

    def test_reports_all_faults_of_a_type_at_once(self):
        schema = {"properties": {"a": {"pattern": "("}, "b": {"$ref": "x"}, "c": {"pattern": "["}}}
        assert len(check_schema(schema)) == 3


class TestTheNetwork:
    def test_is_never_asked(self, monkeypatch):
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise AssertionError("a schema reached for the network")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)

        for reference in ("http://127.0.0.1:9/x", "//127.0.0.1/x", "ftp://127.0.0.1/x"):
            for schema in (
                {"$ref": reference},
                {"$schema": reference},
                {"$id": reference, "$ref": "#"},
                {"$id": reference, "$ref": "other"},
                {"properties": {"a": {"$ref": reference}}},
            ):
                assert list(field_faults(schema, {"a": 1})) == [""]


class TestEndlessWork:
    def test_of_a_schema_that_refers_to_itself(self):
        assert field_faults({"$ref": "#"}, 1) == TOO_MUCH
        assert field_faults({"allOf": [{"$ref": "#"}]}, 1) == TOO_MUCH
        assert field_faults({"not": {"$ref": "#"}}, 1) == TOO_MUCH
        assert field_faults({"if": {"$ref": "#"}, "contains": {"$ref": "#"}}, [1]) == TOO_MUCH

    def test_of_references_that_double(self):
        defined: dict[str, Any] = {
            f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(40)
        }
        schema = {"$ref": "#/$defs/a0", "$defs": {**defined, "a40": {}}}
        assert check_schema(schema) == []
        assert field_faults(schema, 1) == TOO_MUCH

    def test_of_many_checks_for_many_elements(self):
        schema = {"items": {"allOf": [{"minimum": 0}] * 900}}
        assert field_faults(schema, [1] * 10_000) == TOO_MUCH

    def test_of_patterns_on_many_texts(self):
        schema = {"items": {"pattern": "^[ab]*a[ab]{400}c"}}
        assert field_faults(schema, ["ab" * 5_000] * 1_000) == TOO_MUCH

    def test_of_comparing_each_element_with_each_other(self):
        schema = {"uniqueItems": True}
        many: list[Any] = [{"a": number} for number in range(50_000)]
        assert field_faults(schema, many) == {}
        assert list(field_faults(schema, [*many, {"a": 7.0}])) == [""]

    @pytest.mark.parametrize(
        "keyword", [{"uniqueItems": True}, {"const": [[0]] * 10_000}, {"enum": [[[0]] * 10_000]}]
    )
    def test_of_comparing_elements_again_and_again(self, keyword):
        """Finding 8: 300 times ``uniqueItems`` took a minute, outside of the budget."""
        schema = {"allOf": [{"$ref": "#/$defs/x"}] * 300, "$defs": {"x": keyword}}
        value = [[0]] * 10_000 if "uniqueItems" not in keyword else list(range(20_000))
        assert field_faults(schema, value) == TOO_MUCH

    def test_of_messages_about_a_large_value(self):
        schema = {"anyOf": [{"type": "null"}] * 900}
        assert list(field_faults(schema, ["x" * 100] * 10_000)) == [""]

    def test_leaves_room_for_what_is_only_large(self):
        row = {
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "string", "pattern": "^[a-z]+-[0-9]+$"}},
        }
        assert field_faults({"items": row}, [{"id": "order-7"}] * 5_000) == {}


class TestNesting:
    def test_may_be_as_deep_as_a_schema_may_be(self):
        schema = nested(SCHEMA_DEPTH_MAX, {"type": "string"})
        assert field_faults(schema, lists(SCHEMA_DEPTH_MAX)) == {
            ".".join(["0"] * SCHEMA_DEPTH_MAX): ["type"]
        }

    def test_of_data_has_its_bound_where_a_schema_refers_to_itself(self):
        tree = {"items": {"$ref": "#"}}
        assert field_faults(tree, lists(50)) == {}
        assert field_faults(tree, lists(500)) == TOO_MUCH


class TestDeepData:
    @pytest.mark.parametrize(
        "schema",
        [
            {"items": {"$ref": "#"}},
            {"items": {"$ref": "#"}, "type": "null"},
            {"enum": [[1]]},
            {"const": [1]},
            {"type": "string"},
            {"uniqueItems": True},
            {"not": {}},
            {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]},
        ],
    )
    def test_does_not_crash(self, schema):
        faults = faults_of(schema, lists(100_000))
        assert all(len(fault_text(each)) < 300 for each in faults)

    def test_is_left_as_it_is_by_defaults(self):
        schema = {"items": {"$ref": "#"}, "properties": {"a": {"default": 1}}}
        filled = with_defaults(schema, lists(100_000))
        assert filled[0][0][0] != []


class TestEndlessDefaults:
    def test_are_bounded(self):
        schema = {
            "properties": {"a": {"$ref": "#", "default": {}}, "b": {"$ref": "#", "default": {}}}
        }
        with refused("form.too_many_defaults", InvalidInput, most=DEFAULTS_MAX):
            with_defaults(schema, {})

    def test_are_bounded_in_size(self):
        """Finding 8: an input of 1.2 kB was approved as an output of 18 MB."""
        element = {"properties": {"x": {"default": "y" * 60_000}}}
        schema = {"properties": {"l": {"items": element}}}
        with_defaults(schema, {"l": [{}] * 17})
        _, faults = merge_answer(schema, {}, {"l": [{}] * 18})
        assert [each.code for each in faults] == ["form.defaults_too_large"]
