"""No two classes that a reader may meet share a name."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.architecture.source_tree import modules

# Class -> why its name occurs twice. Add an entry only if at most one of the classes is public.
SHARED = {
    "RunFailed": "the public error, and the internal event whose stored name it is",
    "RunCancelled": "the public error, and the internal event whose stored name it is",
    "RunSkipped": "the public error, and the internal event whose stored name it is",
    "Session": "the same thing on each backend",
    "Transaction": "the same thing on each backend",
}
# Users see events of a run as records with a type such as "run_failed", never these classes.
PUBLIC = ("errors", "worker.events", "worker.supervisor", "testing.")


def test_only_known_classes_share_a_name():
    found = defaultdict(list)
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module.name)
    shared = {name: homes for name, homes in found.items() if len(homes) > 1}

    assert shared.keys() == SHARED.keys()
    assert all(_public(name, homes) <= 1 for name, homes in shared.items())


def _public(name: str, homes: list[str]) -> int:
    """How many of these classes an application can import from a documented module."""
    [public] = [each for each in modules() if each.name == "public"]
    exported = {
        node.module.removeprefix("perdure.")
        for node in public.tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        if any(alias.name == name for alias in node.names)
    }
    return sum(home in exported or home.startswith(PUBLIC) for home in homes)
