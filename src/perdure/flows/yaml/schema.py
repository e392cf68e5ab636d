"""The JSON Schema of flows in YAML, generated from the table of options.

Editors use the published schema; the loader validates each node with the part for its type.
``python -m perdure.flows.yaml.schema`` writes ``flow.schema.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final

from perdure.diagnostics import Fault, declare, near
from perdure.expr.condition import ALIASES, OPERATORS
from perdure.flows.options import (
    CONDITION,
    DURATION,
    FLAG,
    FLOW,
    FORMS,
    NAME,
    NAMES,
    NODE_TYPE,
    PRIORITY,
    TASK,
    TEXT,
    Fragment,
    NodeForm,
    an_object,
    described,
)
from perdure.forms.schema import DIALECT, TooMuchWork, errors_of, fault_of, validator_of
from perdure.model.text import preview, type_name
from perdure.nodes.registry import NodeTypeDescription, NodeTypes

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

FILE = "flow.schema.json"

UNKNOWN_KEY = declare(
    "yaml.unknown_key", "unknown key {key!r}[; did you mean {nearest:or}?][; known: {known}]"
)
MISPLACED_KEY = declare(
    "yaml.misplaced_key",
    "a node of type {type!r} has no {key!r}",
    "[Put it in config, as {instead!r}]",
)
MISSING_KEY = declare("yaml.missing_key", "needs {key!r}")
WRONG_TYPE = declare("yaml.type", "must be {expected}, not {found}")
NOT_A_CHOICE = declare("yaml.choice", "must be one of {choices}[; did you mean {nearest:or}?]")
TOO_MUCH_WORK = declare(
    "yaml.too_much_work", "cannot be checked: it is too large or nested too deeply"
)

_CONDITION_DEFINITION: Final[Fragment] = {
    "description": "A condition on properties; in a list, all must hold.",
    "anyOf": [
        {"type": "array", "items": CONDITION},
        {
            "type": "object",
            "properties": {
                "property": {"type": "string"},
                "field": {"type": "string"},
                "op": {"enum": [*OPERATORS, *ALIASES]},
                "operator": {"enum": [*OPERATORS, *ALIASES]},
                "value": {},
                "all": {"type": "array", "items": CONDITION},
                "any": {"type": "array", "items": CONDITION},
                "not": CONDITION,
            },
            "additionalProperties": False,
        },
    ],
}  # fmt: skip
_TARGETS: Final = [{"type": "string", "minLength": 1}, {"type": "array", "items": NAME}]
_NEXT: Final[Fragment] = {
    "anyOf": [
        *_TARGETS,
        {"type": "object", "additionalProperties": {"anyOf": [*_TARGETS, {"type": "null"}]}},
    ]
}
_AFTER: Final[Fragment] = {
    "anyOf": [*_TARGETS, {"type": "object", "additionalProperties": {"anyOf": _TARGETS}}]
}

FLOW_KEYS: Final[Mapping[str, Fragment]] = {
    "$schema": described(TEXT, "For editors."),
    "flow": described(NAME, "The name of the flow."),
    "description": described(TEXT, "For people; not part of the version."),
    "on_failure": {
        "description": "Whether branches that do not depend on a failed node finish.",
        "enum": ["stop", "finish"],
        "default": "stop",
    },
    "cooldown": described(DURATION, "Skip a run submitted sooner after the previous one."),
    "priority": described(PRIORITY, "Default of its runs; shifts that of all their jobs."),
    "queue": described(NAME, "Default of its runs, for nodes without one."),
    "tags": described(NAMES, "Default of its runs, for nodes without any."),
    "timeout": described(DURATION, "Default of its runs: how long one may take."),
    "timeout_counts_waiting": described(FLAG, "Whether the time that a run waits counts."),
    "max_attempts": described(
        {"type": "integer", "minimum": 1}, "Default of its runs: how many attempts may fail."
    ),
    "max_running": described(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {
                    "type": "object",
                    "properties": {"count": {"type": "integer", "minimum": 1}, "key": TEXT},
                    "required": ["count"],
                    "additionalProperties": False,
                },
            ]
        },
        "How many of its runs at once, by a key: a template over the input.",
    ),
    "sticky": described(DURATION, "Default of its runs: how long nodes wait for the last worker."),
    "gathers": described(FLAG, "The result is an object by last node, even if there is only one."),
}
_COMMON_KEYS: Final[Mapping[str, Fragment]] = {
    "id": described(NAME, "The name of the node, unique in the flow."),
    "type": described(NAME, "The node type."),
    "description": described(TEXT, "For people; not part of the version."),
    "next": described(_NEXT, "The next nodes: one, a list, or by port. PORT: null ends there."),
    "after": described(_AFTER, "The nodes it follows: a, a:port, a list, or {name: a} to gather."),
}
NODE_KEYS: Final[Mapping[str, Fragment]] = {
    **_COMMON_KEYS,
    **{key: option.fragment for key, option in {**TASK.keys, **NODE_TYPE.keys}.items()},
    "delay": FLOW.keys["delay"].fragment,
}
"""All keys of nodes of any type."""

_OTHERWISE: Final = {"timeout": "deadline", "delay": "for", "task": "notify"}
"""Keys of nodes whose counterpart in the config of some types has another name."""


def keys_of(form: NodeForm) -> list[str]:
    """The keys that a node of this type may have."""
    own = {*_COMMON_KEYS, *form.keys, *(["config"] if form.settings else [])}
    return [key for key in NODE_KEYS if key in own]


def config_schema(form: NodeForm) -> dict[str, Any]:
    own = form.config_schema
    return form.keys["config"].fragment if own is None else {**NODE_KEYS["config"], **own}


# The published schema


def published_schema() -> str:
    """The schema file in the package."""
    return resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")


def made_schema(node_types: NodeTypes | None = None) -> dict[str, Any]:
    """The schema with these node types; by default the built-in ones."""
    listed = (NodeTypes() if node_types is None else node_types).describe()
    names = [*FORMS, *(node_type.name for node_type in listed)]
    node_type = {**NODE_KEYS["type"], "anyOf": [{"enum": names}, {"type": "string"}]}
    del node_type["type"]
    return {
        "$schema": DIALECT,
        "title": "Perdure flow",
        "type": "object",
        "properties": {**FLOW_KEYS, "nodes": _NODES},
        "required": ["flow", "nodes"],
        "additionalProperties": False,
        "$defs": {
            "condition": _CONDITION_DEFINITION,
            "node": {
                "type": "object",
                "properties": {**NODE_KEYS, "type": node_type},
                "additionalProperties": False,
                "anyOf": [{"required": ["task"]}, {"required": ["type"]}],
                "allOf": [*map(_of_form, FORMS.values()), *map(_of_node_type, listed)],
            },
            "listed_node": {"allOf": [{"$ref": "#/$defs/node"}, {"required": ["id"]}]},
        },
    }


_NODES: Final[Fragment] = {
    "description": "The nodes: a list, or an object by id.",
    "anyOf": [
        {"type": "array", "items": {"$ref": "#/$defs/listed_node"}, "minItems": 1},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/node"}, "minProperties": 1},
    ],
}


def _of_form(form: NodeForm) -> dict[str, Any]:
    needed = {"task": ["task"], "signal": []}.get(form.type, ["config"])
    return _when(form.type, _only(form, config_schema(form)), needed)


def _of_node_type(node_type: NodeTypeDescription) -> dict[str, Any]:
    config = {"description": node_type.summary, **node_type.schema}
    return _when(
        node_type.name,
        _only(NODE_TYPE, config),
        ["config"] if node_type.schema.get("required") else [],
    )


def _only(form: NodeForm, config: Fragment) -> dict[str, Any]:
    refused = [key for key in NODE_KEYS if key not in keys_of(form)]
    return {"properties": {"config": config, **dict.fromkeys(refused, False)}}


def _when(node_type: str, then: dict[str, Any], needed: list[str]) -> dict[str, Any]:
    named: dict[str, Any] = {"properties": {"type": {"const": node_type}}, "required": ["type"]}
    if node_type == TASK.type:
        named = {"anyOf": [named, {"not": {"required": ["type"]}}]}
    return {"if": named, "then": {**then, "required": needed} if needed else then}


# Each node is validated only with the part for its type, so that each fault is reported once and
# about the intended type.

_FAULTS_MAX = 100
_JSON_TYPES: Final[Mapping[str, tuple[str, Any]]] = {
    "string": ("a string", str),
    "integer": ("an integer", int),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", bool),
    "array": ("a list", list),
    "object": ("an object", dict),
    "null": ("null", type(None)),
}


def flow_faults(data: Mapping[str, Any]) -> list[Fault]:
    """Faults of everything but the nodes."""
    return list(_faults(_flow_validator(), {**data, "nodes": []}))


def node_faults(node: Mapping[str, Any], form: NodeForm, node_type: str) -> list[Fault]:
    """Faults of one node, except in the config of a registered node type."""
    return [
        _unknown_key(fault, form, node_type) if fault.code == UNKNOWN_KEY.name else fault
        for fault in _faults(_node_validator(form), node)
    ]


@cache
def _flow_validator() -> Validator:
    return validator_of(an_object({**FLOW_KEYS, "nodes": {}}, required=("flow",)))


@cache
def _node_validator(form: NodeForm) -> Validator:
    keys = {key: NODE_KEYS[key] for key in keys_of(form)}
    keys["config"] = config_schema(form)
    return validator_of({**an_object(keys), "$defs": {"condition": _CONDITION_DEFINITION}})


def _unknown_key(fault: Fault, form: NodeForm, node_type: str) -> Fault:
    match fault.where:
        case (str(key),) if key in NODE_KEYS:
            like = (each for each in (key, _OTHERWISE.get(key)) if each in form.settings)
            return MISPLACED_KEY.fault((key,), type=node_type, key=key, instead=next(like, ""))
    return fault


def _faults(validator: Validator, data: Any) -> Iterator[Fault]:
    try:
        errors = errors_of(validator, data, _FAULTS_MAX)
    except (RecursionError, TooMuchWork):
        yield TOO_MUCH_WORK.fault()
        return
    for error in errors:
        for meant in _meant(error):
            yield _fault(meant)


def _meant(error: ValidationError) -> Iterator[ValidationError]:
    """The faults of the only alternative with the type of the value, if there is exactly one."""
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
    """Whether the schema allows the type of the value."""
    types = schema.get("type")
    if types is None:
        return isinstance(value, str) and "enum" in schema
    names = types if isinstance(types, list) else [types]
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _JSON_TYPES[name][1]) for name in names)


def _fault(error: ValidationError) -> Fault:
    fault = fault_of(error)
    wanted: Any = error.validator_value
    match error.validator:
        case "additionalProperties":
            known = list(error.schema.get("properties", ()))  # type: ignore[union-attr]
            key = preview(str(fault.where[-1]))
            nearest = near(key, known)
            others = () if nearest else tuple(known)
            return UNKNOWN_KEY.fault(fault.where, key=key, nearest=nearest, known=others)
        case "required":
            return MISSING_KEY.fault(fault.where[:-1], key=fault.where[-1])
        case "enum" if isinstance(error.instance, str):
            choices = tuple(each for each in wanted if isinstance(each, str))
            nearest = near(preview(error.instance), choices)
            return NOT_A_CHOICE.fault(fault.where, choices=choices, nearest=nearest)
        case "anyOf" | "type":
            ways = wanted if error.validator == "anyOf" else [{"type": wanted}]
            expected = " or ".join(dict.fromkeys(each for way in ways for each in _way(way)))
            return WRONG_TYPE.fault(fault.where, expected=expected, found=type_name(error.instance))
    return fault


def _way(schema: Mapping[str, Any]) -> list[str]:
    if "enum" in schema:
        return [repr(each) for each in schema["enum"]]
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return [_JSON_TYPES[each][0] for each in types]


def _write() -> None:
    text = json.dumps(made_schema(), indent=2, ensure_ascii=False)
    FilePath(__file__).with_name(FILE).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
