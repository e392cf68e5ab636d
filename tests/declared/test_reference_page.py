"""The page about the format names every key, and no other."""

from __future__ import annotations

import re
from typing import Any

import pytest

from perdure.flows.options import FORMS, RETRY
from perdure.flows.yaml.schema import FLOW_KEYS, NODE_KEYS
from tests.docs.pages import page

PAGE = page("docs/reference/yaml.md")
NAME = re.compile(r"`([^`]+)`")


def names_under(heading: str) -> set[str]:
    return {NAME.findall(row[0])[0] for row in PAGE.table_under(heading)}


def test_every_key_of_a_flow_is_there():
    assert names_under("The flow") == {*FLOW_KEYS, "nodes"}


def test_every_key_of_a_node_is_there():
    assert names_under("A node") == set(NODE_KEYS)


@pytest.mark.parametrize("found_type", [found_type for found_type in FORMS if found_type != "task"])
def test_every_key_of_a_config_is_there(found_type):
    assert names_under(found_type) == set(FORMS[found_type].settings)


def test_every_key_of_a_retry_is_there_with_its_default():
    keys: dict[str, Any] = RETRY["anyOf"][1]["properties"]

    shown = {NAME.findall(row[0])[0]: NAME.findall(row[1]) for row in PAGE.table_under("Retry")}

    assert shown.keys() == keys.keys()
    for key, described in keys.items():
        if "default" in described:
            assert shown[key] == [str(described["default"]).lower()]
