"""Each finding of the security review has tests that name it in their docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "proof", "src/perdure/testing")
COUNT = 38


def test_every_finding_of_the_security_review_has_a_test_that_says_what_it_was():
    cited = {number for folder in FOLDERS for number in findings_cited(ROOT / folder)}

    assert cited == set(range(1, COUNT + 1))


def findings_cited(folder: Path) -> Iterator[int]:
    """Those that tests cite: ``Finding 11: the file could be read by all users.``"""
    for file in folder.rglob("*.py"):
        if "Finding" not in (text := file.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                found = re.findall(r"Finding (\d+)[a-z]?: \S", ast.get_docstring(node) or "")
                yield from map(int, found)
