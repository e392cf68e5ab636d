"""Which migrations a database still needs, read from numbered files; forward only.

A backend applies the result of ``pending`` in order, in one transaction, under its own lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources

from perdure.diagnostics import declare
from perdure.errors import SchemaMismatch
from perdure.model.value import Value
from perdure.store.sql.statements import fill

NEWER_SCHEMA = declare(
    "store.newer_schema",
    "the tables in {where} are at version {found}; this Perdure knows them up to {known}",
    "Upgrade Perdure here, or use another database",
)
OLDER_SCHEMA = declare(
    "store.older_schema",
    "the tables in {where} are at version {found}; this Perdure needs {known}",
    "Stop all workers, then start one of this version: it upgrades them",
)
WITHOUT_TABLES = declare(
    "store.without_tables", "{where} has no tables of Perdure", "The first worker creates them"
)
FOREIGN_TABLES = declare(
    "store.foreign_tables",
    "{where} has tables of the same names that Perdure did not create",
    "Choose another place in the store URL: ?schema=... on PostgreSQL, ?prefix=... on SQLite",
)

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_INDEX = re.compile(
    r"^(?P<act>CREATE|DROP|ALTER)(?: UNIQUE)? INDEX (?:[^\s;]+\.)?(?P<name>\w+)"
    r"(?: RENAME TO (?P<new_name>\w+))?[^;]*;",
    re.MULTILINE,
)


class Migration(Value):
    """One step: ``0001_jobs.sql`` is version 1, named "jobs"."""

    version: int
    name: str
    text: str


def load_migrations(package: str, place: Mapping[str, str]) -> tuple[Migration, ...]:
    """The migrations of a package, in order, with placeholders such as ``{schema}`` filled in."""
    steps = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            text = fill(file.read_text(encoding="utf-8"), place)
            steps.append(Migration(version=int(match[1]), name=match[2], text=text))
    steps.sort(key=lambda step: step.version)
    if len({step.version for step in steps}) < len(steps):
        raise ValueError(f"two migrations of {package} have the same number")
    return tuple(steps)


def pending(
    known: Sequence[Migration], applied: Sequence[tuple[int, str]], where: str
) -> Sequence[Migration]:
    """The migrations left to apply, given the (version, name) pairs found in the database.

    Raises ``SchemaMismatch`` if the database is ahead of this code, or not ours.
    """
    found = sorted(applied)
    if len(found) > len(known) and _names(known) == dict(found[: len(known)]):
        fault = NEWER_SCHEMA.fault(where=where, found=found[-1][0], known=known[-1].version)
        raise SchemaMismatch(fault)
    if _names(known[: len(found)]) != dict(found):
        raise foreign_tables(where)
    return known[len(found) :]


def require_all(known: Sequence[Migration], left: Sequence[Migration], where: str) -> None:
    """Raise ``SchemaMismatch`` if any migration is left; for callers that must not apply them."""
    if len(left) == len(known):
        raise SchemaMismatch(WITHOUT_TABLES.fault(where=where))
    if left:
        found = known[len(known) - len(left) - 1].version
        fault = OLDER_SCHEMA.fault(where=where, found=found, known=known[-1].version)
        raise SchemaMismatch(fault)


def indexes_made(steps: Sequence[Migration]) -> dict[str, str]:
    """The indexes after all migrations, by name, with the statement that creates each."""
    made: dict[str, str] = {}
    for step in steps:
        for found in _INDEX.finditer(step.text):
            name, new_name = found["name"], found["new_name"]
            before = made.pop(name, "")
            if found["act"] == "CREATE":
                made[name] = " ".join(found[0].split())
            elif new_name:
                made[new_name] = before.replace(f" {name} ", f" {new_name} ", 1)
    return made


def foreign_tables(where: str) -> SchemaMismatch:
    return SchemaMismatch(FOREIGN_TABLES.fault(where=where))


def _names(steps: Sequence[Migration]) -> dict[int, str]:
    return {step.version: step.name for step in steps}
