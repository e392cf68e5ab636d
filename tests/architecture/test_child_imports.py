"""A process that runs one task body loads what a body needs: no store, no engine, no driver.

It starts with each new process of ``isolation="process"``, so every module costs a task its time.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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
    "perdure.tasks.result",
    "perdure.tasks.secret",
    "perdure.tasks.task",
    "perdure.worker",
    "perdure.worker.call",
    "perdure.worker.executors",
    "perdure.worker.outcome",
    "perdure.worker.process_child",
    "perdure.worker.processes",
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
