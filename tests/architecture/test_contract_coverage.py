"""Every method of the store contract has a class of conformance tests."""

from __future__ import annotations

import ast
from pathlib import Path

from perdure.store.contract import Store

CONFORMANCE = Path(__file__).parents[1] / "conformance"


def test_every_contract_method_has_a_conformance_class() -> None:
    wanted = {
        "Test" + "".join(word.title() for word in name.split("_"))
        for name in Store.__abstractmethods__
    }

    assert wanted - conformance_classes() == set()


def conformance_classes() -> set[str]:
    """The classes that hold at least one test."""
    return {
        node.name
        for file in CONFORMANCE.glob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(getattr(each, "name", "").startswith("test_") for each in node.body)
    }
