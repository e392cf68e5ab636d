"""Whether data has the shape of a flow, told in words for people and with the place of each fault.

It is the published schema that decides, one node at a time: the parts for a node's kind alone, so
that a fault is told once and about what was meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from perdure.diagnostics import render
from perdure.expr.path import Path
from perdure.flows.check import nearest
from perdure.flows.yaml.format import (
    COMMON_KEYS,
    CONDITION_DEFINITION,
    CONFIGS,
    FLOW_KEYS,
    KEYS_BY_KIND,
    KIND_KEYS,
    NODE_KEYS,
    an_object,
)
from perdure.forms.schema import TooMuchWork, errors_of, fault_of, validator_of
from perdure.model.text import cut, type_name

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator


ShapeFault = tuple[Path, str]
"""A place in the data, and what is wrong there."""

_FAULTS_MAX = 100
_JSON_TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
_ELSEWHERE = {
    "timeout": {"signal": "timeout", "approval": "deadline"},
    "on_timeout": {"signal": "on_timeout", "approval": "on_timeout"},
    "task": {"map": "task", "loop": "task", "route": "task", "approval": "notify"},
}
"""Keys of nodes that stand in the config of some kinds, under these names."""


def flow_faults(data: Mapping[str, Any]) -> list[ShapeFault]:
    """Of everything but the nodes."""
    return list(_faults(_flow_validator(), {**data, "nodes": []}))


def node_faults(node: Mapping[str, Any], kind: str) -> list[ShapeFault]:
    """Of one node; what is in the config of a kind that is not part of the engine is its own."""
    return list(_faults(_node_validator(kind if kind in CONFIGS else ""), node, kind))


def keys_of(kind: str) -> list[str]:
    """The keys that a node of this kind may have."""
    own = KEYS_BY_KIND.get(kind, KIND_KEYS)
    return [key for key in NODE_KEYS if key in own or key in COMMON_KEYS]


def node_schema(kind: str) -> dict[str, Any]:
    """Of nodes of one kind of the engine; of any other kind where it is none."""
    keys = {key: NODE_KEYS[key] for key in keys_of(kind)}
    if kind:
        keys["config"] = {**NODE_KEYS["config"], **CONFIGS[kind]}
    return an_object(keys)


@cache
def _flow_validator() -> Validator:
    return validator_of(an_object({**FLOW_KEYS, "nodes": {}}, required=("flow",)))


@cache
def _node_validator(kind: str) -> Validator:
    return validator_of({**node_schema(kind), "$defs": {"condition": CONDITION_DEFINITION}})


def _faults(validator: Validator, data: Any, kind: str = "") -> Iterator[ShapeFault]:
    try:
        errors = errors_of(validator, data, _FAULTS_MAX)
    except (RecursionError, TooMuchWork):
        yield (), "takes too much work to check: it is too large, or nested too deep"
        return
    for error in errors:
        for fault in _meant(error):
            yield _worded(fault, kind)


def _meant(error: ValidationError) -> Iterator[ValidationError]:
    """The faults under the one alternative that the value was meant to be, where there is one."""
    if error.validator != "anyOf":
        yield error
        return
    under: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        under.setdefault(inner.relative_schema_path[0], []).append(inner)
    ways: Any = error.validator_value
    fitting = [at for at in under if _fits(ways[at], error.instance)]
    if len(fitting) != 1:
        yield error
        return
    for inner in under[fitting[0]]:
        yield from _meant(inner)


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether the value has the type that the schema is for."""
    types = schema.get("type")
    if types is None:
        return isinstance(value, str) and "enum" in schema
    names = types if isinstance(types, list) else [types]
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _JSON_TYPES[name]) for name in names)  # type: ignore[arg-type]


def _worded(error: ValidationError, kind: str) -> ShapeFault:
    fault = fault_of(error)
    path, message = fault.where, render(fault)
    key = str(path[-1]) if path else ""
    where = ".".join(str(part) for part in path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", ()))  # type: ignore[union-attr]
        return path, _unknown_key(path, kind, known)
    if error.validator == "required" and len(path) > 1:
        return path[:-1], f"{'.'.join(str(part) for part in path[:-1])} needs {key!r}"
    if error.validator == "required":
        return (), f"it needs {key!r}"
    if error.validator == "anyOf":
        ways = " or ".join(dict.fromkeys(_ways(error.validator_value)))
        return path, f"{where} must be {ways}, not {type_name(error.instance)}"
    if error.validator == "enum" and isinstance(error.instance, str):
        known = [each for each in error.validator_value if isinstance(each, str)]  # type: ignore[union-attr]
        return path, f"{where} {message}{nearest(cut(error.instance), known)}"
    if error.validator == "type":
        return path, f"{where} {message}, not {type_name(error.instance)}"
    return path, f"{where} {message}"


def _unknown_key(path: Path, kind: str, known: list[str]) -> str:
    key = str(path[-1])
    shown = cut(key)
    inside = ".".join(str(part) for part in path[:-1])
    if not inside and kind and key in NODE_KEYS:
        instead = _ELSEWHERE.get(key, {}).get(kind)
        hint = f"; write it into config, as {instead!r}" if instead else ""
        return f"a node of kind {kind!r} has no {shown!r}{hint}"
    near = nearest(shown, known) or f"; known: {', '.join(known)}"
    return f"there is no key {shown!r}{f' in {inside}' if inside else ''}{near}"


def _ways(schemas: Any) -> Iterator[str]:
    names = {
        "string": "a text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "array": "a list",
        "object": "an object",
        "null": "null",
    }
    for schema in schemas:
        if "enum" in schema:
            yield " or ".join(map(repr, schema["enum"]))
        else:
            yield names[schema["type"]]
