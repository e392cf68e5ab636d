"""All statements of this backend, read once for each schema they are used in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from perdure.store.sql.statements import load_statements

PACKAGE = "perdure.store.postgres"
_FILES = (
    "audit",
    "claims",
    "commits",
    "effects",
    "housekeeping",
    "inserts",
    "insight",
    "jobs",
    "limits",
    "migrations",
    "operators",
    "reads",
    "runs",
    "schedules",
    "submits",
    "transfer",
    "waits",
)


def place_in_sql(schema: str) -> Mapping[str, str]:
    """What stands for ``{schema}``: quoted, so that any plain name can be a schema."""
    return {"schema": f'"{schema}"'}


@lru_cache(maxsize=64)
def statements_in(schema: str) -> Mapping[str, str]:
    """Every named statement, with the schema filled in."""
    statements: dict[str, str] = {}
    for file in _FILES:
        more = load_statements(PACKAGE, f"sql/{file}.sql", place_in_sql(schema))
        if twice := statements.keys() & more.keys():
            raise ValueError(f"statements named twice: {', '.join(sorted(twice))}")
        statements |= more
    return MappingProxyType(statements)
