"""What the pages about other systems say of Perdure, taken apart so that it can be checked."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import perdure
from perdure.client.client import AsyncJobs, AsyncRuns
from perdure.flows.options import ApprovalOptions, NodeOptions, TaskOptions
from perdure.operations.catalog import GROUPS
from perdure.tasks.options import CallOptions
from tests.docs.pages import ROOT, Page

SYSTEMS = ["cycgraph", "sayiir", "workglow", "agent-swarm", "cinatra"]
BEHAVIOR = "Behavior"

_MARK = re.compile(r"<!-- test: (\w+) -->")
_CODE = re.compile(r"`([^`]+)`")

_OWNERS: dict[str, Any] = {
    "client": perdure.AsyncClient,
    "queue": perdure.AsyncJobQueue,
    "worker": perdure.Worker,
    "task": perdure.Task,
    "job": perdure.AsyncJobHandle,
    "run": perdure.AsyncRunHandle,
    "ctx": perdure.Context,
    "Flow": perdure.Flow,
    "flow": perdure.Flow,
    "built": perdure.BuiltFlow,
}
_GROUPS = {**GROUPS, "jobs": AsyncJobs, "runs": AsyncRuns}
_MORE_OPTIONS = {
    "options": CallOptions.__optional_keys__,
    "enqueue": CallOptions.__optional_keys__,  # of a queue
    "approve": ApprovalOptions.__optional_keys__,
    **dict.fromkeys(
        ["then", "node", "use", "join", "map", "loop", "route"],
        NodeOptions.__optional_keys__ | TaskOptions.__optional_keys__,
    ),
}
"""What is passed on by ``**options``, and so not in the signature."""


@dataclass(frozen=True)
class Claims:
    """The page about one system."""

    system: str

    @cached_property
    def page(self) -> Page:
        return Page(ROOT / "docs" / "coming-from" / f"{self.system}.md")

    @property
    def tests_path(self) -> str:
        return f"tests/docs/coming_from/test_{self.system.replace('-', '_')}.py"

    def named_tests(self) -> list[str | None]:
        """Of each row about a behaviour, the test that runs its claim."""
        rows = self.page.table_under(BEHAVIOR)
        marks = [_MARK.findall(row[-1]) for row in rows]
        return [found[0] if len(found) == 1 else None for found in marks]

    def existing_tests(self) -> list[str]:
        tree = ast.parse((ROOT / self.tests_path).read_text(encoding="utf-8"))
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = [each.name for each in tree.body if isinstance(each, functions)]
        return [name for name in found if name.startswith("test_")]

    def our_words(self) -> list[str]:
        """Those in the middle column; a row without one says that there is no such thing."""
        cells = [row[1] for row in self.page.table_under("Words") if row[1]]
        return [word for cell in cells for word in cell.split(", ")]

    def our_calls(self) -> list[str]:
        """The calls of ours in the middle column; a row may name several, or none."""
        rows = self.page.table_under("Calls")
        return [code for row in rows for code in _CODE.findall(row[1])]

    def our_settings(self) -> list[str]:
        return [code for row in self.page.table_under("Settings") for code in _CODE.findall(row[1])]


def fault_of_call(text: str, *, with_defaults: bool = False) -> str | None:
    """What is wrong with a call such as ``client.submit(flow, input, id=…)``, if anything.

    With defaults, a value that is given must be the default that the code has.
    """
    call = ast.parse(text.replace("…", "..."), mode="eval").body
    if isinstance(call, ast.Attribute):
        return None if hasattr(_owner(call.value), call.attr) else f"{text}: no such attribute"
    assert isinstance(call, ast.Call), f"{text!r} is no call"
    target = _target(call.func)
    if target is None:
        return f"{text}: no such call"
    parameters = inspect.signature(target).parameters
    inner = [each for each in call.args if isinstance(each, ast.Call)]
    if faults := [fault for each in inner if (fault := fault_of_call(ast.unparse(each)))]:
        return faults[0]
    for each in call.keywords:
        name = str(each.arg)
        if name in _MORE_OPTIONS.get(target.__name__, ()) and name not in parameters:
            continue
        if name not in parameters:
            return f"{text}: it takes no {name}"
        if with_defaults and ast.literal_eval(each.value) != parameters[name].default:
            return f"{text}: the default of {name} is {parameters[name].default!r}"
    return None


def _target(function: ast.expr) -> Any:
    if isinstance(function, ast.Name):
        return getattr(perdure, function.id, None)
    assert isinstance(function, ast.Attribute)
    return getattr(_owner(function.value), function.attr, None)


def _owner(expression: ast.expr) -> Any:
    if isinstance(expression, ast.Call):
        return _owner(expression.func)
    if isinstance(expression, ast.Attribute):  # a group of the client
        return _GROUPS[expression.attr]
    assert isinstance(expression, ast.Name), ast.unparse(expression)
    return _OWNERS[expression.id]
