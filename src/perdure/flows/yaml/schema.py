"""The published JSON Schema of flows as data: editors complete and check files by it.

``python -m perdure.flows.yaml.schema`` writes ``flow.schema.json`` anew.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from perdure.flows.yaml.format import CONDITION_DEFINITION, CONFIGS, FLOW_KEYS, NODE_KEYS
from perdure.flows.yaml.shape import keys_of
from perdure.forms.schema import DIALECT
from perdure.nodes.registry import KindDescription, Kinds

FILE = "flow.schema.json"


def published_schema() -> str:
    """The schema as it is in the package."""
    return resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")


def made_schema(kinds: Kinds | None = None) -> dict[str, Any]:
    """The schema with these kinds, else with those that come with it."""
    described = (Kinds() if kinds is None else kinds).describe()
    names = [*CONFIGS, *(kind.name for kind in described)]
    return {
        "$schema": DIALECT,
        "title": "A flow of Perdure",
        "type": "object",
        "properties": {**FLOW_KEYS, "nodes": _nodes()},
        "required": ["flow", "nodes"],
        "additionalProperties": False,
        "$defs": {
            "condition": CONDITION_DEFINITION,
            "node": _node(names, described),
            "listed_node": {"allOf": [{"$ref": "#/$defs/node"}, {"required": ["id"]}]},
        },
    }


def _nodes() -> dict[str, Any]:
    return {
        "description": "The nodes: a list, or an object by id.",
        "anyOf": [
            {"type": "array", "items": {"$ref": "#/$defs/listed_node"}, "minItems": 1},
            {
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/node"},
                "minProperties": 1,
            },
        ],
    }


def _node(names: list[str], described: list[KindDescription]) -> dict[str, Any]:
    kind = {**NODE_KEYS["kind"], "anyOf": [{"enum": names}, {"type": "string"}]}
    del kind["type"]
    own = [_when(name, _of_engine(name)) for name in CONFIGS]
    registered = [_when(each.name, _of_kind(each)) for each in described]
    return {
        "type": "object",
        "properties": {**NODE_KEYS, "kind": kind},
        "additionalProperties": False,
        "anyOf": [{"required": ["task"]}, {"required": ["kind"]}],
        "allOf": [*own, *registered],
    }


def _when(kind: str, then: dict[str, Any]) -> dict[str, Any]:
    named = {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
    if kind == "task":
        return {"if": {"anyOf": [named, {"not": {"required": ["kind"]}}]}, "then": then}
    return {"if": named, "then": then}


def _of_engine(kind: str) -> dict[str, Any]:
    refused = [key for key in NODE_KEYS if key not in keys_of(kind)]
    config = {**NODE_KEYS["config"], **CONFIGS[kind]}
    then = {"properties": {"config": config, **dict.fromkeys(refused, False)}}
    needed = {"task": ["task"], "signal": []}.get(kind, ["config"])
    return {**then, "required": needed} if needed else then


def _of_kind(kind: KindDescription) -> dict[str, Any]:
    config = {"description": kind.summary, **kind.schema}
    refused = [key for key in NODE_KEYS if key not in keys_of(kind.name)]
    then: dict[str, Any] = {"properties": {"config": config, **dict.fromkeys(refused, False)}}
    return {**then, "required": ["config"]} if kind.schema.get("required") else then


def _write() -> None:
    text = json.dumps(made_schema(), indent=2, ensure_ascii=False)
    Path(__file__).with_name(FILE).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
