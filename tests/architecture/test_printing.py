"""All that is printed goes through one place, where control characters become visible."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.architecture.source_tree import Module, imported_names, modules

PRINTS = ("cli", "demo")

# Module -> why it writes by itself.
WRITERS = {
    "cli.output": "one line or several: its texts are made visible here",
    "cli.terminal": "the console of rich: its texts are made visible here",
}

OF_CLICK = {"echo", "secho", "echo_via_pager", "prompt", "confirm"}
OF_RICH = {"rich.console.Console", "rich.get_console", "rich.print", "rich.prompt"}
OF_PYTHON = {"print", "input"}
OF_STREAMS = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}


def test_who_writes_to_the_terminal():
    found = [each for each in modules() if each.name.split(".")[0] in PRINTS]

    assert {module.name for module in found if any(writes(module))} == WRITERS.keys()


def writes(module: Module) -> Iterator[str]:
    names = imported_names(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield from OF_RICH & {_dotted(base, names) for base in node.bases}
        if isinstance(node, ast.Call):
            called = _dotted(node.func, names)
            package, _, function = called.rpartition(".")
            if (
                called in OF_PYTHON
                or called in OF_RICH
                or (package == "click" and function in OF_CLICK)
                or (package == "traceback" and function.startswith("print"))
                or (package in OF_STREAMS and function.startswith("write"))
            ):
                yield called


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=value, attr=attr):
            return f"{_dotted(value, names)}.{attr}"
    return ""


def test_writing_is_recognised(tmp_path):
    (tmp_path / "good.py").write_text("console.print('a')\nself.print('a')\necho('a')\n")
    (tmp_path / "bad.py").write_text(
        "import click, sys, traceback\n"
        "from click import echo as say\n"
        "from rich.console import Console\n"
        "print('a')\n"
        "say('a')\n"
        "click.secho('a')\n"
        "sys.stderr.write('a')\n"
        "traceback.print_exc()\n"
        "Console()\n"
        "class Own(Console): ...\n"
    )

    assert {each.name: sorted(writes(each)) for each in _sorted(modules(tmp_path))} == {
        "bad": [
            "click.echo",
            "click.secho",
            "print",
            "rich.console.Console",
            "rich.console.Console",
            "sys.stderr.write",
            "traceback.print_exc",
        ],
        "good": [],
    }


def _sorted(found: Iterable[Module]) -> list[Module]:
    return sorted(found, key=lambda each: each.name)
