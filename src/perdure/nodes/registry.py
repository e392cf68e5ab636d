"""The built-in node types, and the JSON Schema of each type's config, as editors need it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput, UnknownNodeType
from perdure.model import check
from perdure.model.graph import FORMER_TYPES
from perdure.model.value import Value
from perdure.tasks.node_type import NodeType

STRUCTURAL = ("task", "route", "map", "loop", "delay", "signal", "approval", "flow")
"""Node types built into the engine; custom node types must not use these names."""

NAME_MAX = 100

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{NAME_MAX - 1}}}")

DUPLICATE = declare(
    "node_type.duplicate", "node type {type!r} already exists", "Choose another name"
)
INVALID_NAME = declare(
    "node_type.invalid_name",
    "node type {type} has the name {found}; a name is a letter, then letters, digits, '_', '-' and "
    "'.', {most} at most",
)
RESERVED_NAME = declare(
    "node_type.reserved_name",
    "node type {type} cannot be named {name!r}: that type is built in",
)
INVALID_SETTINGS = declare(
    "node_type.invalid_settings",
    "Config of node type {type!r} must be a subclass of NodeConfig",
)
UNUSABLE_SETTINGS = declare(
    "node_type.unusable_settings", "Config of node type {type!r} cannot be used: {reason}"
)
NO_EXECUTE = declare("node_type.no_execute", "node type {type!r} has no execute()")
NEEDS_INSTANCE = declare(
    "node_type.needs_instance", "{type} must be given as an instance: {reason}"
)
NOT_A_NODE_TYPE = declare(
    "node_type.invalid",
    "{found} is not a node type",
    "Pass a subclass of perdure.NodeType, or an instance",
)


class NodeTypeDescription(Value):
    """The description of a node type for editors and documentation."""

    name: str
    summary: str
    ports: tuple[str, ...]
    schema: dict[str, Any]
    """JSON Schema of ``config`` as authors write it: any value may be a template."""


class NodeTypes(Mapping[str, NodeType]):
    """Node types by name: the built-in ones, and yours as instances or classes.

    An instance of a built-in type replaces it: ``NodeTypes([Http(allow=[...])])``.
    """

    def __init__(self, node_types: Iterable[NodeType | type[NodeType]] = ()) -> None:
        # Imported here, because only flows that use node types need them.
        from perdure.nodes.check import Check
        from perdure.nodes.container import Container
        from perdure.nodes.external import External
        from perdure.nodes.http import Http
        from perdure.nodes.llm import Llm
        from perdure.nodes.match import Match
        from perdure.nodes.note import Note
        from perdure.nodes.script import Script
        from perdure.nodes.switch import Switch

        built_in = [
            Match(),
            Switch(),
            Check(),
            Note(),
            External(),
            Http(),
            Llm(),
            Script(),
            Container(),
        ]
        self._node_types: dict[str, NodeType] = {
            node_type.name: node_type for node_type in built_in
        }
        added: set[str] = set()
        for given in check.listed(node_types, "node_types", "node types"):
            node_type = _checked(given)
            there = self._node_types.get(node_type.name)
            if node_type.name in added or (
                there is not None and not isinstance(node_type, type(there))
            ):
                raise InvalidInput(DUPLICATE.fault(("node_types",), type=node_type.name))
            added.add(node_type.name)
            self._node_types[node_type.name] = node_type

    def __getitem__(self, name: str) -> NodeType:
        try:
            return self._node_types[name]
        except KeyError:
            raise UnknownNodeType(name=name, known=(*STRUCTURAL, *self._node_types)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._node_types

    def __iter__(self) -> Iterator[str]:
        return iter(self._node_types)

    def __len__(self) -> int:
        return len(self._node_types)

    def describe(self) -> list[NodeTypeDescription]:
        """The descriptions of all node types, by name."""
        return [
            NodeTypeDescription(
                name=name,
                summary=inspect.getdoc(node_type) or "",
                ports=node_type.ports,
                schema=schema_of(node_type.Config),
            )
            for name, node_type in sorted(self._node_types.items())
        ]


def _checked(given: Any) -> NodeType:
    if isinstance(given, type) and issubclass(given, NodeType):
        try:
            node_type = given()
        except TypeError as error:
            fault = NEEDS_INSTANCE.fault(("node_types",), type=given.__name__, reason=str(error))
            raise InvalidInput(fault) from error
    elif isinstance(given, NodeType):
        node_type = given
    else:
        raise InvalidInput(NOT_A_NODE_TYPE.fault(("node_types",), found=safe_repr(given)))

    name: Any = getattr(node_type, "name", None)
    settings: Any = node_type.Config
    type_name = type(node_type).__name__
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            INVALID_NAME.fault(
                ("node_types",), type=type_name, found=safe_repr(name), most=NAME_MAX
            )
        )
    if name in STRUCTURAL or name in FORMER_TYPES:
        raise InvalidInput(RESERVED_NAME.fault(("node_types",), type=type_name, name=name))
    if not (isinstance(settings, type) and issubclass(settings, msgspec.Struct)):
        raise InvalidInput(INVALID_SETTINGS.fault(("node_types",), type=name))
    if type(node_type).execute is NodeType.execute:
        raise InvalidInput(NO_EXECUTE.fault(("node_types",), type=name))
    try:
        msgspec.json.Decoder(settings)
    except (TypeError, NameError) as error:
        fault = UNUSABLE_SETTINGS.fault(("node_types",), type=name, reason=str(error))
        raise InvalidInput(fault) from error
    return node_type


TEMPLATE = {"type": "string", "pattern": r"\{\{"}
"""A string with a template, which may render to any value."""

_REFERENCE = "#/$defs/"


def schema_of(config: type[Any]) -> dict[str, Any]:
    """The schema of a config as authors write it: any value may be a template instead.

    Without references, so that it can be embedded in a larger schema.
    """
    [top], parts = msgspec.json.schema_components([config], ref_template=_REFERENCE + "{name}")

    def whole(schema: Any, inside: tuple[str, ...] = ()) -> Any:
        """Inline references; a recursive one accepts anything."""
        if isinstance(schema, list):
            return [whole(each, inside) for each in schema]
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name = reference.removeprefix(_REFERENCE)
            referred = {} if name in inside else whole(parts[name], (*inside, name))
            return {**referred, **{key: value for key, value in schema.items() if key != "$ref"}}
        return {
            key: value if key == "default" else whole(value, inside)
            for key, value in schema.items()
        }

    return _opened(whole(top))


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object in which each value may be a template instead."""
    opened = {key: value for key, value in schema.items() if key not in ("title", "description")}
    if "properties" in schema:
        opened["properties"] = {
            name: _or_template(each) for name, each in schema["properties"].items()
        }
    if "anyOf" in schema:
        opened["anyOf"] = [_opened(way) for way in schema["anyOf"]]
    for key in ("additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            opened[key] = _or_template(schema[key])
    return opened


def _or_template(schema: dict[str, Any]) -> dict[str, Any]:
    opened = _opened(schema)
    default = {"default": opened.pop("default")} if "default" in opened else {}
    ways = opened.get("anyOf", [opened])
    if not opened or any(way.get("type") == "string" for way in ways):
        return {**opened, **default}
    return {"anyOf": [*ways, TEMPLATE], **default}
