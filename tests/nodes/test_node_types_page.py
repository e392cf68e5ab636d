"""The page about kinds names every setting with its default, and every port."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from perdure.nodes.registry import NodeTypes
from perdure.tasks.node_type import NodeType
from tests.docs.pages import page

PAGE = page("docs/howto/node-types.md")
KINDS = NodeTypes()
REQUIRED = object()


def defaults_of(node_type: NodeType) -> dict[str, Any]:
    return {
        field.encode_name: REQUIRED if field.required else default_of(field)
        for field in msgspec.structs.fields(node_type.Config)
    }


def default_of(field: Any) -> Any:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def default_in(cell: str) -> Any:
    """The default as the page writes it."""
    words: dict[str, Any] = {
        "required": REQUIRED,
        "null": None,
        "none": {},
        "the inputs": msgspec.UNSET,
    }
    if cell in words:
        return words[cell]
    text = cell.strip("`")
    return int(text) if text.isdecimal() else text


@pytest.mark.parametrize("name", KINDS)
def test_every_setting_is_there_with_its_default(name):
    rows = PAGE.table_under(name)

    found = {setting.strip("`"): default_in(default) for setting, default, _ in rows}
    assert found == defaults_of(KINDS[name])


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].ports])
def test_every_port_is_there(name):
    [_, after] = PAGE.text.split(f"\n### {name}\n")
    section = after.partition("\n### ")[0]
    [told] = re.findall(r"Ports: ([^.]*)\.", section)

    assert tuple(port.strip("`") for port in told.split(", ")) == KINDS[name].ports


def test_every_member_of_a_kind_is_there():
    rows = PAGE.table_under("Node type members")

    told = {cell.strip("`").partition("(")[0] for cell, _ in rows}
    public = {
        name for name in {*vars(NodeType), *NodeType.__annotations__} if not name.startswith("_")
    }
    assert told == public - {"has_poll"}  # which follows from poll
