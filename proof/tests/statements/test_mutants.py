"""Mutants still fit their SQL statements, and cover the whole contract."""

from __future__ import annotations

import pytest

from perdure.store.sql.statements import load_statements
from perdure.testing.contract import TOPICS
from proof.statements.mutants import MUTANTS, Backend
from proof.statements.plugin import LOADERS


@pytest.mark.parametrize("backend", MUTANTS)
class TestMutants:
    def test_change_exactly_one_place_of_their_statement(self, backend: Backend) -> None:
        files = _statements(backend)
        statements = {name: text for file in files.values() for name, text in file.items()}
        for mutant in MUTANTS[backend]:
            text = statements[mutant.statement]
            assert mutant.applied(text, {}) != text

    def test_are_at_least_twenty_and_break_every_file(self, backend: Backend) -> None:
        broken = {mutant.statement for mutant in MUTANTS[backend]}
        assert len(MUTANTS[backend]) >= 20
        # Only the verifier uses audit.sql.
        untouched = {file for file, own in _statements(backend).items() if not own.keys() & broken}
        assert untouched == {"audit"}

    def test_have_names_of_their_own_and_hints_that_exist(self, backend: Backend) -> None:
        mutants = MUTANTS[backend]
        assert len({mutant.name(backend) for mutant in mutants}) == len(mutants)
        for mutant in mutants:
            assert mutant.hint in TOPICS


def _statements(backend: Backend) -> dict[str, dict[str, str]]:
    loader = LOADERS[backend]
    return {
        file: dict(load_statements(loader.PACKAGE, f"sql/{file}.sql", {})) for file in loader._FILES
    }
