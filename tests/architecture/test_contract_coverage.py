"""Every method of the store contract has a class of contract tests."""

from __future__ import annotations

import ast
from typing import Any

from perdure.store.contract import PARTS, AuditStore, Store
from tests.architecture.source_tree import ROOT

CONTRACT = ROOT / "src" / "perdure" / "testing" / "contract"


def test_every_contract_method_has_a_class_of_tests():
    wanted = {_class_for(name) for name in abstract_methods(Store)}
    for part, protocol in {**PARTS, "audit": AuditStore}.items():
        wanted |= {_class_for(f"{part}_{name}") for name in abstract_methods(protocol)}
    assert wanted - contract_classes() == set()


def abstract_methods(protocol: Any) -> frozenset[str]:
    methods: frozenset[str] = protocol.__abstractmethods__
    assert methods
    return methods


def _class_for(name: str) -> str:
    return "Test" + "".join(word.title() for word in name.split("_"))


def contract_classes() -> set[str]:
    """The classes that hold at least one test."""
    return {
        node.name
        for file in CONTRACT.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(getattr(each, "name", "").startswith("test_") for each in node.body)
    }
