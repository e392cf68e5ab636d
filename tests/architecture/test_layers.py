"""Imports point one way only: each part of the library knows just the parts below it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, Module, absolute_source, imported_names, modules

ANYTHING = "*"

VALUES = {"model", "errors", "diagnostics", "clock"}
PURE = VALUES | {"expr", "forms"}
STORE_INTERFACE = {
    "store.admission",
    "store.contract",
    "store.lifecycle",
    "store.opening",
    "store.wakeups",
}
STORE_PARTS = {
    "store.admission",  # pure, and holds inside a transaction
    "store.batching",
    "store.contract",
    "store.failures",
    "store.hints",
    "store.lifecycle",
    "store.outcomes",
    "store.sql",
    "store.wakeups",
}
BACKEND = VALUES | STORE_PARTS

# The module that says which names are public may fetch them from these.
PUBLIC_NAMES_FROM = VALUES | {
    "client",
    "flows",
    "inline",
    "nodes",
    "operations",
    "render",
    "tasks",
    "worker",
}

# Part of the library -> the parts that it may import, besides itself. The longest name that
# fits a module counts, so `store.sql` is not governed by `store`. A part that is not listed
# here may not exist: add it with a decision, not by accident.
MAY_IMPORT: dict[str, set[str]] = {
    "clock": set(),
    "diagnostics": set(),
    "errors": {"diagnostics"},
    "model": VALUES,
    "expr": VALUES,
    "forms": VALUES | {"expr"},
    "tasks": PURE,
    "nodes": PURE | {"tasks"},
    "flows": PURE | {"tasks", "nodes", "render"},
    "store": set(),
    "store.admission": VALUES,
    "store.contract": VALUES | {"store.lifecycle", "store.wakeups"},
    "store.failures": VALUES,
    "store.hints": VALUES,
    "store.lifecycle": VALUES,
    "store.outcomes": VALUES,
    "store.wakeups": VALUES,
    "store.batching": set(),
    "store.sql": VALUES | {"store.contract", "store.failures"},
    "store.memory": BACKEND,
    "store.sqlite": BACKEND,
    "store.postgres": BACKEND,
    "store.opening": VALUES | {"store"},
    # Pure but for the two that read and write a store.
    "engine": PURE | {"store.admission"},
    "engine.runs": PURE | {"engine", "store.contract"},
    "engine.ticks": PURE | {"engine", "store.contract", "store.lifecycle"},
    "render": {"model"},
    "operations": PURE
    | STORE_INTERFACE
    | {"engine", "flows.built", "flows.settings", "render", "store.batching", "tasks"},
    "client": PURE
    | {
        "engine",
        "flows.built",
        "flows.settings",
        "operations",
        "render",
        "store.admission",
        "store.contract",
        "tasks",
    },
    "worker": PURE | STORE_INTERFACE | {"engine", "store.batching", "flows.built", "tasks"},
    # Brings client and worker together on a store whose time it can let pass: memory alone can.
    "inline": VALUES
    | {"client", "flows", "operations", "worker", "store.contract", "store.memory"},
    # A whole store in a file, and back: no client, because nothing in it is decided or changed.
    "transfer": VALUES | {"store.contract", "store.opening"},
    # It asks first whether the store is there: most commands must not create one.
    "cli": VALUES
    | {
        "client",
        "flows",
        "nodes",
        "operations",
        "render",
        "store.opening",
        "tasks",
        "transfer",
        "verify",
        "worker",
    },
    "__main__": {"cli"},
    "demo": {ANYTHING},
    "testing": {ANYTHING},
    # Reads a store by its contract alone, and decides its logs again.
    "verify": PURE | {"store.contract", "store.admission", "engine"},
    "public": PUBLIC_NAMES_FROM,
}

# Modules of the contract that no backend implements.
NOT_A_PART = {"refusals"}
NOT_IN = {"memory": {"transfer"}}  # a store in memory ends with its process

# "importing module -> imported module": why this one import against the table is right.
EXCEPTIONS: dict[str, str] = {
    "errors -> model.failure": "the type of a field, for type checkers only",
    "errors -> model.check": "RetryLater checks its arguments, by a late import",
}


def test_imports_follow_the_table():
    assert set(violations(modules())) == set(EXCEPTIONS)  # equality: stale excuses fail too


def test_the_table_names_only_what_exists():
    names = MAY_IMPORT.keys() | {each for parts in MAY_IMPORT.values() for each in parts}
    assert missing(names, modules()) == set()


@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres"])
def test_each_part_of_the_contract_has_its_namesake_in_a_backend(backend):
    folder = "store.contract."
    parts = {m.name.removeprefix(folder) for m in modules() if m.name.startswith(folder)}
    assert {"jobs", "runs", "queries"} <= parts
    parts -= NOT_A_PART | NOT_IN.get(backend, set())
    assert missing({f"store.{backend}.{part}" for part in parts}, modules()) == set()


def test_every_module_belongs_to_a_part():
    homeless = [module.path for module in modules() if module.name and not part_of(module.name)]
    assert homeless == [], "add these to MAY_IMPORT"


def test_the_parts_were_found():
    found = {part_of(module.name) for module in modules()}
    assert {"model", "engine", "errors", "clock", "store.contract"} <= found


def test_the_library_knows_nothing_of_the_repository_around_it():
    around = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"src"}
    assert {"bench", "proof", "tests"} <= around

    found = [
        f"{module.name} -> {name}"
        for module in modules()
        for name in imported_names(module).values()
        if name.partition(".")[0] in around
    ]
    assert found == []


class TestTheCheckItself:
    def test_reports_an_upward_import(self, tmp_path):
        write(tmp_path, "model/job.py", "from perdure.store.contract import JobStore")
        write(tmp_path, "store/contract/jobs.py", "from perdure.model.job import Job")
        assert list(violations(modules(tmp_path))) == ["model.job -> store.contract"]

    def test_sees_through_every_way_to_import(self, tmp_path):
        write(tmp_path, "worker/service.py", "")
        write(tmp_path, "model/plain.py", "import perdure.worker.service")
        write(tmp_path, "model/from_root.py", "from perdure import worker")
        write(tmp_path, "model/relative.py", "from ..worker import service")
        write(tmp_path, "model/inside.py", "def late():\n    from perdure.worker import service")

        assert set(violations(modules(tmp_path))) == {
            "model.plain -> worker.service",
            "model.from_root -> worker",
            "model.relative -> worker.service",
            "model.inside -> worker.service",
        }

    def test_lets_a_store_use_only_the_named_rules(self, tmp_path):
        write(tmp_path, "store/admission.py", "")
        write(tmp_path, "engine/failures.py", "")
        imports = "from perdure.store import admission\nfrom perdure.engine import failures"
        write(tmp_path, "store/sqlite/jobs.py", imports)
        assert list(violations(modules(tmp_path))) == ["store.sqlite.jobs -> engine.failures"]

    def test_reports_names_of_nothing(self, tmp_path):
        write(tmp_path, "store/kept.py", "")
        assert missing({"store", "store.kept", "store.gone"}, modules(tmp_path)) == {"store.gone"}

    def test_keeps_testing_out_of_production(self, tmp_path):
        write(tmp_path, "testing/clock.py", "from perdure.store.memory.jobs import MemoryJobs")
        write(tmp_path, "cli/jobs.py", "from perdure.testing.clock import Clock")
        write(tmp_path, "__init__.py", "import perdure.testing")
        assert set(violations(modules(tmp_path))) == {
            "perdure -> testing",
            "cli.jobs -> testing.clock",
        }


def violations(tree: list[Module]) -> Iterator[str]:
    known = {module.name for module in tree} | {
        ".".join(module.name.split(".")[:depth])
        for module in tree
        for depth in range(1, module.name.count(".") + 1)
    }
    for module in tree:
        part = part_of(module.name)
        # The root package has nothing but the public names.
        allowed = {part} | MAY_IMPORT.get(part, set()) if module.name else {"public"}
        for target in sorted(imports_inside_the_library(module, known)):
            if not any(covers(name, target) for name in allowed):
                yield f"{module.name or 'perdure'} -> {target or 'perdure'}"


def missing(names: Iterable[str], tree: list[Module]) -> set[str]:
    """The names that are neither a module nor a package."""
    return {name for name in names if not any(covers(name, each.name) for each in tree)}


def imports_inside_the_library(module: Module, known: set[str]) -> set[str]:
    """Return the modules of the library that this one imports, by their names within it."""
    targets: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = absolute_source(node, module)
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                is_module = submodule.removeprefix("perdure.") in known
                targets.add(submodule if is_module else source)
    inside = {name for name in targets if covers("perdure", name)}
    return {name.removeprefix("perdure").removeprefix(".") for name in inside}


def part_of(name: str) -> str:
    return max((part for part in MAY_IMPORT if covers(part, name)), key=len, default="")


def covers(part: str, name: str) -> bool:
    return part == ANYTHING or name == part or name.startswith(f"{part}.")


def write(src: Path, path: str, text: str) -> None:
    file = src / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


# A process that runs one task body loads what a body needs: no store, no engine, no driver.


CHILD = "perdure.worker.process_child"
NEVER_LOADED = (
    "perdure.cli",
    "perdure.client",
    "perdure.engine.decide",
    "perdure.engine.plan",
    "perdure.engine.runs",
    "perdure.expr",
    "perdure.flows",
    "perdure.forms",
    "perdure.inline",
    "perdure.render",
    "perdure.public",
    "perdure.store",
    "perdure.transfer",
    "perdure.worker.attempt",
    "perdure.worker.commits",
    "perdure.worker.runner",
    "perdure.worker.service",
    "asyncpg",
    "cronsim",
    "immutables",
    "jsonschema",
    "sqlite3",
    "yaml",
)
DRIVERS = ("asyncpg", "sqlite3")

# Of what is not the model, this is loaded. The list only shrinks: a module that is renamed keeps
# its line, and one that is no longer loaded loses it.
LOADED = {
    "perdure.engine",
    "perdure.engine.failures",
    "perdure.engine.retry",
    "perdure.tasks",
    "perdure.tasks.context",
    "perdure.tasks.options",
    "perdure.tasks.resource",  # with the tasks, which declare them
    "perdure.tasks.result",
    "perdure.tasks.secret",
    "perdure.tasks.task",
    "perdure.worker",
    "perdure.worker.call",
    "perdure.worker.executors",
    "perdure.worker.isolation",  # with the executors; it loads only text of the model
    "perdure.worker.outcome",
    "perdure.worker.process_child",
    "perdure.worker.processes",
    "perdure.worker.resources",  # a child opens them for its bodies; it loads nothing else of ours
    "perdure.worker.secrets",
}
OF_THE_MODEL = ("perdure.model", "perdure.errors", "perdure.clock", "perdure.diagnostics")


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return modules_after(f"import {CHILD}")


def test_loads_neither_store_nor_engine_nor_driver(loaded):
    assert CHILD in loaded
    assert [name for name in loaded if is_below(name, NEVER_LOADED)] == []


def test_loads_no_more_than_it_did(loaded):
    ours = {name for name in loaded if name.startswith("perdure.")}
    assert {name for name in ours if not is_below(name, OF_THE_MODEL)} == LOADED


def test_opens_no_driver_for_a_body_that_uses_the_library():
    """A module of tasks says ``from perdure import task``, which loads more, but no driver."""
    loaded = modules_after(f"import {CHILD}; from perdure import task")
    assert [name for name in loaded if is_below(name, DRIVERS)] == []


def is_below(name: str, parents: tuple[str, ...]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in parents)


def modules_after(statements: str) -> set[str]:
    program = f"import json, sys; {statements}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))
