"""Schemas from a network: they reach nothing outside, and cannot stall or crash a process."""

from __future__ import annotations

import socket
from typing import Any, NoReturn

import pytest

from perdure.errors import InvalidInput, fault_text
from perdure.forms.schema import (
    DEFAULTS_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_MAX_BYTES,
    SUBSCHEMAS_MAX,
    check_schema,
    with_defaults,
)
from tests.unit.form_faults import field_faults

TOO_MUCH = "takes too much work to check"


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
        "schema, told",
        [
            (7, "a schema is an object, not a number"),
            ([], "a schema is an object, not a list"),
            ({"type": "strin"}, "type: fits none of the ways"),
            ({"properties": {"a": {"minLength": -1}}}, "properties.a.minLength: must be at least"),
            ({"properties": {"a": 7}}, "properties.a: must be an object or true or false"),
            ({"items": [{}]}, "items: must be an object or true or false"),
            ({"properties": [{}]}, "properties: must be an object"),
            ({"allOf": {}}, "allOf: must be a list"),
            ({"anyOf": []}, "anyOf: must have at least 1 element"),
            ({"required": "a"}, "required: must be a list"),
            ({"properties": {"a": {"pattern": "("}}}, "properties.a: '(' is not a pattern"),
            ({"items": {"pattern": "(?=a)"}}, "items: '(?=a)' is a pattern that looks ahead"),
            ({"patternProperties": {"(": {}}}, "'(' is not a pattern"),
            ({"$ref": "https://example.org/x.json"}, "leads nowhere"),
            ({"anyOf": [{"$ref": "other.json#/a"}]}, "anyOf.0: $ref 'other.json#/a' leads nowhere"),
            ({"$ref": "file:///etc/passwd"}, "leads nowhere"),
            ({"$ref": "#/$defs/missing"}, "leads nowhere"),
            ({"$ref": "#/const", "const": {"minimum": "x"}}, "leads nowhere"),
            ({"$ref": "#/x-own", "x-own": {"minimum": "x"}}, "leads nowhere"),
            ({"$ref": "#/$defs/a", "$defs": []}, "leads nowhere"),
            ({"$dynamicRef": "#x"}, "$dynamicRef cannot be used"),
            ({"unevaluatedProperties": False}, "write additionalProperties"),
            ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "only at the top"),
            ({"items": {"$id": "https://example.org/"}}, "items: $id may stand only at the top"),
            ({"$schema": "http://json-schema.org/draft-04/schema#"}, "leave it out"),
            ({"$schema": 7}, "leave it out"),
            ({"default": "x" * SCHEMA_MAX_BYTES}, "more than the 65536 allowed"),
            ({"default": float("nan")}, "NaN"),
            ({"default": object()}, "not a type that JSON can carry"),
            (nested(SCHEMA_DEPTH_MAX + 1, {}), "nested deeper than 100"),
            (nested(10_000, {}), "the schema"),
            ({"allOf": [{}] * SUBSCHEMAS_MAX}, "made of more than 1000 schemas"),
        ],
    )
    def test_names_what_is_wrong_and_where(self, schema, told):
        faults = check_schema(schema)

        texts = list(map(fault_text, faults))
        assert any(told in text for text in texts), texts
        assert all(len(text) < 400 for text in texts)
        assert list(field_faults(schema, {})) == [""]

    def test_tells_all_faults_of_a_kind_at_once(self):
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
        assert TOO_MUCH in field_faults({"$ref": "#"}, 1)[""][0]
        assert TOO_MUCH in field_faults({"allOf": [{"$ref": "#"}]}, 1)[""][0]
        assert TOO_MUCH in field_faults({"not": {"$ref": "#"}}, 1)[""][0]
        assert (
            TOO_MUCH in field_faults({"if": {"$ref": "#"}, "contains": {"$ref": "#"}}, [1])[""][0]
        )

    def test_of_references_that_double(self):
        defined: dict[str, Any] = {
            f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(40)
        }
        schema = {"$ref": "#/$defs/a0", "$defs": {**defined, "a40": {}}}

        assert check_schema(schema) == []
        assert TOO_MUCH in field_faults(schema, 1)[""][0]

    def test_of_many_checks_for_many_elements(self):
        schema = {"items": {"allOf": [{"minimum": 0}] * 900}}

        assert TOO_MUCH in field_faults(schema, [1] * 10_000)[""][0]

    def test_of_patterns_on_many_texts(self):
        schema = {"items": {"pattern": "^[ab]*a[ab]{400}c"}}

        assert TOO_MUCH in field_faults(schema, ["ab" * 5_000] * 1_000)[""][0]

    def test_of_comparing_each_element_with_each_other(self):
        schema = {"uniqueItems": True}
        many: list[Any] = [{"a": number} for number in range(50_000)]

        assert field_faults(schema, many) == {}
        assert list(field_faults(schema, [*many, {"a": 7.0}])) == [""]

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
            ".".join(["0"] * SCHEMA_DEPTH_MAX): ["must be a text"]
        }

    def test_of_data_has_its_bound_where_a_schema_refers_to_itself(self):
        tree = {"items": {"$ref": "#"}}

        assert field_faults(tree, lists(50)) == {}
        assert TOO_MUCH in field_faults(tree, lists(500))[""][0]


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
        faults = field_faults(schema, lists(100_000))

        assert all(len(message) < 300 for told in faults.values() for message in told)

    def test_is_left_as_it_is_by_defaults(self):
        schema = {"items": {"$ref": "#"}, "properties": {"a": {"default": 1}}}

        filled = with_defaults(schema, lists(100_000))

        assert filled[0][0][0] != []


class TestEndlessDefaults:
    def test_are_bounded(self):
        schema = {
            "properties": {
                "a": {"$ref": "#", "default": {}},
                "b": {"$ref": "#", "default": {}},
            }
        }

        with pytest.raises(InvalidInput, match=str(DEFAULTS_MAX)):
            with_defaults(schema, {})
