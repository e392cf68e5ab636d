"""The pages about other systems: every behavior and claim names its tests, every call exists."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.client.client import AsyncJobs, AsyncRuns
from perdure.client.events import AsyncEvents
from perdure.flows.options import ApprovalOptions, NodeOptions, TaskOptions
from perdure.operations.catalog import GROUPS
from perdure.tasks.options import CallOptions
from tests.docs.pages import ROOT, Page, page

SYSTEMS = ["cycgraph", "sayiir", "workglow", "agent-swarm", "cinatra"]
BEHAVIOR = "Behavior"

CLAIMED = {"cycgraph": 77, "sayiir": 53, "workglow": 105, "agent-swarm": 62}
"""How many claims the description of each system makes, row by row on its page."""
NEITHER = {
    ("cycgraph", 73, "later"),  # the metrics hook and
    ("agent-swarm", 23, "later"),  # the HTTP endpoint come with the server
    ("sayiir", 13, "n.a."),  # other languages
    ("sayiir", 14, "n.a."),
    ("workglow", 8, "n.a."),  # browsers
    ("workglow", 11, "n.a."),  # calls of a server that is not there
    ("agent-swarm", 56, "n.a."),  # ports that cannot conflict
    ("agent-swarm", 62, "n.a."),  # figures
}
"""The claims that Perdure neither keeps nor keeps in another way."""

_MARK = re.compile(r"<!-- test: ([^>]+) -->")
_LINKED = re.compile(r"\[`([^`]+)`\]\(([^)]+)\)")
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
_GROUPS = {**GROUPS, "jobs": AsyncJobs, "runs": AsyncRuns, "events": AsyncEvents}
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

    def named_tests(self) -> list[list[str]]:
        """Of each row about a behavior, the tests that show it, below ``tests``."""
        rows = self.page.table_under(BEHAVIOR)
        return [" ".join(_MARK.findall(row[-1])).split() for row in rows]

    def claims(self) -> list[tuple[int, str, list[tuple[str, str]]]]:
        """Of each claim its number, the verdict, and the tests that show it with their links."""
        rows = self.page.table_under("Claim by claim")
        return [(int(row[0]), row[2], _LINKED.findall(row[4])) for row in rows]

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


CLAIMS = [pytest.param(Claims(system), id=system) for system in SYSTEMS]
CLAIMS_BY_ROW = [pytest.param(Claims(system), id=system) for system in CLAIMED]


def path_of(file: str) -> Path:
    """``contract/...`` is a file of the contract tests, which every store runs."""
    return ROOT / ("src/perdure/testing" if file.startswith("contract/") else "tests") / file


@cache
def collected(file: str) -> set[str]:
    """What pytest collects from a file below ``tests``, each as ``file::Class::test``."""
    found: set[str] = set()

    def look(body: list[ast.stmt], prefix: str) -> None:
        for each in body:
            if isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
                look(each.body, f"{prefix}::{each.name}")
            elif getattr(each, "name", "").startswith("test_"):
                found.add(f"{prefix}::{each.name}")  # type: ignore[attr-defined]

    path = path_of(file)
    if (file.startswith("contract/") or path.name.startswith("test_")) and path.exists():
        look(ast.parse(path.read_text(encoding="utf-8")).body, file)
    return found


@pytest.mark.parametrize("claims", CLAIMS)
def test_every_behavior_names_tests_that_exist(claims):
    named = claims.named_tests()
    assert [row for row in named if not row] == []
    missing = {test for row in named for test in row if test not in collected(test.split("::")[0])}
    assert missing == set()


@pytest.mark.parametrize("claims", CLAIMS_BY_ROW)
def test_every_claim_has_one_row(claims):
    numbers = [number for number, _, _ in claims.claims()]
    assert numbers == list(range(1, CLAIMED[claims.system] + 1))


@pytest.mark.parametrize("claims", CLAIMS_BY_ROW)
def test_every_claim_links_tests_that_exist(claims):
    assert [number for number, _, tests in claims.claims() if not tests] == []
    linked = {each for _, _, tests in claims.claims() for each in tests}
    folder = claims.page.path.parent
    wrong = {
        test
        for test, link in linked
        if test not in collected(test.split("::")[0])
        or (folder / link).resolve() != path_of(test.split("::")[0])
    }
    assert wrong == set()


def test_every_claim_is_kept_but_those_that_come_later_or_do_not_apply():
    verdicts = {
        (system, number, verdict)
        for system in CLAIMED
        for number, verdict, _ in Claims(system).claims()
    }
    assert {each for each in verdicts if each[2] not in {"works", "differs"}} == NEITHER


@pytest.mark.parametrize("claims", CLAIMS)
def test_our_words_are_those_of_the_glossary(claims):
    glossary = page("docs/concepts/glossary.md").text
    known = {
        word.strip()
        for line in re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)
        for word in re.sub(r"\([^)]*\)", "", line).split(",")
    }
    assert set(claims.our_words()) - known == set()


@pytest.mark.parametrize("claims", CLAIMS)
def test_our_calls_exist_with_what_they_are_shown_to_take(claims):
    calls = claims.our_calls()
    assert [fault for call in calls if (fault := fault_of_call(call))] == []
    assert len(calls) >= 10


@pytest.mark.parametrize("claims", CLAIMS)
def test_our_settings_have_the_defaults_that_are_shown(claims):
    settings = claims.our_settings()
    faults = [fault_of_call(each, with_defaults=True) for each in settings]
    assert [fault for fault in faults if fault] == []
    assert settings != []


def test_every_page_about_a_system_is_checked():
    pages = {path.stem for path in ROOT.glob("docs/coming-from/*.md")}
    assert pages == set(SYSTEMS)


@pytest.mark.parametrize(
    "call", ["client.sumbit(flow)", "client.submit(flow, ident=…)", "job.outcome", "Worker(lese=…)"]
)
def test_a_wrong_call_is_found_out(call):
    assert fault_of_call(call) is not None


def test_a_wrong_default_is_found_out():
    assert fault_of_call('Worker(lease="5m")', with_defaults=True) is not None
