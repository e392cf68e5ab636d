"""The flows that examples, documentation, demo, benchmarks and tests define, with their versions.

A version is a hash over what a store keeps of a flow. Runs in a store name it, so it must not
change unless the flow changed: ``flow_versions.json`` has the versions as they were.

``python -m tests.golden.flow_versions`` prints what it finds; ``--write`` keeps it, after a
flow was added, or changed on purpose.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import inspect
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from perdure import Flow, InvalidFlow, InvalidInput
from perdure.flows.built import BuiltFlow
from tests.docs.pages import Page, all_pages

GOLDEN = Path(__file__).with_suffix(".json")
ROOT = Path(__file__).parents[2]
FOLDERS = ("examples", "bench", "tests", "proof", "src/perdure/demo", "src/perdure/testing")
SAMPLES = {"str": "sample", "int": 3, "bool": True, "timedelta": timedelta(days=1)}
"""Arguments for functions that make a flow, by the annotation of the parameter."""
DEFINES_FLOWS = re.compile(r"\bFlow\(|\bload_flow\(|\bfrom_yaml\(|\bfrom_dict\(")
RETURNS_FLOWS = re.compile(r"(Built)?Flow|(list|tuple)\[(Built)?Flow, \.\.\.\]")
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
RUNS = re.compile(r"Client\b|Worker\b|client\b|worker\b|run_flow\b|\bawait\b|\bopen\b")

Found = dict[str, str]
"""By ``name@version``: where one of them is defined."""


def found_flows() -> Found:
    """Every flow that can be had without running anything."""
    found: Found = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file.parent.name == "typing":  # programs for type checkers, wrong ones among them
                continue
            if file.name != "__main__.py" and DEFINES_FLOWS.search(file.read_text("utf-8")):
                _add(found, _values_of(_imported(file)), file.relative_to(ROOT).as_posix())
    for page in all_pages():
        if any(block.language == "python" for block in page.blocks):
            _add(found, _declared_on(page), page.name)
    return found


def _add(found: Found, flows: Iterator[Flow | BuiltFlow], where: str) -> None:
    for flow in flows:
        with contextlib.suppress(InvalidFlow):  # some tests are about flows that are refused
            built = flow.build() if isinstance(flow, Flow) else flow
            for text in built.with_children():
                found.setdefault(text, where)


def _imported(file: Path) -> ModuleType:
    parts = file.relative_to(ROOT / "src" if "src" in file.parts else ROOT).with_suffix("").parts
    return importlib.import_module(".".join(parts))


def _values_of(module: ModuleType) -> Iterator[Flow | BuiltFlow]:
    """Flows in the variables of a module, and those that its functions make."""
    for value in vars(module).values():
        yield from _flows_in(value, set())
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            signature = inspect.signature(value)
            needed = [each for each in signature.parameters.values() if each.default is each.empty]
            if RETURNS_FLOWS.fullmatch(str(signature.return_annotation)) and all(
                each.annotation in SAMPLES and each.kind in NAMED for each in needed
            ):
                arguments = {each.name: SAMPLES[each.annotation] for each in needed}
                with contextlib.suppress(InvalidInput, LookupError):  # it wants more than a sample
                    yield from _flows_in(value(**arguments), set())


def _flows_in(value: Any, seen: set[int]) -> Iterator[Flow | BuiltFlow]:
    if id(value) in seen:
        return
    seen.add(id(value))
    parts: list[Any] = []
    if isinstance(value, Flow | BuiltFlow):
        yield value
    elif isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif isinstance(value, type):
        parts = [*vars(value).values()] if value.__module__.startswith("tests.") else []
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, each.name) for each in dataclasses.fields(value)]
    elif isinstance(value, FunctionType):
        parts = [mark.args for mark in getattr(value, "pytestmark", [])]  # of parametrized tests
    for part in parts:
        yield from _flows_in(part, seen)


def _declared_on(page: Page) -> Iterator[Flow | BuiltFlow]:
    """Flows that a page assigns to names; its imports and definitions run, and nothing else."""
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names: dict[str, Any] = {"__name__": "page"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in page.blocks:
            if block.file_name is not None:
                Path(block.file_name).write_text(block.code, "utf-8")
            elif block.language == "python":
                for statement in ast.parse(block.code).body:
                    source = ast.unparse(statement)
                    is_value = isinstance(statement, ast.Assign) and not RUNS.search(source)
                    if is_value or isinstance(statement, kept):
                        with contextlib.suppress(Exception):  # it needs what was not run
                            exec(source, names)
    yield from _flows_in(names, set())


def main() -> None:
    os.chdir(ROOT)
    found = found_flows()
    text = json.dumps(dict(sorted(found.items())), indent=1)
    if "--write" in sys.argv[1:]:
        GOLDEN.write_text(json.dumps(sorted(found), indent=1) + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
