"""The page about the flow builder names everything that the builder takes, and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from perdure import BuiltFlow, Flow
from perdure.flows.assembly import NESTING_MAX
from perdure.flows.check import NODES_MAX
from perdure.flows.options import ApprovalOptions, NodeOptions, TaskOptions
from tests.docs.pages import page

PAGE = page("docs/reference/flow-builder.md")
NAME = re.compile(r"`([^`]+)`")
OWN = [name for name in vars(Flow) if not name.startswith("_") and name != "build"]
VARYING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def options_of(described: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(described).parameters.values()
    return {
        each.name: each.default
        for each in parameters
        if each.kind not in VARYING and each.name != "self"
    }


def default_in(cell: str) -> Any:
    return inspect.Parameter.empty if cell == "required" else ast.literal_eval(cell.strip("`"))


@pytest.mark.parametrize("name", ["Flow", *OWN])
def test_every_option_of_a_call_is_there_with_its_default(name):
    described = Flow.__init__ if name == "Flow" else getattr(Flow, name)

    shown = {NAME.findall(row[0])[0]: default_in(row[1]) for row in PAGE.table_under(name)}
    assert shown == options_of(described)


@pytest.mark.parametrize(
    "heading,options",
    [
        ("Options of a node", NodeOptions.__optional_keys__),
        ("Options of an approval", ApprovalOptions.__optional_keys__),
        (
            "Options of tasks and node types",
            TaskOptions.__optional_keys__ - NodeOptions.__optional_keys__,
        ),
    ],
)
def test_every_option_of_a_node_is_there(heading, options):
    rows = PAGE.table_under(heading)

    assert {NAME.findall(row[0])[0] for row in rows} == options


def test_every_name_on_a_built_flow_is_there():
    rows = PAGE.table_under("build")
    built = Flow("any").then(lambda value: value, name="node").build()

    shown = {name.partition("(")[0] for row in rows for name in NAME.findall(row[0])}
    assert isinstance(built, BuiltFlow)
    assert shown == {name for name in dir(built) if not name.startswith("_")}


def test_the_limits_are_right():
    [line] = [line for line in PAGE.prose if line.startswith("- A flow has at most")]

    assert re.findall(r"[\d,]+", line)[:2] == [f"{NODES_MAX:,}", str(NESTING_MAX)]
