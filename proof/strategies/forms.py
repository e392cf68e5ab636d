"""Forms (JSON Schema) and what people may answer."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from proof.strategies.naming import named
from proof.strategies.values import any_values, json_values

_ENDLESS: dict[str, Any] = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
_FORMS: list[Any] = [
    True,
    False,
    {},
    {"type": "object", "properties": {"amount": {"type": "number", "minimum": 0}}},
    {"type": "object", "required": ["reason"], "properties": {"reason": {"type": "string"}}},
    _ENDLESS,
    {"$ref": "https://example.invalid/schema.json"},
    {"$ref": "file:///etc/passwd"},
    {"$ref": "#/$defs/missing"},
    {"$ref": "#"},
    {"pattern": "(a+)+$"},
    {"pattern": "("},
    {"type": "thing"},
    {"type": ["string", "null"], "default": 5},
    {"enum": []},
    {"multipleOf": 0},
    {"minLength": -1},
    {"uniqueItems": True, "items": {"uniqueItems": True}},
    {"format": "date-time"},
    {"properties": {"a\x00": {}, "\ud800": {}}},
    {"$schema": "http://json-schema.org/draft-03/schema#"},
    {"$id": "x", "$anchor": "y"},
]
_KEYWORDS = [
    "type", "properties", "required", "items", "enum", "const", "allOf", "anyOf", "oneOf", "not",
    "if", "then", "else", "pattern", "format", "minimum", "maxLength", "$ref", "$defs", "default",
    "additionalProperties", "patternProperties", "propertyNames", "contains", "dependentSchemas",
]  # fmt: skip


@named
def any_forms() -> st.SearchStrategy[Any]:
    made = st.recursive(
        st.sampled_from(_FORMS) | json_values(),
        lambda inside: (
            st.dictionaries(st.sampled_from(_KEYWORDS), inside, max_size=4)
            | st.lists(inside, max_size=3)
        ),
        max_leaves=8,
    )
    return st.sampled_from(_FORMS) | st.builds(_wide, st.integers(1, 300)) | made | any_values()


def _wide(count: int) -> Any:
    return {"anyOf": [{"allOf": [{"not": {"const": number}}]} for number in range(count)]}


@named
def answers() -> st.SearchStrategy[Any]:
    """What may come with a decision, whether it fits the form or not."""
    likely: dict[str, st.SearchStrategy[Any]] = {
        "amount": st.integers() | st.floats() | json_values(),
        "reason": st.text(max_size=20) | json_values(),
    }
    return st.fixed_dictionaries({}, optional=likely) | any_values()
