"""The source of the library as the architecture tests read it: parsed, never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "perdure"


@dataclass(frozen=True, slots=True)
class Module:
    """One file: its path and dotted name within the library ("" is its ``__init__``)."""

    path: str
    name: str
    is_package: bool
    text: str
    tree: ast.Module


@cache
def modules(src: Path = SRC) -> list[Module]:
    found = [_parsed(file, src) for file in sorted(src.rglob("*.py"))]
    assert found, f"no source was found in {src}"
    return found


def imported_names(module: Module, package: str = "perdure") -> dict[str, str]:
    """Return what each imported name stands for: ``{"dt": "datetime.datetime"}``."""
    names: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            source = absolute_source(node, module, package)
            names.update(
                (alias.asname or alias.name, f"{source}.{alias.name}") for alias in node.names
            )
    return names


def absolute_source(node: ast.ImportFrom, module: Module, package: str = "perdure") -> str:
    """Return the module that ``from … import`` names, with leading dots resolved."""
    if node.level == 0:
        return node.module or ""
    here = [package, *filter(None, module.name.split("."))]
    if not module.is_package:
        here = here[:-1]
    base = here[: len(here) - (node.level - 1)]
    return ".".join([*base, *filter(None, [node.module])])


def dotted_references(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, full name) for each use of an imported name: ``(7, "time.monotonic")``."""
    names = imported_names(module)
    inner = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            first, *rest = _dotted(node)
            if first in names:
                yield node.lineno, ".".join([names[first], *rest])


def _parsed(file: Path, src: Path) -> Module:
    text = file.read_text(encoding="utf-8")
    relative = file.relative_to(src)
    parts = relative.with_suffix("").parts
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(relative.as_posix(), name, is_package, text, ast.parse(text, filename=str(file)))


def _dotted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [*_dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]
