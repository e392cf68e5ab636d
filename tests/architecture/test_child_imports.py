"""A process that runs one task body loads what a body needs: no store, no engine, no driver.

It starts with each new process of ``isolation="process"``, so every module costs a task its time.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CHILD = "perdure.worker.child"
NEVER_LOADED = (
    "perdure.cli",
    "perdure.engine",
    "perdure.in_process",
    "perdure.pictures",
    "perdure.public",
    "perdure.store",
    "perdure.transfer",
    "perdure.worker.commits",
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
    "perdure.client",
    "perdure.client.context",
    "perdure.client.task",
    "perdure.rules",
    "perdure.rules.automaton",
    "perdure.rules.condition",
    "perdure.rules.failure",
    "perdure.rules.form",
    "perdure.rules.form_formats",
    "perdure.rules.form_validator",
    "perdure.rules.form_wording",
    "perdure.rules.pattern",
    "perdure.rules.retry",
    "perdure.rules.sameness",
    "perdure.rules.template",
    "perdure.worker",
    "perdure.worker.attempt",
    "perdure.worker.bodies",
    "perdure.worker.calls",
    "perdure.worker.child",
    "perdure.worker.judging",
    "perdure.worker.masking",
    "perdure.worker.node_calls",
    "perdure.worker.processes",
    "perdure.worker.results",
    "perdure.worker.secrets",
    "perdure.worker.threads",
}
OF_THE_MODEL = ("perdure.model", "perdure.errors", "perdure.clock", "perdure.diagnostics")


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return modules_after(f"import {CHILD}")


def test_loads_neither_store_nor_engine_nor_driver(loaded: set[str]) -> None:
    assert CHILD in loaded
    assert [name for name in loaded if is_below(name, NEVER_LOADED)] == []


def test_loads_no_more_than_it_did(loaded: set[str]) -> None:
    ours = {name for name in loaded if name.startswith("perdure.")}

    assert {name for name in ours if not is_below(name, OF_THE_MODEL)} == LOADED


def test_opens_no_driver_for_a_body_that_uses_the_library() -> None:
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
