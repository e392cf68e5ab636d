"""A pytest plugin that breaks the statement of the mutant ``PERDURE_SQL_MUTANT`` before tests run.

The tests that should find it run first. The differential test does not run: it finds nearly
everything, but says little about what is broken, so each mutant needs a test that names it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType

import pytest

from perdure.store.postgres import session as postgres
from perdure.store.sql.statements import load_statements
from perdure.store.sqlite import transaction as sqlite
from proof.statements.mutants import MUTANTS, Backend, Mutant

VARIABLE = "PERDURE_SQL_MUTANT"
DIFFERENTIAL = "differential"
LOADERS: Mapping[Backend, ModuleType] = {"sqlite": sqlite, "postgres": postgres}
"""The module of each backend that loads its statements."""


def pytest_configure() -> None:
    backend, mutant = _chosen()

    def load(package: str, filename: str, place: Mapping[str, str]) -> Mapping[str, str]:
        statements = load_statements(package, filename, place)
        if mutant.statement not in statements:
            return statements
        text = mutant.applied(statements[mutant.statement], place)
        return {**statements, mutant.statement: text}

    LOADERS[backend].load_statements = load  # type: ignore[attr-defined]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _, mutant = _chosen()
    topics = {item: _topic(item) for item in items}
    left_out = [item for item in items if topics[item] == DIFFERENTIAL]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if topics[item] != DIFFERENTIAL]
    items.sort(key=lambda item: topics[item] != mutant.hint)


def _chosen() -> tuple[Backend, Mutant]:
    broken = os.environ[VARIABLE]
    return next(
        (backend, mutant)
        for backend, mutants in MUTANTS.items()
        for mutant in mutants
        if mutant.name(backend) == broken
    )


def _topic(item: pytest.Item) -> str:
    assert isinstance(item, pytest.Function)
    topic: str = item.function.__module__.rpartition(".")[2]
    return topic
