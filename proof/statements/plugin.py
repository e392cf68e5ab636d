"""A pytest plugin that breaks the statement named by ``PERDURE_SQL_MUTANT`` before tests run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType

from perdure.store.postgres import session as postgres
from perdure.store.sql.statements import load_statements
from perdure.store.sqlite import transaction as sqlite
from proof.statements.mutants import MUTANTS, Backend

VARIABLE = "PERDURE_SQL_MUTANT"
LOADERS: Mapping[Backend, ModuleType] = {"sqlite": sqlite, "postgres": postgres}
"""The module of each backend that loads its statements."""


def pytest_configure() -> None:
    broken = os.environ[VARIABLE]
    backend, mutant = next(
        (backend, mutant)
        for backend, mutants in MUTANTS.items()
        for mutant in mutants
        if mutant.name(backend) == broken
    )

    def load(package: str, filename: str, place: Mapping[str, str]) -> Mapping[str, str]:
        statements = load_statements(package, filename, place)
        if mutant.statement not in statements:
            return statements
        text = mutant.applied(statements[mutant.statement], place)
        return {**statements, mutant.statement: text}

    LOADERS[backend].load_statements = load  # type: ignore[attr-defined]
