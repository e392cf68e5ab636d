"""What mypy --strict and pyright say about programs that use Perdure. Run by ``make check``.

Not collected with the tests: two type checkers over the whole library take a while.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARK = re.compile(r"#\s*error\b")
SECONDS_MAX = 300

pytestmark = pytest.mark.timeout(SECONDS_MAX)


def rejected_by_mypy(file: Path) -> dict[int, str]:
    """The lines that mypy rejects, and why."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found = re.findall(rf"{re.escape(file.name)}:(\d+): error: (.*)", done.stdout)
    return {int(line): text for line, text in found}


def rejected_by_pyright(file: Path) -> dict[int, str]:
    """The lines that pyright rejects, and why."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, str(file)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return {
        each["range"]["start"]["line"] + 1: each["message"]
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] == "error"
    }


CHECKERS = pytest.mark.parametrize("rejected", [rejected_by_mypy, rejected_by_pyright])
Rejected = Callable[[Path], dict[int, str]]


@CHECKERS
def test_right_programs_are_accepted(rejected: Rejected) -> None:
    assert rejected(HERE / "right.py") == {}


@CHECKERS
def test_exactly_the_wrong_lines_are_rejected(rejected: Rejected) -> None:
    file = HERE / "wrong.py"
    lines = file.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, start=1) if MARK.search(line)}
    found = rejected(file)
    assert {line: found[line] for line in found.keys() - marked} == {}
    assert [lines[number - 1] for number in sorted(marked - found.keys())] == []
