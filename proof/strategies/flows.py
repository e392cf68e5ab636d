"""Flows as data, with their forms and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from perdure.expr.condition import OPERATORS
from perdure.flows.yaml.schema import FLOW_KEYS, NODE_KEYS
from perdure.nodes.registry import STRUCTURAL, NodeTypes
from proof.strategies.text import named, odd_texts
from proof.strategies.values import any_durations, any_values, json_values

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
    wide = st.builds(_wide, st.integers(1, 300)) | _wide_forms()
    return st.sampled_from(_FORMS) | wide | made | any_values()


def _wide_forms() -> st.SearchStrategy[Any]:
    return st.dictionaries(wide_patterns(), st.just(True), max_size=40).map(
        lambda patterns: {"patternProperties": patterns, "additionalProperties": False}
    )


def _wide(count: int) -> Any:
    return {"anyOf": [{"allOf": [{"not": {"const": number}}]} for number in range(count)]}


@named
def answers() -> st.SearchStrategy[Any]:
    """Payloads of decisions, whether they fit the form or not."""
    likely: dict[str, st.SearchStrategy[Any]] = {
        "amount": st.integers() | st.floats() | json_values(),
        "reason": st.text(max_size=20) | json_values(),
    }
    return st.fixed_dictionaries({}, optional=likely) | any_values()


_PROPERTIES = ["a", "a.b", "a.0", "a..b", "", ".", "{{ a }}", "__class__", "a.b.c.d.e"]
_PATTERNS = ["a+", "(a+)+$", "(", "[", "\\", "(?P<x>", "a{1,99999}", "(?i)x", "\\1", "^^^"]
_TEMPLATE_PIECES = [
    "{{",
    "}}",
    "{{ a }}",
    "{{ a.b }}",
    "{{{{",
    "{{ }}",
    "{{ a b }}",
    "{{ a|b }}",
    "{{a.0}}",
]


@named
def wide_patterns() -> st.SearchStrategy[str]:
    """Patterns with many wide ranges, which ``re`` takes up to a second to compile."""
    start = st.sampled_from(["(?i)[", "[", "(?ai)[^", "(?i)[^"])
    end = st.sampled_from(["]", "]{990}", "]*z", r"\d]"])
    return st.builds(_wide_pattern, start, st.integers(0x80, 0xFFFF), st.integers(1, 150), end)


def _wide_pattern(start: str, first: int, count: int, end: str) -> str:
    ranges = "".join(f"{chr(first + 2 * each)}-\U0001ffff" for each in range(count))
    return f"{start}{ranges}{end}"


@named
def any_conditions() -> st.SearchStrategy[Any]:
    comparison: dict[str, st.SearchStrategy[Any]] = {
        "property": st.sampled_from(_PROPERTIES) | odd_texts() | json_values(),
        "op": st.sampled_from([*OPERATORS, "is", "=="]) | json_values(),
    }
    value = st.sampled_from(_PATTERNS) | wide_patterns() | json_values() | any_templates()
    leaves = st.fixed_dictionaries(comparison, optional={"value": value})
    return st.recursive(
        leaves | json_values(),
        lambda inside: (
            st.lists(inside, max_size=3)
            | st.dictionaries(st.sampled_from(["all", "any", "not", "none"]), inside, max_size=2)
        ),
        max_leaves=6,
    )


@named
def any_templates() -> st.SearchStrategy[str]:
    pieces = st.sampled_from(_TEMPLATE_PIECES) | odd_texts()
    return st.lists(pieces, min_size=1, max_size=5).map("".join)


Fields = dict[str, st.SearchStrategy[Any]]

_PIECES = [
    "flow: f\n", "nodes:\n", "  - ", "id: a", "task: echo", "\n", "    ", "&x ", "*x", "{", "}",
    "[", "]", ": ", ", ", "? ", "|\n", ">-\n", "!!int ", "!!python/object:os.system ",
    "%YAML 1.2\n", "---\n", "...\n", "'", '"', "\\", "\t", "#", "<<", "~", "a", "next", "type: map",
    "\ufeff", "\x85", "\u2028", "\x00", "0o7", ".inf", "2030-01-01", "yes",
]  # fmt: skip


def any_flows(tasks: Sequence[str] = ("echo",)) -> st.SearchStrategy[Any]:
    """Flows as data, of nodes that name these tasks; seldom valid, often nearly so."""
    return st.one_of(_small(tasks), _small(tasks), _wild(tasks), json_values())


def flow_texts(tasks: Sequence[str] = ("echo",)) -> st.SearchStrategy[str]:
    """YAML: of flows as data, of fragments, and of anything."""
    dumped = any_flows(tasks).map(_as_yaml)
    pieces = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
    return pieces | odd_texts() | dumped


def _as_yaml(data: Any) -> str:
    import yaml

    try:
        return str(yaml.safe_dump(data, allow_unicode=True))
    except yaml.YAMLError:  # of types that YAML lacks: as another program may print them
        return repr(data)


def _small(tasks: Sequence[str]) -> st.SearchStrategy[Any]:
    """Sequences of steps, most of them valid."""
    ids = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)

    def steps(chosen: list[str]) -> st.SearchStrategy[Any]:
        right = st.tuples(*(_step(id, tasks) for id in chosen))
        one_odd = st.tuples(_odd_step(chosen[0], tasks), *(_step(id, tasks) for id in chosen[1:]))
        names = st.sampled_from(["f", "g"])
        return st.fixed_dictionaries(
            {"flow": names | names | odd_texts(), "nodes": (right | one_odd).map(list)}
        )

    return ids.flatmap(steps)


def _step(id: str, tasks: Sequence[str]) -> st.SearchStrategy[Any]:
    seconds = st.sampled_from(["1s", "1h"])
    node_types: Fields = {
        "signal": st.just({"name": "go", "timeout": "1h", "on_timeout": "continue"}),
        "approval": st.just({"title": "ok?", "deadline": "1h", "on_timeout": "continue"}),
        "delay": st.fixed_dictionaries({"for": seconds}),
        "note": st.fixed_dictionaries({"text": st.text(st.characters(codec="utf-8"))}),
    }
    call = st.fixed_dictionaries({"id": st.just(id), "task": st.sampled_from(list(tasks))})
    others = [
        st.fixed_dictionaries({"id": st.just(id), "type": st.just(found_type), "config": config})
        for found_type, config in node_types.items()
    ]
    return st.one_of(call, call, *others)


def _odd_step(id: str, tasks: Sequence[str]) -> st.SearchStrategy[Any]:
    call = st.sampled_from(list(tasks))
    return st.one_of(
        st.fixed_dictionaries(
            {"id": st.just(id), "task": call},
            optional={
                "inputs": st.dictionaries(st.sampled_from("xyz"), any_templates(), max_size=2),
                "input_schema": any_forms(),
                "output_schema": any_forms(),
                "check": st.fixed_dictionaries({"conditions": any_conditions()}),
            },
        ),
        st.fixed_dictionaries(
            {
                "id": st.just(id),
                "type": st.just("signal"),
                "config": st.fixed_dictionaries(
                    {"name": st.just("go") | odd_texts()},
                    optional={"where": any_conditions(), "timeout": any_durations()},
                ),
            }
        ),
        st.fixed_dictionaries(
            {
                "id": st.just(id),
                "type": st.just("approval"),
                "config": st.fixed_dictionaries(
                    {"title": any_templates()},
                    optional={"form": any_forms(), "deadline": any_durations()},
                ),
            }
        ),
        st.fixed_dictionaries(
            {
                "id": st.just(id),
                "type": st.sampled_from(["match", "switch", "check", "note", "delay"]),
                "config": any_conditions() | st.fixed_dictionaries({"for": any_durations()}),
            }
        ),
    )


def _wild(tasks: Sequence[str]) -> st.SearchStrategy[Any]:
    data = json_values() | odd_texts() | any_templates()
    names = st.sampled_from([*"abc", "default", "a:b", ""]) | odd_texts()
    fields: Fields = {key: data for key in NODE_KEYS if key != "id"}
    fields["type"] = st.sampled_from([*STRUCTURAL, *NodeTypes()]) | data
    fields["task"] = st.sampled_from(list(tasks)) | data
    node = st.fixed_dictionaries({"id": names | data}, optional=fields)
    whole: Fields = {"flow": names | data, "nodes": st.lists(node | data, max_size=5) | data}
    rest: Fields = {key: data for key in FLOW_KEYS if key not in whole}
    return st.fixed_dictionaries(whole, optional=rest)
