"""The JSON Schema of a kind's config, as editors need it: in one piece, and open to templates."""

from __future__ import annotations

from typing import Any

import msgspec

TEMPLATE = {"type": "string", "pattern": r"\{\{"}
"""A text that has a template in it, which may come to anything."""

_REFERENCE = "#/$defs/"


def schema_of(config: type[Any]) -> dict[str, Any]:
    """The schema without references, so that it can stand anywhere in a larger one."""
    [top], parts = msgspec.json.schema_components([config], ref_template=_REFERENCE + "{name}")
    whole = _whole(top, parts, ())
    return _open(whole)


def _whole(schema: Any, parts: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """The schema with what it refers to in place; what refers to itself may hold anything."""
    if isinstance(schema, list):
        return [_whole(each, parts, inside) for each in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(_REFERENCE)
        referred = {} if name in inside else _whole(parts[name], parts, (*inside, name))
        return {**referred, **{key: value for key, value in schema.items() if key != "$ref"}}
    return {
        key: value if key == "default" else _whole(value, parts, inside)
        for key, value in schema.items()
    }


def _open(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object in which each value may be a template instead."""
    opened = {key: value for key, value in schema.items() if key not in ("title", "description")}
    if "properties" in schema:
        opened["properties"] = {
            name: _or_template(each) for name, each in schema["properties"].items()
        }
    if "anyOf" in schema:
        opened["anyOf"] = [_open(way) for way in schema["anyOf"]]
    for key in ("additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            opened[key] = _or_template(schema[key])
    return opened


def _or_template(schema: dict[str, Any]) -> dict[str, Any]:
    opened = _open(schema)
    default = {"default": opened.pop("default")} if "default" in opened else {}
    ways = opened.get("anyOf", [opened])
    if not opened or any(way.get("type") == "string" for way in ways):
        return {**opened, **default}
    return {"anyOf": [*ways, TEMPLATE], **default}
