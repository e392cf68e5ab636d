"""The published schema: it is current, and takes and refuses what the reader does."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import jsonschema
import pytest

from perdure import InvalidFlow
from perdure.flows.options import FORMS
from perdure.flows.yaml.library import Library
from perdure.flows.yaml.load import compiled
from perdure.flows.yaml.parse import plain_document, read_yaml
from perdure.flows.yaml.schema import NODE_KEYS, made_schema, published_schema
from perdure.nodes.registry import STRUCTURAL, NodeTypes
from tests.declared.pairs import PAIRS
from tests.declared.tasks import TASKS, Translate, child
from tests.flows.catalogue import CASES

SCHEMA = json.loads(published_schema())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def faults(data: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(data)]


def test_the_published_schema_is_current():
    """Write it anew with ``python -m perdure.flows.yaml.schema``."""
    assert made_schema() == SCHEMA


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_it_has_every_kind():
    node_types = SCHEMA["$defs"]["node"]["properties"]["type"]["anyOf"][0]["enum"]

    assert set(node_types) == {*STRUCTURAL, *NodeTypes()}
    assert set(FORMS) == set(STRUCTURAL)


def test_it_describes_every_key():
    node = SCHEMA["$defs"]["node"]["properties"]

    assert all(each.get("description") for each in node.values())
    assert set(node) == set(NODE_KEYS)


def test_kinds_of_ones_own_can_be_added():
    schema = made_schema(NodeTypes([Translate]))
    data = {"flow": "f", "nodes": [{"id": "a", "type": "translate", "config": {"txt": 1}}]}

    assert jsonschema.Draft202012Validator(schema).is_valid(data) is False
    assert faults(data) == []


@pytest.mark.parametrize("name", PAIRS)
def test_it_takes_flows_that_are_right(name):
    assert faults(read_yaml(textwrap.dedent(PAIRS[name].yaml)).data) == []


@pytest.mark.parametrize("name", [*PAIRS, *CASES])
def test_it_takes_what_flows_write(name):
    flow = PAIRS[name].python if name in PAIRS else CASES[name].flow

    assert faults(flow.to_dict()) == []
    assert faults(read_yaml(flow.to_yaml()).data) == []


WRONG: list[dict[str, Any]] = [
    {"id": "a"},
    {"task": "pay"},
    {"id": "a", "task": "pay", "colour": "red"},
    {"id": "a", "task": 5},
    {"id": "a", "type": "task"},
    {"id": "a", "task": "pay", "config": [1]},
    {"id": "a", "task": "pay", "retry": "x"},
    {"id": "a", "task": "pay", "retry": {"first": "1s"}},
    {"id": "a", "task": "pay", "priority": 99},
    {"id": "a", "task": "pay", "tags": "x"},
    {"id": "a", "task": "pay", "on_missing": "shrug"},
    {"id": "a", "task": "pay", "inputs": {"x": 5}},
    {"id": "a", "task": "pay", "inputs": {"x": {"default": 5}}},
    {"id": "a", "task": "pay", "next": 5},
    {"id": "a", "task": "pay", "next": {"x": 5}},
    {"id": "a", "task": "pay", "after": {"x": None}},
    {"id": "a", "task": "pay", "check": {"condtion": 1}},
    {"id": "a", "type": "route"},
    {"id": "a", "type": "map", "config": {"task": "pay", "concurrency": 0}},
    {"id": "a", "type": "map", "task": "pay", "config": {"task": "pay"}},
    {"id": "a", "type": "loop", "config": {"task": "pay"}},
    {"id": "a", "type": "delay", "config": {"for": []}},
    {"id": "a", "type": "delay", "retry": 3, "config": {"for": "1s"}},
    {"id": "a", "type": "signal", "timeout": "1s"},
    {"id": "a", "type": "approval", "config": {}},
    {"id": "a", "type": "approval", "config": {"title": "x", "deciders": "ann"}},
    {"id": "a", "type": "flow", "config": {}},
    {"id": "a", "type": "http", "config": {}},
    {"id": "a", "type": "http", "config": {"url": "x", "methd": "GET"}},
    {"id": "a", "type": "note", "task": "pay", "config": {"text": "x"}},
]


@pytest.mark.parametrize("node", WRONG, ids=str)
def test_it_refuses_what_the_reader_refuses(node):
    data = {"flow": "f", "nodes": [node]}

    with pytest.raises(InvalidFlow):
        compiled(plain_document(data), Library(TASKS, [], [child]))
    assert faults(data) != []
