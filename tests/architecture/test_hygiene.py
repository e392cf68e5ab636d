"""What must never enter the project: machine paths, executable payloads, extras at import."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, Module, modules

# Folders that exist on one machine only; spelled apart so that this file passes its own test.
MACHINE_PATH = re.compile(r"(?<![\w./~-])/(?:work|root|home/\w+|Users/\w+)" + "/")

RUNS_WHAT_IT_READS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
RUNS_TEXT = {"eval", "exec"}

# "path: name": why code that comes from data is safe here
EXECUTES_ON_PURPOSE: dict[str, str] = {}

NOT_LOADED_AT_IMPORT = ["click", "rich", "psycopg", "sqlalchemy", "pydantic"]


def test_no_tracked_file_names_a_path_of_one_machine():
    files = tracked_files()
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]

    assert ROOT / "pyproject.toml" in files
    assert found == []


@pytest.mark.parametrize("folder", ["work", "root", "home/ann", "Users/ann"])
def test_a_machine_path_is_recognised(folder):
    assert MACHINE_PATH.search(f'open("/{folder}/notes.txt")')
    assert not MACHINE_PATH.search(f"https://example.org/{folder}/notes.txt")


def test_nothing_is_unpickled_or_evaluated():
    assert set(executions(modules())) == set(EXECUTES_ON_PURPOSE)  # stale excuses fail too


def test_an_execution_is_recognised(tmp_path):
    (tmp_path / "bad.py").write_text(
        "import pickle\nfrom marshal import loads\nimport shelve as s\neval('1')\nexec('')\n"
    )
    (tmp_path / "good.py").write_text("import json\nself.eval()\nexecute('')\n")

    assert executions(modules(tmp_path)) == [
        "bad.py: pickle",
        "bad.py: marshal",
        "bad.py: shelve",
        "bad.py: eval",
        "bad.py: exec",
    ]


def test_importing_the_library_loads_no_extras():
    program = f"""
import json, sys
import perdure
print(json.dumps([name for name in {NOT_LOADED_AT_IMPORT} if name in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:  # an unpacked source archive: all that it holds counts as tracked
        folders = ("src", "tests", "proof", "docs", "bench")
        files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
        return [path for path in [*ROOT.glob("*"), *files] if path.is_file()]
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def executions(tree: list[Module]) -> list[str]:
    return [f"{module.path}: {name}" for module in tree for name in executed_in(module)]


def executed_in(module: Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in RUNS_WHAT_IT_READS]
        elif isinstance(node, ast.ImportFrom) and node.module in RUNS_WHAT_IT_READS:
            found.append(node.module)
        elif isinstance(node, ast.Name) and node.id in RUNS_TEXT:
            found.append(node.id)
    return found
