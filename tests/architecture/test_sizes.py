"""Functions fit on a screen and files can be read in one go, or say why not.

A tripwire asks for a reason; it is not an order to chop.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.source_tree import Function, Module, functions, modules

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500

# "path::function": why it is clearer whole
LONG_ON_PURPOSE: dict[str, str] = {}

# "path": why it is clearer in one file
LONG_FILES_ON_PURPOSE: dict[str, str] = {
    "errors.py": "every exception that a caller may catch, in one tree; failures keep their names",
    "store/contract.py": "the only file that says what a backend must do",
}


def test_no_function_is_longer_than_a_screen() -> None:
    too_long = long_functions(modules())

    assert too_long.keys() == LONG_ON_PURPOSE.keys(), too_long  # equality: stale excuses fail too


def test_no_file_is_too_long_to_read() -> None:
    too_long = long_files(modules())

    assert too_long.keys() == LONG_FILES_ON_PURPOSE.keys(), too_long


class TestTheCheckItself:
    def test_counts_code_but_not_the_docstring(self, tmp_path: Path) -> None:
        docstring = "    '''First.\n\n    " + "More.\n    " * 100 + "'''\n"
        body = "    work()\n" * (FUNCTION_LINES_MAX - 1)
        (tmp_path / "fits.py").write_text(f"def fits():\n{docstring}{body}")
        (tmp_path / "long.py").write_text(f"class A:\n  async def far(self):\n{body}    more()\n")

        assert long_functions(modules(tmp_path)) == {"long.py::A.far": FUNCTION_LINES_MAX + 1}

    def test_counts_the_lines_of_files(self, tmp_path: Path) -> None:
        (tmp_path / "fits.py").write_text("x = 1\n" * FILE_LINES_MAX)
        (tmp_path / "long.py").write_text("x = 1\n" * (FILE_LINES_MAX + 1))

        assert long_files(modules(tmp_path)) == {"long.py": FILE_LINES_MAX + 1}


def long_functions(tree: list[Module]) -> dict[str, int]:
    sizes = {
        f"{module.path}::{name}": lines_of(function)
        for module in tree
        for name, function in functions(module)
    }
    return {name: lines for name, lines in sizes.items() if lines > FUNCTION_LINES_MAX}


def long_files(tree: list[Module]) -> dict[str, int]:
    sizes = {module.path: len(module.text.splitlines()) for module in tree}
    return {path: lines for path, lines in sizes.items() if lines > FILE_LINES_MAX}


def lines_of(function: Function) -> int:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines
